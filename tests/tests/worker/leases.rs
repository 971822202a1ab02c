//! Lanes whose messages go to the worker that has their lease: P13, P14 and P20 once more, and what is P15 for a pin. P17
//! itself is among the tests of NATS.

use lanekeeper_core::{
    lane::State,
    lease::Lease,
    record::{LaneKey, Ownership},
    stream::Retention,
};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS, wait_until};
use lanekeeper_worker::Message;
use serde_json::json;

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, Running, STREAM, ms, seconds},
};

async fn rig(version: &str, ack_wait_milliseconds: u64) -> (Rig, String) {
    let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
    rig.settings.ownership = Ownership::Lease;
    rig.settings.ack_wait_milliseconds = ack_wait_milliseconds;
    rig.settings.handler_timeout_milliseconds = 600_000;
    let consumer = rig.open().await;
    (rig, consumer)
}

/// The oldest and the newest.
fn both() -> [&'static str; 2] {
    [VERSIONS[0], LATEST]
}

async fn lease(rig: &Rig) -> Option<Lease> {
    let found = rig.bucket.get_json::<Lease>(&rig.set.lease_key(1)).await.unwrap();
    found.map(|found| found.value)
}

async fn wait_held(rig: &Rig, pod: &str) {
    wait_until(DEADLINE, "the lease to be a pod's", || async {
        let lease = lease(rig).await;
        let holder = lease.as_ref().and_then(|lease| lease.holder.as_ref());
        if holder.is_some_and(|holder| holder.pod == pod) { Ok(()) } else { Err(format!("{lease:?}")) }
    })
    .await;
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
    for version in both() {
        // Nothing here may wait for a lease to lapse: it is longer than the test. Not even the first worker does.
        let (rig, consumer) = rig(version, 300_000).await;
        assert!(rig.consumer(&consumer).await.unwrap().set.is_empty(), "{version}: nothing is pinned");
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
        assert_eq!(lease(&rig).await.unwrap().holder, None, "{version}: it was given back");
    }
}

#[tokio::test]
async fn in_a_rollout_the_new_pod_begins_when_the_old_one_has_ended_its_message_and_no_sooner() {
    for version in both() {
        let (rig, consumer) = rig(version, 300_000).await;
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
        standby.stop().await;
    }
}

#[tokio::test]
async fn a_standby_takes_the_message_of_a_killed_worker_first() {
    for version in both() {
        let (rig, consumer) = rig(version, 3_000).await;
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
        assert_eq!(new.done(), [1, 2, 3], "{version}");
        assert_eq!(new.all()[0].attempt, 2, "{version}: a crash counts as an attempt");
        standby.stop().await;
    }
}

#[tokio::test]
async fn a_frozen_holder_that_wakes_up_while_its_standby_works_says_nothing() {
    for version in both() {
        let (rig, consumer) = rig(version, 2_000).await;
        rig.publish_many("k", 2).await;
        let old = Journal::default();
        let handler = HttpScript::taking(&old, seconds(600)).await;
        let frozen = WorkerProcess::start(&rig, "frozen", &handler.url()).await;
        wait_until(DEADLINE, "the first message to be in work", || async { old.begun() == [1] }).await;
        let new = Journal::default();
        let script = Script::new(&new, |message: &Message| {
            (if message.sequence() == 1 { seconds(6) } else { ms(0) }, Ok(()))
        });
        let standby = Running::start(rig.builder(0).pod("new"), script);
        wait_standby(&standby).await;
        frozen.signal("STOP");
        wait_until(DEADLINE, "the standby to have the message", || async { new.begun() == [1] }).await;
        frozen.signal("CONT");
        let lost = "the lane's lease is not this worker's any more";
        wait_until(DEADLINE, "the thawed worker to notice", || async { frozen.logged(lost).is_some() }).await;
        rig.wait_settled(&consumer).await;
        assert_eq!(new.story(), [(1, End::Done), (2, End::Done)], "{version}: and it has the lane still");
        assert_eq!(old.begun(), [1], "{version}: the thawed worker handles nothing more");
        new.assert_in_order();
        let info = rig.by_hand(&format!("CONSUMER.INFO.{STREAM}.{consumer}"), json!(null)).await;
        assert_eq!(info["delivered"]["stream_seq"], 2, "{version}");
        assert!(frozen.logged("the lane did what it must never do").is_none(), "{}", frozen.log());
        standby.stop().await;
    }
}

#[tokio::test]
async fn a_message_that_vanishes_in_hand_lets_no_standby_begin_before_its_handler_has_ended() {
    let (rig, consumer) = rig(LATEST, 1_500).await;
    let journal = Journal::default();
    // Several times as long as the lease lives without a renewal.
    let slow = |message: &Message| (if message.sequence() == 1 { seconds(5) } else { ms(0) }, Ok(()));
    let owner = Running::start(rig.builder(0).pod("a"), Script::new(&journal, slow).named("a"));
    rig.publish("k", "").await;
    wait_until(DEADLINE, "the first message to be in hand", || async { journal.begun() == [1] }).await;
    let standby = Running::start(rig.builder(0).pod("b"), Script::new(&journal, slow).named("b"));
    wait_standby(&standby).await;
    rig.by_hand(&format!("STREAM.MSG.DELETE.{STREAM}"), json!({"seq": 1})).await;
    rig.publish_many("k", 3).await;
    wait_until(DEADLINE, "the later messages", || async { journal.done() == [1, 2, 3, 4] }).await;
    journal.assert_in_order();
    assert_eq!(by(&journal, "a").first(), Some(&1));
    rig.wait_settled(&consumer).await;
    owner.stop().await;
    standby.stop().await;
}

