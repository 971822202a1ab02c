//! Orders of a person to lanes that real workers serve.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_nats::jetstream;
use lanekeeper_core::record::LaneKey;
use lanekeeper_tests::wait_until;
use lanekeeper_worker::{HandlerError, Message, handler};
use serde_json::{Value, json};

use crate::{
    calling::plugin,
    rig::{DEADLINE, Rig},
    workers::Running,
};

/// What starts with `poison` fails until the handler is mended.
struct Poison {
    mended: Arc<AtomicBool>,
}

impl Poison {
    fn new() -> Self {
        Self { mended: Arc::new(AtomicBool::new(false)) }
    }

    async fn serve(&self, rig: &Rig, partition: u32) -> Running {
        let mended = Arc::clone(&self.mended);
        let handler = handler(move |message: Arc<Message>| {
            let fails = message.payload().starts_with(b"poison") && !mended.load(Ordering::Relaxed);
            async move { if fails { Err(HandlerError::permanent("no stock")) } else { Ok(()) } }
        });
        Running::start_with(rig, partition, handler).await
    }

    fn mend(&self, mended: bool) {
        self.mended.store(mended, Ordering::Relaxed);
    }
}

async fn publish(rig: &Rig, key: &str, payload: &'static str) -> u64 {
    let context = jetstream::new(rig.nats.client().await);
    let stored = context.publish(format!("orders.{key}"), payload.into()).await.unwrap();
    stored.await.unwrap().sequence
}

async fn wait_blocked(rig: &Rig, sequence: u64) {
    wait_until(DEADLINE, "the lane to stand at the message", || async {
        let status = rig.get("orders").await.status.unwrap_or_default();
        let at = status.attention.iter().any(|one| one.sequence == i64::try_from(sequence).ok());
        if at { Ok(()) } else { Err(format!("{:?}", status.attention)) }
    })
    .await;
}

async fn wait_settled(rig: &Rig) {
    wait_until(DEADLINE, "everything to be settled", || async {
        let found = rig.consumers_of("orders", "ORDERS").await;
        let open: u64 = found.iter().map(|one| one.pending + one.ack_pending).sum();
        if open == 0 { Ok(()) } else { Err(open) }
    })
    .await;
}

#[tokio::test]
async fn a_person_tries_and_skips_what_a_lane_stands_at() {
    tries_and_skips("persons", json!({"mode": "Serial"})).await;
}

#[tokio::test]
async fn a_person_tries_and_skips_what_a_lane_with_several_messages_on_hand_stands_at() {
    tries_and_skips("persons-windows", json!({"mode": "Batch"})).await;
}

async fn tries_and_skips(name: &str, delivery: Value) {
    let (rig, operator) = Rig::start(name).await;
    let mut spec = rig.spec(1);
    spec["delivery"] = delivery;
    spec["retry"] = json!({"maxBackoffSeconds": 600});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let refusal = async |arguments: &str| plugin(&rig, arguments).await.refusal();
    let words = refusal("retry orders --partition 0").await;
    assert!(words.contains("partition 0 stands at nothing"), "{words}");
    let words = refusal("retry orders --partition 3").await;
    assert!(words.contains("--partition is 3: the set has the partitions 0 to 0"), "{words}");
    let words = refusal("skip orders --sequence 1 --reason why").await;
    assert!(words.contains("stream ORDERS has no message 1"), "{words}");
    let words = refusal("skip orders --key k --reason why").await;
    assert!(words.contains("no message of key 'k' that is not settled"), "{words}");
    let words = refusal("skip orders --key k.l --reason why").await;
    assert!(words.contains("--key 'k.l' has 2 tokens: a key has 1 (keyTokens [1])"), "{words}");

    let handler = Poison::new();
    let worker = handler.serve(&rig, 0).await;
    let poison = publish(&rig, "k", "poison").await;
    let next = publish(&rig, "other", "fine").await;
    wait_blocked(&rig, poison).await;
    let answer = plugin(&rig, "retry orders --partition 0").await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert_eq!(
        answer.out,
        format!("message {poison} of key k (partition 0): tried, and it failed: no stock\n")
    );
    let words = refusal("retry orders --key other").await;
    assert!(words.contains(&format!("stands at message {poison} of key 'k', not of 'other'")), "{words}");
    let words = refusal(&format!("retry orders --sequence {next}")).await;
    assert!(words.contains(&format!("stands at message {poison}, which comes before {next}")), "{words}");
    handler.mend(true);
    let text = plugin(&rig, "retry orders --key k").await.text();
    assert!(text.ends_with("tried, and it succeeded\n"), "{text}");
    let words = refusal(&format!("skip orders --sequence {poison} --reason why")).await;
    assert!(
        words.contains(&format!("message {poison} is settled already: partition 0 is past it")),
        "{words}"
    );

    handler.mend(false);
    let poison = publish(&rig, "k", "poison").await;
    wait_blocked(&rig, poison).await;
    let answer =
        plugin(&rig, &format!("skip orders --sequence {poison} --reason duplicate -o json")).await.json();
    assert_eq!((&answer["outcome"], &answer["messages"]), (&json!("skipped"), &json!(1)), "{answer}");
    let words = format!("partition 0 skipped the message at sequence {poison}, as ");
    rig.wait_event("MessageSkipped", &words).await;
    rig.wait_event("MessageSkipped", " ordered: duplicate").await;

    let mut last = 0;
    for _ in 0..3 {
        last = publish(&rig, "k", "poison").await;
    }
    let text = plugin(&rig, "skip orders --key k --reason broken").await.text();
    assert_eq!(text, format!("key k (partition 0) up to message {last}: 3 messages skipped\n"));
    wait_settled(&rig).await;
    worker.stop().await;
    operator.stop().await;
}

#[tokio::test]
async fn what_was_ordered_before_a_change_of_the_number_is_carried_out_after_it() {
    let (rig, operator) = Rig::start("heirs").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let mut keys = Vec::new();
    for key in ["a", "b", "c", "d"] {
        keys.push((key, publish(&rig, key, "poison").await));
    }
    // Nobody works, so nobody carries it out.
    for (key, sequence) in &keys {
        let answer =
            plugin(&rig, &format!("skip orders --sequence {sequence} --reason moved --timeout 1ms")).await;
        assert_eq!(answer.code, Some(1), "{answer:?}");
        let words =
            format!("message {sequence} of key {key} (partition 0): not skipped within 0.001 s; the order ");
        assert!(answer.out.starts_with(&words) && answer.out.contains(" stays, "), "{answer:?}");
    }
    rig.patch("orders", json!({"spec": {"partitions": 2}})).await;
    wait_until(DEADLINE, "both lanes to be open", || async {
        let open = rig.open_partitions("orders").await;
        if open == [0, 1] { Ok(()) } else { Err(format!("{open:?}")) }
    })
    .await;
    let handler = Poison::new();
    let workers = [handler.serve(&rig, 0).await, handler.serve(&rig, 1).await];
    wait_settled(&rig).await;
    let bucket = rig.bucket().await;
    wait_until(DEADLINE, "all orders to be over", || async {
        let mut results = Vec::new();
        for lane in rig.record("orders").await.unwrap().lanes {
            let key = rig.name("orders").lane_key(lane.incarnation);
            let found = bucket.get_json::<LaneKey>(&key).await.unwrap();
            let given = found.into_iter().flat_map(|found| found.value.results);
            results.extend(given.map(|result| result.messages));
        }
        if results == [1; 4] { Ok(()) } else { Err(format!("{results:?}")) }
    })
    .await;
    for worker in workers {
        worker.stop().await;
    }
    operator.stop().await;
}
