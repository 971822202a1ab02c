//! Journals that real workers wrote, with and without planted violations.

use std::{process::Stdio, sync::Arc};

use async_nats::jetstream::{self, stream};
use lanekeeper_core::journal::{Ending, Entry};
use lanekeeper_nats::ConnectSettings;
use lanekeeper_tests::wait_until;
use lanekeeper_worker::{HandlerError, Message, Worker, handler};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::oneshot,
    task::JoinHandle,
};

use crate::{
    calling::{command, plugin},
    rig::{DEADLINE, Operator, Rig},
};

const JOURNAL: &str = "audit.orders";

/// Workers of both partitions of a set, in this process.
struct Workers(Vec<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Workers {
    fn start(rig: &Rig) -> Self {
        let start = |partition| {
            let settings = ConnectSettings::new([rig.nats.url()], "worker");
            let worker = Worker::builder(rig.name("orders"), partition, "ORDERS", settings).build();
            let (stop, stopped) = oneshot::channel::<()>();
            let serve = handler(|_: Arc<Message>| async { Ok::<(), HandlerError>(()) });
            let running = tokio::spawn(async move {
                let until = async {
                    let _ = stopped.await;
                };
                worker.run_until(serve, until).await.expect("it ends well");
            });
            (stop, running)
        };
        Self((0..2).map(start).collect())
    }

    async fn stop(self) {
        for (stop, running) in self.0 {
            drop(stop);
            running.await.expect("it does not panic");
        }
    }
}

/// A set with a journal, a stream that has it, and 3 messages of 20 keys, handled.
async fn handled(name: &str) -> (Rig, Operator, jetstream::Context) {
    let (rig, operator) = Rig::start(name).await;
    let context = jetstream::new(rig.nats.client().await);
    let config = stream::Config {
        name: "AUDIT".into(),
        subjects: vec!["audit.>".into()],
        allow_direct: true,
        ..stream::Config::default()
    };
    context.create_stream(config).await.unwrap();
    let mut spec = rig.spec(2);
    spec["worker"]["journal"] = json!({"subject": JOURNAL});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let workers = Workers::start(&rig);
    for _ in 0..3 {
        for key in 0..20 {
            publish(&context, &format!("k{key}")).await;
        }
    }
    wait_until(DEADLINE, "everything to be in the journal", || async {
        let found = context.get_stream("AUDIT").await.unwrap().cached_info().state.messages;
        if found == 60 { Ok(()) } else { Err(found) }
    })
    .await;
    workers.stop().await;
    (rig, operator, context)
}

async fn publish(context: &jetstream::Context, key: &str) -> u64 {
    let stored = context.publish(format!("orders.{key}"), "x".into()).await.unwrap();
    stored.await.unwrap().sequence
}

/// The last entry of a key that the journal has.
async fn last_of(context: &jetstream::Context, key: &str) -> Entry {
    let stream = context.get_stream("AUDIT").await.unwrap();
    for sequence in (1..=stream.cached_info().state.last_sequence).rev() {
        let message = stream.get_raw_message(sequence).await.unwrap();
        match serde_json::from_slice::<Entry>(&message.payload) {
            Ok(entry) if entry.key == key => return entry,
            _ => {}
        }
    }
    panic!("the journal has nothing of {key}");
}

async fn write(context: &jetstream::Context, payload: Vec<u8>) {
    context.publish(format!("{JOURNAL}.0"), payload.into()).await.unwrap().await.unwrap();
}

async fn plant(context: &jetstream::Context, entry: &Entry) {
    write(context, serde_json::to_vec(entry).unwrap()).await;
}

/// A handling of another message of the same key, so many seconds after this one.
fn later(entry: &Entry, sequence: u64, seconds: i64) -> Entry {
    let mut later = entry.clone();
    later.fence.sequence = sequence;
    later.instance = "rogue".into();
    later.handling = 0;
    (later.start, later.end) = (entry.start + seconds * 1_000_000, entry.end + seconds * 1_000_000);
    later
}

fn violations(answer: &Value) -> Value {
    let counts = answer["report"]["violations"].as_object().unwrap();
    counts.iter().map(|(name, found)| (name.clone(), found["count"].clone())).collect()
}

#[tokio::test]
async fn what_real_workers_did_is_in_order_and_each_planted_violation_is_found() {
    let (rig, operator, context) = handled("audit").await;
    for arguments in
        ["audit orders", "audit orders --against-stream", "audit orders --stream AUDIT --since 1h"]
    {
        let text = plugin(&rig, arguments).await.text();
        assert!(text.contains("Verdict: every key in order\n"), "{arguments}: {text}");
        assert!(text.contains("handled             60\n"), "{arguments}: {text}");
    }
    let answer = plugin(&rig, "audit orders --against-stream -o json").await.json();
    assert_eq!((&answer["clean"], &answer["report"]["expected"]), (&json!(true), &json!(60)), "{answer}");
    assert_eq!((&answer["report"]["missing"], &answer["stream"]), (&json!(0), &json!("AUDIT")), "{answer}");
    let answer = plugin(&rig, "audit orders --from 41 -o json").await.json();
    assert_eq!(answer["report"]["entries"], 20, "{answer}");

    // Nobody works any more: what is published now is only ever handled on paper.
    let base = last_of(&context, "k0").await;
    let (first, second) = (publish(&context, "k0").await, publish(&context, "k0").await);
    plant(&context, &later(&base, second, 10)).await;
    plant(&context, &later(&base, first, 20)).await;
    let answer = plugin(&rig, "audit orders -o json").await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let found: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(violations(&found), json!({"noStepBack": 1, "completedBeforeNext": 1}), "{found}");

    let base = last_of(&context, "k1").await;
    let (lost, after) = (publish(&context, "k1").await, publish(&context, "k1").await);
    plant(&context, &later(&base, after, 10)).await;
    let base = last_of(&context, "k2").await;
    for (instance, seconds) in [("one", 10), ("other", 11)] {
        let mut overlapping = later(&base, base.fence.sequence, seconds);
        overlapping.instance = instance.into();
        overlapping.end += 2_000_000;
        overlapping.outcome = Ending::Lost;
        plant(&context, &overlapping).await;
    }
    let mut stranger = last_of(&context, "k3").await;
    stranger.key = "stranger".into();
    plant(&context, &stranger).await;
    write(&context, b"nonsense".to_vec()).await;
    let answer = plugin(&rig, "audit orders --against-stream").await;
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""), "{answer:?}");
    let text = answer.out;
    for line in [
        "steps back           1",
        "too early            2",
        "overlaps             1",
        "gaps                 1",
        "unknown              1",
        "unreadable           1",
        "Verdict: 6 violations",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
    let gap = format!("gaps: message {lost} of k1 was never done, although message {after} was");
    assert!(text.contains(&gap), "{gap} is not in\n{text}");
    operator.stop().await;
}

