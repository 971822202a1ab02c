//! Dead letters on a real server: listed, published again, dropped.

use std::sync::atomic::{AtomicU64, Ordering};

use async_nats::{HeaderMap, jetstream};
use lanekeeper_core::aside as header;
use lanekeeper_nats::observe::{self, WholeMessage};
use lanekeeper_tests::{LATEST, NatsServer};
use serde_json::{Value, json};

use crate::{
    calling::plugin,
    rig::{Operator, Rig},
};

const DEAD: &str = "DEAD";

/// Makes each letter another one for the stream: two of one message are what a worker leaves that died at the wrong moment,
/// and began again after the stream's duplicate window.
static LETTERS: AtomicU64 = AtomicU64::new(0);

/// A set whose dead letters go to a stream that another set uses as well.
async fn set(name: &str) -> (Rig, Operator, jetstream::Context) {
    let (rig, operator) = Rig::start(name).await;
    let context = jetstream::new(rig.nats.client().await);
    let config = jetstream::stream::Config {
        name: DEAD.into(),
        subjects: vec!["lanekeeper.dlq.>".into()],
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    let mut spec = rig.spec(1);
    spec["onExhausted"] = json!({"policy": "DeadLetter", "deadLetter": {"streamName": DEAD}});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    (rig, operator, context)
}

/// A dead letter as a worker writes it; its number.
async fn letter(rig: &Rig, context: &jetstream::Context, key: &str, original: u64) -> u64 {
    let fence = format!("0000000001-{original:020}");
    let set = rig.name("orders");
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (header::SUBJECT, format!("orders.{key}")),
        (header::STREAM, "ORDERS".into()),
        (header::SEQUENCE, original.to_string()),
        (header::FENCE, fence.clone()),
        (header::KEY, key.into()),
        (header::SET, set.to_string()),
        (header::PARTITION, "0".into()),
        (header::ATTEMPTS, "5".into()),
        (header::REASON, "no such pen".into()),
        (header::TIME, "2026-11-30T06:00:00Z".into()),
        (header::MESSAGE_ID, "mine".into()),
        (
            "Nats-Msg-Id",
            format!("lanekeeper-dlq {set} ORDERS {fence} {}", LETTERS.fetch_add(1, Ordering::Relaxed)),
        ),
        ("traceparent", "00-1".into()),
    ] {
        headers.insert(name, value.as_str());
    }
    headers.append("many", "a");
    headers.append("many", "b");
    let payload: Vec<u8> = (0..=255).collect();
    let sent =
        context.publish_with_headers(set.dead_letter_subject(), headers, payload.into()).await.unwrap();
    sent.await.unwrap().sequence
}

async fn stored(rig: &Rig, stream: &str) -> Vec<WholeMessage> {
    let connection = rig.connection().await;
    let mut found = Vec::new();
    let mut from = 1;
    while let Some(one) = observe::next_under(&connection, stream, ">", from).await.unwrap() {
        from = one.sequence + 1;
        found.push(one);
    }
    found
}

fn sequences(list: &Value) -> Vec<(u64, u64)> {
    let letters = list["letters"].as_array().unwrap();
    let number = |letter: &Value, name: &str| letter[name].as_u64().unwrap();
    letters.iter().map(|letter| (number(letter, "sequence"), number(letter, "original"))).collect()
}

