//! Consumers: names, creating strictly, listing all of them, and overlaps.

use lanekeeper_core::{
    consumer::{ConsumerSpec, takes_lanes_of},
    names::SetName,
    record::Delivery,
    share::{Share, shares},
    stream::{Retention, StreamSpec},
};
use lanekeeper_nats::{Cause, lane::Inspector, observe, provision};
use lanekeeper_tests::{LATEST, NatsServer, NatsTrio, VERSIONS, wait_until};
use serde_json::json;

use crate::common::{DEADLINE, by_hand, connect, consumer_spec, mapping, orders, owner, stream_spec};

const ALL: Share = Share { modulus: 1, residue: 0 };

#[tokio::test]
async fn names_with_dots_and_dashes_are_legal_and_stay_different() {
    let sets = [
        SetName::new("shop", "orders.v2"),
        SetName::new("shop", "orders-v2"),
        SetName::new("a-b", "orders"),
        SetName::new("a", "b-orders"),
        SetName::new("n".repeat(63), "s".repeat(40)),
    ];
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        let mut names = Vec::new();
        for set in &sets {
            let name = set.consumer(1023, u64::MAX);
            let spec = ConsumerSpec { name: name.clone(), ..consumer_spec(&mapping, ALL, 1) };
            let found =
                provision::create_consumer(&connection, "ORDERS", &spec).await.expect("the name is legal");
            assert_eq!(found.name, name, "{version}");
            names.push(name);
        }
        names.sort();
        let listed = observe::consumers(&connection, "ORDERS").await.expect("they can be listed");
        assert_eq!(listed.into_iter().map(|one| one.name).collect::<Vec<_>>(), names, "{version}");
        assert!(
            provision::delete_consumer(&connection, "ORDERS", &names[0]).await.expect("it can be deleted")
        );
        let left = observe::consumers(&connection, "ORDERS").await.expect("they can be listed");
        assert_eq!(left.into_iter().map(|one| one.name).collect::<Vec<_>>(), names[1..], "{version}");
    }
}

#[tokio::test]
async fn creating_the_same_again_is_fine_and_another_is_refused_and_never_changed() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        let spec = consumer_spec(&mapping, ALL, 1);
        for _ in 0..2 {
            provision::create_consumer(&connection, "ORDERS", &spec).await.expect("it is the same");
        }
        let other = ConsumerSpec { ack_wait_milliseconds: 1000, ..spec.clone() };
        let error =
            provision::create_consumer(&connection, "ORDERS", &other).await.expect_err("it is another");
        assert_eq!(error.cause(), Cause::ConsumerConflict, "{version}: {error}");
        let found = observe::consumer(&connection, "ORDERS", &spec.name).await.expect("it can be read");
        assert_eq!(found.expect("it is there").ack_wait_milliseconds, 15_000, "{version}");
    }
}

#[tokio::test]
async fn a_consumer_that_is_missing_is_nothing_to_look_at_fine_to_delete_and_no_repair() {
    let server = NatsServer::start(LATEST).await;
    let connection = connect(&server).await;
    let mapping = orders(&connection).await.mapping;
    let spec = consumer_spec(&mapping, ALL, 1);
    assert_eq!(observe::consumer(&connection, "ORDERS", &spec.name).await.expect("no error"), None);
    assert!(!provision::delete_consumer(&connection, "ORDERS", &spec.name).await.expect("no error"));
    assert!(!provision::delete_consumer(&connection, "NONE", &spec.name).await.expect("no error"));
    let error = provision::repair_consumer(&connection, "ORDERS", &spec).await.expect_err("it is not there");
    assert_eq!(error.cause(), Cause::ConsumerMissing, "{error}");
    let error = provision::create_consumer(&connection, "NONE", &spec).await.expect_err("there is no stream");
    assert_eq!(error.cause(), Cause::StreamMissing, "{error}");
    let error = observe::consumers(&connection, "NONE").await.expect_err("there is no stream");
    assert_eq!(error.cause(), Cause::StreamMissing, "{error}");
}

#[tokio::test]
async fn a_window_is_changed_in_place_on_a_stream_of_every_retention() {
    for version in VERSIONS {
        for retention in [Retention::Limits, Retention::Interest, Retention::WorkQueue] {
            let server = NatsServer::start(version).await;
            let connection = connect(&server).await;
            let spec = StreamSpec { retention, ..stream_spec(mapping("ORDERS", "orders.*", &[1], 4)) };
            provision::create_stream(&connection, &spec, &owner("orders")).await.expect("it can be made");
            let with = |delivery| ConsumerSpec { delivery, ..consumer_spec(&spec.mapping, ALL, 1) };
            let large = with(Delivery::Pipelined { window: 64 });
            let found = provision::create_consumer(&connection, "ORDERS", &large).await;
            assert_eq!(found.expect("it can be made").max_ack_pending, 64, "{version}");
            let small = with(Delivery::Pipelined { window: 8 });
            let changed = provision::repair_consumer(&connection, "ORDERS", &small).await;
            let fields: Vec<_> = changed.expect("it can be changed").iter().map(|one| one.field).collect();
            assert_eq!(fields, ["max_ack_pending"], "{version}");
        }
    }
}

