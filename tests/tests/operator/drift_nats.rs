//! Streams and consumers that a person changed come back, each with one Event; what is a person's own stays.

use lanekeeper_core::{
    consumer::{ConsumerFound, GROUP},
    stream::StreamFound,
};
use lanekeeper_nats::Connection;
use lanekeeper_tests::wait_until;
use serde_json::{Value, json};

use crate::rig::{DEADLINE, Rig};

const SECOND: u64 = 1_000_000_000;

async fn change(connection: &Connection, kind: &str, name: &str, fields: &Value) {
    let info: Value = connection.api(&format!("{kind}.INFO.{name}"), &Value::Null).await.unwrap();
    let mut config = info["config"].clone();
    for (field, value) in fields.as_object().unwrap() {
        if value.is_null() {
            config.as_object_mut().unwrap().remove(field);
        } else if field == "metadata" {
            config["metadata"].as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        } else {
            config[field] = value.clone();
        }
    }
    let answer = if kind == "STREAM" {
        connection.api::<Value>(&format!("STREAM.UPDATE.{name}"), &config).await
    } else {
        let (stream, consumer) = name.split_once('.').unwrap();
        let body = json!({"stream_name": stream, "config": config, "action": "update"});
        connection.api::<Value>(&format!("CONSUMER.CREATE.{stream}.{consumer}"), &body).await
    };
    answer.unwrap_or_else(|error| panic!("a person can set {fields} of {name}: {error}"));
}

/// A consumer without what moves on its own.
fn consumer_state(mut found: ConsumerFound) -> ConsumerFound {
    found.metadata.retain(|key, _| !key.starts_with("_nats."));
    found
}

#[tokio::test]
async fn every_field_of_a_consumer_that_servers_can_change_comes_back() {
    let (rig, operator) = Rig::start("consumer").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let connection = rig.connection().await;
    let name = rig.name("orders").consumer(0, 1);
    let path = format!("ORDERS.{name}");
    let own = json!({"description": "for the auditors", "metadata": {"team": "logistics"}});
    change(&connection, "CONSUMER", &path, &own).await;
    let before = consumer_state(rig.consumers("ORDERS").await.remove(0));
    assert_eq!(before.metadata.get("team").map(String::as_str), Some("logistics"));
    for (field, fields) in [
        ("max_ack_pending", json!({"max_ack_pending": 100})),
        ("max_deliver", json!({"max_deliver": 3})),
        ("ack_wait", json!({"ack_wait": 60 * SECOND})),
        ("filter_subject", json!({"filter_subject": "lanes.ORDERS.0.>"})),
        (
            "filter_subject",
            json!({"filter_subject": null, "filter_subjects": ["lanes.ORDERS.0.0.>", "lanes.ORDERS.1.>"]}),
        ),
        ("backoff", json!({"backoff": [SECOND, 2 * SECOND], "max_deliver": 5})),
        ("inactive_threshold", json!({"inactive_threshold": 3600 * SECOND})),
        ("headers_only", json!({"headers_only": true})),
        ("metadata", json!({"metadata": {"lanekeeper.dev/partition": "9"}})),
    ] {
        change(&connection, "CONSUMER", &path, &fields).await;
        wait_until(DEADLINE, &format!("{fields} to be changed back"), || async {
            let now = consumer_state(rig.consumers("ORDERS").await.remove(0));
            if now == before { Ok(()) } else { Err(format!("it is {now:?}")) }
        })
        .await;
        rig.wait_event("ConsumerRepaired", field).await;
    }
    // A pause is no part of the configuration that updates change.
    let until = json!({"pause_until": "2099-01-01T00:00:00Z"});
    connection.api::<Value>(&format!("CONSUMER.PAUSE.{path}"), &until).await.unwrap();
    rig.wait_event("ConsumerRepaired", "pause_until").await;
    wait_until(DEADLINE, "the consumer to be open", || async { !rig.consumers("ORDERS").await[0].paused })
        .await;
    let info: Value = connection.api(&format!("CONSUMER.INFO.{path}"), &Value::Null).await.unwrap();
    assert_eq!(info["config"]["description"], "for the auditors");
    operator.stop().await;
}

