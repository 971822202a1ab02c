//! Two workers of one lane, of which one has its messages: P15, and P12, P13 and P14 with a standby.

use std::collections::BTreeSet;

use lanekeeper_core::lane::State;
use lanekeeper_core::stream::Retention;
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS, wait_until};
use serde_json::json;

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, Running, STREAM, ms, seconds},
};

async fn rig(version: &str, ack_wait_milliseconds: u64) -> (Rig, String) {
    let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
    rig.settings.ack_wait_milliseconds = ack_wait_milliseconds;
    let consumer = rig.open().await;
    (rig, consumer)
}

async fn pin(rig: &Rig, consumer: &str) -> Option<String> {
    let info = rig.by_hand(&format!("CONSUMER.INFO.{STREAM}.{consumer}"), json!(null)).await;
    Some(info["priority_groups"][0]["pinned_client_id"].as_str()?.to_owned()).filter(|id| !id.is_empty())
}

async fn unpin(rig: &Rig, consumer: &str) {
    rig.by_hand(&format!("CONSUMER.UNPIN.{STREAM}.{consumer}"), json!({"group": "lane"})).await;
}

async fn wait_standby(worker: &Running) {
    wait_until(DEADLINE, "a worker to stand by", || async {
        let state = worker.status().state;
        if state == State::Standby { Ok(()) } else { Err(state.name().to_owned()) }
    })
    .await;
}

fn by(journal: &Journal, who: &str) -> Vec<u64> {
    journal.all().iter().filter(|one| one.who == who).map(|one| one.sequence).collect()
}

#[tokio::test]
async fn one_worker_has_all_messages_and_the_standby_takes_over_as_soon_as_it_leaves() {
    for version in VERSIONS {
        // Nothing here may wait for a deadline: it is longer than the test.
        let (rig, consumer) = rig(version, 300_000).await;
        let journal = Journal::default();
        let first = Running::start(rig.builder(0).pod("a"), Script::taking(&journal, ms(0)).named("a"));
        rig.publish("k", "").await;
        rig.wait_settled(&consumer).await;
        let second = Running::start(rig.builder(0).pod("b"), Script::taking(&journal, ms(0)).named("b"));
        wait_standby(&second).await;
        rig.publish_many("k", 20).await;
        rig.wait_settled(&consumer).await;
        assert_eq!(by(&journal, "b"), [0_u64; 0], "{version}");
        first.stop().await;
        rig.publish_many("k", 20).await;
        rig.wait_settled(&consumer).await;
        assert_eq!(by(&journal, "b"), (22..=41).collect::<Vec<u64>>(), "{version}");
        journal.assert_in_order();
        second.stop().await;
    }
}

#[tokio::test]
async fn a_message_that_vanishes_in_hand_lets_no_standby_begin_before_its_handler_has_ended() {
    for version in VERSIONS {
        let (rig, consumer) = rig(version, 1_500).await;
        let journal = Journal::default();
        // Several times as long as the pin lives without a renewal.
        let slow = |message: &lanekeeper_worker::Message| {
            (if message.sequence() == 1 { seconds(5) } else { ms(0) }, Ok(()))
        };
        let owner = Running::start(rig.builder(0).pod("a"), Script::new(&journal, slow).named("a"));
        rig.publish("k", "").await;
        wait_until(DEADLINE, "the first message to be in hand", || async { journal.begun() == [1] }).await;
        let standby = Running::start(rig.builder(0).pod("b"), Script::new(&journal, slow).named("b"));
        wait_standby(&standby).await;
        rig.by_hand(&format!("STREAM.MSG.DELETE.{STREAM}"), json!({"seq": 1})).await;
        rig.publish_many("k", 3).await;
        wait_until(DEADLINE, "the later messages", || async { journal.done() == [1, 2, 3, 4] }).await;
        journal.assert_in_order();
        assert_eq!(by(&journal, "a").first(), Some(&1), "{version}");
        rig.wait_settled(&consumer).await;
        owner.stop().await;
        standby.stop().await;
    }
}

