//! Several messages on hand: the order is that of the stream, whatever happens, and no more than a window is repeated.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use lanekeeper_core::{
    lane::State,
    record::{BlockedBy, Breaker, Delivery, ExhaustedPolicy},
    share::Share,
    stream::Retention,
};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS, wait_until};
use lanekeeper_worker::{HandlerError, Message};
use serde_json::json;

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, Running, STREAM, ms, seconds, share},
};

const WINDOW: u32 = 16;

async fn rig(version: &str, retention: Retention, ack_wait_milliseconds: u64) -> (Rig, String) {
    let mut rig = Rig::on(NatsServer::start(version).await, retention).await;
    rig.settings.ack_wait_milliseconds = ack_wait_milliseconds;
    rig.settings.delivery = Delivery::Pipelined { window: WINDOW };
    let consumer = rig.open().await;
    (rig, consumer)
}

/// No message of the lane began before the one before it was done, and after each failure at most a window came again.
fn assert_lane_in_order(journal: &Journal, failures: usize) {
    journal.assert_in_order();
    let all = journal.all();
    let mut done = BTreeSet::new();
    let mut repeats = 0;
    for handling in &all {
        let missing = (1..handling.sequence).find(|earlier| !done.contains(earlier));
        assert_eq!(missing, None, "{handling:?} began before that one was done");
        repeats += usize::from(done.contains(&handling.sequence));
        if handling.end == End::Done {
            done.insert(handling.sequence);
        }
    }
    assert!(repeats <= failures * WINDOW as usize, "{repeats} repeats after {failures} failures");
}

fn distinct(journal: &Journal) -> Vec<u64> {
    journal.done().into_iter().collect::<BTreeSet<u64>>().into_iter().collect()
}

async fn wait_done(journal: &Journal, count: usize) {
    wait_until(DEADLINE, "so many messages to be done", || async {
        let done = journal.done().len();
        (done >= count).then_some(()).ok_or(format!("{done} of {count}"))
    })
    .await;
}

async fn consumer_sequence(rig: &Rig, consumer: &str) -> u64 {
    let info = rig.by_hand(&format!("CONSUMER.INFO.{STREAM}.{consumer}"), json!(null)).await;
    info["delivered"]["consumer_seq"].as_u64().unwrap()
}

#[tokio::test]
async fn every_message_is_handled_once_and_in_order_on_every_supported_server() {
    for version in VERSIONS {
        for retention in [Retention::Limits, Retention::Interest, Retention::WorkQueue] {
            let (rig, consumer) = rig(version, retention, 300_000).await;
            rig.publish_at_once(2_000).await;
            let journal = Journal::default();
            let worker = rig.start(Script::taking(&journal, ms(0)));
            rig.publish_at_once(2_000).await;
            rig.wait_settled(&consumer).await;
            assert_eq!(journal.begun(), (1..=4_000).collect::<Vec<u64>>(), "{version} {retention:?}");
            assert!(journal.all().iter().all(|handling| handling.attempt == 1));
            // One by one as well: what is completed is acknowledged without another message.
            for _ in 0..5 {
                rig.publish("k", "x").await;
                rig.wait_settled(&consumer).await;
            }
            assert_eq!(consumer_sequence(&rig, &consumer).await, 4_005, "each was delivered once");
            worker.stop().await;
            assert!(rig.lane_key(1).await.holders.is_empty());
        }
    }
}

#[tokio::test]
async fn a_killed_worker_costs_at_most_a_window_of_repeats_in_order() {
    for version in VERSIONS {
        let (rig, consumer) = rig(version, Retention::Limits, 2_000).await;
        rig.publish_at_once(300).await;
        let journal = Journal::default();
        let handler = HttpScript::taking(&journal, ms(2)).await;
        let worker = WorkerProcess::start(&rig, "a", &handler.url()).await;
        let standby = WorkerProcess::start(&rig, "b", &handler.url()).await;
        wait_done(&journal, 100).await;
        worker.kill().await;
        let again = WorkerProcess::start(&rig, "a", &handler.url()).await;
        rig.wait_settled(&consumer).await;
        assert_eq!(distinct(&journal), (1..=300).collect::<Vec<u64>>(), "{version}");
        // Whoever of the two had it: the other one's kill costs nothing.
        assert_lane_in_order(&journal, 1);
        drop((standby, again));
    }
}

