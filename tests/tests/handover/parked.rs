//! Parked keys while partitions split and merge and workers fail: nothing is handled before what is parked of its key, and
//! once it is released everything was handled, in order.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lanekeeper_core::{
    names::{DEFAULT_BUCKET, SetName},
    order::{Order, OrderOutcome},
    record::{LaneKey, LaneState, Record},
    stream::Retention,
};
use lanekeeper_nats::{Bucket, observe};
use lanekeeper_tests::{
    LATEST,
    soak::{chance, ground::PARK},
    wait_until,
};
use serde_json::json;

use crate::{
    DEADLINE,
    place::Place,
    story::{Outline, Story},
    troubles::Trouble,
};

/// Hot keys; of these every message from the tenth on fails.
const KEYS: [&str; 3] = ["k0", "k1", "k3"];
const NUMBER: u64 = 10;

/// The keys of which something is parked.
async fn parked(story: &Story) -> BTreeSet<String> {
    let prefix = SetName::new("shop", "orders").park_prefix();
    let found = observe::subjects_under(&story.judge, PARK, &format!("{prefix}.>")).await;
    // A server that is away for a moment has nothing to say.
    let subjects = found.map(|(subjects, _)| subjects).unwrap_or_default();
    subjects.keys().filter_map(|subject| subject.rsplit('.').next()).map(str::to_owned).collect()
}

/// Orders that a key be released, if its lane takes orders now; the result, if it comes soon.
async fn release(story: &Story, key: &str, number: usize) -> Option<OrderOutcome> {
    let set = SetName::new("shop", "orders");
    let bucket = Bucket::new(story.judge.clone(), DEFAULT_BUCKET);
    let order = json!({"id": format!("{key} {number}"), "verb": "release", "key": key});
    let order: Order = serde_json::from_value(order).unwrap();
    let record = bucket.get_json::<Record>(&set.record_key()).await.ok()??.value;
    let open = |state| state == LaneState::Open;
    let lane = record.lanes.iter().find(|lane| open(lane.state) && lane.share.contains_hash(order.hash()))?;
    let name = set.lane_key(lane.incarnation);
    let mut found = bucket.get_json::<LaneKey>(&name).await.ok()??;
    found.value.add_order(order.clone()).ok()?;
    bucket.put_json(&name, &found.value, Some(found.revision)).await.ok()?;
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    while tokio::time::Instant::now() < end {
        if let Ok(Some(found)) = bucket.get_json::<LaneKey>(&name).await
            && let Some(result) = found.value.results.into_iter().find(|result| result.id == order.id)
        {
            return Some(result.outcome);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_keys_move_and_are_released_in_order_while_partitions_change_and_workers_fail() {
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let troubles = [
        Trouble::Calm,
        Trouble::OperatorKilled,
        Trouble::TwoOperators,
        Trouble::WorkerCrashes,
        Trouble::PodReplaced,
        Trouble::PodRolled,
        Trouble::ConnectionsCut,
    ];
    let outline = Outline {
        most: 8,
        parks: true,
        behaviour: Arc::new(move |key, number| {
            let fails = KEYS.contains(&key) && number >= NUMBER && !is_mended.load(Ordering::Relaxed);
            (Duration::from_millis(number % 3), !fails)
        }),
        pause: Duration::from_millis(8),
        // What is parked must not keep others from being published.
        backlog: u64::MAX / 2,
        ..Outline::new("parked keys", Retention::WorkQueue, &troubles)
    };
    let mut story = Story::begin(&outline, Place::one(LATEST).await, chance::seed()).await;
    wait_until(DEADLINE, "the keys to be parked", || async {
        let parked = parked(&story).await;
        (parked.len() == KEYS.len()).then_some(()).ok_or(format!("{parked:?}"))
    })
    .await;
    for _ in 0..8 {
        story.change().await;
        let beyond = |entry: &lanekeeper_tests::journal::Entry| {
            KEYS.contains(&entry.key.as_str()) && entry.number >= NUMBER
        };
        assert!(!story.history.entries().iter().any(beyond), "a message overtook a parked one");
    }
    // Nothing is mended yet, so it stays parked.
    assert_eq!(release(&story, KEYS[0], 0).await, Some(OrderOutcome::Failed));
    assert_eq!(parked(&story).await.len(), KEYS.len());
    mended.store(true, Ordering::Relaxed);
    for number in 1.. {
        let left = parked(&story).await;
        if left.is_empty() && number > 3 {
            break;
        }
        assert!(number < 40, "{left:?} stay parked");
        for key in &left {
            release(&story, key, number).await;
        }
        if number <= 3 {
            story.change().await;
        }
    }
    story.finish().await;
}
