//! An owner of a lane and those who stand by, whatever decides between them: bodies of stories that are the same for a pin
//! and for a lease. Each is told in `pins`, `leases` and `release`.

use lanekeeper_core::{
    lane::State,
    lease::Lease,
    record::{LaneKey, Ownership},
    stream::Retention,
};
use lanekeeper_tests::{NatsServer, wait_until};
use lanekeeper_worker::Message;
use serde_json::{Value, json};

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, Running, STREAM, ms, seconds},
};

/// The one lane of a set; its consumer.
pub(crate) async fn rig(version: &str, ownership: Ownership, ack_wait_milliseconds: u64) -> (Rig, String) {
    let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
    rig.settings.ownership = ownership;
    rig.settings.ack_wait_milliseconds = ack_wait_milliseconds;
    rig.settings.handler_timeout_milliseconds = 600_000;
    let consumer = rig.open().await;
    (rig, consumer)
}

/// What the server says of a consumer.
pub(crate) async fn consumer_info(rig: &Rig, consumer: &str) -> Value {
    rig.by_hand(&format!("CONSUMER.INFO.{STREAM}.{consumer}"), json!(null)).await
}

/// Who has the consumer's messages, where it is pinned.
pub(crate) async fn pin(rig: &Rig, consumer: &str) -> Option<String> {
    let info = consumer_info(rig, consumer).await;
    Some(info["priority_groups"][0]["pinned_client_id"].as_str()?.to_owned()).filter(|id| !id.is_empty())
}

pub(crate) async fn lease(rig: &Rig) -> Option<Lease> {
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

pub(crate) async fn wait_standby(worker: &Running) {
    wait_until(DEADLINE, "a worker to stand by", || async {
        let state = worker.status().state;
        if state == State::Standby { Ok(()) } else { Err(state.name().to_owned()) }
    })
    .await;
}

/// Waits until a pod has noted that the lane is its, and with a pin where there is one.
pub(crate) async fn wait_noted(rig: &Rig, pod: &str) {
    let pinned = rig.settings.ownership == Ownership::Pin;
    wait_until(DEADLINE, "the owner to be noted", || async {
        let owner = rig.lane_key(1).await.owner;
        let is_noted = |owner: &lanekeeper_core::record::Owned| {
            owner.holder.pod == pod && owner.pin.is_empty() != pinned
        };
        if owner.as_ref().is_some_and(is_noted) { Ok(()) } else { Err(format!("{owner:?}")) }
    })
    .await;
}

/// Takes a pod out of the lane, as the operator does on the kubelet's word.
async fn take_out(rig: &Rig, pod: &str) {
    let key = rig.set.lane_key(1);
    loop {
        let mut found = rig.bucket.get_json::<LaneKey>(&key).await.unwrap().unwrap();
        found.value.holders.retain(|holder| holder.pod != pod);
        match rig.bucket.put_json(&key, &found.value, Some(found.revision)).await {
            Ok(_) => return,
            Err(error) => assert!(error.is_conflict(), "{error}"),
        }
    }
}

/// The sequences that one of the handlers was given, in that order.
pub(crate) fn by(journal: &Journal, who: &str) -> Vec<u64> {
    journal.all().iter().filter(|one| one.who == who).map(|one| one.sequence).collect()
}

/// A worker as a process, which has the first message in hand and does not let go of it for so many seconds.
async fn at_work(rig: &Rig, pod: &str, takes: u64) -> (WorkerProcess, Journal, HttpScript) {
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, seconds(takes)).await;
    let worker = WorkerProcess::start(rig, pod, &handler.url()).await;
    wait_until(DEADLINE, "the first message to be in work", || async { journal.begun() == [1] }).await;
    (worker, journal, handler)
}

/// One worker has all messages, and the standby takes over as soon as it leaves.
pub(crate) async fn one_after_the_other(version: &str, ownership: Ownership) {
    // Nothing here may wait for a deadline: it is longer than the test.
    let (rig, consumer) = rig(version, ownership, 300_000).await;
    let pinned = ownership == Ownership::Pin;
    assert_eq!(
        rig.consumer(&consumer).await.unwrap().set.is_empty(),
        !pinned,
        "{version}: pinned, or nothing"
    );
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
    if !pinned {
        assert_eq!(lease(&rig).await.unwrap().holder, None, "{version}: it was given back");
    }
}

/// A message that vanishes in hand lets no standby begin before its handler has ended.
pub(crate) async fn vanishing(version: &str, ownership: Ownership) {
    let (rig, consumer) = rig(version, ownership, 1_500).await;
    let journal = Journal::default();
    // Several times as long as pin and lease live without a renewal.
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
    assert_eq!(by(&journal, "a").first(), Some(&1), "{version}");
    rig.wait_settled(&consumer).await;
    owner.stop().await;
    standby.stop().await;
}

