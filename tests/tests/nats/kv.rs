//! The bucket: compare-and-set, deletions, loading, rights, and answers that are lost.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use lanekeeper_core::record::{Holder, LaneKey};
use lanekeeper_nats::{Bucket, Cause, ConnectSettings, Connection, Files, KvError};
use lanekeeper_tests::{Direction, Flow, LATEST, NatsServer, NatsTrio, TcpProxy, VERSIONS, wait_until};

use crate::common::{DEADLINE, connect, settings, woken};

async fn bucket(server: &NatsServer) -> Bucket {
    let bucket = Bucket::new(connect(server).await, "lanekeeper");
    assert!(bucket.ensure(1).await.expect("the bucket can be made"));
    bucket
}

#[tokio::test]
async fn of_two_writers_one_loses_and_is_told_so() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let one = bucket(&server).await;
        let two = Bucket::new(connect(&server).await, "lanekeeper");
        let (a, b) = tokio::join!(one.create("set.k", "a".into()), two.create("set.k", "b".into()));
        let revision = match (a, b) {
            (Ok(revision), Err(lost)) | (Err(lost), Ok(revision)) => {
                assert!(lost.is_conflict(), "{lost}");
                revision
            }
            other => panic!("exactly one must win: {other:?}"),
        };
        let won = one.update("set.k", "c".into(), revision).await.expect("it is at this revision");
        let lost = two.update("set.k", "d".into(), revision).await.expect_err("it is not any more");
        assert!(matches!(&lost, KvError::Conflict { expected, .. } if *expected == revision), "{lost}");
        let lost = two.delete("set.k", revision).await.expect_err("deleting is compare-and-set as well");
        assert!(lost.is_conflict(), "{lost}");
        let seen = two.get("set.k").await.expect("it can be read").expect("it is there");
        assert_eq!((seen.revision, seen.value.as_deref()), (won, Some(&b"c"[..])));
    }
}

#[tokio::test]
async fn a_deleted_key_is_absent_and_can_be_created_again_once() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let bucket = bucket(&server).await;
        assert_eq!(bucket.get("set.k").await.expect("nothing is no error"), None);
        let revision = bucket.create("set.k", "a".into()).await.expect("it is free");
        bucket.delete("set.k", revision).await.expect("it is at this revision");
        assert_eq!(bucket.get("set.k").await.expect("a deleted key is no error"), None);
        assert_eq!(bucket.load("set.").await.expect("it can be listed"), []);
        let lost = bucket.update("set.k", "b".into(), revision).await.expect_err("the marker is newer");
        assert!(lost.is_conflict());
        let (one, two) = tokio::join!(bucket.create("set.k", "b".into()), bucket.create("set.k", "c".into()));
        assert!(one.is_ok() != two.is_ok(), "one must win over the marker: {one:?} {two:?}");
    }
}

#[tokio::test]
async fn what_a_key_names_is_loaded_with_it_though_both_were_written_while_others_read() {
    const NAMED: u64 = 300;
    let server = NatsServer::start(LATEST).await;
    let writes = bucket(&server).await;
    let reads = Bucket::new(connect(&server).await, "lanekeeper");
    let writing = tokio::spawn(async move {
        for number in 1..=NAMED {
            writes.put(&format!("set.lane.{number}"), "x".into()).await.unwrap();
            writes.put("set.record", number.to_string().into()).await.unwrap();
        }
    });
    let mut named = 0;
    while named < NAMED {
        let entries = reads.load_named("set.", "set.record").await.expect("it can be listed");
        let record = entries.iter().find(|entry| entry.key == "set.record");
        let Some(record) = record.and_then(|record| record.value.as_deref()) else { continue };
        named = std::str::from_utf8(record).unwrap().parse().unwrap();
        let lanes = entries.iter().filter(|entry| entry.key.starts_with("set.lane.")).count();
        assert!(lanes as u64 >= named, "{named} are named, {lanes} were found");
    }
    writing.await.unwrap();
}

#[tokio::test]
async fn values_are_json_and_one_that_is_not_is_named() {
    let server = NatsServer::start(LATEST).await;
    let bucket = bucket(&server).await;
    let holder = Holder { pod: "orders-0-x".into(), instance: "1".into() };
    let key = LaneKey { holders: vec![holder], ..LaneKey::new() };
    let revision = bucket.put_json("set.a.b.lane.1", &key, None).await.expect("it can be written");
    let read =
        bucket.get_json::<LaneKey>("set.a.b.lane.1").await.expect("it can be read").expect("it is there");
    assert_eq!((read.revision, &read.value), (revision, &key));
    bucket.put("set.a.b.lane.2", "{\"v\":1}".into()).await.expect("it can be written");
    let error = bucket.get_json::<LaneKey>("set.a.b.lane.2").await.expect_err("a field is missing");
    assert_eq!(error.cause(), Cause::RecordUnreadable);
    assert!(
        error.to_string().contains("set.a.b.lane.2") && error.to_string().contains("retiring"),
        "{error}"
    );
}

