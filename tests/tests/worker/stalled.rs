//! Messages wait and no worker gets them: P10. And what only looks like it.

use std::sync::{Arc, Mutex};

use futures::{StreamExt, future::join_all};
use lanekeeper_core::{
    consumer::GROUP,
    lane::State,
    record::{Report, StallKind, Stalled},
    share::Share,
    stream::Retention,
};
use lanekeeper_tests::{LATEST, NatsServer, Stranger, VERSIONS, wait_until};
use serde_json::{Value, json};

use crate::{
    DEADLINE,
    journal::{Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, Running, STREAM, ms, seconds, share},
};

async fn rig(version: &str, ack_wait_milliseconds: u64) -> Rig {
    let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
    rig.settings.ack_wait_milliseconds = ack_wait_milliseconds;
    rig
}

fn key_of(rig: &Rig, share: Share) -> String {
    let is_of = |key: &String| {
        rig.mapping.key_hash(&format!("orders.{key}")).is_some_and(|hash| share.contains_hash(hash))
    };
    (0..100).map(|number| format!("k{number}")).find(is_of).unwrap()
}

async fn wait_stalled(rig: &Rig, partition: u32, pod: &str) -> Stalled {
    wait_until(DEADLINE, "the worker to say that its lane stands still", || async {
        rig.report(partition, pod).await.and_then(|report| report.stalled).ok_or("it says nothing")
    })
    .await
}

async fn wait_moving(rig: &Rig, partition: u32, pod: &str) {
    wait_until(DEADLINE, "the worker to say that its lane moves", || async {
        rig.report(partition, pod)
            .await
            .and_then(|report| report.stalled)
            .map_or(Ok(()), |now| Err(format!("{now:?}")))
    })
    .await;
}

/// Every report that is written from now on.
async fn reports(rig: &Rig) -> Arc<Mutex<Vec<Report>>> {
    let subject = format!("$KV.lanekeeper.{}report.>", rig.set.key_prefix());
    let mut subscription = rig.connection.client().subscribe(subject).await.unwrap();
    rig.connection.client().flush().await.unwrap();
    let all = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&all);
    tokio::spawn(async move {
        while let Some(message) = subscription.next().await {
            into.lock().unwrap().push(serde_json::from_slice(&message.payload).unwrap());
        }
    });
    all
}

fn now_seconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

async fn a_stranger_holds_a_message_of(version: &str) {
    let rig = rig(version, 1_500).await;
    let (left, right) = (share(0, 2), share(1, 2));
    let consumer = rig.open_lane(left, 1, None, Vec::new()).await;
    let other = rig.open_lane(right, 2, None, Vec::new()).await;
    let journal = Journal::default();
    let worker = Running::start(rig.builder(0).pod("a"), Script::taking(&journal, ms(0)).named("a"));
    let neighbour = Running::start(rig.builder(1).pod("b"), Script::taking(&journal, ms(0)).named("b"));
    let (mine, theirs) = (key_of(&rig, left), key_of(&rig, right));
    rig.publish(&mine, "").await;
    rig.wait_settled(&consumer).await;
    let begin = now_seconds();
    let client = rig.server.client().await;
    let stranger = Stranger::take(client, STREAM, &consumer, GROUP, async {
        rig.publish_many(&mine, 3).await;
    })
    .await;
    assert_eq!(stranger.sequence, 2, "{version}");
    let stalled = wait_stalled(&rig, 0, "a").await;
    assert_eq!((stalled.kind, stalled.sequence), (StallKind::SlotHeldElsewhere, 2), "{version}");
    assert!((begin..=now_seconds()).contains(&stalled.since_seconds), "{version}: {stalled:?}");
    let status = worker.status();
    assert!(status.in_place && matches!(status.state, State::Idle | State::Standby), "{version}: {status:?}");
    // The neighbour is well.
    rig.publish_many(&theirs, 3).await;
    rig.wait_settled(&other).await;
    assert_eq!(rig.report(1, "b").await.and_then(|report| report.stalled), None, "{version}");
    // It stays so until the stranger lets go.
    assert_eq!(wait_stalled(&rig, 0, "a").await, stalled, "{version}");
    stranger.release().await;
    rig.wait_settled(&consumer).await;
    wait_moving(&rig, 0, "a").await;
    let mut done: Vec<u64> =
        journal.all().iter().filter(|one| one.who == "a").map(|one| one.sequence).collect();
    done.dedup();
    assert_eq!(done, [1, 2, 3, 4], "{version}");
    worker.stop().await;
    neighbour.stop().await;
}