/// In a rollout the old pod takes no other message, and the new one begins when the old one has ended its message.
pub(crate) async fn rollout(version: &str, ownership: Ownership) {
    let (rig, consumer) = rig(version, ownership, 300_000).await;
    rig.publish_many("k", 5).await;
    let (mut worker, old, _handler) = at_work(&rig, "old", 3).await;
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
    let info = consumer_info(&rig, &consumer).await;
    assert_eq!(info["delivered"]["consumer_seq"], 5, "{version}: each was delivered once");
    standby.stop().await;
}

/// A standby takes the message of a killed worker first.
pub(crate) async fn killed(version: &str, ownership: Ownership) {
    let (rig, consumer) = rig(version, ownership, 3_000).await;
    rig.publish_many("k", 3).await;
    let (worker, _, _handler) = at_work(&rig, "old", 600).await;
    let new = Journal::default();
    let standby = Running::start(rig.builder(0).pod("new"), Script::taking(&new, ms(0)));
    wait_standby(&standby).await;
    worker.kill().await;
    rig.wait_settled(&consumer).await;
    assert_eq!(new.done(), [1, 2, 3], "{version}");
    assert_eq!(new.all()[0].attempt, 2, "{version}: a crash counts as an attempt");
    standby.stop().await;
}

/// A frozen owner that wakes up while its standby works says nothing.
pub(crate) async fn frozen(version: &str, ownership: Ownership) {
    let (rig, consumer) = rig(version, ownership, 2_000).await;
    rig.publish_many("k", 2).await;
    let (frozen, old, _handler) = at_work(&rig, "frozen", 600).await;
    let new = Journal::default();
    let script = Script::new(&new, |message: &Message| {
        (if message.sequence() == 1 { seconds(6) } else { ms(0) }, Ok(()))
    });
    let standby = Running::start(rig.builder(0).pod("new"), script);
    wait_standby(&standby).await;
    frozen.signal("STOP");
    wait_until(DEADLINE, "the standby to have the message", || async { new.begun() == [1] }).await;
    frozen.signal("CONT");
    let lost = match ownership {
        Ownership::Pin => "the deadline passed without proof: given up, nothing is sent for it",
        Ownership::Lease => "the lane's lease is not this worker's any more",
    };
    wait_until(DEADLINE, "the thawed worker to notice", || async { frozen.logged(lost).is_some() }).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(new.story(), [(1, End::Done), (2, End::Done)], "{version}: and it has the lane still");
    assert_eq!(old.begun(), [1], "{version}: the thawed worker handles nothing more");
    new.assert_in_order();
    let info = consumer_info(&rig, &consumer).await;
    assert_eq!(info["delivered"]["stream_seq"], 2, "{version}");
    assert!(frozen.logged("the lane did what it must never do").is_none(), "{}", frozen.log());
    standby.stop().await;
}

/// A restarted container has the message of its killed process at once, and the pin or the lease.
pub(crate) async fn restarted(version: &str, ownership: Ownership) {
    // Far longer than a test may take: nothing goes on by waiting.
    let (rig, consumer) = rig(version, ownership, 600_000).await;
    rig.publish_many("k", 3).await;
    let (killed, _, _handler) = at_work(&rig, "pod", 600).await;
    wait_noted(&rig, "pod").await;
    killed.kill().await;
    let new = Journal::default();
    let handler = HttpScript::taking(&new, ms(0)).await;
    let _restarted = WorkerProcess::start(&rig, "pod", &handler.url()).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(new.done(), [1, 2, 3], "{version}");
    assert_eq!(new.all()[0].attempt, 2, "{version}: a crash counts as an attempt");
}

/// A standby takes over when the owner is proven to have ended.
pub(crate) async fn proven_to_have_ended(version: &str, ownership: Ownership) {
    let (rig, consumer) = rig(version, ownership, 600_000).await;
    rig.publish_many("k", 3).await;
    let (owner, _, _handler) = at_work(&rig, "a", 600).await;
    wait_noted(&rig, "a").await;
    let new = Journal::default();
    let standbys = ["b", "c"]
        .map(|pod| Running::start(rig.builder(0).pod(pod), Script::taking(&new, ms(50)).named(pod)));
    wait_until(DEADLINE, "the standbys to be in the lane", || async {
        rig.lane_key(1).await.holders.len() == 3
    })
    .await;
    if ownership == Ownership::Lease {
        wait_held(&rig, "a").await;
    }
    owner.kill().await;
    take_out(&rig, "a").await;
    rig.wait_settled(&consumer).await;
    new.assert_in_order();
    assert_eq!(new.done(), [1, 2, 3]);
    let successor = new.all()[0].who;
    wait_noted(&rig, successor).await;
    for standby in standbys {
        standby.stop().await;
    }
    assert_eq!(rig.lane_key(1).await.owner, None, "an orderly end leaves no note");
}
