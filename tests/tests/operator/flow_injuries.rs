//! Changes of the number of partitions under load while something fails: no key out of order, nothing lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lanekeeper_core::mapping::Mapping;
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use lanekeeper_worker::HandlerError;
use serde_json::{Value, json};

use crate::{
    flowing::{self, Journal, Workers, keep_publishing, publish},
    rig::{DEADLINE, Rig},
};

const KEYS: u64 = 20;

fn taking(milliseconds: u64) -> impl Fn(&lanekeeper_worker::Message) -> (Duration, Result<(), HandlerError>) {
    move |_| (Duration::from_millis(milliseconds), Ok(()))
}

/// Files, so that a server that is killed has everything when it comes back.
fn stored_in_files(rig: &Rig, partitions: u32) -> Value {
    let mut spec = rig.spec(partitions);
    spec["stream"]["storage"] = json!("File");
    spec["consumer"]["ackWaitSeconds"] = json!(5);
    spec
}

/// P28.
#[tokio::test]
async fn a_set_that_is_behind_grows_and_every_key_goes_on_where_it_was() {
    // A backlog of twenty seconds, so that a slow machine is not done with it before the change is.
    const EACH: u64 = 200;
    let (rig, operator) = Rig::start("grow").await;
    rig.create("orders", rig.spec(4)).await.unwrap();
    rig.wait_lanes("orders").await;
    publish(&rig, KEYS, EACH).await;
    let journal = Journal::default();
    let workers = Workers::start(&rig, 8, &journal, taking(20)).await;
    wait_until(DEADLINE, "the first messages", || async { journal.handled() > 100 }).await;
    rig.patch("orders", json!({"spec": {"partitions": 8}})).await;
    wait_until(DEADLINE, "eight lanes, and not one word of Ready before", || async {
        let open = rig.open_partitions("orders").await.len();
        let status = rig.get("orders").await.status.unwrap_or_default();
        let said = status
            .conditions
            .iter()
            .any(|one| one.type_ == "LanesReady" && one.message.starts_with("8 of 8"));
        assert!(!said || rig.open_partitions("orders").await.len() == 8, "said before it was so");
        if open == 8 && said { Ok(()) } else { Err(format!("{open} are open")) }
    })
    .await;
    assert!(journal.handled() < KEYS * EACH, "the backlog was not worked off first");
    assert_eq!(flowing::end(operator, workers, &journal, KEYS, EACH).await, 0);
}

/// P29.
#[tokio::test]
async fn a_set_shrinks_with_a_backlog_while_nats_and_the_operator_are_killed() {
    let mut rig = Rig::prepare("shrink", NatsServer::start(LATEST).await).await;
    let operator = rig.operator().await;
    rig.create("orders", stored_in_files(&rig, 8)).await.unwrap();
    rig.wait_lanes("orders").await;
    let created = rig.stream("ORDERS").await.unwrap().created;
    publish(&rig, KEYS, 50).await;
    let journal = Journal::default();
    let workers = Workers::start(&rig, 8, &journal, taking(10)).await;
    wait_until(DEADLINE, "the first messages", || async { journal.handled() > 50 }).await;
    rig.patch("orders", json!({"spec": {"partitions": 2}})).await;
    wait_until(DEADLINE, "the change to have begun", || async {
        rig.record("orders").await.is_some_and(|record| record.changed_seconds.is_some())
    })
    .await;
    operator.kill().await;
    rig.nats.restart().await;
    let operator = rig.operator().await;
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    assert_eq!(rig.open_partitions("orders").await, [0, 1]);
    journal.wait_for_all(KEYS, 50).await;
    assert_eq!(rig.stream("ORDERS").await.unwrap().created, created, "the stream is the same");
    assert_eq!(rig.deployment_names().await, ["orders-0", "orders-1"]);
    assert_eq!(rig.consumers("ORDERS").await.len(), 2);
    let repeats = flowing::end(operator, workers, &journal, KEYS, 50).await;
    // What was in hand when the server was killed: at most one message of each of the lanes before and after.
    assert!(repeats <= 10, "{repeats} repeats");
}