#[tokio::test]
async fn sigterm_hands_everything_on_at_once_and_nothing_is_repeated() {
    for version in VERSIONS {
        // Nothing here may wait for a deadline: it is longer than the test.
        let (rig, consumer) = rig(version, Retention::Limits, 300_000).await;
        rig.publish_at_once(200).await;
        let journal = Journal::default();
        let handler = HttpScript::taking(&journal, ms(5)).await;
        let mut worker = WorkerProcess::start(&rig, "old", &handler.url()).await;
        wait_done(&journal, 50).await;
        let standby = Running::start(rig.builder(0).pod("new"), Script::taking(&journal, ms(0)));
        wait_until(DEADLINE, "a worker to stand by", || async { standby.status().state == State::Standby })
            .await;
        worker.signal("TERM");
        assert_eq!(worker.exit_code().await, Some(0), "{}", worker.log());
        rig.wait_settled(&consumer).await;
        assert_eq!(journal.done(), (1..=200).collect::<Vec<u64>>(), "{version}");
        assert!(journal.all().iter().all(|handling| handling.attempt == 1), "{version}");
        journal.assert_in_order();
        standby.stop().await;
    }
}

#[tokio::test]
async fn a_frozen_owner_that_wakes_up_while_its_standby_works_says_nothing() {
    let (rig, consumer) = rig(LATEST, Retention::Limits, 2_000).await;
    rig.publish_at_once(60).await;
    let old = Journal::default();
    let slow = HttpScript::taking(&old, ms(50)).await;
    let frozen = WorkerProcess::start(&rig, "frozen", &slow.url()).await;
    wait_done(&old, 20).await;
    let new = Journal::default();
    let standby = Running::start(rig.builder(0).pod("new"), Script::taking(&new, ms(100)));
    frozen.signal("STOP");
    wait_until(DEADLINE, "the standby to work", || async { !new.begun().is_empty() }).await;
    frozen.signal("CONT");
    let lost = "the deadline passed without proof: given up, nothing is sent for it";
    wait_until(DEADLINE, "the thawed worker to notice", || async { frozen.logged(lost).is_some() }).await;
    rig.wait_settled(&consumer).await;
    let (old, begun) = (old.done(), new.begun());
    let first = begun[0];
    assert!(old.len() as u64 + 1 - first <= u64::from(WINDOW), "from {first} on after {old:?}");
    assert_eq!(new.done(), (first..=60).collect::<Vec<u64>>(), "and it had the lane to its end");
    standby.stop().await;
}

#[tokio::test]
async fn a_restart_of_nats_and_a_pin_that_is_taken_away_cost_no_order() {
    for version in VERSIONS {
        let (mut rig, consumer) = rig(version, Retention::Limits, 2_000).await;
        let journal = Journal::default();
        let workers = ["a", "b"].map(|name| {
            Running::start(rig.builder(0).pod(name), Script::taking(&journal, ms(1)).named(name))
        });
        rig.publish_at_once(200).await;
        wait_done(&journal, 100).await;
        rig.server.restart().await;
        wait_done(&journal, 150).await;
        rig.by_hand(&format!("CONSUMER.UNPIN.{STREAM}.{consumer}"), json!({"group": "lane"})).await;
        rig.publish_at_once(200).await;
        wait_done(&journal, 300).await;
        rig.server.kill();
        rig.server.start_again().await;
        rig.wait_settled(&consumer).await;
        let stored = rig.by_hand(&format!("STREAM.INFO.{STREAM}"), json!(null)).await;
        let last = stored["state"]["last_seq"].as_u64().unwrap();
        assert_eq!(distinct(&journal), (1..=last).collect::<Vec<u64>>(), "{version}");
        // A server that is killed may have forgotten more acknowledgements than those under way.
        assert_lane_in_order(&journal, 100);
        for worker in workers {
            worker.stop().await;
        }
    }
}

