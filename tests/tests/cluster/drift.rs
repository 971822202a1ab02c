//! Drift by hand and changes that cannot be made (P47), through the deployed operator.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use lanekeeper_tests::{
    flights::{
        STREAM,
        data::{numbered, numbered_from},
    },
    kubectl::condition,
    wait_until,
};

use crate::{
    machine::{RESYNC_SECONDS, beside_others},
    story::Story,
};

/// A resync, and time to act.
const REPAIRED: Duration = Duration::from_secs(RESYNC_SECONDS * 6);

#[tokio::test]
async fn what_somebody_changes_on_a_consumer_is_changed_back_with_an_event_and_what_they_add_stays() {
    let _shared = beside_others().await;
    let mut story = Story::begin("drift", 1).await;
    story.apply_and_wait().await;
    let wanted = story.consumers().await.remove(0);
    let mut changed = pull_config(&wanted.config);
    changed.max_ack_pending = 100;
    changed.ack_wait = Duration::from_secs(77);
    changed.filter_subject = format!("lanes.{STREAM}.>");
    changed.description = Some("mine".into());
    changed.metadata.insert("team".into(), "payments".into());
    let stream = story.jetstream.get_stream(STREAM).await.unwrap();
    stream.update_consumer(changed).await.unwrap();

    let repaired = wait_until(REPAIRED, "the consumer to be changed back", || async {
        let now = story.consumers().await.remove(0).config;
        let right = now.max_ack_pending == 1
            && now.ack_wait == wanted.config.ack_wait
            && now.filter_subject == wanted.config.filter_subject;
        if right {
            Ok(now)
        } else {
            Err(format!(
                "{} in flight, ack wait {:?}, filter {}",
                now.max_ack_pending, now.ack_wait, now.filter_subject
            ))
        }
    })
    .await;
    assert_eq!(repaired.metadata.get("team").map(String::as_str), Some("payments"), "foreign metadata stays");
    let events = wait_for_event(&story, "ConsumerRepaired").await;
    assert!(
        events.contains("max_ack_pending") || events.contains("maxAckPending"),
        "the event names it: {events}"
    );

    story.publish(numbered(5, 10)).await;
    let report = story.wait_for_all_in_order().await;
    assert_eq!(report.handled, 50);
}

#[tokio::test]
async fn a_consumer_replaced_by_one_that_acknowledges_all_at_once_is_never_worked_from() {
    let _shared = beside_others().await;
    let mut story = Story::begin("ack-all", 1).await;
    story.apply_and_wait().await;
    story.publish(numbered(5, 10)).await;
    story.wait_for_all_in_order().await;
    let old = story.consumers().await.remove(0);
    let stream = story.jetstream.get_stream(STREAM).await.unwrap();
    stream.delete_consumer(&old.name).await.unwrap();
    let mut wrong = pull_config(&old.config);
    wrong.ack_policy = AckPolicy::All;
    // Behind everything that was handled: what an impostor delivers again is not what this is about.
    wrong.deliver_policy = DeliverPolicy::New;
    stream.create_consumer(wrong).await.unwrap();

    // Either a successor goes on from the last known floor, or the set says what is wrong; nothing is repeated.
    wait_until(REPAIRED, "a good lane, or a condition that names the consumer", || async {
        let consumers = story.consumers().await;
        let good = |one: &async_nats::jetstream::consumer::Info| one.config.ack_policy == AckPolicy::Explicit;
        if consumers.len() == 1 && good(&consumers[0]) {
            return Ok(());
        }
        let said = said_conflict(&story, &old.name).await;
        if said { Ok(()) } else { Err(format!("{} consumers, no condition", consumers.len())) }
    })
    .await;
    story.publish(numbered_from(5, 11, 20)).await;
    if said_conflict(&story, &old.name).await {
        // The lane stands until a person deletes what is in the way, and then goes on.
        let _ = stream.delete_consumer(&old.name).await;
    }
    assert_eq!(story.wait_for_all_in_order().await.repeats, 0);
}

#[tokio::test]
async fn a_field_that_cannot_change_is_refused_by_name_and_the_running_set_is_left_as_it_was() {
    let _shared = beside_others().await;
    let story = Story::begin("immutable", 1).await;
    story.apply_and_wait().await;
    let before = (story.resource().await, story.consumer_names().await);
    for (field, patch) in [
        ("spec.stream.name", r#"{"spec":{"stream":{"name":"OTHER"}}}"#),
        ("spec.stream.storage", r#"{"spec":{"stream":{"storage":"Memory"}}}"#),
        ("spec.stream.retention", r#"{"spec":{"stream":{"retention":"WorkQueue"}}}"#),
        ("spec.mapping", r#"{"spec":{"mapping":{"maxPartitions":512}}}"#),
        ("spec.consumer.start", r#"{"spec":{"consumer":{"start":"New"}}}"#),
    ] {
        let arguments = ["-n", &story.namespace, "patch", "ops", "flights", "--type=merge", "-p", patch];
        let refused = story.kubectl.run(&arguments).expect_err(field).to_string();
        assert!(refused.contains(field), "{field}: {refused}");
    }
    let after = (story.resource().await, story.consumer_names().await);
    assert_eq!(before, after);
}

async fn said_conflict(story: &Story, consumer: &str) -> bool {
    let set = story.resource().await.unwrap_or_default();
    let (status, reason, message) = condition(&set, "LanesReady");
    status == "False" && reason == "ConsumerConflict" && message.contains(consumer)
}

fn pull_config(config: &async_nats::jetstream::consumer::Config) -> pull::Config {
    use async_nats::jetstream::consumer::FromConsumer;
    pull::Config::try_from_consumer_config(config.clone()).unwrap()
}

/// Waits for an event of the set with a reason; its message.
async fn wait_for_event(story: &Story, reason: &str) -> String {
    let paths = [
        format!("/apis/events.k8s.io/v1/namespaces/{}/events", story.namespace),
        format!("/api/v1/namespaces/{}/events", story.namespace),
    ];
    wait_until(REPAIRED, &format!("an event {reason}"), || async {
        let mut reasons = Vec::new();
        for path in &paths {
            for event in story.kubectl.list(path).await.map_err(|error| error.to_string())? {
                if event["reason"] == reason {
                    return Ok(format!("{}{}", event["note"], event["message"]));
                }
                reasons.push(event["reason"].clone());
            }
        }
        Err(format!("there are {reasons:?}"))
    })
    .await
}