#[tokio::test]
async fn a_lease_that_somebody_deletes_costs_no_order_and_never_makes_two_handlers() {
    let (rig, consumer) = rig(LATEST, 1_500).await;
    let journal = Journal::default();
    let workers = ["a", "b"]
        .map(|name| Running::start(rig.builder(0).pod(name), Script::taking(&journal, ms(150)).named(name)));
    let key = rig.set.lease_key(1);
    let mut published = 0;
    for round in 0..4 {
        rig.publish_many("k", 5).await;
        published += 5;
        wait_until(DEADLINE, "a message to be in hand", || async {
            journal.story().last().is_some_and(|(_, end)| *end == End::Running)
        })
        .await;
        if round % 2 == 0 {
            let purge = json!({"filter": rig.bucket.subject(&key)});
            rig.by_hand(&format!("STREAM.PURGE.{}", rig.bucket.stream()), purge).await;
        } else {
            wait_until(DEADLINE, "the lease to be deleted", || async {
                let found = rig.bucket.get(&key).await.unwrap().ok_or("there is none yet")?;
                rig.bucket.delete(&key, found.revision).await.map_err(|_| "it was renewed just now")
            })
            .await;
        }
        rig.wait_settled(&consumer).await;
    }
    journal.assert_in_order();
    let mut done = journal.done();
    done.dedup();
    assert_eq!(done, (1..=published).collect::<Vec<u64>>());
    for worker in workers {
        worker.stop().await;
    }
}

/// Waits until a pod has noted that the lane is its.
async fn wait_noted(rig: &Rig, pod: &str) {
    wait_until(DEADLINE, "the owner to be noted", || async {
        let owner = rig.lane_key(1).await.owner;
        owner.filter(|owner| owner.holder.pod == pod && owner.pin.is_empty())
    })
    .await;
}

#[tokio::test]
async fn a_restarted_container_has_lease_and_message_of_its_killed_process_at_once() {
    for version in both() {
        // Far longer than a test may take: nothing goes on by waiting.
        let (rig, consumer) = rig(version, 600_000).await;
        rig.publish_many("k", 3).await;
        let old = Journal::default();
        let handler = HttpScript::taking(&old, seconds(600)).await;
        let killed = WorkerProcess::start(&rig, "pod", &handler.url()).await;
        wait_until(DEADLINE, "the first message to be in work", || async { old.begun() == [1] }).await;
        wait_noted(&rig, "pod").await;
        killed.kill().await;
        let new = Journal::default();
        let handler = HttpScript::taking(&new, ms(0)).await;
        let _restarted = WorkerProcess::start(&rig, "pod", &handler.url()).await;
        rig.wait_settled(&consumer).await;
        assert_eq!(new.done(), [1, 2, 3], "{version}");
        assert_eq!(new.all()[0].attempt, 2, "{version}: a crash counts as an attempt");
    }
}

#[tokio::test]
async fn a_standby_takes_over_when_the_holder_is_proven_to_have_ended() {
    let (rig, consumer) = rig(LATEST, 600_000).await;
    rig.publish_many("k", 3).await;
    let old = Journal::default();
    let handler = HttpScript::taking(&old, seconds(600)).await;
    let owner = WorkerProcess::start(&rig, "a", &handler.url()).await;
    wait_until(DEADLINE, "the first message to be in work", || async { old.begun() == [1] }).await;
    wait_noted(&rig, "a").await;
    let new = Journal::default();
    let standbys = ["b", "c"]
        .map(|pod| Running::start(rig.builder(0).pod(pod), Script::taking(&new, ms(50)).named(pod)));
    wait_until(DEADLINE, "the standbys to be in the lane", || async {
        rig.lane_key(1).await.holders.len() == 3
    })
    .await;
    wait_held(&rig, "a").await;
    owner.kill().await;
    // As the operator does on the kubelet's word.
    let key = rig.set.lane_key(1);
    wait_until(DEADLINE, "the dead holder to be taken out", || async {
        let mut found = rig.bucket.get_json::<LaneKey>(&key).await.unwrap().unwrap();
        found.value.holders.retain(|holder| holder.pod != "a");
        rig.bucket.put_json(&key, &found.value, Some(found.revision)).await
    })
    .await;
    rig.wait_settled(&consumer).await;
    new.assert_in_order();
    assert_eq!(new.done(), [1, 2, 3]);
    for standby in standbys {
        standby.stop().await;
    }
    assert_eq!(rig.lane_key(1).await.owner, None, "an orderly end leaves no note");
}

#[tokio::test]
async fn a_holder_cut_off_from_nats_gives_its_message_up_before_another_may_have_the_lease() {
    let (rig, consumer) = rig(LATEST, 2_000).await;
    rig.publish_many("k", 2).await;
    let proxy = lanekeeper_tests::TcpProxy::start(rig.server.address()).await;
    let journal = Journal::default();
    let script = Script::new(&journal, |message: &Message| {
        (if message.attempt() == 1 { seconds(30) } else { ms(0) }, Ok(()))
    });
    let worker = Running::start(rig.builder_at(0, &proxy.url()).pod("cut off"), script.named("cut off"));
    wait_until(DEADLINE, "the first message to be in work", || async { journal.begun() == [1] }).await;
    let other = Running::start(rig.builder(0).pod("other"), Script::taking(&journal, ms(0)).named("other"));
    wait_standby(&other).await;
    proxy.refuse();
    rig.wait_settled(&consumer).await;
    journal.assert_in_order();
    assert_eq!(journal.story()[0], (1, End::Cut));
    assert_eq!(journal.done(), [1, 2]);
    other.stop().await;
    worker.crash();
}