#[tokio::test]
async fn a_journal_is_followed_while_it_is_written() {
    let (rig, operator, context) = handled("auditlive").await;
    let mut child = command(&rig, rig.control.kubeconfig(), "audit orders --live --for 4s -o json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    assert_eq!(line, "following audit.orders.* for 4s");
    let base = last_of(&context, "k0").await;
    // Copies of one entry count once, so it does not matter which of them comes in time.
    let other = later(&base, base.fence.sequence + 1_000, 5);
    let mut overlapping = later(&base, base.fence.sequence + 2_000, 5);
    overlapping.pod = "other".into();
    (overlapping.start, overlapping.end) = (other.start - 1_000_000, other.end + 1_000_000);
    while child.try_wait().unwrap().is_none() {
        plant(&context, &other).await;
        plant(&context, &overlapping).await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["report"]["entries"], 2, "{found}");
    assert_eq!(found["report"]["violations"]["oneAtATime"]["count"], 1, "{found}");
    operator.stop().await;
}

#[tokio::test]
async fn what_keeps_from_a_verdict_is_said_with_what_helps() {
    let (rig, operator) = Rig::start("auditnot").await;
    let context = jetstream::new(rig.nats.client().await);
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let refusal = async |arguments: &str| plugin(&rig, arguments).await.refusal();
    let words = refusal("audit orders").await;
    assert!(words.contains("spec.worker.journal") && words.contains("--subject"), "{words}");
    rig.patch("orders", json!({"spec": {"worker": {"journal": {"subject": JOURNAL}}}})).await;
    let words = refusal("audit orders").await;
    assert!(words.contains("no stream takes 'audit.orders.*'") && words.contains("--live"), "{words}");
    let words = refusal("audit orders --stream NONE").await;
    assert_eq!(words, "error: --stream NONE: there is no such stream\n");
    let config =
        stream::Config { name: "A".into(), subjects: vec!["audit.>".into()], ..stream::Config::default() };
    context.create_stream(config).await.unwrap();
    let answer = plugin(&rig, "audit orders").await;
    assert_eq!(answer.code, Some(1), "nothing proves nothing: {answer:?}");
    assert!(answer.out.contains("Verdict: no entry was found\n"), "{answer:?}");
    write(&context, b"{}".to_vec()).await;
    let words = refusal("audit orders").await;
    assert!(words.contains("stream 'A' does not allow direct reads"), "{words}");
    operator.stop().await;

    let (rig, operator) = Rig::start("auditqueue").await;
    let context = jetstream::new(rig.nats.client().await);
    let config = stream::Config {
        name: "A".into(),
        subjects: vec!["audit.>".into()],
        allow_direct: true,
        ..stream::Config::default()
    };
    context.create_stream(config).await.unwrap();
    let mut spec = rig.spec(1);
    spec["stream"]["retention"] = json!("WorkQueue");
    spec["worker"]["journal"] = json!({"subject": JOURNAL});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let words = plugin(&rig, "audit orders --against-stream").await.refusal();
    assert!(words.contains("stream 'ORDERS' has workqueue retention"), "{words}");
    operator.stop().await;
}