#[tokio::test]
async fn a_message_deleted_from_the_middle_of_what_a_dead_worker_had_holds_nobody_up() {
    for version in VERSIONS {
        let (rig, consumer) = rig(version, Retention::Limits, 2_000).await;
        rig.publish_at_once(30).await;
        let journal = Journal::default();
        let stuck = |message: &Message| (if message.sequence() == 3 { seconds(600) } else { ms(0) }, Ok(()));
        let worker = Running::start(rig.builder(0).pod("a"), Script::new(&journal, stuck));
        wait_until(DEADLINE, "the third message to be in work", || async { journal.begun() == [1, 2, 3] })
            .await;
        worker.crash();
        for sequence in [5, 8] {
            rig.by_hand(&format!("STREAM.MSG.DELETE.{STREAM}"), json!({"seq": sequence})).await;
        }
        let after = Journal::default();
        let next = Running::start(rig.builder(0).pod("b"), Script::taking(&after, ms(0)));
        rig.wait_settled(&consumer).await;
        let begun = after.begun();
        let expected: Vec<u64> = (begun[0]..=30).filter(|sequence| ![5, 8].contains(sequence)).collect();
        assert!((1..=3).contains(&begun[0]), "{version}: {begun:?}");
        assert_eq!(begun, expected, "{version}");
        next.stop().await;
    }
}

#[tokio::test]
async fn a_message_deleted_behind_the_one_in_hand_takes_nothing_with_it_when_the_worker_dies() {
    for version in VERSIONS {
        let (rig, consumer) = rig(version, Retention::Limits, 2_000).await;
        rig.publish_at_once(12).await;
        let journal = Journal::default();
        let worker = Running::start(rig.builder(0).pod("a"), Script::taking(&journal, seconds(600)));
        wait_until(DEADLINE, "all to be on hand", || async {
            let out = rig.consumer(&consumer).await.map(|found| found.ack_pending);
            (out == Some(12)).then_some(()).ok_or(format!("{out:?}"))
        })
        .await;
        rig.by_hand(&format!("STREAM.MSG.DELETE.{STREAM}"), json!({"seq": 9})).await;
        worker.crash();
        let after = Journal::default();
        let next = Running::start(rig.builder(0).pod("b"), Script::taking(&after, ms(0)));
        rig.wait_settled(&consumer).await;
        let expected: Vec<u64> = (1..=12).filter(|sequence| *sequence != 9).collect();
        assert_eq!(after.begun(), expected, "{version}");
        next.stop().await;
    }
}

