//! Counting what a stream holds, without a consumer.

use lanekeeper_core::share::shares;
use lanekeeper_nats::{
    Connection,
    observe::{Stored, stored_after, stored_between},
};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS};
use serde_json::{Value, json};

use crate::common::{connect, orders};

async fn after(connection: &Connection, filter: &str, sequence: u64) -> u64 {
    let found = stored_after(connection, "ORDERS", filter, sequence).await.expect("the server answers");
    found.expect("streams of ours allow direct reads")
}

async fn between(connection: &Connection, filter: &str, range: (u64, u64)) -> u64 {
    let found = stored_between(connection, "ORDERS", filter, range).await.expect("the server answers");
    let Stored { at_least, at_most } = found.expect("streams of ours allow direct reads");
    assert_eq!(at_least, at_most, "nobody publishes meanwhile");
    at_least
}

#[tokio::test]
async fn what_a_stream_holds_of_a_share_is_counted_exactly_between_any_two_sequences() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        let context = async_nats::jetstream::new(server.client().await);
        for number in 0..60 {
            let stored = context.publish(format!("orders.{}", number % 7), "x".into()).await.unwrap();
            stored.await.unwrap();
        }
        // Holes are no messages.
        for sequence in [1, 20, 21, 60] {
            let deleted: Value =
                connection.api("STREAM.MSG.DELETE.ORDERS", &json!({ "seq": sequence })).await.unwrap();
            assert_eq!(deleted["success"], true, "{version}");
        }
        let hash = |sequence: u64| mapping.key_hash(&format!("orders.{}", (sequence - 1) % 7)).unwrap();
        let present = |sequence: &u64| ![1, 20, 21, 60].contains(sequence);
        for share in shares(4).into_iter().chain(shares(1)) {
            let filter = mapping.filter(share);
            for (from, to) in [(0, 60), (0, 19), (19, 21), (20, 20), (5, 59), (59, 60), (60, 90)] {
                let expected =
                    (from + 1..=to.min(60)).filter(present).filter(|one| share.contains_hash(hash(*one)));
                let expected = expected.count() as u64;
                let found = between(&connection, &filter, (from, to)).await;
                assert_eq!(found, expected, "{version}: {share:?} above {from} up to {to}");
            }
            let expected =
                (31..=60).filter(present).filter(|one| share.contains_hash(hash(*one))).count() as u64;
            assert_eq!(after(&connection, &filter, 30).await, expected, "{version}: {share:?}");
        }
        assert_eq!(after(&connection, "lanes.ORDERS.none.>", 0).await, 0, "{version}");
    }
}

#[tokio::test]
async fn a_stream_that_allows_no_direct_reads_is_told_from_an_empty_one() {
    let server = NatsServer::start(LATEST).await;
    let connection = connect(&server).await;
    let config = json!({"name": "PLAIN", "subjects": ["plain.>"], "storage": "memory"});
    let made: Value = connection.api("STREAM.CREATE.PLAIN", &config).await.unwrap();
    assert_eq!(made["config"]["allow_direct"], false);
    assert_eq!(stored_after(&connection, "PLAIN", ">", 0).await.unwrap(), None);
    assert_eq!(stored_between(&connection, "PLAIN", ">", (0, 9)).await.unwrap(), None);
}

#[tokio::test]
async fn while_messages_come_in_the_bounds_hold_what_there_is() {
    const BEFORE: u64 = 50;
    let server = NatsServer::start(LATEST).await;
    let connection = connect(&server).await;
    orders(&connection).await;
    let context = async_nats::jetstream::new(server.client().await);
    for number in 0..BEFORE {
        context.publish(format!("orders.{number}"), "x".into()).await.unwrap().await.unwrap();
    }
    let publishing = tokio::spawn(async move {
        // Ended by the test.
        loop {
            context.publish("orders.a", "x".into()).await.unwrap().await.unwrap();
        }
    });
    for from in 0..BEFORE {
        let found = stored_between(&connection, "ORDERS", "lanes.ORDERS.>", (from, BEFORE)).await.unwrap();
        let Stored { at_least, at_most } = found.expect("streams of ours allow direct reads");
        let there = BEFORE - from;
        assert!((at_least..=at_most).contains(&there), "{at_least} <= {there} <= {at_most}");
    }
    publishing.abort();
}
