//! Two workers of one lane, of which one has its messages: P15, and P12, P13 and P14 with a standby.

use std::collections::BTreeSet;

use lanekeeper_core::record::Ownership;
use lanekeeper_tests::{LATEST, VERSIONS, wait_until};
use serde_json::json;

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    rig::{Rig, Running, STREAM, ms},
    standbys::{self, pin, rig},
};

async fn unpin(rig: &Rig, consumer: &str) {
    rig.by_hand(&format!("CONSUMER.UNPIN.{STREAM}.{consumer}"), json!({"group": "lane"})).await;
}

#[tokio::test]
async fn one_worker_has_all_messages_and_the_standby_takes_over_as_soon_as_it_leaves() {
    for version in VERSIONS {
        standbys::one_after_the_other(version, Ownership::Pin).await;
    }
}

#[tokio::test]
async fn a_message_that_vanishes_in_hand_lets_no_standby_begin_before_its_handler_has_ended() {
    for version in VERSIONS {
        standbys::vanishing(version, Ownership::Pin).await;
    }
}

#[tokio::test]
async fn a_pin_that_is_taken_away_costs_no_order_and_never_makes_two_handlers() {
    for version in VERSIONS {
        let (rig, consumer) = rig(version, Ownership::Pin, 3_000).await;
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
    standbys::rollout(LATEST, Ownership::Pin).await;
}

#[tokio::test]
async fn a_standby_takes_the_message_of_a_killed_worker_first() {
    standbys::killed(LATEST, Ownership::Pin).await;
}

#[tokio::test]
async fn a_frozen_owner_that_wakes_up_while_its_standby_works_says_nothing() {
    standbys::frozen(LATEST, Ownership::Pin).await;
}
