//! A message that cannot be handled: its lane stands, splits and merges, and goes on in order when it is released.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use lanekeeper_core::stream::Retention;
use lanekeeper_tests::{LATEST, soak::chance, wait_until};

use crate::{
    DEADLINE,
    place::Place,
    story::{Outline, Story},
};

/// The hottest key of the load, so that its lane has much behind the message.
const KEY: &str = "k0";
/// The message that fails.
const NUMBER: u64 = 30;

async fn stands_splits_and_merges(retention: Retention) {
    let (released, attempts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (is_released, counted) = (Arc::clone(&released), Arc::clone(&attempts));
    let outline = Outline {
        most: 8,
        behaviour: Arc::new(move |key, number| {
            let poison = key == KEY && number == NUMBER;
            if poison {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            (Duration::from_millis(1), !poison || is_released.load(Ordering::Relaxed))
        }),
        pause: Duration::from_millis(10),
        // What waits behind the poison must not keep others from being published.
        backlog: u64::MAX / 2,
        ..Outline::new(format!("poison, {retention:?}"), retention, &[])
    };
    let mut story = Story::begin(&outline, Place::one(LATEST).await, chance::seed()).await;
    wait_until(DEADLINE, "the poison to be tried", || async { attempts.load(Ordering::Relaxed) > 0 }).await;
    for partitions in [2, 8, 4, 1, 3, 8, 1] {
        let asked = story.desk.want(partitions);
        story.settled(asked).await;
        // It is tried by whoever has its key now.
        let before = attempts.load(Ordering::Relaxed);
        wait_until(DEADLINE, "the poison to be tried again", || async {
            attempts.load(Ordering::Relaxed) > before
        })
        .await;
        let beyond = |entry: &lanekeeper_tests::journal::Entry| entry.key == KEY && entry.number >= NUMBER;
        assert!(!story.history.entries().iter().any(beyond), "a message overtook the poison");
        if partitions > 1 {
            story.flows().await;
        }
    }
    released.store(true, Ordering::Relaxed);
    let asked = story.desk.want(5);
    story.settled(asked).await;
    story.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_lane_of_a_limits_stream_splits_and_merges_and_goes_on_in_order_when_released() {
    stands_splits_and_merges(Retention::Limits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_lane_of_a_work_queue_splits_and_merges_and_goes_on_in_order_when_released() {
    stands_splits_and_merges(Retention::WorkQueue).await;
}
