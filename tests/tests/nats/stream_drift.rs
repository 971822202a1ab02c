//! Every field of a set's stream that a person can change by hand: found, repaired, clean afterwards.

use lanekeeper_core::stream::{Judgement, StreamSpec, drift, judge};
use lanekeeper_nats::{Cause, Connection, observe, provision};
use lanekeeper_tests::{LATEST, NatsServer, NatsTrio, VERSIONS, wait_until};
use serde_json::{Value, json};

use crate::common::{DEADLINE, by_hand, changed, connect, mapping, owner, stream_spec};

fn spec() -> StreamSpec {
    StreamSpec {
        max_age_seconds: Some(3600),
        max_bytes: Some(10_000_000),
        max_messages: Some(1000),
        duplicate_window_seconds: Some(60),
        ..stream_spec(mapping("ORDERS", "orders.*", &[1], 4))
    }
}

/// Field, as drift names it, and what a person writes into the configuration (`null` removes a field).
fn rows() -> Vec<(&'static str, Value)> {
    vec![
        ("subjects", json!({"subjects": ["orders.*", "more.>"]})),
        ("subjects", json!({"subjects": ["orders.eu"]})),
        ("subject_transform", json!({"subject_transform": null})),
        ("subject_transform", json!({"subject_transform": {"src": "orders.*", "dest": "x.{{wildcard(1)}}"}})),
        ("max_age", json!({"max_age": 120_000_000_000_i64})),
        ("max_bytes", json!({"max_bytes": -1})),
        ("max_msgs", json!({"max_msgs": 5})),
        ("max_msgs_per_subject", json!({"max_msgs_per_subject": 1})),
        ("no_ack", json!({"no_ack": true})),
        ("consumer_limits", json!({"consumer_limits": {"inactive_threshold": 60_000_000_000_i64}})),
        ("consumer_limits", json!({"consumer_limits": {"max_ack_pending": 50}})),
        ("duplicate_window", json!({"duplicate_window": 30_000_000_000_i64})),
        ("metadata", json!({"metadata": {}})),
        ("metadata", json!({"metadata": {"lanekeeper.dev/owner": "cluster/shop/orders"}})),
    ]
}

async fn change(connection: &Connection, fields: &Value) -> Result<Value, String> {
    let info = by_hand(connection, "STREAM.INFO.ORDERS", &Value::Null).await?;
    let config = changed(&info["config"], fields);
    by_hand(connection, "STREAM.UPDATE.ORDERS", &json!(config)).await
}

async fn differing(connection: &Connection, spec: &StreamSpec) -> Vec<&'static str> {
    let found = observe::stream(connection, "ORDERS").await.expect("it can be read").expect("it is there");
    let mut fields: Vec<_> = drift(spec, &owner("orders"), &found).into_iter().map(|one| one.field).collect();
    fields.dedup();
    fields
}

#[tokio::test]
async fn each_field_changed_by_hand_is_found_repaired_and_clean() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let spec = spec();
        provision::create_stream(&connection, &spec, &owner("orders")).await.expect("it can be made");
        assert_eq!(differing(&connection, &spec).await, [""; 0], "{version}: new");
        for (field, fields) in rows() {
            change(&connection, &fields)
                .await
                .unwrap_or_else(|error| panic!("{version}: {fields} must be changeable by hand: {error}"));
            assert_eq!(differing(&connection, &spec).await, [field], "{version}: {fields}");
            let repaired = provision::repair_stream(&connection, &spec, &owner("orders"))
                .await
                .unwrap_or_else(|error| panic!("{version}: {fields} must be repairable: {error}"));
            assert!(repaired.iter().all(|one| one.field == field), "{version}: {repaired:?}");
            assert_eq!(differing(&connection, &spec).await, [""; 0], "{version}: {fields} must be clean");
            let again =
                provision::repair_stream(&connection, &spec, &owner("orders")).await.expect("no error");
            assert_eq!(again, [], "{version}: {fields}");
        }
    }
}

#[tokio::test]
async fn copies_are_drift_as_well() {
    let trio = NatsTrio::start(LATEST).await;
    let connection = connect(&trio.nodes[0]).await;
    let owner = owner("orders");
    let spec = StreamSpec { replicas: 3, ..spec() };
    wait_until(DEADLINE, "the stream", || provision::create_stream(&connection, &spec, &owner)).await;
    change(&connection, &json!({"num_replicas": 1})).await.expect("anybody may");
    wait_until(DEADLINE, "the change to be seen", || async {
        differing(&connection, &spec).await == ["num_replicas"]
    })
    .await;
    wait_until(DEADLINE, "the repair", || provision::repair_stream(&connection, &spec, &owner)).await;
    wait_until(DEADLINE, "no drift", || async { differing(&connection, &spec).await.is_empty() }).await;
}

#[tokio::test]
async fn what_a_person_added_stays_through_a_repair() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let spec = spec();
        provision::create_stream(&connection, &spec, &owner("orders")).await.expect("it can be made");
        let info = by_hand(&connection, "STREAM.INFO.ORDERS", &Value::Null).await.expect("it can be read");
        let mut metadata = info["config"]["metadata"].clone();
        metadata["team"] = json!("billing");
        let theirs = json!({"description": "do not touch", "allow_direct": true, "max_msg_size": 5000, "metadata": metadata});
        change(&connection, &theirs).await.expect("anybody may");
        assert_eq!(differing(&connection, &spec).await, [""; 0], "{version}: theirs is no drift");
        change(&connection, &json!({"max_msgs": 7})).await.expect("anybody may");
        provision::repair_stream(&connection, &spec, &owner("orders")).await.expect("it can be repaired");
        let config = by_hand(&connection, "STREAM.INFO.ORDERS", &Value::Null).await.expect("it can be read")
            ["config"]
            .clone();
        assert_eq!(config["description"], "do not touch", "{version}");
        assert_eq!(config["allow_direct"], true, "{version}");
        assert_eq!(config["max_msg_size"], 5000, "{version}");
        assert_eq!(config["metadata"]["team"], "billing", "{version}");
        assert_eq!(config["max_msgs"], 1000, "{version}");
    }
}

#[tokio::test]
async fn what_servers_cannot_change_is_named_and_nothing_is_changed() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        provision::create_stream(&connection, &spec(), &owner("orders")).await.expect("it can be made");
        let before = observe::stream(&connection, "ORDERS").await.expect("it can be read");
        let wanted = [
            ("storage", StreamSpec { storage: lanekeeper_core::stream::Storage::File, ..spec() }),
            ("retention", StreamSpec { retention: lanekeeper_core::stream::Retention::Interest, ..spec() }),
            ("metadata", StreamSpec { mapping: mapping("ORDERS", "orders.*", &[1], 8), ..spec() }),
        ];
        for (field, wanted) in wanted {
            let error = provision::repair_stream(&connection, &wanted, &owner("orders")).await;
            let error = error.expect_err("it cannot be");
            assert_eq!(error.cause(), Cause::StreamConfigConflict, "{version}: {error}");
            assert!(error.to_string().contains(&format!("{field} is")), "{version}: {error}");
            let found = observe::stream(&connection, "ORDERS").await.expect("it can be read");
            assert_eq!(found, before, "{version}: {field}");
        }
        change(&connection, &json!({"sealed": true})).await.expect("anybody may");
        let found =
            observe::stream(&connection, "ORDERS").await.expect("it can be read").expect("it is there");
        let Judgement::Conflict(conflicts) = judge(&spec(), &owner("orders"), &found) else {
            panic!("{version}: a sealed stream takes no messages")
        };
        assert_eq!(conflicts[0].field, "sealed", "{version}");
    }
}