#[tokio::test]
async fn all_keys_of_a_set_with_a_thousand_partitions_are_loaded_and_no_others() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let bucket = bucket(&server).await;
        let mut wanted = BTreeMap::new();
        for partition in 0..1024 {
            for kind in ["assignment", "lane"] {
                let key = format!("set.shop.orders.{kind}.{partition}");
                // Longer than one network buffer now and then.
                let value = Bytes::from(vec![b'x'; if partition % 100 == 0 { 20_000 } else { 300 }]);
                wanted.insert(key.clone(), value.clone());
                // Without waiting for each answer, because it is only a preparation.
                let context = bucket.connection().context();
                drop(context.publish(bucket.subject(&key), value).await.expect("it can be sent"));
            }
        }
        bucket.put("set.shop.orders2.record", "other".into()).await.expect("it can be written");
        bucket.put("set.shop.orders.record", "ours".into()).await.expect("it can be written");
        wanted.insert("set.shop.orders.record".into(), "ours".into());
        let loaded = bucket.load("set.shop.orders.").await.expect("it can be loaded");
        assert_eq!(loaded.len(), wanted.len(), "{version}");
        for entry in loaded {
            assert_eq!(entry.value.as_ref(), wanted.get(&entry.key), "{}", entry.key);
        }
    }
}

#[tokio::test]
async fn a_write_just_answered_is_in_the_next_load_also_from_a_copy_that_is_behind() {
    let trio = NatsTrio::start(LATEST).await;
    for node in &trio.nodes {
        // A server prefers to answer direct reads itself, and two of the three are not the leader.
        let bucket = Bucket::new(connect(node).await, "lanekeeper");
        wait_until(DEADLINE, "the bucket with three copies", || bucket.ensure(3)).await;
        let key = format!("set.a.{}.record", node.address().port());
        let mut revision = bucket.create(&key, "0".into()).await.expect("it is free");
        for round in 1..200 {
            // Writes of others, which copies apply a little after the leader has answered for them.
            for _ in 0..50 {
                let noise = Bytes::from(vec![b'x'; 4096]);
                bucket
                    .connection()
                    .client()
                    .publish(bucket.subject("set.noise"), noise)
                    .await
                    .expect("it is sent");
            }
            revision = bucket.update(&key, round.to_string().into(), revision).await.expect("only we write");
            let loaded = bucket.load(key.trim_end_matches("record")).await.expect("it can be loaded");
            assert_eq!(loaded[0].revision, revision, "round {round}");
        }
    }
}

#[tokio::test]
async fn a_bucket_that_is_missing_is_said_to_be_missing() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let bucket = Bucket::new(connect(&server).await, "lanekeeper");
        for error in [
            bucket.get("set.k").await.expect_err("there is no bucket"),
            bucket.create("set.k", "x".into()).await.expect_err("there is no bucket"),
            bucket.load("set.").await.expect_err("there is no bucket"),
        ] {
            assert!(matches!(error, KvError::BucketMissing { .. }), "{error}");
        }
    }
}

#[tokio::test]
async fn a_bucket_that_may_lose_records_is_refused_and_one_without_direct_reads_repaired() {
    let server = NatsServer::start(LATEST).await;
    let connection = connect(&server).await;
    let make = async |config: serde_json::Value| {
        let name = config["name"].as_str().expect("it is named").to_owned();
        let operation = format!("STREAM.CREATE.{name}");
        connection.api::<serde_json::Value>(&operation, &config).await.expect("it can be made");
    };
    make(serde_json::json!({"name": "KV_old", "subjects": ["$KV.old.>"], "max_age": 3_600_000_000_000_i64}))
        .await;
    let error = Bucket::new(connection.clone(), "old").ensure(1).await.expect_err("its records would expire");
    assert!(error.to_string().contains("max_age"), "{error}");
    make(serde_json::json!({"name": "KV_slow", "subjects": ["$KV.slow.>"], "max_msgs_per_subject": 1, "allow_direct": false})).await;
    let slow = Bucket::new(connection.clone(), "slow");
    let error = slow.get("x").await.expect_err("direct reads are off");
    assert!(error.to_string().contains("allow_direct"), "{error}");
    assert!(slow.ensure(1).await.expect("it can be repaired"), "something was written");
    assert!(!slow.ensure(1).await.expect("it is as it must be"), "nothing was written");
    assert_eq!(slow.get("x").await.expect("direct reads are on"), None);
}

const ACCOUNTS: &str = r#"
    accounts { A { jetstream: enabled, users: [
        { user: operator, password: o }
        { user: worker, password: w, permissions {
            publish: [
                "$JS.API.STREAM.INFO.KV_lanekeeper"
                "$JS.API.DIRECT.GET.KV_lanekeeper.$KV.lanekeeper.set.shop.orders.>"
                "$KV.lanekeeper.set.shop.orders.lane.>"
                "$KV.lanekeeper.set.shop.orders.report.>"
            ]
            subscribe: ["_INBOX.>", "$KV.lanekeeper.set.shop.orders.>"]
        } }
    ] } }"#;

