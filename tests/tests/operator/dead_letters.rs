//! The stream of dead letters: made, repaired, refused; and what workers say about messages without attempts left.

use lanekeeper_core::record::ExhaustedPolicy;
use serde_json::{Value, json};

use crate::rig::{Rig, wait_equal};

fn stream_of(rig: &Rig) -> String {
    rig.name("orders").dead_letter_stream()
}

async fn config(rig: &Rig, stream: &str) -> Option<Value> {
    let info = rig.connection().await.api::<Value>(&format!("STREAM.INFO.{stream}"), &Value::Null).await;
    info.ok().map(|info| info["config"].clone())
}

#[tokio::test]
async fn the_operator_makes_and_repairs_a_stream_that_takes_the_dead_letters() {
    let (rig, operator) = Rig::start("dead-letters").await;
    let mut spec = rig.spec(1);
    spec["onExhausted"] = json!({"policy": "DeadLetter"});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let (stream, subject) = (stream_of(&rig), rig.name("orders").dead_letter_subject());
    let made = config(&rig, &stream).await.unwrap();
    assert_eq!(made["subjects"], json!([subject]));
    assert_eq!((&made["storage"], &made["retention"]), (&json!("memory"), &json!("limits")));
    assert_eq!((&made["num_replicas"], &made["deny_delete"]), (&json!(1), &json!(false)));
    let settings = rig.assignment("orders", 0).await.unwrap().settings;
    let ExhaustedPolicy::DeadLetter { stream: told, subject: under, breaker } = settings.on_exhausted else {
        panic!("workers are told of it");
    };
    assert_eq!((told, under), (stream.clone(), subject.clone()));
    assert_eq!((breaker.max_exhausted, breaker.window_seconds), (10, 600));
    rig.wait_event("StreamCreated", &stream).await;
    rig.wait_condition("orders", "Degraded", "False/AsSpecified").await;
    // Somebody changes it: what is ours comes back, and a limit stays.
    let mut changed = made.clone();
    changed["subjects"] = json!(["other"]);
    changed["max_msgs"] = json!(1_000);
    rig.connection().await.api::<Value>(&format!("STREAM.UPDATE.{stream}"), &changed).await.unwrap();
    rig.wait_event("StreamRepaired", "subjects is other").await;
    let repaired = config(&rig, &stream).await.unwrap();
    assert_eq!((&repaired["subjects"], &repaired["max_msgs"]), (&json!([subject]), &json!(1_000)));
    // Somebody deletes it.
    rig.connection().await.api::<Value>(&format!("STREAM.DELETE.{stream}"), &Value::Null).await.unwrap();
    wait_equal("the stream to be there again", true, || async { config(&rig, &stream).await.is_some() })
        .await;
    // It outlives the set.
    rig.delete("orders").await;
    rig.wait_gone("orders").await;
    assert!(config(&rig, &stream).await.is_some());
    operator.stop().await;
}

#[tokio::test]
async fn a_named_stream_is_a_persons_to_make_and_a_strangers_is_not_taken() {
    let (rig, operator) = Rig::start("named").await;
    let mut spec = rig.spec(1);
    spec["onExhausted"] = json!({"policy": "DeadLetter", "deadLetter": {"streamName": "DEAD"}});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let message = rig.wait_condition("orders", "Degraded", "True/DeadLettersUnavailable").await;
    assert!(message.contains("stream DEAD, which spec.onExhausted.deadLetter.streamName names"), "{message}");
    let connection = rig.connection().await;
    let mut body = json!({"name": "DEAD", "subjects": ["dead"], "storage": "memory"});
    connection.api::<Value>("STREAM.CREATE.DEAD", &body).await.unwrap();
    let subject = rig.name("orders").dead_letter_subject();
    wait_equal("the subject to be missed", true, || async {
        let message = rig.wait_condition("orders", "Degraded", "True/DeadLettersUnavailable").await;
        message.contains(&format!("does not take subject {subject}"))
    })
    .await;
    body["subjects"] = json!(["dead", "lanekeeper.dlq.>"]);
    connection.api::<Value>("STREAM.UPDATE.DEAD", &body).await.unwrap();
    rig.wait_condition("orders", "Degraded", "False/AsSpecified").await;
    assert!(config(&rig, &stream_of(&rig)).await.is_none(), "none of its own is made");
    // Without the name its subject is that stream's all the same.
    rig.patch("orders", json!({"spec": {"onExhausted": {"deadLetter": null}}})).await;
    let message = rig.wait_condition("orders", "Degraded", "True/DeadLettersUnavailable").await;
    assert!(message.contains("subjects overlap"), "{message}");
    operator.stop().await;
}

#[tokio::test]
async fn why_a_lane_stands_and_what_was_dropped_is_said() {
    let (rig, operator) = Rig::start("dropped").await;
    let mut spec = rig.spec(1);
    spec["onExhausted"] = json!({"policy": "Drop", "breaker": {"maxExhausted": 3}});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    crate::flowing::make_pod(&rig, "orders-0-a", 0).await;
    let bucket = rig.bucket().await;
    let key = rig.name("orders").report_key(0, "orders-0-a");
    let mut report =
        json!({"v": 1, "incarnation": 1, "dropped": {"sequence": 5, "reason": "422: no such pen"}});
    let mut revision = bucket.put_json(&key, &report, None).await.unwrap();
    rig.wait_event("MessageDropped", "partition 0 dropped the message at sequence 5").await;
    for (by, reason) in [("breaker", "BreakerOpen"), ("deadLetter", "DeadLetterNotStored")] {
        report["blocked"] = json!({"sequence": 9, "reason": "words of it", "by": by});
        revision = bucket.put_json(&key, &report, Some(revision)).await.unwrap();
        let message = rig.wait_condition("orders", "Blocked", &format!("True/{reason}")).await;
        assert!(message.contains("sequence 9: words of it"), "{message}");
        let attention = rig.get("orders").await.status.unwrap().attention;
        assert_eq!(attention[0].reason, reason);
    }
    report["skipped"] = json!({"sequence": 7, "reason": "seen before", "by": "ann"});
    bucket.put_json(&key, &report, Some(revision)).await.unwrap();
    rig.wait_event(
        "MessageSkipped",
        "partition 0 skipped the message at sequence 7, as ann ordered: seen before",
    )
    .await;
    assert_eq!(rig.events("MessageDropped").await.len(), 1, "said once");
    operator.stop().await;
}
