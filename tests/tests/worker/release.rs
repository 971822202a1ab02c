//! What a dead worker had is handed on at once where its end is proven. Deadlines here are far longer than a test may
//! take, so nothing goes on by waiting for one.

use lanekeeper_core::{
    record::{Delivery, LaneKey},
    stream::Retention,
};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS, wait_until};

use crate::{
    DEADLINE,
    journal::{Journal, Script},
    process::{HttpScript, WorkerProcess},
    rig::{Rig, Running, ms, seconds},
};

const ACK_WAIT_MILLISECONDS: u64 = 600_000;

async fn rig(version: &str) -> (Rig, String) {
    let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
    rig.settings.ack_wait_milliseconds = ACK_WAIT_MILLISECONDS;
    rig.settings.handler_timeout_milliseconds = ACK_WAIT_MILLISECONDS;
    let consumer = rig.open().await;
    (rig, consumer)
}

/// Waits until a pod has noted that the lane is its.
async fn wait_noted(rig: &Rig, pod: &str) {
    wait_until(DEADLINE, "the owner to note its pin", || async {
        let owner = rig.lane_key(1).await.owner;
        if owner.as_ref().is_some_and(|owner| owner.holder.pod == pod) {
            Ok(())
        } else {
            Err(format!("{owner:?}"))
        }
    })
    .await;
}

/// As the operator does on the kubelet's word.
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

#[tokio::test]
async fn a_restarted_container_has_the_message_of_its_killed_process_at_once() {
    for version in VERSIONS {
        let (rig, consumer) = rig(version).await;
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
async fn everything_that_a_killed_process_had_on_hand_is_handed_on_at_once() {
    for version in VERSIONS {
        let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
        rig.settings.ack_wait_milliseconds = ACK_WAIT_MILLISECONDS;
        rig.settings.delivery = Delivery::Pipelined { window: 8 };
        let consumer = rig.open().await;
        rig.publish_many("k", 30).await;
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
        assert_eq!(new.done(), (1..=30).collect::<Vec<u64>>(), "{version}");
    }
}

#[tokio::test]
async fn the_pin_of_an_idle_process_that_was_killed_is_released_as_well() {
    let (rig, consumer) = rig(LATEST).await;
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, ms(0)).await;
    let killed = WorkerProcess::start(&rig, "pod", &handler.url()).await;
    rig.publish("k", "").await;
    rig.wait_settled(&consumer).await;
    wait_noted(&rig, "pod").await;
    killed.kill().await;
    let _restarted = WorkerProcess::start(&rig, "pod", &handler.url()).await;
    rig.publish("k", "").await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), [1, 2]);
}

#[tokio::test]
async fn a_standby_takes_over_when_the_owner_is_proven_to_have_ended() {
    let (rig, consumer) = rig(LATEST).await;
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
