//! The park stream: made, repaired, kept when the policy changes; and what is said of parked keys.

use lanekeeper_core::record::{ExhaustedPolicy, Park};
use serde_json::{Value, json};

use crate::rig::{Rig, wait_equal};

async fn config(rig: &Rig, stream: &str) -> Option<Value> {
    let info = rig.connection().await.api::<Value>(&format!("STREAM.INFO.{stream}"), &Value::Null).await;
    info.ok().map(|info| info["config"].clone())
}

async fn told(rig: &Rig) -> (ExhaustedPolicy, Option<Park>) {
    let settings = rig.assignment("orders", 0).await.unwrap().settings;
    (settings.on_exhausted, settings.park)
}

#[tokio::test]
async fn the_operator_makes_a_park_without_limits_and_lanes_keep_it_whatever_the_policy_is() {
    let (rig, operator) = Rig::start("parked").await;
    let mut spec = rig.spec(1);
    spec["onExhausted"] = json!({"policy": "ParkKey"});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let name = rig.name("orders");
    let (stream, subject) = (name.park_stream(), format!("{}.>", name.park_prefix()));
    let made = config(&rig, &stream).await.unwrap();
    assert_eq!((&made["subjects"], &made["retention"]), (&json!([subject]), &json!("limits")));
    assert_eq!(
        (&made["discard"], &made["max_msgs"], &made["allow_direct"]),
        (&json!("new"), &json!(-1), &json!(true))
    );
    let park = Park { stream: stream.clone(), prefix: name.park_prefix() };
    let (policy, there) = told(&rig).await;
    assert!(matches!(policy, ExhaustedPolicy::ParkKey { .. }) && there.as_ref() == Some(&park));
    // A limit would discard what locks a key.
    let mut limited = made.clone();
    limited["max_msgs"] = json!(1_000);
    rig.connection().await.api::<Value>(&format!("STREAM.UPDATE.{stream}"), &limited).await.unwrap();
    rig.wait_event("StreamRepaired", "limits is some").await;
    assert_eq!(config(&rig, &stream).await.unwrap()["max_msgs"], json!(-1));

    // Somebody parks.
    let mapping = rig.assignment("orders", 0).await.unwrap().mapping;
    let subject = mapping.subject_under(&park.prefix, "orders.a").unwrap();
    let context = rig.connection().await.context().clone();
    context.publish(subject, "x".into()).await.unwrap().await.unwrap();
    wait_equal("the parked key to be named", true, || async {
        let attention = rig.get("orders").await.status.unwrap().attention;
        attention.iter().any(|one| one.reason == "KeyParked" && one.message.starts_with("key a is parked"))
    })
    .await;
    rig.wait_condition("orders", "Degraded", "False/AsSpecified").await;
    rig.wait_condition("orders", "Blocked", "False/NoneBlocked").await;

    // Another policy parks nothing more, and unlocks nothing.
    rig.patch("orders", json!({"spec": {"onExhausted": {"policy": "Block"}}})).await;
    wait_equal("the policy to change", (ExhaustedPolicy::Block, Some(park.clone())), || told(&rig)).await;
    // Another stream is not taken.
    let elsewhere = json!({"policy": "ParkKey", "park": {"streamName": "PARK"}});
    rig.patch("orders", json!({"spec": {"onExhausted": elsewhere}})).await;
    wait_equal("the other stream to be refused", true, || async {
        let message = rig.wait_condition("orders", "Degraded", "True/ParkUnavailable").await;
        message.contains(&format!("messages stay parked in stream {stream}"))
    })
    .await;
    assert_eq!(told(&rig).await.1, Some(park));

    rig.delete("orders").await;
    rig.wait_gone("orders").await;
    rig.wait_event("ParkedMessagesRemain", "stay in the park stream").await;
    assert!(config(&rig, &stream).await.is_some());
    operator.stop().await;
}

#[tokio::test]
async fn a_newly_parked_key_is_an_event_once() {
    let (rig, operator) = Rig::start("newly-parked").await;
    let mut spec = rig.spec(1);
    spec["onExhausted"] = json!({"policy": "ParkKey"});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    crate::flowing::make_pod(&rig, "orders-0-a", 0).await;
    let bucket = rig.bucket().await;
    let key = rig.name("orders").report_key(0, "orders-0-a");
    let mut report = json!({"v": 1, "incarnation": 1, "parked": {"sequence": 5, "reason": "key a: 422"}});
    let revision = bucket.put_json(&key, &report, None).await.unwrap();
    rig.wait_event(
        "KeyParked",
        "partition 0 parked a key at sequence 5, with every later message of it: key a",
    )
    .await;
    report["blocked"] = json!({"sequence": 9, "reason": "words of it", "by": "park"});
    bucket.put_json(&key, &report, Some(revision)).await.unwrap();
    rig.wait_condition("orders", "Blocked", "True/ParkedNotStored").await;
    assert_eq!(rig.events("KeyParked").await.len(), 1, "said once");
    operator.stop().await;
}