#[tokio::test]
async fn a_consumer_that_somebody_deleted_is_succeeded_after_its_position() {
    let (rig, operator) = Rig::start("successor").await;
    let connection = rig.connection().await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let client = rig.nats.client().await;
    let context = async_nats::jetstream::new(client.clone());
    for number in 0..5 {
        context.publish("orders.a", number.to_string().into()).await.unwrap().await.unwrap();
    }
    // A worker would do this: take and settle three of them.
    let first = rig.name("orders").consumer(0, 1);
    let mut pin = String::new();
    for _ in 0..3 {
        let pull = json!({"batch": 1, "expires": 5_000_000_000u64, "group": GROUP, "id": pin});
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.ORDERS.{first}");
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(inbox.clone()).await.unwrap();
        client.publish_with_reply(subject, inbox, pull.to_string().into()).await.unwrap();
        let message = futures::StreamExt::next(&mut answers).await.unwrap();
        pin = message.headers.unwrap().get("Nats-Pin-Id").unwrap().to_string();
        client.request(message.reply.unwrap(), "+ACK".into()).await.unwrap();
    }
    wait_until(DEADLINE, "the position to be recorded", || async {
        rig.record("orders").await.is_some_and(|record| record.lanes[0].checkpoint == 3)
    })
    .await;
    connection.api::<Value>(&format!("CONSUMER.DELETE.ORDERS.{first}"), &Value::Null).await.unwrap();
    rig.wait_event("ConsumerConflict", "partition 0").await;
    let second = rig.name("orders").consumer(0, 2);
    wait_until(DEADLINE, "a successor", || async {
        let found = rig.consumers("ORDERS").await;
        let successor = found.iter().find(|one| one.name == second);
        let right = found.len() == 1 && successor.is_some_and(|one| one.start == Some(4));
        if right { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    rig.wait_lanes("orders").await;
    assert_eq!(rig.assignment("orders", 0).await.unwrap().consumer, second);
    operator.stop().await;
}

fn stream_state(mut found: StreamFound) -> StreamFound {
    found.metadata.retain(|key, _| !key.starts_with("_nats."));
    found
}

#[tokio::test]
async fn every_field_of_a_stream_that_servers_can_change_comes_back() {
    let (rig, operator) = Rig::start("stream").await;
    let mut spec = rig.spec(1);
    spec["stream"]["duplicateWindowSeconds"] = json!(60);
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let connection = rig.connection().await;
    let own = json!({"description": "for the auditors", "metadata": {"team": "logistics"}});
    change(&connection, "STREAM", "ORDERS", &own).await;
    let before = stream_state(rig.stream("ORDERS").await.unwrap());
    for (field, fields) in [
        ("subjects", json!({"subjects": ["orders.*", "more.*"]})),
        ("subject_transform", json!({"subject_transform": null})),
        ("max_age", json!({"max_age": 3600 * SECOND})),
        ("max_bytes", json!({"max_bytes": 1_000_000})),
        ("max_msgs", json!({"max_msgs": 1000})),
        ("max_msgs_per_subject", json!({"max_msgs_per_subject": 10})),
        ("duplicate_window", json!({"duplicate_window": 5 * SECOND})),
        ("metadata", json!({"metadata": {"lanekeeper.dev/owner-uid": "somebody"}})),
    ] {
        change(&connection, "STREAM", "ORDERS", &fields).await;
        wait_until(DEADLINE, &format!("{fields} to be changed back"), || async {
            let now = stream_state(rig.stream("ORDERS").await.unwrap());
            if now == before { Ok(()) } else { Err(format!("it is {now:?}")) }
        })
        .await;
        let reason = if field == "metadata" { "StreamAdopted" } else { "StreamRepaired" };
        rig.wait_event(reason, if field == "metadata" { "" } else { field }).await;
    }
    let info: Value = connection.api("STREAM.INFO.ORDERS", &Value::Null).await.unwrap();
    assert_eq!(info["config"]["description"], "for the auditors");
    assert_eq!(rig.stream("ORDERS").await.unwrap().created, before.created);
    operator.stop().await;
}

#[tokio::test]
async fn a_stream_that_somebody_deleted_is_made_again_and_its_lanes_begin_anew() {
    let (rig, operator) = Rig::start("recreated").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let before = rig.stream("ORDERS").await.unwrap().created;
    let connection = rig.connection().await;
    connection.api::<Value>("STREAM.DELETE.ORDERS", &Value::Null).await.unwrap();
    rig.wait_event("StreamRecreated", "ORDERS").await;
    rig.wait_event("StreamReplaced", "positions start anew").await;
    wait_until(DEADLINE, "lanes of the new stream", || async {
        let record = rig.record("orders").await.ok_or("there is no record")?;
        let right = record.stream_created != before && record.stream_incarnation == 2;
        let open = rig.open_partitions("orders").await == [0, 1] && rig.consumers("ORDERS").await.len() == 2;
        if right && open { Ok(()) } else { Err(format!("{record:?}")) }
    })
    .await;
    operator.stop().await;
}
