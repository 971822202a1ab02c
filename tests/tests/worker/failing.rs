//! Handlers that fail: P01 (Block) and P02.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use lanekeeper_core::{lane::State, stream::Retention};
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use lanekeeper_worker::{HandlerError, Message};

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    rig::{Rig, Running, ms, seconds},
};

#[tokio::test]
async fn a_poison_message_blocks_its_lane_in_place_and_says_so() {
    let rig = Rig::on(NatsServer::start(LATEST).await, Retention::WorkQueue).await;
    let consumer = rig.open().await;
    rig.publish_many("k", 3).await;
    let journal = Journal::default();
    let healed = Arc::new(AtomicBool::new(false));
    let heals = Arc::clone(&healed);
    let worker = rig.start(Script::new(&journal, move |message: &Message| {
        let fails = message.sequence() == 1 && !heals.load(Ordering::Relaxed);
        (ms(0), if fails { Err(HandlerError::retry("poison")) } else { Ok(()) })
    }));
    wait_until(DEADLINE, "the lane to be reported as blocked", || async {
        let report = rig.report(0, "orders-0").await.ok_or("there is no report")?;
        let blocked = report.blocked.ok_or("nothing is blocked")?;
        (blocked.sequence == 1 && blocked.reason == "poison").then_some(()).ok_or(format!("{blocked:?}"))
    })
    .await;
    assert_eq!(journal.story(), [(1, End::Failed); 3], "blocked after exactly three attempts");
    assert_eq!(worker.status().state, State::Blocked);
    // It goes on trying, slowly, and the next message never starts.
    wait_until(DEADLINE, "two slow tries", || async { journal.begun().len() >= 5 }).await;
    let all = journal.all();
    assert!(all.iter().all(|handling| handling.sequence == 1));
    let pause = all[4].start - all[3].start;
    assert!(pause >= ms(1_500), "tried again after {pause:?}");
    let found = rig.consumer(&consumer).await.unwrap();
    assert_eq!((found.max_deliver, found.floor, found.ack_pending), (-1, 0, 1), "the server skipped nothing");
    healed.store(true, Ordering::Relaxed);
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), [1, 2, 3]);
    wait_until(DEADLINE, "the report to be taken back", || async {
        rig.report(0, "orders-0").await.is_some_and(|report| report.blocked.is_none())
    })
    .await;
    let stream = lanekeeper_nats::observe::stream(&rig.connection, "ORDERS").await.unwrap().unwrap();
    assert_eq!(stream.messages, 0, "the work queue is empty");
    worker.stop().await;
}

#[tokio::test]
async fn a_message_that_will_never_work_blocks_after_one_attempt() {
    let rig = Rig::new().await;
    rig.open().await;
    rig.publish_many("k", 2).await;
    let journal = Journal::default();
    let worker = rig.start(Script::new(&journal, |_| (ms(0), Err(HandlerError::permanent("malformed")))));
    wait_until(DEADLINE, "the lane to be reported as blocked", || async {
        rig.report(0, "orders-0").await.is_some_and(|report| report.blocked.is_some())
    })
    .await;
    assert_eq!(journal.story(), [(1, End::Failed)]);
    worker.stop().await;
}

/// The first handling of the first message fails and asks for a delay; everything else works.
fn fails_once(journal: &Journal, delay: std::time::Duration) -> Script {
    let failed = AtomicU64::new(0);
    Script::new(journal, move |message: &Message| {
        let first = message.sequence() == 1 && failed.fetch_add(1, Ordering::Relaxed) == 0;
        let error = HandlerError::Retry { reason: "not yet".into(), after: Some(delay) };
        (ms(0), if first { Err(error) } else { Ok(()) })
    })
}

const STORY: [(u64, End); 4] = [(1, End::Failed), (1, End::Done), (2, End::Done), (3, End::Done)];

#[tokio::test]
async fn a_delayed_retry_happens_in_place_after_its_delay() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 3).await;
    let journal = Journal::default();
    let worker = rig.start(fails_once(&journal, seconds(5)));
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.story(), STORY);
    let all = journal.all();
    let delay = all[1].start - all[0].ended.unwrap();
    assert!(delay >= seconds(4) && delay <= seconds(6), "retried after {delay:?}");
    assert_eq!(all[1].attempt, 2);
    worker.stop().await;
}

#[tokio::test]
async fn a_delayed_retry_keeps_its_place_over_a_restart_of_nats() {
    let mut rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 3).await;
    let journal = Journal::default();
    let worker = rig.start(fails_once(&journal, seconds(5)));
    wait_until(DEADLINE, "the first failure", || async { worker.status().state == State::RetryWait }).await;
    rig.server.restart().await;
    wait_until(DEADLINE, "the rest to be handled", || async { journal.done().len() == 3 }).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.story(), STORY);
    worker.stop().await;
}

#[tokio::test]
async fn a_delayed_retry_keeps_its_place_when_its_worker_dies() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 3).await;
    let journal = Journal::default();
    let first = rig.start(fails_once(&journal, seconds(5)));
    wait_until(DEADLINE, "the first failure", || async { first.status().state == State::RetryWait }).await;
    first.crash();
    let second =
        Running::start(rig.builder(0).pod("second"), Script::taking(&journal, ms(0)).named("second"));
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.story(), STORY);
    second.stop().await;
}

#[tokio::test]
async fn a_handler_that_is_not_there_costs_no_attempt() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let journal = Journal::default();
    let tries = AtomicU64::new(0);
    let worker = rig.start(Script::new(&journal, move |_| {
        let absent = tries.fetch_add(1, Ordering::Relaxed) < 6;
        (ms(0), if absent { Err(HandlerError::Unreachable { reason: "refused".into() }) } else { Ok(()) })
    }));
    rig.wait_settled(&consumer).await;
    let all = journal.all();
    assert_eq!(all.len(), 8);
    assert!(all.iter().all(|handling| handling.attempt == 1), "{all:?}");
    journal.assert_in_order();
    worker.stop().await;
}

#[tokio::test]
async fn a_report_that_somebody_deletes_or_spoils_is_written_again() {
    let rig = Rig::new().await;
    rig.open().await;
    rig.publish_many("k", 1).await;
    let journal = Journal::default();
    let refuse = |_: &lanekeeper_worker::Message| (ms(0), Err(HandlerError::permanent("not this one")));
    let worker = Running::start(rig.builder(0).pod("p"), Script::new(&journal, refuse));
    let key = rig.set.report_key(0, "p");
    let said = || async {
        // What cannot be read says nothing.
        let found = rig.bucket.get_json::<lanekeeper_core::record::Report>(&key).await.ok().flatten();
        found.and_then(|found| found.value.blocked).map(|at| at.sequence).ok_or("nothing is said")
    };
    assert_eq!(wait_until(DEADLINE, "the lane to say that it is blocked", said).await, 1);
    let revision = rig.bucket.get(&key).await.unwrap().unwrap().revision;
    rig.bucket.delete(&key, revision).await.unwrap();
    assert_eq!(wait_until(DEADLINE, "it to be said again", said).await, 1);
    rig.bucket.put(&key, "{".into()).await.unwrap();
    assert_eq!(wait_until(DEADLINE, "it to be said again", said).await, 1);
    worker.stop().await;
}