#[tokio::test]
async fn dead_letters_are_listed_and_published_again_in_the_order_in_which_they_were() {
    let (rig, operator, context) = set("dlq").await;
    let refusal = async |arguments: &str| plugin(&rig, arguments).await.refusal();
    assert!(plugin(&rig, "dlq list orders").await.text().starts_with("No dead letters of "));
    let words = refusal("dlq replay orders --all").await;
    assert!(
        words.contains("--all: stream DEAD has no such dead letter under subject lanekeeper.dlq."),
        "{words}"
    );
    let words = refusal("dlq list orders --stream NONE").await;
    assert!(words.contains("there is no stream NONE"), "{words}");

    let other =
        context.publish("lanekeeper.dlq.other.set", "theirs".into()).await.unwrap().await.unwrap().sequence;
    let late = letter(&rig, &context, "k", 9).await;
    let early = letter(&rig, &context, "k", 7).await;
    let twice = letter(&rig, &context, "k", 7).await;
    let of_another = letter(&rig, &context, "z", 8).await;
    let list = plugin(&rig, "dlq list orders --key k -o json").await.json();
    assert_eq!(sequences(&list), [(late, 9), (early, 7), (twice, 7)], "{list}");
    let text = plugin(&rig, "dlq list orders --limit 1").await.text();
    let line =
        format!("{late}          9          k     0           5          2026-11-30T06:00:00Z   no such pen");
    assert!(text.contains(&line) && text.contains("There are more"), "{text}");
    let words = refusal(&format!("dlq replay orders --sequence {other}")).await;
    assert!(words.contains("no such dead letter"), "another set's: {words}");

    let text = plugin(&rig, "dlq replay orders --key k --dry-run").await.text();
    let would = format!("dead letter {early} (message 7 of key k) would be published again to orders.k\n");
    assert!(text.starts_with(&would), "{text}");
    assert_eq!((stored(&rig, "ORDERS").await.len(), stored(&rig, DEAD).await.len()), (0, 5));

    let done = plugin(&rig, "dlq replay orders --key k -o json").await.json();
    let now: Vec<u64> =
        done["replayed"].as_array().unwrap().iter().map(|one| one["now"].as_u64().unwrap()).collect();
    assert_eq!(now, [1, 1, 2], "in the order of the messages, and each once: {done}");
    let messages = stored(&rig, "ORDERS").await;
    let first = &messages[0];
    assert_eq!((messages.len(), first.payload.len()), (2, 256));
    assert!(first.subject.ends_with(".orders.k"), "{}", first.subject);
    let values: Vec<&str> =
        first.headers.iter().filter(|(name, _)| name == "many").map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["a", "b"]);
    assert_eq!(first.header("traceparent"), Some("00-1"));
    assert_eq!(first.header(header::REPLAY_OF), Some("ORDERS 0000000001-00000000000000000007"));
    assert_eq!((first.header(header::MESSAGE_ID), first.header(header::REASON)), (None, None));
    let left: Vec<u64> = stored(&rig, DEAD).await.iter().map(|one| one.sequence).collect();
    assert_eq!(left, [other, of_another]);
    operator.stop().await;
}

#[tokio::test]
async fn a_replay_that_was_interrupted_is_not_made_twice_within_the_window() {
    let (rig, operator, context) = set("dlqagain").await;
    let one = letter(&rig, &context, "k", 7).await;
    // As if the plugin had ended between the two steps: the message is there already.
    let mut headers = HeaderMap::new();
    let id = format!("lanekeeper-replay {} ORDERS 0000000001-{:020}", rig.name("orders"), 7);
    headers.insert("Nats-Msg-Id", id.as_str());
    context.publish_with_headers("orders.k", headers, "x".into()).await.unwrap().await.unwrap();
    let text = plugin(&rig, &format!("dlq replay orders --sequence {one}")).await.text();
    assert_eq!(
        text,
        format!("dead letter {one} (message 7 of key k) published again to orders.k: message 1 now\n")
    );
    assert_eq!((stored(&rig, "ORDERS").await.len(), stored(&rig, DEAD).await.len()), (1, 0));
    operator.stop().await;
}

