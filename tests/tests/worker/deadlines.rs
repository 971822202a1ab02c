//! Deadlines of the server: P04 and P05.

use serde_json::json;

use lanekeeper_core::lane::State;
use lanekeeper_tests::wait_until;

use crate::{
    DEADLINE,
    journal::{Journal, Script},
    rig::{Rig, Running, ms, seconds},
};

async fn ten_slow_messages(progress: bool) {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 4_000;
    let consumer = rig.open().await;
    rig.publish_many("k", 10).await;
    let journal = Journal::default();
    let builder = if progress { rig.builder(0) } else { rig.builder(0).without_progress() };
    let worker = Running::start(builder, Script::taking(&journal, ms(3_500)));
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), (1..=10).collect::<Vec<_>>());
    assert!(journal.all().iter().all(|handling| handling.attempt == 1), "{:?}", journal.all());
    let info = rig.by_hand(&format!("CONSUMER.INFO.ORDERS.{consumer}"), json!(null)).await;
    assert_eq!(info["delivered"]["consumer_seq"], 10, "each was delivered once");
    worker.stop().await;
}

#[tokio::test]
async fn the_clock_of_a_message_does_not_run_before_it_is_handled() {
    ten_slow_messages(true).await;
}

#[tokio::test]
async fn the_clock_of_a_message_does_not_run_before_it_is_handled_without_progress_acks() {
    ten_slow_messages(false).await;
}

#[tokio::test]
async fn a_backoff_list_that_shortens_the_deadline_is_honoured() {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 30_000;
    let consumer = rig.open().await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, seconds(8)));
    wait_until(DEADLINE, "the lane to serve", || async { worker.status().state == State::Idle }).await;
    // While the worker runs, and it is not told.
    rig.edit_consumer(&consumer, |config| {
        config["backoff"] = json!([1_000_000_000u64, 5_000_000_000u64, 30_000_000_000u64]);
        config["max_deliver"] = 10.into();
    })
    .await;
    rig.publish("k", "x").await;
    rig.wait_settled(&consumer).await;
    let info = rig.by_hand(&format!("CONSUMER.INFO.ORDERS.{consumer}"), json!(null)).await;
    assert_eq!(info["delivered"]["consumer_seq"], 1, "it was delivered once");
    assert_eq!(journal.begun(), [1]);
    worker.stop().await;
}
