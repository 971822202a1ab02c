//! Every field of a lane's consumer that a person can change by hand: found, repaired, clean afterwards.

use lanekeeper_core::{
    consumer::{ConsumerSpec, PIN, drift},
    share::Share,
};
use lanekeeper_nats::{Connection, observe, provision};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS};
use serde_json::{Value, json};

use crate::common::{by_hand, changed, connect, consumer_spec, orders};

const HALF: Share = Share { modulus: 2, residue: 1 };

/// Field, as drift names it, and what a person writes into the configuration (`null` removes a field).
fn rows() -> Vec<(&'static str, Value)> {
    vec![
        ("max_ack_pending", json!({"max_ack_pending": 100})),
        ("max_deliver", json!({"max_deliver": 3})),
        ("ack_wait", json!({"ack_wait": 1_000_000_000_i64})),
        ("backoff", json!({"backoff": [1_000_000_000_i64, 5_000_000_000_i64], "max_deliver": 5})),
        ("filter_subject", json!({"filter_subject": "lanes.ORDERS.0.>"})),
        ("filter_subject", json!({"filter_subject": null})),
        (
            "filter_subject",
            json!({"filter_subject": null, "filter_subjects": ["lanes.ORDERS.1.0.>", "lanes.ORDERS.1.1.>"]}),
        ),
        ("inactive_threshold", json!({"inactive_threshold": 3_600_000_000_000_i64})),
        ("headers_only", json!({"headers_only": true})),
        ("max_batch", json!({"max_batch": 5})),
        ("max_expires", json!({"max_expires": 1_000_000_000_i64})),
        ("max_bytes", json!({"max_bytes": 10})),
        (
            "priority_groups",
            json!({"priority_groups": ["x"], "priority_policy": "overflow", "priority_timeout": null}),
        ),
        ("priority_groups", json!({"priority_groups": ["x"]})),
        ("priority_timeout", json!({"priority_timeout": 1_000_000_000_i64})),
        // As an earlier version made them.
        (
            "priority_policy",
            json!({"priority_groups": null, "priority_policy": null, "priority_timeout": null}),
        ),
        (
            "metadata",
            json!({"metadata": {"lanekeeper.dev/set": "other/set", "lanekeeper.dev/incarnation": "1"}}),
        ),
        ("metadata", json!({"metadata": {}})),
    ]
}

/// Changes fields of a consumer as a person with a tool would.
async fn change(connection: &Connection, name: &str, fields: &Value) -> Result<Value, String> {
    let info = by_hand(connection, &format!("CONSUMER.INFO.ORDERS.{name}"), &Value::Null).await?;
    let config = changed(&info["config"], fields);
    let body = json!({"stream_name": "ORDERS", "config": config, "action": "update"});
    by_hand(connection, &format!("CONSUMER.CREATE.ORDERS.{name}"), &body).await
}

async fn differing(connection: &Connection, spec: &ConsumerSpec) -> Vec<&'static str> {
    let found = observe::consumer(connection, "ORDERS", &spec.name).await.expect("it can be read");
    drift(spec, &found.expect("it is there")).into_iter().map(|one| one.field).collect()
}

#[tokio::test]
async fn each_field_changed_by_hand_is_found_repaired_and_clean() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        for (number, (field, fields)) in rows().into_iter().enumerate() {
            let spec = consumer_spec(&mapping, HALF, number as u64 + 1);
            provision::create_consumer(&connection, "ORDERS", &spec).await.expect("it can be made");
            assert_eq!(differing(&connection, &spec).await, [""; 0], "{version}: new");
            change(&connection, &spec.name, &fields)
                .await
                .unwrap_or_else(|error| panic!("{version}: {fields} must be changeable by hand: {error}"));
            let found = differing(&connection, &spec).await;
            assert!(found.contains(&field), "{version}: {fields} must be found as {field}, is {found:?}");
            let repaired = provision::repair_consumer(&connection, "ORDERS", &spec)
                .await
                .unwrap_or_else(|error| panic!("{version}: {fields} must be repairable: {error}"));
            assert_eq!(
                repaired.iter().map(|one| one.field).collect::<Vec<_>>(),
                found,
                "{version}: {fields}"
            );
            assert_eq!(differing(&connection, &spec).await, [""; 0], "{version}: {fields} must be clean");
            let again =
                provision::repair_consumer(&connection, "ORDERS", &spec).await.expect("nothing to do");
            assert_eq!(again, [], "{version}: {fields}");
        }
    }
}

#[tokio::test]
async fn a_consumer_of_a_leased_lane_that_somebody_pins_is_found_and_pinned_no_more() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        let spec = ConsumerSpec { pinned: false, ..consumer_spec(&mapping, HALF, 1) };
        provision::create_consumer(&connection, "ORDERS", &spec).await.expect("it can be made");
        assert_eq!(differing(&connection, &spec).await, [""; 0], "{version}: new");
        let pinned = json!({
            "priority_groups": ["lane"], "priority_policy": "pinned_client", "priority_timeout": 15_000_000_000_i64,
        });
        change(&connection, &spec.name, &pinned).await.expect("anybody may");
        assert_eq!(differing(&connection, &spec).await, PIN, "{version}");
        provision::repair_consumer(&connection, "ORDERS", &spec).await.expect("it can be repaired");
        assert_eq!(differing(&connection, &spec).await, [""; 0], "{version}");
    }
}

