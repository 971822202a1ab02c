//! Several sets on one stream, names that look alike, and subjects that belong to others.

use lanekeeper_tests::wait_until;
use serde_json::{Value, json};

use crate::rig::{DEADLINE, Operator, Rig, wait_equal};

#[tokio::test]
async fn two_sets_share_a_stream_each_with_its_own_number_of_partitions() {
    let (rig, operator) = Rig::start("groups").await;
    rig.create("billing", rig.spec(4)).await.unwrap();
    rig.wait_lanes("billing").await;
    let created = rig.stream("ORDERS").await.unwrap();
    rig.create("shipping", rig.spec(3)).await.unwrap();
    rig.wait_lanes("shipping").await;
    assert_eq!(rig.consumers_of("billing", "ORDERS").await.len(), 4);
    assert_eq!(rig.consumers_of("shipping", "ORDERS").await.len(), 3);
    assert_eq!(rig.stream("ORDERS").await.unwrap().metadata, created.metadata, "the first one keeps it");

    // The owner goes, and the other takes care of the stream.
    rig.delete("billing").await;
    rig.wait_gone("billing").await;
    rig.wait_event("StreamAdopted", "ORDERS").await;
    wait_until(DEADLINE, "the stream to name its new owner", || async {
        let stream = rig.stream("ORDERS").await.unwrap();
        stream.metadata["lanekeeper.dev/owner"].ends_with("/shipping")
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn a_shared_stream_that_somebody_deleted_is_made_again_by_its_owner_only() {
    let (rig, operator) = Rig::start("shared").await;
    rig.create("billing", rig.spec(2)).await.unwrap();
    rig.wait_lanes("billing").await;
    rig.create("shipping", rig.spec(3)).await.unwrap();
    rig.wait_lanes("shipping").await;
    let before = rig.stream("ORDERS").await.unwrap().created;
    let connection = rig.connection().await;
    connection.api::<Value>("STREAM.DELETE.ORDERS", &Value::Null).await.unwrap();
    wait_until(DEADLINE, "lanes of both on a new stream", || async {
        let stream = rig.stream("ORDERS").await.ok_or("there is no stream")?;
        let consumers = (
            rig.consumers_of("billing", "ORDERS").await.len(),
            rig.consumers_of("shipping", "ORDERS").await.len(),
        );
        let owner = &stream.metadata["lanekeeper.dev/owner"];
        let right = stream.created != before && consumers == (2, 3) && owner.ends_with("/billing");
        if right { Ok(()) } else { Err(format!("{consumers:?} of {owner}")) }
    })
    .await;
    rig.wait_lanes("billing").await;
    rig.wait_lanes("shipping").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_set_that_asks_for_another_mapping_or_stream_is_told_what_differs_and_changes_nothing() {
    let (rig, operator) = Rig::start("differs").await;
    rig.create("first", rig.spec(2)).await.unwrap();
    rig.wait_lanes("first").await;
    let before = rig.stream("ORDERS").await.unwrap();
    for (name, change, words) in [
        ("tokens", json!({"mapping": {"maxPartitions": 32}}), "max-partitions"),
        ("limits", json!({"stream": {"maxMessages": 5}}), "max_msgs"),
        ("kept", json!({"stream": {"retention": "Interest"}}), "retention"),
    ] {
        let mut spec = rig.spec(2);
        merge(&mut spec, &change);
        rig.create(name, spec).await.unwrap();
        let message = rig.wait_condition(name, "StreamReady", "False/StreamConfigConflict").await;
        assert!(message.contains(words) && message.contains("/first"), "{message}");
    }
    let after = rig.stream("ORDERS").await.unwrap();
    assert_eq!((after.metadata, after.max_messages), (before.metadata, before.max_messages));
    assert_eq!(rig.consumers("ORDERS").await.len(), 2);
    assert_eq!(rig.deployment_names().await, ["first-0", "first-1"]);
    operator.stop().await;
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

#[tokio::test]
async fn a_work_queue_serves_one_set() {
    let (rig, operator) = Rig::start("queue").await;
    let mut spec = rig.spec(2);
    spec["stream"]["retention"] = json!("WorkQueue");
    rig.create("first", spec.clone()).await.unwrap();
    rig.wait_lanes("first").await;
    rig.create("second", spec).await.unwrap();
    let message = rig.wait_condition("second", "StreamReady", "False/WorkQueueTaken").await;
    assert!(message.contains("/first"), "{message}");
    assert_eq!(rig.consumers("ORDERS").await.len(), 2);
    operator.stop().await;
}

#[tokio::test]
async fn a_work_queue_with_a_strangers_consumer_waits_until_that_is_gone() {
    let (rig, operator) = Rig::start("legacy").await;
    let mut spec = rig.spec(1);
    spec["stream"]["retention"] = json!("WorkQueue");
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    // The set goes, somebody else comes, the set comes back.
    rig.patch("orders", json!({"spec": {"deletionPolicy": "Delete"}})).await;
    rig.delete("orders").await;
    rig.wait_gone("orders").await;
    let connection = rig.connection().await;
    let config = json!({"durable_name": "legacy", "name": "legacy", "ack_policy": "explicit", "filter_subject": "lanes.ORDERS.>"});
    let body = json!({"stream_name": "ORDERS", "config": config, "action": "create"});
    connection.api::<Value>("CONSUMER.CREATE.ORDERS.legacy", &body).await.unwrap();
    let mut spec = rig.spec(2);
    spec["stream"]["retention"] = json!("WorkQueue");
    rig.create("orders", spec).await.unwrap();
    let message = rig.wait_condition("orders", "LanesReady", "False/ConsumersOverlap").await;
    assert!(message.contains("error code"), "{message}");
    assert_eq!(rig.consumers("ORDERS").await.len(), 1, "the stranger's stays, none of ours is there");
    connection.api::<Value>("CONSUMER.DELETE.ORDERS.legacy", &Value::Null).await.unwrap();
    rig.wait_lanes("orders").await;
    operator.stop().await;
}

#[tokio::test]
async fn subjects_that_another_stream_takes_are_said_with_its_name_and_heal_when_it_goes() {
    let (rig, operator) = Rig::start("taken").await;
    let connection = rig.connection().await;
    let other = json!({"name": "THEIRS", "subjects": ["orders.eu"], "storage": "memory"});
    connection.api::<Value>("STREAM.CREATE.THEIRS", &other).await.unwrap();
    rig.create("orders", rig.spec(1)).await.unwrap();
    let message = rig.wait_condition("orders", "StreamReady", "False/SubjectsOverlap").await;
    assert!(message.contains("THEIRS") && message.contains("10065"), "{message}");
    assert_eq!(rig.stream("THEIRS").await.unwrap().subjects, ["orders.eu"]);
    connection.api::<Value>("STREAM.DELETE.THEIRS", &Value::Null).await.unwrap();
    rig.wait_lanes("orders").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_stream_that_no_set_made_is_refused_and_stays_as_it_is() {
    let (rig, operator) = Rig::start("foreign").await;
    let connection = rig.connection().await;
    let theirs = json!({"name": "ORDERS", "subjects": ["orders.*"], "storage": "memory"});
    connection.api::<Value>("STREAM.CREATE.ORDERS", &theirs).await.unwrap();
    let before: Value = connection.api("STREAM.INFO.ORDERS", &Value::Null).await.unwrap();
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_condition("orders", "StreamReady", "False/StreamNotOwned").await;
    let after: Value = connection.api("STREAM.INFO.ORDERS", &Value::Null).await.unwrap();
    assert_eq!(after["config"], before["config"]);
    assert_eq!(rig.deployment_names().await, Vec::<String>::new());
    operator.stop().await;
}

#[tokio::test]
async fn names_that_look_alike_stay_apart() {
    let (rig, operator) = Rig::start("alike").await;
    operator.stop().await;
    let dashed = rig.control.namespace(&rig.client, "alike-b").await;
    let operator = Operator::start(rig.control.client().await, &[&rig.namespace, &dashed], |_| {});
    let other = Rig { namespace: dashed, control: rig.control, client: rig.client.clone(), nats: rig.nats };
    let rig = Rig {
        namespace: rig.namespace,
        control: rig.control,
        client: rig.client,
        nats: lanekeeper_tests::NatsServer::start(lanekeeper_tests::LATEST).await,
    };
    // All four on one server and one stream.
    let spec = other.spec(2);
    for (rig, name) in
        [(&other, "orders.v2"), (&other, "orders-v2"), (&rig, "orders.v2"), (&rig, "b-orders.v2")]
    {
        rig.create(name, spec.clone()).await.unwrap();
        rig.wait_lanes(name).await;
    }
    let mut names: Vec<String> = other.consumers("ORDERS").await.into_iter().map(|one| one.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 8, "{names:?}");
    let deployments = ["orders-v2-0", "orders-v2-1", "orders.v2-0", "orders.v2-1"].map(String::from).to_vec();
    wait_equal("four Deployments", deployments, || other.deployment_names()).await;

    // Deleting one touches only its own.
    other.patch("orders.v2", json!({"spec": {"deletionPolicy": "Delete"}})).await;
    other.delete("orders.v2").await;
    other.wait_gone("orders.v2").await;
    assert_eq!(other.consumers("ORDERS").await.len(), 6);
    assert_eq!(other.consumers_of("orders-v2", "ORDERS").await.len(), 2);
    let left = ["orders-v2-0", "orders-v2-1"].map(String::from).to_vec();
    wait_equal("two Deployments", left, || other.deployment_names()).await;
    operator.stop().await;
}
