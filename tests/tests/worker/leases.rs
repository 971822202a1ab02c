//! Lanes whose messages go to the worker that has their lease: P13, P14 and P20 once more, and what is P15 for a pin. P17
//! itself is among the tests of NATS.

use lanekeeper_core::record::Ownership;
use lanekeeper_tests::{LATEST, VERSIONS, wait_until};
use lanekeeper_worker::Message;
use serde_json::json;

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    rig::{Running, ms, seconds},
    standbys::{self, rig, wait_standby},
};

/// The oldest and the newest.
fn both() -> [&'static str; 2] {
    [VERSIONS[0], LATEST]
}

#[tokio::test]
async fn one_worker_has_all_messages_and_the_standby_takes_over_as_soon_as_it_leaves() {
    for version in both() {
        standbys::one_after_the_other(version, Ownership::Lease).await;
    }
}

#[tokio::test]
async fn in_a_rollout_the_new_pod_begins_when_the_old_one_has_ended_its_message_and_no_sooner() {
    for version in both() {
        standbys::rollout(version, Ownership::Lease).await;
    }
}

#[tokio::test]
async fn a_standby_takes_the_message_of_a_killed_worker_first() {
    for version in both() {
        standbys::killed(version, Ownership::Lease).await;
    }
}

#[tokio::test]
async fn a_frozen_holder_that_wakes_up_while_its_standby_works_says_nothing() {
    for version in both() {
        standbys::frozen(version, Ownership::Lease).await;
    }
}

#[tokio::test]
async fn a_message_that_vanishes_in_hand_lets_no_standby_begin_before_its_handler_has_ended() {
    standbys::vanishing(LATEST, Ownership::Lease).await;
}

#[tokio::test]
async fn a_lease_that_somebody_deletes_costs_no_order_and_never_makes_two_handlers() {
    let (rig, consumer) = rig(LATEST, Ownership::Lease, 1_500).await;
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

#[tokio::test]
async fn a_restarted_container_has_lease_and_message_of_its_killed_process_at_once() {
    for version in both() {
        standbys::restarted(version, Ownership::Lease).await;
    }
}

#[tokio::test]
async fn a_standby_takes_over_when_the_holder_is_proven_to_have_ended() {
    standbys::proven_to_have_ended(LATEST, Ownership::Lease).await;
}

#[tokio::test]
async fn a_holder_cut_off_from_nats_gives_its_message_up_before_another_may_have_the_lease() {
    let (rig, consumer) = rig(LATEST, Ownership::Lease, 2_000).await;
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
