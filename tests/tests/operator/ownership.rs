//! Who decides which worker has a lane's messages: the server, by a pin, or the workers, by a lease. Changed under load.

use std::{collections::BTreeSet, time::Duration};

use lanekeeper_core::{
    consumer::PIN,
    lease::{Lease, Terms},
    names::SetKey,
    record::{LaneState, Ownership},
};
use lanekeeper_tests::wait_until;
use serde_json::json;

use crate::{
    flowing::{self, Journal, Workers, keep_publishing},
    rig::{DEADLINE, Rig},
};

const KEYS: u64 = 20;
const BACKLOG: u64 = 600;

/// Incarnations of open lanes, once all lanes are open and go by this, in record, consumer and assignment.
async fn wait_all(rig: &Rig, partitions: u32, ownership: Ownership) -> BTreeSet<u64> {
    wait_until(DEADLINE, &format!("all lanes to go by {ownership:?}"), || async {
        let record = rig.record("orders").await.ok_or("there is no record")?;
        let right = |state, other| state == LaneState::Open && other == ownership;
        if record.lanes.len() != partitions as usize
            || !record.lanes.iter().all(|lane| right(lane.state, lane.ownership))
        {
            return Err(format!("{:?}", record.lanes));
        }
        let consumers = rig.consumers_of("orders", "ORDERS").await;
        let pinned =
            |set: &std::collections::BTreeMap<&str, String>| PIN.iter().any(|one| set.contains_key(one));
        let leased = ownership == Ownership::Lease;
        if consumers.len() != partitions as usize || consumers.iter().any(|one| pinned(&one.set) == leased) {
            return Err(format!("{consumers:?}"));
        }
        for partition in 0..partitions {
            let assignment = rig.assignment("orders", partition).await;
            let given = assignment.map(|assignment| assignment.settings.ownership);
            if given != Some(ownership) {
                return Err(format!("partition {partition} goes by {given:?}"));
            }
        }
        Ok(record.lanes.iter().map(|lane| lane.incarnation).collect())
    })
    .await
}

/// Incarnations that have a lease.
async fn leases(rig: &Rig) -> BTreeSet<u64> {
    let name = rig.name("orders");
    let entries = rig.bucket().await.load(&name.key_prefix()).await.unwrap();
    let lease = |key: &str| match name.parse_key(key) {
        Some(SetKey::Lease(incarnation)) => Some(incarnation),
        _ => None,
    };
    entries.iter().filter_map(|entry| lease(&entry.key)).collect()
}

#[tokio::test]
async fn a_change_between_pin_and_lease_hands_every_lane_over_in_order() {
    const PARTITIONS: u32 = 3;
    let (rig, operator) = Rig::start("ownership").await;
    let mut spec = rig.spec(PARTITIONS);
    // Nothing here dies, so neither a deadline nor a lease needs to pass.
    spec["consumer"]["ackWaitSeconds"] = json!(300);
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let journal = Journal::default();
    let workers = Workers::start(&rig, PARTITIONS, &journal, |_| (Duration::from_millis(2), Ok(()))).await;
    let publisher = keep_publishing(&rig, KEYS, BACKLOG, &journal).await;
    let mut before = wait_all(&rig, PARTITIONS, Ownership::Pin).await;
    for (word, ownership) in
        [("Lease", Ownership::Lease), ("Pin", Ownership::Pin), ("Lease", Ownership::Lease)]
    {
        rig.patch("orders", json!({"spec": {"consumer": {"ownership": word}}})).await;
        let now = wait_all(&rig, PARTITIONS, ownership).await;
        assert!(now.is_disjoint(&before), "every lane has a successor: {before:?}, {now:?}");
        let handled = journal.handled();
        wait_until(DEADLINE, "the lanes to handle messages", || async { journal.handled() > handled + 200 })
            .await;
        let expected = if ownership == Ownership::Lease { now.clone() } else { BTreeSet::new() };
        wait_until(DEADLINE, "the leases of lanes in use, and no others", || async {
            let found = leases(&rig).await;
            if found == expected { Ok(()) } else { Err(format!("{found:?}, wanted {expected:?}")) }
        })
        .await;
        before = now;
    }
    // A lane with a lease is split and merged like any other.
    for partitions in [5, 2] {
        rig.patch("orders", json!({"spec": {"partitions": partitions}})).await;
        wait_all(&rig, partitions, Ownership::Lease).await;
        if partitions > PARTITIONS {
            rig.patch("orders", json!({"spec": {"partitions": PARTITIONS}})).await;
            wait_all(&rig, PARTITIONS, Ownership::Lease).await;
        }
    }
    let published = publisher.stop().await;
    let repeats = flowing::end(operator, workers, &journal, KEYS, published).await;
    assert_eq!(repeats, 0);
}

#[tokio::test]
async fn leases_go_with_their_lane_and_their_set() {
    let (rig, operator) = Rig::start("leases").await;
    let mut spec = rig.spec(1);
    spec["deletionPolicy"] = json!("Delete");
    spec["consumer"]["ownership"] = json!("Lease");
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    wait_all(&rig, 1, Ownership::Lease).await;
    let bucket = rig.bucket().await;
    let name = rig.name("orders");
    // One of the lane, and one of a lane that is forgotten.
    for incarnation in [0, 1] {
        let key = name.lease_key(incarnation);
        let lease = Lease::free(1, Terms::new(Duration::from_secs(1)));
        bucket.put(&key, bucket.json(&key, &lease).unwrap()).await.unwrap();
    }
    wait_until(DEADLINE, "the leftover to be deleted", || async {
        leases(&rig).await == BTreeSet::from([1])
    })
    .await;
    rig.delete("orders").await;
    rig.wait_gone("orders").await;
    let left = bucket.load(&name.key_prefix()).await.unwrap();
    assert_eq!(left.len(), 0, "{left:?}");
    operator.stop().await;
}