#[tokio::test]
async fn a_message_that_a_stranger_holds_is_told_of_and_the_lane_goes_on_when_it_is_free() {
    join_all(VERSIONS.map(|version| Box::pin(a_stranger_holds_a_message_of(version)))).await;
}

async fn a_person_pauses_the_consumer_of(version: &str) {
    let rig = rig(version, 1_500).await;
    let consumer = rig.open().await;
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, ms(0)).await;
    let worker = WorkerProcess::start(&rig, "a", &handler.url()).await;
    rig.publish("k", "").await;
    rig.wait_settled(&consumer).await;
    let pause = format!("CONSUMER.PAUSE.{STREAM}.{consumer}");
    rig.by_hand(&pause, json!({"pause_until": "2100-01-01T00:00:00Z"})).await;
    rig.publish_many("k", 2).await;
    let stalled = wait_stalled(&rig, 0, "a").await;
    assert_eq!((stalled.kind, stalled.sequence), (StallKind::ConsumerPaused, 2), "{version}");
    let (ready, words) = worker.ask("/readyz").await;
    assert_eq!(ready, 200, "{version}: {words}");
    let (_, metrics) = worker.ask("/metrics").await;
    let gauge = metrics
        .lines()
        .find(|line| line.starts_with("lanekeeper_lane_stalled{") && line.contains("ConsumerPaused"));
    assert!(gauge.is_some_and(|line| line.ends_with(" 1")), "{version}: {metrics}");
    assert_eq!(journal.done(), [1], "{version}");
    rig.by_hand(&pause, Value::Null).await;
    wait_moving(&rig, 0, "a").await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), [1, 2, 3], "{version}");
}

#[tokio::test]
async fn a_consumer_that_a_person_paused_is_told_of_and_the_lane_goes_on_when_it_is_open() {
    join_all(VERSIONS.map(|version| Box::pin(a_person_pauses_the_consumer_of(version)))).await;
}

#[tokio::test]
async fn a_handler_that_takes_many_deadlines_and_retries_are_no_stall_for_the_standby() {
    let mut rig = rig(LATEST, 1_000).await;
    rig.settings.retry.max_attempts = 10;
    rig.settings.retry.max_backoff_milliseconds = 1_000;
    let consumer = rig.open().await;
    let said = reports(&rig).await;
    let journal = Journal::default();
    let script = |message: &lanekeeper_worker::Message| match (message.sequence(), message.attempt()) {
        (1, _) => (seconds(6), Ok(())),
        (2, 1..=3) => (ms(0), Err(lanekeeper_worker::HandlerError::retry("no"))),
        _ => (ms(0), Ok(())),
    };
    let owner = Running::start(rig.builder(0).pod("a"), Script::new(&journal, script).named("a"));
    rig.publish_many("k", 4).await;
    wait_until(DEADLINE, "the first message to be in hand", || async { journal.begun() == [1] }).await;
    let standby = Running::start(rig.builder(0).pod("b"), Script::new(&journal, script).named("b"));
    rig.wait_settled(&consumer).await;
    let said = said.lock().unwrap().clone();
    assert!(said.iter().all(|report| report.stalled.is_none()), "{said:?}");
    owner.stop().await;
    standby.stop().await;
}