fn as_user(server: &NatsServer, user: &str) -> ConnectSettings {
    let files = [("user", user), ("password", &user[..1])];
    let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    ConnectSettings { credentials: Files::Memory(files.into()), ..settings(server) }
}

#[tokio::test]
async fn a_worker_has_exactly_the_rights_of_the_contract_and_denials_are_said_at_once() {
    for version in VERSIONS {
        let server = NatsServer::builder(version).config(ACCOUNTS).start().await;
        let operator = Connection::connect(as_user(&server, "operator")).await.expect("it may connect");
        let operator = Bucket::new(operator, "lanekeeper");
        operator.ensure(1).await.expect("the operator may");
        operator.put("set.shop.orders.assignment.0", "a".into()).await.expect("the operator may");
        // Long, so that a denial that is only a time-out would be seen.
        let slow = ConnectSettings { request_timeout: DEADLINE, ..as_user(&server, "worker") };
        let worker = Bucket::new(Connection::connect(slow).await.expect("it may connect"), "lanekeeper");
        let mut wakeups = worker.wakeups("set.shop.orders.>").await.expect("it may subscribe");
        worker.connection().client().flush().await.expect("it is sent");

        assert!(worker.get("set.shop.orders.assignment.0").await.expect("its own set").is_some());
        assert_eq!(worker.get("set.shop.orders.lane.1").await.expect("its own set"), None);
        let revision = worker.create("set.shop.orders.lane.1", "x".into()).await.expect("joining");
        worker.update("set.shop.orders.lane.1", "y".into(), revision).await.expect("leaving");
        worker.put("set.shop.orders.report.0.pod", "r".into()).await.expect("reporting");
        assert_eq!(woken(&mut wakeups).await, "set.shop.orders.lane.1");

        for (denied, subject) in [
            (worker.put("set.shop.orders.record", "x".into()).await, "$KV.lanekeeper.set.shop.orders.record"),
            (
                worker.put("set.shop.billing.lane.1", "x".into()).await,
                "$KV.lanekeeper.set.shop.billing.lane.1",
            ),
            (
                worker.get("set.shop.billing.record").await.map(|_| 0),
                "$KV.lanekeeper.set.shop.billing.record",
            ),
            (worker.load("set.shop.orders.").await.map(|_| 0), "DIRECT.GET.KV_lanekeeper\""),
        ] {
            let error = denied.expect_err("it is not the worker's to do");
            assert!(matches!(error, KvError::Forbidden { .. }), "{version}: {error}");
            assert_eq!(error.reason(), "KvForbidden");
            assert!(error.to_string().contains(subject), "{version}: {error}");
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_an_unknown_outcome_and_no_conflict() {
    let server = NatsServer::start(LATEST).await;
    bucket(&server).await;
    let proxy = TcpProxy::start(server.address()).await;
    let through = ConnectSettings {
        request_timeout: Duration::from_millis(300),
        ..ConnectSettings::new([proxy.url()], "tests")
    };
    let far = Bucket::new(Connection::connect(through).await.expect("the proxy forwards"), "lanekeeper");
    let near = Bucket::new(connect(&server).await, "lanekeeper");
    let revision = far.create("set.k", "a".into()).await.expect("the proxy forwards");
    proxy.set(Direction::ToClient, Flow::Hold);
    let error = far.update("set.k", "b".into(), revision).await.expect_err("the answer is held back");
    assert!(matches!(error, KvError::Unknown { .. }), "{error}");
    assert_eq!(error.cause(), Cause::OutcomeUnknown);
    // It was carried out, which only a look can tell.
    let seen = wait_until(DEADLINE, "the write to be there", || async {
        near.get("set.k").await.ok().flatten().filter(|entry| entry.revision > revision)
    })
    .await;
    assert_eq!(seen.value.as_deref(), Some(&b"b"[..]));
    proxy.restore();
    let error = far.update("set.k", "b".into(), revision).await.expect_err("it is newer");
    assert!(error.is_conflict(), "{error}");
}

#[tokio::test]
async fn nothing_is_sent_while_there_is_no_connection() {
    let mut server = NatsServer::start(LATEST).await;
    let settings = ConnectSettings { request_timeout: Duration::from_millis(300), ..settings(&server) };
    let bucket = Bucket::new(Connection::connect(settings).await.expect("it connects"), "lanekeeper");
    bucket.ensure(1).await.expect("the bucket can be made");
    let revision = bucket.create("set.k", "a".into()).await.expect("it is free");
    server.kill();
    wait_until(DEADLINE, "the loss to be noticed", || async { !bucket.connection().health().connected })
        .await;
    let error = bucket.update("set.k", "b".into(), revision).await.expect_err("there is no server");
    assert_eq!(error.cause(), Cause::NatsUnreachable, "{error}");
    server.start_again().await;
    // The refused write did not arrive late.
    let entry =
        wait_until(DEADLINE, "the bucket to be back", || bucket.get("set.k")).await.expect("it is kept");
    assert_eq!((entry.revision, entry.value.as_deref()), (revision, Some(&b"a"[..])));
}
