//! A leaf node: `JetStream` of the hub, reached through a server that has its own.

use std::net::TcpListener;

use lanekeeper_core::share::Share;
use lanekeeper_nats::{Bucket, Cause, ConnectSettings, Connection, observe, provision};
use lanekeeper_tests::{NatsServer, VERSIONS, wait_until};

use crate::common::{DEADLINE, consumer_spec, orders, settings, woken};

#[tokio::test]
async fn everything_works_in_the_domain_of_the_hub_and_nothing_is_made_in_the_leafs_own() {
    for version in VERSIONS {
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port is free").port();
        let hub = NatsServer::builder(version)
            .name("hub")
            .jetstream("domain: hub")
            .config(&format!("leafnodes {{ listen: \"127.0.0.1:{port}\" }}"));
        let hub = hub.start().await;
        let leaf = NatsServer::builder(version)
            .name("leaf")
            .jetstream("domain: leaf")
            .config(&format!("leafnodes {{ remotes: [ {{ url: \"nats-leaf://127.0.0.1:{port}\" }} ] }}"));
        let leaf = leaf.start().await;
        let through = ConnectSettings { domain: Some("hub".into()), ..settings(&leaf) };
        let connection = Connection::connect(through).await.expect("the leaf accepts us");
        let facts = wait_until(DEADLINE, "the leaf to reach the hub", || observe::facts(&connection)).await;
        assert_eq!(facts.domain.as_deref(), Some("hub"), "{version}");

        let spec = orders(&connection).await;
        let consumer = consumer_spec(&spec.mapping, Share { modulus: 1, residue: 0 }, 1);
        provision::create_consumer(&connection, "ORDERS", &consumer).await.expect("it can be made");
        assert_eq!(provision::repair_consumer(&connection, "ORDERS", &consumer).await.expect("no error"), []);
        let bucket = Bucket::new(connection.clone(), "lanekeeper");
        bucket.ensure(1).await.expect("it can be made");
        let mut wakeups = bucket.wakeups("set.>").await.expect("it can subscribe");
        let revision = bucket.create("set.a.b.record", "x".into()).await.expect("it is free");
        let revision = bucket.update("set.a.b.record", "y".into(), revision).await.expect("only we write");
        assert!(bucket.create("set.a.b.record", "z".into()).await.expect_err("it is there").is_conflict());
        assert_eq!(bucket.load("set.a.b.").await.expect("it can be read")[0].revision, revision);
        assert_eq!(woken(&mut wakeups).await, "set.a.b.record");

        let own = Connection::connect(settings(&leaf)).await.expect("the leaf accepts us");
        assert_eq!(observe::stream(&own, "ORDERS").await.expect("it can be asked"), None, "{version}");
        let error = Bucket::new(own, "lanekeeper").load("set.").await.expect_err("it is the hub's");
        assert_eq!(error.cause(), Cause::StreamMissing, "{version}: {error}");
        let direct = Connection::connect(settings(&hub)).await.expect("the hub accepts us");
        let far = Bucket::new(direct.clone(), "lanekeeper");
        far.create("set.a.b.lane.1", "x".into()).await.expect("it is free");
        assert!(bucket.get("set.a.b.lane.1").await.expect("it can be read").is_some(), "{version}");
        assert!(observe::stream(&direct, "ORDERS").await.expect("it can be asked").is_some(), "{version}");
    }
}