#[tokio::test]
async fn a_number_that_goes_back_and_forth_while_operators_are_killed_breaks_nothing() {
    let (rig, mut operator) = Rig::start("flap").await;
    rig.create("orders", rig.spec(4)).await.unwrap();
    rig.wait_lanes("orders").await;
    let journal = Journal::default();
    let workers = Workers::start(&rig, 8, &journal, taking(3)).await;
    let publisher = keep_publishing(&rig, KEYS, 200, &journal).await;
    for (index, partitions) in [8, 4, 7, 3, 8, 1, 5, 2, 6, 4, 8, 3].into_iter().enumerate() {
        rig.patch("orders", json!({"spec": {"partitions": partitions}})).await;
        // The next number comes before this change has ended.
        let seen = rig.record("orders").await.map(|record| record.counter);
        wait_until(DEADLINE, "the operator to begin", || async {
            rig.record("orders").await.map(|record| record.counter) != seen
        })
        .await;
        if index % 3 == 2 {
            operator.kill().await;
            operator = rig.operator().await;
        }
    }
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    assert_eq!(rig.open_partitions("orders").await, [0, 1, 2]);
    let published = publisher.stop().await;
    let repeats = flowing::end(operator, workers, &journal, KEYS, published).await;
    assert_eq!(repeats, 0);
}

#[tokio::test]
async fn a_lane_blocked_at_a_message_is_split_and_merged_and_only_the_keys_behind_it_wait() {
    let (rig, operator) = Rig::start("poison").await;
    let mut spec = rig.spec(2);
    spec["retry"] = json!({"initialBackoffMilliseconds": 20, "maxBackoffSeconds": 1, "maxAttempts": 2});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let mapping: Mapping = rig.assignment("orders", 0).await.unwrap().mapping;
    let of = |key: u64| mapping.key_hash(&format!("orders.{key}")).unwrap();
    let poison = 0;
    // In the same partition of two, in another one of four.
    let sibling =
        (1..KEYS).find(|key| of(*key) % 2 == of(poison) % 2 && of(*key) % 4 != of(poison) % 4).unwrap();
    // In the same partition of four, so behind it in any case.
    let neighbour = (1..KEYS).find(|key| of(*key) % 4 == of(poison) % 4).unwrap();
    let (journal, cured) = (Journal::default(), Arc::new(AtomicBool::new(false)));
    let is_cured = Arc::clone(&cured);
    let workers = Workers::start(&rig, 4, &journal, move |message| {
        let ill = message.subject() == "orders.0" && message.payload().as_ref() == b"3";
        let result = if ill && !is_cured.load(Ordering::SeqCst) {
            Err(HandlerError::retry("not this one"))
        } else {
            Ok(())
        };
        (Duration::from_millis(1), result)
    })
    .await;
    publish(&rig, KEYS, 10).await;
    rig.wait_condition("orders", "Blocked", "True/AttemptsExhausted").await;
    let subject = |key: u64| format!("orders.{key}");
    assert!(journal.handled_of(&subject(sibling)) < 10, "it waits behind the message");
    rig.patch("orders", json!({"spec": {"partitions": 4}})).await;
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    wait_until(DEADLINE, "the keys that moved away to go on", || async {
        journal.handled_of(&subject(sibling)) == 10
    })
    .await;
    rig.wait_condition("orders", "Blocked", "True/AttemptsExhausted").await;
    rig.patch("orders", json!({"spec": {"partitions": 1}})).await;
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    rig.wait_condition("orders", "Blocked", "True/AttemptsExhausted").await;
    assert_eq!(journal.handled_of(&subject(poison)), 2);
    assert!(journal.handled_of(&subject(neighbour)) < 10, "it waits behind the message");
    cured.store(true, Ordering::SeqCst);
    journal.wait_for_all(KEYS, 10).await;
    rig.wait_condition("orders", "Blocked", "False/NoneBlocked").await;
    assert_eq!(flowing::end(operator, workers, &journal, KEYS, 10).await, 0);
}

/// P37.
#[tokio::test]
async fn a_consumer_deleted_under_its_worker_is_succeeded_and_the_worker_goes_on() {
    let (rig, operator) = Rig::start("deleted").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let journal = Journal::default();
    publish(&rig, KEYS, 50).await;
    let workers = Workers::start(&rig, 2, &journal, taking(5)).await;
    wait_until(DEADLINE, "half of it to be handled", || async { journal.handled() > 500 }).await;
    let first = rig.name("orders").consumer(1, 2);
    let connection = rig.connection().await;
    connection.api::<Value>(&format!("CONSUMER.DELETE.ORDERS.{first}"), &Value::Null).await.unwrap();
    rig.wait_event("ConsumerConflict", "partition 1").await;
    journal.wait_for_all(KEYS, 50).await;
    rig.wait_lanes("orders").await;
    let successor = rig.assignment("orders", 1).await.unwrap();
    assert_ne!(successor.consumer, first, "a name is never used again");
    let repeats = flowing::end(operator, workers, &journal, KEYS, 50).await;
    println!("{repeats} repeats after the consumer was deleted");
    // What a lane of 5 ms handles between two notes of its floor, which are one resync apart, with room.
    assert!(repeats <= 400, "{repeats} repeats");
}