#[tokio::test]
async fn a_pause_is_found_and_ended_and_waiting_messages_come_again() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        let spec = consumer_spec(&mapping, HALF, 1);
        provision::create_consumer(&connection, "ORDERS", &spec).await.expect("it can be made");
        let pause = format!("CONSUMER.PAUSE.ORDERS.{}", spec.name);
        by_hand(&connection, &pause, &json!({"pause_until": "2100-01-01T00:00:00Z"}))
            .await
            .expect("anybody may");
        // A paused consumer with another fault: repairing the fault must not pause it again.
        change(&connection, &spec.name, &json!({"ack_wait": 1_000_000_000_i64})).await.expect("anybody may");
        assert_eq!(differing(&connection, &spec).await, ["ack_wait", "pause_until"], "{version}");
        provision::repair_consumer(&connection, "ORDERS", &spec).await.expect("it can be repaired");
        assert_eq!(differing(&connection, &spec).await, [""; 0], "{version}");
    }
}

#[tokio::test]
async fn several_messages_out_are_stopped_even_when_the_rest_cannot_be_repaired() {
    let server = NatsServer::start(LATEST).await;
    let connection = connect(&server).await;
    let mapping = orders(&connection).await.mapping;
    let spec = consumer_spec(&mapping, HALF, 1);
    provision::create_consumer(&connection, "ORDERS", &spec).await.expect("it can be made");
    change(&connection, &spec.name, &json!({"max_ack_pending": 100, "ack_wait": 1_000_000_000_i64}))
        .await
        .expect("anybody may");
    // Three copies cannot be had on one server, so the whole repair is refused.
    let impossible = ConsumerSpec { replicas: Some(3), ..spec.clone() };
    let error = provision::repair_consumer(&connection, "ORDERS", &impossible).await.expect_err("one server");
    assert!(error.to_string().contains("error code"), "{error}");
    assert_eq!(differing(&connection, &spec).await, ["ack_wait"], "max_ack_pending came first and alone");
}

#[tokio::test]
async fn what_a_person_added_stays_through_a_repair() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        let spec = consumer_spec(&mapping, HALF, 1);
        provision::create_consumer(&connection, "ORDERS", &spec).await.expect("it can be made");
        let mut metadata = json!(spec.metadata);
        metadata["team"] = json!("billing");
        let theirs = json!({"description": "do not touch", "sample_freq": "50", "metadata": metadata});
        change(&connection, &spec.name, &theirs).await.expect("anybody may");
        assert_eq!(differing(&connection, &spec).await, [""; 0], "{version}: theirs is no drift");
        change(&connection, &spec.name, &json!({"max_ack_pending": 7})).await.expect("anybody may");
        provision::repair_consumer(&connection, "ORDERS", &spec).await.expect("it can be repaired");
        let operation = format!("CONSUMER.INFO.ORDERS.{}", spec.name);
        let config =
            by_hand(&connection, &operation, &Value::Null).await.expect("it can be read")["config"].clone();
        assert_eq!(config["description"], "do not touch", "{version}");
        assert_eq!(config["sample_freq"], "50", "{version}");
        assert_eq!(config["metadata"]["team"], "billing", "{version}");
        assert_eq!(config["max_ack_pending"], 1, "{version}");
    }
}

#[tokio::test]
async fn a_consumer_that_cannot_be_made_right_is_left_alone_and_named() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = orders(&connection).await.mapping;
        let spec = consumer_spec(&mapping, HALF, 1);
        for (field, config) in [
            ("ack_policy", json!({"ack_policy": "all"})),
            ("deliver_policy", json!({"ack_policy": "explicit", "deliver_policy": "new"})),
            ("replay_policy", json!({"ack_policy": "explicit", "replay_policy": "original"})),
            ("deliver_subject", json!({"ack_policy": "explicit", "deliver_subject": "push.here"})),
        ] {
            let mut config = config;
            config["durable_name"] = json!(spec.name);
            let body = json!({"stream_name": "ORDERS", "config": config});
            let operation = format!("CONSUMER.CREATE.ORDERS.{}", spec.name);
            by_hand(&connection, &operation, &body).await.expect("anybody may");
            let before = observe::consumer(&connection, "ORDERS", &spec.name).await.expect("it can be read");
            let error =
                provision::repair_consumer(&connection, "ORDERS", &spec).await.expect_err("it cannot be");
            assert_eq!(error.reason(), "ConsumerConflict", "{version}: {error}");
            assert!(error.to_string().contains(&format!("{field} is")), "{version}: {error}");
            let after = observe::consumer(&connection, "ORDERS", &spec.name).await.expect("it can be read");
            assert_eq!(before, after, "{version}: nothing was changed");
            provision::delete_consumer(&connection, "ORDERS", &spec.name).await.expect("it can be deleted");
        }
    }
}