#[tokio::test]
async fn dead_letters_are_dropped_with_a_reason_and_many_only_when_that_is_meant() {
    let (rig, operator, context) = set("dlqdrop").await;
    let mut last = 0;
    for original in 1..=101 {
        last = letter(&rig, &context, "k", original).await;
    }
    let words = plugin(&rig, "dlq drop orders --all --reason old").await.refusal();
    assert!(words.contains("101 dead letters match: say --yes"), "{words}");
    let text = plugin(&rig, &format!("dlq drop orders --sequence {last} --reason old")).await.text();
    assert!(
        text.starts_with(&format!(
            "dead letter {last} (message 101 of key k) of 2026-11-30T06:00:00Z dropped;"
        )),
        "{text}"
    );
    assert!(text.ends_with("Reason: old\n"), "{text}");
    assert_eq!(stored(&rig, DEAD).await.len(), 100);
    let done = plugin(&rig, "dlq drop orders --all --reason old -o json").await.json();
    assert_eq!((done["dropped"].as_array().unwrap().len(), stored(&rig, DEAD).await.len()), (100, 0));

    // A letter that no worker wrote stops a replay, and stays.
    let subject = rig.name("orders").dead_letter_subject();
    context.publish(subject, "by hand".into()).await.unwrap().await.unwrap();
    let answer = plugin(&rig, "dlq replay orders --all").await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.out.contains("it has no header Lanekeeper-Subject"), "{answer:?}");
    assert_eq!(stored(&rig, DEAD).await.len(), 1);
    let mut config = context.get_stream(DEAD).await.unwrap().cached_info().config.clone();
    config.deny_delete = true;
    context.update_stream(config).await.unwrap();
    let words = plugin(&rig, "dlq replay orders --all").await.refusal();
    assert!(words.contains("stream DEAD allows no message to be deleted"), "{words}");
    operator.stop().await;
}

/// The configuration of the user that may decide, as the plugin's page shows it, for a namespace.
fn documented(namespace: &str) -> String {
    let page = include_str!("../../../../docs/reference/plugin.md");
    let block = page.split("```nats\n").nth(2).and_then(|rest| rest.split("```").next());
    let block = block.expect("there is a second block");
    block
        .replace("set.shop.orders", &format!("set.{namespace}.orders"))
        .replace("lk_shop_orders", &format!("lk_{namespace}_orders"))
}

#[tokio::test]
async fn the_documented_rights_to_decide_are_enough_and_what_is_missing_is_named() {
    let all = "{user: all, password: x}";
    let server = |users: &str, user: &str| {
        format!("accounts {{ A {{ jetstream: enabled, users: [{users}] }} }}\nno_auth_user: {user}")
    };
    let nats = NatsServer::builder(LATEST).config(&server(all, "all"));
    let mut rig = Rig::prepare("decider", nats.start().await).await;
    let operator = rig.operator().await;
    let mut spec = rig.spec(1);
    // The server is started again.
    spec["stream"]["storage"] = json!("File");
    spec["onExhausted"] = json!({"policy": "DeadLetter"});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.wait_condition("orders", "Degraded", "False/AsSpecified").await;
    let context = jetstream::new(rig.nats.client().await);
    context.publish("orders.k", "x".into()).await.unwrap().await.unwrap();
    for original in 7..10 {
        letter(&rig, &context, "k", original).await;
    }
    operator.stop().await;

    let decider = documented(&rig.namespace);
    rig.nats.restart_with(|settings| settings.config(&server(&format!("{all}, {decider}"), "decider"))).await;
    let answer = plugin(&rig, "skip orders --sequence 1 --reason why --timeout 1ms").await;
    assert!(answer.out.contains("not skipped within 0.001 s; the order "), "nobody works: {answer:?}");
    let words = plugin(&rig, "retry orders --partition 0").await.refusal();
    assert!(words.contains("stands at nothing"), "{words}");
    let done = plugin(&rig, "dlq replay orders --sequence 1 -o json").await.json();
    assert_eq!(done["replayed"][0]["now"], 2, "{done}");
    plugin(&rig, "dlq drop orders --sequence 2 --reason old").await.text();
    let list = plugin(&rig, "dlq list orders -o json").await.json();
    assert_eq!(sequences(&list), [(3, 9)], "{list}");

    let narrow = decider.replace("\"orders.*\"", "").replace("orders.lane.>", "orders.lane");
    rig.nats.restart_with(|settings| settings.config(&server(&format!("{all}, {narrow}"), "decider"))).await;
    let words = plugin(&rig, "skip orders --key k --reason why").await.refusal();
    assert!(
        words.contains("no permission for bucket 'lanekeeper'") && words.contains("orders.lane.1"),
        "{words}"
    );
    let answer = plugin(&rig, "dlq replay orders --all").await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.out.contains("Stopped at dead letter 3") && answer.out.contains("orders.k"), "{answer:?}");
}