#[tokio::test]
async fn a_failing_message_is_tried_in_its_place_and_then_goes_where_the_policy_says() {
    let breaker = Breaker { max_exhausted: 10, window_seconds: 600 };
    let (stream, subject) = ("DEAD".to_owned(), "lanekeeper.dlq.shop.orders".to_owned());
    let dead_letter =
        ExhaustedPolicy::DeadLetter { stream: stream.clone(), subject: subject.clone(), breaker };
    for policy in [ExhaustedPolicy::Block, dead_letter, ExhaustedPolicy::Drop { breaker }] {
        let mut rig = Rig::new().await;
        rig.settings.delivery = Delivery::Pipelined { window: WINDOW };
        rig.settings.on_exhausted = policy.clone();
        let config = async_nats::jetstream::stream::Config {
            name: stream.clone(),
            subjects: vec![subject.clone()],
            ..Default::default()
        };
        let dead = rig.connection.context().create_stream(config).await.unwrap();
        let consumer = rig.open().await;
        rig.publish_at_once(40).await;
        let journal = Journal::default();
        // Two messages fail for ever; under Block the handler is mended at its sixth attempt.
        let poison = |message: &Message| {
            let poison = [5, 17].contains(&message.sequence()) && message.attempt() < 6;
            (ms(0), if poison { Err(HandlerError::retry("poison")) } else { Ok(()) })
        };
        let worker = rig.start(Script::new(&journal, poison));
        if policy == ExhaustedPolicy::Block {
            wait_until(DEADLINE, "the lane to say where it stands", || async {
                let report = rig.report(0, "orders-0").await.ok_or("there is no report")?;
                let blocked = report.blocked.ok_or("nothing is blocked")?;
                let right = blocked.by == BlockedBy::Policy && blocked.sequence == 5;
                right.then_some(()).ok_or("something else is blocked")
            })
            .await;
        }
        rig.wait_settled(&consumer).await;
        let attempts = if policy == ExhaustedPolicy::Block { 6 } else { 3 };
        let expected: Vec<(u64, u64)> = (1..=40)
            .flat_map(|sequence| {
                let times = if [5, 17].contains(&sequence) { attempts } else { 1 };
                (1..=times).map(move |attempt| (sequence, attempt))
            })
            .collect();
        let seen: Vec<(u64, u64)> =
            journal.all().iter().map(|handling| (handling.sequence, handling.attempt)).collect();
        assert_eq!(seen, expected, "{policy:?}");
        let letters = dead.get_info().await.unwrap().state.messages;
        assert_eq!(letters, if matches!(policy, ExhaustedPolicy::DeadLetter { .. }) { 2 } else { 0 });
        assert_eq!(consumer_sequence(&rig, &consumer).await, 40, "each was delivered once");
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_handler_slower_than_the_deadline_keeps_everything_on_hand() {
    let (rig, consumer) = rig(LATEST, Retention::Limits, 1_500).await;
    rig.publish_at_once(20).await;
    let journal = Journal::default();
    let slow = HttpScript::start(&journal, |got| {
        let first = got.headers["ce-sequence"].ends_with("01");
        (if first { seconds(5) } else { ms(0) }, StatusCode::NO_CONTENT, Vec::new())
    })
    .await;
    let worker = WorkerProcess::start(&rig, "a", &slow.url()).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), (1..=20).collect::<Vec<u64>>());
    assert_eq!(consumer_sequence(&rig, &consumer).await, 20, "each was delivered once: {}", worker.log());
}

#[tokio::test]
async fn a_lane_is_handed_over_from_one_mode_to_another_and_back_under_load() {
    let mut rig = Rig::new().await;
    let journal = Journal::default();
    let all: Share = share(0, 1);
    let batch = Delivery::Batch { window: WINDOW, most: 4, wait_milliseconds: 0 };
    let modes = [Delivery::Serial, Delivery::Pipelined { window: WINDOW }, batch, Delivery::Serial];
    let worker = rig.start(Script::taking(&journal, ms(1)));
    rig.publish_at_once(500).await;
    let mut start = None;
    for (mode, incarnation) in modes.into_iter().zip(1..) {
        rig.settings.delivery = mode;
        let consumer = rig.open_lane(all, incarnation, start, Vec::new()).await;
        wait_done(&journal, 100 * usize::try_from(incarnation).unwrap()).await;
        if incarnation < 4 {
            rig.retire(all, incarnation).await;
            wait_until(DEADLINE, "the worker to leave", || async {
                rig.lane_key(incarnation).await.holders.is_empty()
            })
            .await;
            start = Some(rig.consumer(&consumer).await.unwrap().floor + 1);
            rig.by_hand(&format!("CONSUMER.DELETE.{STREAM}.{consumer}"), json!(null)).await;
        } else {
            rig.wait_settled(&consumer).await;
        }
    }
    assert_eq!(journal.begun(), (1..=500).collect::<Vec<u64>>(), "once each, in order");
    worker.stop().await;
}
