//! P10 as the resource tells it: which partition stands still, where, why and since when; and that it is over.

use std::time::Duration;

use lanekeeper_api::status::LaneAttention;
use lanekeeper_core::consumer::GROUP;
use lanekeeper_tests::{Stranger, wait_until};
use serde_json::json;

use crate::{
    flowing::{Journal, Workers, publish},
    idle::passes,
    rig::{DEADLINE, Rig},
};

const KEYS: u64 = 8;

async fn attention(rig: &Rig) -> Vec<LaneAttention> {
    rig.get("orders").await.status.unwrap_or_default().attention
}

#[tokio::test]
async fn a_partition_whose_message_a_stranger_holds_is_shown_until_the_stranger_lets_go() {
    let (rig, operator) = Rig::start("stalled").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let journal = Journal::default();
    let workers = Workers::start(&rig, 2, &journal, |_| (Duration::ZERO, Ok(()))).await;
    publish(&rig, KEYS, 1).await;
    journal.wait_for_all(KEYS, 1).await;
    let consumers = rig.consumers_of("orders", "ORDERS").await;
    let consumer = rig.name("orders").consumer(0, 1);
    assert!(consumers.iter().any(|found| found.name == consumer), "{consumers:?}");
    let begun = std::time::SystemTime::now();
    let client = rig.nats.client().await;
    let publish = Box::pin(async {
        let context = async_nats::jetstream::new(rig.nats.client().await);
        for key in 0..KEYS {
            context.publish(format!("orders.{key}"), "2".into()).await.unwrap().await.unwrap();
        }
    });
    let stranger = Stranger::take(client, "ORDERS", &consumer, GROUP, publish).await;
    let message = rig.wait_condition("orders", "Blocked", "True/LaneStalled").await;
    let at = format!("reach no worker: 0; partition 0 at sequence {}, since 20", stranger.sequence);
    assert!(message.contains(&at), "{message}");
    rig.wait_condition("orders", "Ready", "False/LaneStalled").await;
    let [lane] = &attention(&rig).await[..] else { panic!("one lane: {:?}", attention(&rig).await) };
    assert_eq!((lane.partition, lane.reason.as_str()), (0, "LaneStalled"));
    assert_eq!(lane.sequence, i64::try_from(stranger.sequence).ok());
    assert!(lane.message.starts_with("SlotHeldElsewhere: "), "{}", lane.message);
    let since = std::time::SystemTime::from(lane.since.as_ref().expect("since when").0);
    assert!(since + Duration::from_secs(1) > begun && since <= std::time::SystemTime::now(), "{since:?}");
    // Passes go by: it is said once, nothing is deleted, no pod is changed.
    let (deployments, seen) = (rig.deployment_names().await, passes(&operator).await);
    wait_until(DEADLINE, "some more passes", || async { passes(&operator).await >= seen + 5 }).await;
    assert_eq!(rig.events("LaneStalled").await.len(), 1, "{:?}", rig.events("LaneStalled").await);
    rig.wait_event(
        "LaneStalled",
        &format!("messages of partition 0 wait from sequence {} on", stranger.sequence),
    )
    .await;
    assert_eq!(rig.deployment_names().await, deployments);
    let names = |found: Vec<lanekeeper_core::consumer::ConsumerFound>| {
        found.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(names(rig.consumers_of("orders", "ORDERS").await), names(consumers));
    // The other partition has done its part.
    let counts = rig.get("orders").await.status.unwrap().lanes;
    assert_eq!(counts.blocked, 1);
    let other = rig.name("orders").consumer(1, 2);
    wait_until(DEADLINE, "the other partition to be done", || async {
        let all = rig.consumers_of("orders", "ORDERS").await;
        all.iter().any(|found| found.name == other && (found.pending, found.ack_pending) == (0, 0))
    })
    .await;
    stranger.release().await;
    rig.wait_condition("orders", "Blocked", "False/NoneBlocked").await;
    assert_eq!(attention(&rig).await, []);
    journal.wait_for_all(KEYS, 2).await;
    workers.stop().await;
    operator.stop().await;
}

/// A person's pause is a change of the consumer like any other: it is said, and taken back.
#[tokio::test]
async fn a_consumer_that_was_paused_is_opened_and_nothing_is_left_of_it() {
    let (rig, operator) = Rig::start("paused-by-hand").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let journal = Journal::default();
    let workers = Workers::start(&rig, 1, &journal, |_| (Duration::ZERO, Ok(()))).await;
    publish(&rig, KEYS, 1).await;
    journal.wait_for_all(KEYS, 1).await;
    let consumer = rig.name("orders").consumer(0, 1);
    let pause = format!("CONSUMER.PAUSE.ORDERS.{consumer}");
    let until = json!({"pause_until": "2100-01-01T00:00:00Z"});
    rig.connection().await.api::<serde_json::Value>(&pause, &until).await.unwrap();
    publish(&rig, KEYS, 2).await;
    rig.wait_event("ConsumerRepaired", "pause_until").await;
    journal.wait_for_all(KEYS, 2).await;
    rig.wait_condition("orders", "Blocked", "False/NoneBlocked").await;
    workers.stop().await;
    operator.stop().await;
}
