//! Workers that die or freeze in the middle: P13 (without a standby) and P14.

use std::time::Instant;

use lanekeeper_core::lane::State;
use lanekeeper_tests::wait_until;

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, Running, ms, seconds, share},
};

#[tokio::test]
async fn the_message_of_a_killed_worker_comes_first_and_soon_though_handlers_may_take_ten_minutes() {
    let mut rig = Rig::new().await;
    rig.settings.handler_timeout_milliseconds = 600_000;
    rig.settings.ack_wait_milliseconds = 4_000;
    let consumer = rig.open().await;
    rig.publish_many("k", 3).await;
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, seconds(600)).await;
    let worker = WorkerProcess::start(&rig, "old", &handler.url()).await;
    wait_until(DEADLINE, "the first message to be in work", || async { journal.begun() == [1] }).await;
    worker.kill().await;
    let killed = Instant::now();
    // The container starts again.
    let next = Journal::default();
    let restarted = rig.start(Script::taking(&next, ms(0)));
    rig.wait_settled(&consumer).await;
    assert_eq!(next.done(), [1, 2, 3]);
    assert_eq!(next.all()[0].attempt, 2, "a crash counts as an attempt");
    let waited = next.all()[0].start - killed;
    assert!(waited < seconds(45), "in other hands after {waited:?}");
    restarted.stop().await;
}

#[tokio::test]
async fn a_worker_that_wakes_up_after_its_deadline_sends_nothing_for_the_old_message() {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 2_000;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let old = Journal::default();
    let handler = HttpScript::taking(&old, seconds(6)).await;
    let frozen = WorkerProcess::start(&rig, "frozen", &handler.url()).await;
    wait_until(DEADLINE, "the first message to be in work", || async { old.begun() == [1] }).await;
    frozen.signal("STOP");
    let new = Journal::default();
    let other = Running::start(
        rig.builder(0).pod("other"),
        Script::new(&new, |message: &lanekeeper_worker::Message| {
            (if message.sequence() == 1 { seconds(10) } else { ms(0) }, Ok(()))
        }),
    );
    wait_until(DEADLINE, "the other worker to have the message", || async { new.begun() == [1] }).await;
    // The frozen worker's handler answers meanwhile: a result that must not be used.
    wait_until(DEADLINE, "the frozen worker's handler to be done", || async {
        old.story() == [(1, End::Done)]
    })
    .await;
    frozen.signal("CONT");
    let lost = "the deadline passed without proof: given up, nothing is sent for it";
    wait_until(DEADLINE, "the thawed worker to notice", || async { frozen.logged(lost).is_some() }).await;
    wait_until(DEADLINE, "the other worker to finish", || async { new.done().first() == Some(&1) }).await;
    let first = new.all()[0].clone();
    rig.wait_settled(&consumer).await;
    let second = old.all().into_iter().chain(new.all()).find(|handling| handling.sequence == 2).unwrap();
    assert!(second.start >= first.ended.unwrap(), "the second message waited for the other worker");
    assert_eq!(first.end, End::Done);
    other.stop().await;
}

#[tokio::test]
async fn a_worker_cut_off_from_nats_gives_its_message_up() {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 2_000;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let proxy = lanekeeper_tests::TcpProxy::start(rig.server.address()).await;
    let journal = Journal::default();
    let script = Script::new(&journal, |message: &lanekeeper_worker::Message| {
        (if message.attempt() == 1 { seconds(30) } else { ms(0) }, Ok(()))
    });
    let worker = Running::start(rig.builder_at(0, &proxy.url()), script.named("cut off"));
    wait_until(DEADLINE, "the first message to be in work", || async { journal.begun() == [1] }).await;
    proxy.refuse();
    wait_until(DEADLINE, "the handler to be dropped", || async { journal.story() == [(1, End::Cut)] }).await;
    assert_eq!(worker.status().state, State::Lost);
    let other = Running::start(rig.builder(0).pod("other"), Script::taking(&journal, ms(0)).named("other"));
    rig.wait_settled(&consumer).await;
    journal.assert_in_order();
    assert_eq!(journal.done(), [1, 2]);
    other.stop().await;
    worker.crash();
}

#[tokio::test]
async fn what_a_killed_process_held_is_given_up_by_the_next_one_of_its_pod() {
    let rig = Rig::new().await;
    rig.open().await;
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, ms(0)).await;
    let killed = WorkerProcess::start(&rig, "same", &handler.url()).await;
    let holders = || async { rig.lane_key(1).await.holders };
    wait_until(DEADLINE, "the worker to be in the lane", || async { holders().await.len() == 1 }).await;
    killed.kill().await;
    rig.retire(share(0, 1), 1).await;
    assert_eq!(holders().await.len(), 1, "a process that was killed leaves nothing by itself");
    // The lane takes nobody any more, yet a change waits for the one that is gone.
    let _next = WorkerProcess::start(&rig, "same", &handler.url()).await;
    wait_until(DEADLINE, "the place to be given up", || async { holders().await.is_empty() }).await;
}
