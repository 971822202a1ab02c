//! Ending while messages wait: P12.

use lanekeeper_tests::wait_until;
use serde_json::json;

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, Running, ms, seconds},
};

async fn five_messages() -> (Rig, String) {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 4_000;
    rig.settings.retry.max_attempts = 1;
    let consumer = rig.open().await;
    rig.publish_many("k", 5).await;
    (rig, consumer)
}

#[tokio::test]
async fn sigterm_lets_the_message_in_work_finish_and_takes_no_other() {
    let (rig, consumer) = five_messages().await;
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, seconds(3)).await;
    let mut worker = WorkerProcess::start(&rig, "old", &handler.url()).await;
    wait_until(DEADLINE, "the first message to be in work", || async { journal.begun() == [1] }).await;
    worker.signal("TERM");
    let asked = std::time::Instant::now();
    assert_eq!(worker.exit_code().await, Some(0), "{}", worker.log());
    assert!(asked.elapsed() < seconds(10), "well inside the grace period of ten seconds");
    assert_eq!(journal.story(), [(1, End::Done)]);
    let found = rig.consumer(&consumer).await.unwrap();
    assert_eq!(
        (found.floor, found.ack_pending, found.delivered),
        (1, 0, 1),
        "it was acknowledged and nothing else taken"
    );
    assert!(rig.lane_key(1).await.holders.is_empty());
    // The successor finds the rest as if nobody had seen it.
    let next = Journal::default();
    let successor = Running::start(rig.builder(0).pod("new"), Script::taking(&next, ms(0)));
    rig.wait_settled(&consumer).await;
    assert_eq!(next.done(), [2, 3, 4, 5]);
    assert!(next.all().iter().all(|handling| handling.attempt == 1));
    let info = rig.by_hand(&format!("CONSUMER.INFO.ORDERS.{consumer}"), json!(null)).await;
    assert_eq!(info["delivered"]["consumer_seq"], 5, "each was delivered once");
    successor.stop().await;
}

#[tokio::test]
async fn a_handler_that_outlasts_the_grace_period_is_no_failed_attempt() {
    let (rig, consumer) = five_messages().await;
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, seconds(600)).await;
    let mut worker =
        WorkerProcess::start_with(&rig, "old", &handler.url(), &["--grace-seconds", "2"], &[]).await;
    wait_until(DEADLINE, "the first message to be in work", || async { journal.begun() == [1] }).await;
    worker.signal("TERM");
    assert_eq!(worker.exit_code().await, Some(0), "{}", worker.log());
    let found = rig.consumer(&consumer).await.unwrap();
    assert_eq!((found.floor, found.ack_pending), (0, 1), "nothing was settled");
    let key = rig.lane_key(1).await;
    assert_eq!(key.excused.map(|excused| (excused.sequence, excused.deliveries)), Some((1, 1)));
    assert!(key.holders.is_empty());
    assert_eq!(key.owner, None, "its handler may still be at work, so nobody may take the message away");
    let next = Journal::default();
    let successor = Running::start(rig.builder(0).pod("new"), Script::taking(&next, ms(0)));
    rig.wait_settled(&consumer).await;
    assert_eq!(next.done(), [1, 2, 3, 4, 5], "the first one comes first");
    assert!(next.all().iter().all(|handling| handling.attempt == 1), "no attempt was counted");
    assert!(rig.report(0, "new").await.is_none_or(|report| report.blocked.is_none()));
    successor.stop().await;
}

#[tokio::test]
async fn an_idle_worker_ends_without_taking_what_comes_afterwards() {
    let (rig, consumer) = five_messages().await;
    let journal = Journal::default();
    let mut worker = rig.start(Script::taking(&journal, ms(0)));
    rig.wait_settled(&consumer).await;
    worker.ask_to_stop();
    worker.ended().await;
    rig.publish("k", "late").await;
    let found = rig.consumer(&consumer).await.unwrap();
    assert_eq!((found.delivered, found.pending), (5, 1));
    assert_eq!(journal.done().len(), 5);
}
