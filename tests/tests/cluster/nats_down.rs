//! Deleting a set while its NATS is away (P40), through the deployed operator.

use std::time::Duration;

use lanekeeper_tests::{flights::data::numbered, kubectl::condition, wait_until};
use serde_json::json;

use crate::{PODS, full_length, machine::beside_others, story::Story};

/// The operator's slowest retry, and what it then has to do.
const BACK: Duration = Duration::from_secs(180);
/// How long NATS stays away at full length.
const AWAY: Duration = Duration::from_secs(180);

#[tokio::test]
async fn a_deletion_that_needs_nats_stops_the_workers_says_what_it_waits_for_and_ends_when_nats_returns() {
    let _shared = beside_others().await;
    let mut story = Story::begin("nats-down", 2).await;
    story.put("/spec/deletionPolicy", json!("Delete")).apply_and_wait().await;
    story.publish(numbered(10, 5)).await;
    story.wait_for_all_in_order().await;
    story.nats(0).await;

    story.run(&["delete", "ops", "flights", "--wait=false"]);
    wait_until(PODS, "the workers to be stopped", || async {
        let left = story.workers().await.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
    })
    .await;
    let message = story.wait_for_condition("Ready", "False", "WaitingForNats").await;
    assert!(message.contains("Retain"), "it says what lets the set go: {message}");

    // Nobody else waits for it.
    let other = Story::begin("nats-down-other", 1).await;
    other.apply_and_wait().await;
    if full_length() {
        stays_for(&story, AWAY).await;
    }

    story.nats(1).await;
    story.wait_until_gone(&story.path(), BACK).await;
    assert_eq!(story.consumer_names().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_deletion_without_nats_is_let_go_by_the_policy_retain() {
    let _shared = beside_others().await;
    let mut story = Story::begin("nats-gone", 2).await;
    story.put("/spec/deletionPolicy", json!("Delete")).apply_and_wait().await;
    let consumers = story.consumer_names().await;
    story.nats(0).await;
    story.run(&["delete", "ops", "flights", "--wait=false"]);
    story.wait_for_condition("Ready", "False", "WaitingForNats").await;

    story.run(&["patch", "ops", "flights", "--type=merge", "-p", r#"{"spec":{"deletionPolicy":"Retain"}}"#]);
    story.wait_until_gone(&story.path(), PODS).await;
    story.nats(1).await;
    assert_eq!(story.consumer_names().await, consumers, "what Retain leaves behind is still there");
}

/// The set is still there, with the same condition, for a while: it neither vanishes nor is forgotten.
async fn stays_for(story: &Story, time: Duration) {
    let end = tokio::time::Instant::now() + time;
    let mut looks = tokio::time::interval(Duration::from_secs(5));
    while tokio::time::Instant::now() < end {
        looks.tick().await;
        let set = story.resource().await.expect("the set waits for NATS");
        assert_eq!(condition(&set, "Ready").1, "WaitingForNats");
    }
}
