//! Parked keys of a set that a real worker serves.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_nats::jetstream;
use lanekeeper_tests::wait_until;
use lanekeeper_worker::{HandlerError, Message, handler};
use serde_json::json;

use crate::{
    calling::plugin,
    rig::{DEADLINE, Rig},
    workers::Running,
};

async fn publish(rig: &Rig, key: &str) {
    let context = jetstream::new(rig.nats.client().await);
    context.publish(format!("orders.{key}"), "x".into()).await.unwrap().await.unwrap();
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
async fn a_person_looks_at_parked_keys_and_has_their_lane_release_and_drop_them() {
    let (rig, operator) = Rig::start("parking").await;
    let words = {
        rig.create("other", rig.spec(1)).await.unwrap();
        rig.wait_lanes("other").await;
        let words = plugin(&rig, "parked list other").await.refusal();
        rig.delete("other").await;
        rig.wait_gone("other").await;
        words
    };
    assert!(words.contains("the set has no park"), "{words}");
    let mut spec = rig.spec(1);
    spec["onExhausted"] = json!({"policy": "ParkKey"});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let stream = rig.name("orders").park_stream();
    let set = rig.name("orders").to_string();
    let text = plugin(&rig, "parked list orders").await.text();
    assert_eq!(text, format!("Nothing of {set} is parked in stream {stream}.\n"));

    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let poisoned = handler(move |message: Arc<Message>| {
        let fails = message.key() != "fine" && !is_mended.load(Ordering::Relaxed);
        async move { if fails { Err(HandlerError::permanent("no stock")) } else { Ok(()) } }
    });
    let worker = Running::start_with(&rig, 0, poisoned).await;
    for key in ["a", "b", "a", "fine", "a", "b"] {
        publish(&rig, key).await;
    }
    wait_settled(&rig).await;
    let list = plugin(&rig, "parked list orders -o json").await.json();
    let keys = list["keys"].as_array().unwrap();
    assert_eq!(
        (&keys[0]["key"], &keys[0]["messages"], &keys[0]["first"], &keys[0]["last"]),
        (&json!("a"), &json!(3), &json!(1), &json!(5))
    );
    assert_eq!((&keys[1]["key"], &keys[1]["reason"]), (&json!("b"), &json!("no stock")));
    let list = plugin(&rig, "parked list orders --key a -o json").await.json();
    let sequences: Vec<_> =
        list["messages"].as_array().unwrap().iter().map(|one| one["sequence"].clone()).collect();
    assert_eq!(sequences, [1, 3, 5]);
    let words = plugin(&rig, "parked release orders --key c").await.refusal();
    assert!(words.contains(&format!("--key c: stream {stream} has no such parked message")), "{words}");
    let words = plugin(&rig, "parked list orders --key a.b").await.refusal();
    assert!(words.contains("--key 'a.b' is no key of the set"), "{words}");

    let answer = plugin(&rig, "parked release orders --key a").await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.out.contains("it stays parked: sequence 1: no stock"), "{answer:?}");
    let text = plugin(&rig, "parked drop orders --sequence 3 --reason wrong").await.text();
    assert_eq!(text, "message 3 of key a (partition 0): 1 parked messages dropped\n");
    mended.store(true, Ordering::Relaxed);
    let text = plugin(&rig, "parked release orders --all").await.text();
    assert_eq!(
        text,
        "key a (partition 0): 2 parked messages handled; it is free\n\
         key b (partition 0): 2 parked messages handled; it is free\n"
    );
    let text = plugin(&rig, "parked release orders --all").await.text();
    assert_eq!(text, format!("Nothing of {set} is parked.\n"));
    worker.stop().await;
    operator.stop().await;
}