#[tokio::test]
async fn what_a_stream_has_of_a_lane_is_listed_without_what_was_deleted() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        for number in 0..40 {
            let sent = connection.context().publish(format!("orders.{number}"), "".into()).await;
            sent.expect("it can be sent").await.expect("it is stored");
        }
        let inspector = Inspector::new(connection.clone());
        let of = async |share: Share, after, until| {
            let listed = inspector.list("ORDERS", &mapping.filter(share), after, until).await;
            listed.expect("it can be listed")
        };
        let [even, odd] = [0, 1].map(|residue| Share { modulus: 2, residue });
        let mut both = of(even, 0, 40).await;
        both.extend(of(odd, 0, 40).await);
        both.sort_unstable();
        assert_eq!(both, (1..=40).collect::<Vec<u64>>(), "{version}");
        assert_eq!(of(ALL, 10, 12).await, [11, 12], "{version}");
        for sequence in [11, 39, 40] {
            let body = json!({"seq": sequence});
            by_hand(&connection, "STREAM.MSG.DELETE.ORDERS", &body).await.expect("it can be deleted");
        }
        assert_eq!(of(ALL, 10, 12).await, [12], "{version}");
        assert_eq!(of(ALL, 37, 40).await, [38], "{version}");
        assert_eq!(of(ALL, 38, 40).await, [0_u64; 0], "{version}");
    }
}

#[tokio::test]
async fn a_consumer_starts_where_it_was_told_to() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        for number in 0..10 {
            let sent = connection.context().publish(format!("orders.{number}"), "".into()).await;
            sent.expect("it can be sent").await.expect("it is stored");
        }
        let spec = ConsumerSpec { start: Some(8), ..consumer_spec(&mapping, ALL, 1) };
        let found = provision::create_consumer(&connection, "ORDERS", &spec).await.expect("it can be made");
        assert_eq!((found.start, found.pending), (Some(8), 3), "{version}");
    }
}

#[tokio::test]
async fn all_of_three_hundred_consumers_are_listed_with_what_they_take() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let spec = stream_spec(mapping("ORDERS", "orders.*", &[1], 512));
        provision::create_stream(&connection, &spec, &owner("orders")).await.expect("it can be made");
        for share in shares(300) {
            let spec = consumer_spec(&spec.mapping, share, 1);
            provision::create_consumer(&connection, "ORDERS", &spec).await.expect("it can be made");
        }
        for (name, filter) in [("audit", ">"), ("elsewhere", "orders.unmapped")] {
            let config = json!({"durable_name": name, "ack_policy": "explicit", "filter_subject": filter});
            let body = json!({"stream_name": "ORDERS", "config": config});
            by_hand(&connection, &format!("CONSUMER.CREATE.ORDERS.{name}"), &body)
                .await
                .expect("anybody may");
        }
        let found = observe::consumers(&connection, "ORDERS").await.expect("they can be listed");
        assert_eq!(found.len(), 302, "{version}");
        let set = SetName::new("shop", "orders");
        let foreign: Vec<_> = found.iter().filter(|one| set.parse_consumer(&one.name).is_none()).collect();
        let taking: Vec<_> = foreign.iter().filter(|one| takes_lanes_of(&spec.mapping, one)).collect();
        assert_eq!((foreign.len(), taking.len(), taking[0].name.as_str()), (2, 1, "audit"), "{version}");
    }
}

#[tokio::test]
async fn a_work_queue_refuses_an_overlapping_consumer_and_says_so() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let spec = StreamSpec {
            retention: Retention::WorkQueue,
            ..stream_spec(mapping("ORDERS", "orders.*", &[1], 4))
        };
        provision::create_stream(&connection, &spec, &owner("orders")).await.expect("it can be made");
        for share in shares(3) {
            let spec = consumer_spec(&spec.mapping, share, 1);
            provision::create_consumer(&connection, "ORDERS", &spec).await.expect("shares do not overlap");
        }
        let overlapping = consumer_spec(&spec.mapping, Share { modulus: 2, residue: 0 }, 2);
        let error = provision::create_consumer(&connection, "ORDERS", &overlapping).await;
        let error = error.expect_err("it overlaps with two of them");
        assert_eq!(error.cause(), Cause::ConsumersOverlap, "{version}: {error}");
        assert!(error.to_string().contains("10100"), "{version}: {error}");
    }
}

#[tokio::test]
async fn a_list_without_the_consumers_of_a_lost_node_is_an_error_and_no_shorter_list() {
    let mut trio = NatsTrio::start(LATEST).await;
    let connection = connect(&trio.nodes[0]).await;
    let spec = StreamSpec { replicas: 3, ..stream_spec(mapping("ORDERS", "orders.*", &[1], 4)) };
    let owner = owner("orders");
    let make = || provision::create_stream(&connection, &spec, &owner);
    wait_until(DEADLINE, "the stream with three copies", make).await;
    // One copy of each consumer, so that some live on the node that is lost.
    for (number, share) in shares(4).into_iter().cycle().take(12).enumerate() {
        let spec =
            ConsumerSpec { replicas: Some(1), ..consumer_spec(&spec.mapping, share, number as u64 + 1) };
        let make = || provision::create_consumer(&connection, "ORDERS", &spec);
        wait_until(DEADLINE, "a consumer with one copy", make).await;
    }
    let all = observe::consumers(&connection, "ORDERS").await.expect("all nodes are up");
    assert_eq!(all.len(), 12);
    trio.nodes[2].kill();
    let answered = wait_until(DEADLINE, "a leader that answers", || async {
        match observe::consumers(&connection, "ORDERS").await {
            Err(error) if error.cause() == Cause::InsufficientResources => Ok(error.to_string()),
            Ok(list) if list.len() < 12 => {
                panic!("a list of {} consumers was taken for complete", list.len())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(answered.contains("lk_shop_orders_"), "{answered}");
    trio.nodes[2].start_again().await;
    let back =
        || async { observe::consumers(&connection, "ORDERS").await.ok().filter(|list| list.len() == 12) };
    wait_until(DEADLINE, "all consumers to be back", back).await;
}