#[tokio::test]
async fn a_pin_that_is_taken_away_costs_no_order_and_never_makes_two_handlers() {
    for version in VERSIONS {
        let (rig, consumer) = rig(version, 3_000).await;
        let journal = Journal::default();
        let workers = ["a", "b"].map(|name| {
            Running::start(rig.builder(0).pod(name), Script::taking(&journal, ms(150)).named(name))
        });
        let mut pins = BTreeSet::new();
        let mut published = 0;
        for round in 0..20 {
            if round % 2 == 0 {
                rig.wait_settled(&consumer).await;
                pins.extend(pin(&rig, &consumer).await);
                unpin(&rig, &consumer).await;
            }
            rig.publish_many("k", 2).await;
            published += 2;
            if round % 2 == 1 {
                wait_until(DEADLINE, "a message to be in hand", || async {
                    journal.story().last().is_some_and(|(_, end)| *end == End::Running)
                })
                .await;
                pins.extend(pin(&rig, &consumer).await);
                unpin(&rig, &consumer).await;
            }
        }
        rig.wait_settled(&consumer).await;
        journal.assert_in_order();
        let mut done = journal.done();
        done.dedup();
        assert_eq!(done, (1..=published).collect::<Vec<u64>>(), "{version}");
        assert!(pins.len() >= 10, "{version}: the pin was given anew: {pins:?}");
        for worker in workers {
            worker.stop().await;
        }
    }
}

#[tokio::test]
async fn sigterm_with_a_standby_waiting_takes_no_other_message_and_hands_the_lane_on() {
    let (rig, consumer) = rig(LATEST, 300_000).await;
    rig.publish_many("k", 5).await;
    let old = Journal::default();
    let handler = HttpScript::taking(&old, seconds(3)).await;
    let mut worker = WorkerProcess::start(&rig, "old", &handler.url()).await;
    wait_until(DEADLINE, "the first message to be in work", || async { old.begun() == [1] }).await;
    let new = Journal::default();
    let standby = Running::start(rig.builder(0).pod("new"), Script::taking(&new, ms(0)));
    wait_standby(&standby).await;
    worker.signal("TERM");
    assert_eq!(worker.exit_code().await, Some(0), "{}", worker.log());
    rig.wait_settled(&consumer).await;
    assert_eq!(old.story(), [(1, End::Done)]);
    assert_eq!(new.done(), [2, 3, 4, 5]);
    assert!(new.all().iter().all(|handling| handling.attempt == 1));
    assert!(new.all()[0].start >= old.all()[0].ended.unwrap());
    let info = rig.by_hand(&format!("CONSUMER.INFO.{STREAM}.{consumer}"), json!(null)).await;
    assert_eq!(info["delivered"]["consumer_seq"], 5, "each was delivered once");
    standby.stop().await;
}

#[tokio::test]
async fn a_standby_takes_the_message_of_a_killed_worker_first() {
    let (rig, consumer) = rig(LATEST, 3_000).await;
    rig.publish_many("k", 3).await;
    let old = Journal::default();
    let handler = HttpScript::taking(&old, seconds(600)).await;
    let worker = WorkerProcess::start(&rig, "old", &handler.url()).await;
    wait_until(DEADLINE, "the first message to be in work", || async { old.begun() == [1] }).await;
    let new = Journal::default();
    let standby = Running::start(rig.builder(0).pod("new"), Script::taking(&new, ms(0)));
    wait_standby(&standby).await;
    worker.kill().await;
    rig.wait_settled(&consumer).await;
    assert_eq!(new.done(), [1, 2, 3]);
    assert_eq!(new.all()[0].attempt, 2, "a crash counts as an attempt");
    standby.stop().await;
}

#[tokio::test]
async fn a_frozen_owner_that_wakes_up_while_its_standby_works_says_nothing() {
    let (rig, consumer) = rig(LATEST, 2_000).await;
    rig.publish_many("k", 2).await;
    let old = Journal::default();
    let handler = HttpScript::taking(&old, seconds(600)).await;
    let frozen = WorkerProcess::start(&rig, "frozen", &handler.url()).await;
    wait_until(DEADLINE, "the first message to be in work", || async { old.begun() == [1] }).await;
    let new = Journal::default();
    let script = Script::new(&new, |message: &lanekeeper_worker::Message| {
        (if message.sequence() == 1 { seconds(6) } else { ms(0) }, Ok(()))
    });
    let standby = Running::start(rig.builder(0).pod("new"), script);
    wait_standby(&standby).await;
    frozen.signal("STOP");
    wait_until(DEADLINE, "the standby to have the message", || async { new.begun() == [1] }).await;
    frozen.signal("CONT");
    let lost = "the deadline passed without proof: given up, nothing is sent for it";
    wait_until(DEADLINE, "the thawed worker to notice", || async { frozen.logged(lost).is_some() }).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(new.story(), [(1, End::Done), (2, End::Done)], "and it has the lane still");
    new.assert_in_order();
    standby.stop().await;
}
