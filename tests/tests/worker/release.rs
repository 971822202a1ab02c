//! What a dead worker had is handed on at once where its end is proven. Deadlines here are far longer than a test may
//! take, so nothing goes on by waiting for one.

use lanekeeper_core::{
    record::{Delivery, Ownership},
    stream::Retention,
};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS, wait_until};

use crate::{
    DEADLINE,
    journal::Journal,
    process::{HttpScript, WorkerProcess},
    rig::{Rig, ms, seconds},
    standbys::{self, rig, wait_noted},
};

const ACK_WAIT_MILLISECONDS: u64 = 600_000;

#[tokio::test]
async fn a_restarted_container_has_the_message_of_its_killed_process_at_once() {
    for version in VERSIONS {
        standbys::restarted(version, Ownership::Pin).await;
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
    let (rig, consumer) = rig(LATEST, Ownership::Pin, ACK_WAIT_MILLISECONDS).await;
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
    standbys::proven_to_have_ended(LATEST, Ownership::Pin).await;
}
