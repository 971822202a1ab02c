//! Deleting a set: its pods go, its positions stay or go as its policy says, and its stream always stays.

use futures::TryStreamExt;
use lanekeeper_core::names::DEFAULT_BUCKET;
use lanekeeper_tests::flights::{
    STREAM,
    data::{numbered, numbered_from},
};
use serde_json::json;

use crate::{PODS, machine::beside_others, story::Story};

#[tokio::test]
async fn a_retained_set_that_is_created_again_goes_on_where_it_was() {
    let _shared = beside_others().await;
    let mut story = Story::begin("retain", 2).await;
    story.apply_and_wait().await;
    story.publish(numbered(10, 10)).await;
    story.wait_for_all_in_order().await;
    let before = story.consumer_names().await;

    story.run(&["delete", "ops", "flights", "--timeout=60s"]);
    wait_until_no_pods(&story).await;
    assert_eq!(story.consumer_names().await, before, "the positions stay");
    story.publish(numbered_from(10, 11, 20)).await;
    assert_eq!(story.handled(), 100, "nobody handles anything now");

    story.apply_and_wait().await;
    let report = story.wait_for_all_in_order().await;
    assert_eq!((report.handled, report.repeats), (200, 0), "it went on, not from the start");
}

#[tokio::test]
async fn a_set_with_the_policy_delete_takes_its_consumers_and_records_along_and_leaves_the_stream() {
    let _shared = beside_others().await;
    let mut story = Story::begin("delete", 2).await;
    story.put("/spec/deletionPolicy", json!("Delete")).apply_and_wait().await;
    story.publish(numbered(10, 5)).await;
    story.wait_for_all_in_order().await;

    story.run(&["delete", "ops", "flights", "--timeout=60s"]);
    wait_until_no_pods(&story).await;
    assert_eq!(story.consumer_names().await, Vec::<String>::new());
    assert_eq!(keys(&story).await, Vec::<String>::new());
    let stream = story.jetstream.get_stream(STREAM).await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 50, "no policy deletes messages");
}

async fn wait_until_no_pods(story: &Story) {
    lanekeeper_tests::wait_until(PODS, "the workers to be gone", || async {
        let left = story.workers().await.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
    })
    .await;
}

async fn keys(story: &Story) -> Vec<String> {
    let bucket = story.jetstream.get_key_value(DEFAULT_BUCKET).await.unwrap();
    let all: Vec<String> = bucket.keys().await.unwrap().try_collect().await.unwrap();
    let prefix = story.set_name().key_prefix();
    all.into_iter().filter(|key| key.starts_with(&prefix)).collect()
}
