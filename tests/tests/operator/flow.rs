//! Keys stay in order while the operator changes the number of partitions and messages flow, when nothing fails.

use std::time::Duration;

use lanekeeper_tests::wait_until;
use serde_json::json;

use crate::{
    flowing::{self, Journal, Workers, keep_publishing},
    rig::{DEADLINE, Rig},
};

const KEYS: u64 = 20;
/// Messages that wait while lanes change.
const BACKLOG: u64 = 600;
const MOST_PARTITIONS: u32 = 6;
const CHANGES: [u32; 6] = [3, 5, 4, 6, 1, 2];

async fn in_order_through_changes(name: &str, retention: &str) {
    let (rig, operator) = Rig::start(name).await;
    let mut spec = rig.spec(2);
    spec["stream"]["retention"] = json!(retention);
    // Nothing here dies, so no deadline needs to pass; a handover that waited for one would take much longer.
    spec["consumer"]["ackWaitSeconds"] = json!(30);
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let journal = Journal::default();
    // Long enough for messages to be in hand when lanes change.
    let workers =
        Workers::start(&rig, MOST_PARTITIONS, &journal, |_| (Duration::from_millis(2), Ok(()))).await;
    let publisher = keep_publishing(&rig, KEYS, BACKLOG, &journal).await;
    for partitions in CHANGES {
        rig.patch("orders", json!({"spec": {"partitions": partitions}})).await;
        rig.wait_condition("orders", "Rescaling", "False/Settled").await;
        assert_eq!(rig.open_partitions("orders").await, (0..partitions).collect::<Vec<_>>());
        // Messages flow in the lanes of each number.
        let before = journal.handled();
        wait_until(DEADLINE, "the lanes to handle messages", || async { journal.handled() > before + 200 })
            .await;
    }
    let published = publisher.stop().await;
    let repeats = flowing::end(operator, workers, &journal, KEYS, published).await;
    // A repeat of a completed message is allowed, but nothing here gives a reason for one.
    assert_eq!(repeats, 0);
}

#[tokio::test]
async fn keys_stay_in_order_while_the_number_of_partitions_changes_on_a_limits_stream() {
    in_order_through_changes("flow-limits", "Limits").await;
}

#[tokio::test]
async fn keys_stay_in_order_while_the_number_of_partitions_changes_on_an_interest_stream() {
    in_order_through_changes("flow-interest", "Interest").await;
}

#[tokio::test]
async fn keys_stay_in_order_while_the_number_of_partitions_changes_on_a_work_queue() {
    in_order_through_changes("flow-queue", "WorkQueue").await;
}
