//! Several messages for the handler at once: everything that one at a time promises, and no more than a window is repeated.

pub(crate) mod given;

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine, engine::general_purpose::STANDARD};
use lanekeeper_core::{
    lane::State,
    record::{BlockedBy, Breaker, Delivery, ExhaustedPolicy},
    stream::Retention,
};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS, wait_until};
use lanekeeper_worker::{HandlerError, batch_handler};
use serde_json::{Value, json};

use self::given::{Calls, Embedded, OverHttp};
use crate::{
    DEADLINE,
    audited::{audited, judged, wait_entries},
    journal::{Journal, Script},
    process::WorkerProcess,
    rig::{Rig, Running, ms, seconds},
};

const WINDOW: u32 = 16;
const MOST: u32 = 5;

fn batches(wait_milliseconds: u64) -> Delivery {
    Delivery::Batch { window: WINDOW, most: MOST, wait_milliseconds }
}

async fn rig(version: &str, retention: Retention, ack_wait_milliseconds: u64) -> (Rig, String) {
    let mut rig = Rig::on(NatsServer::start(version).await, retention).await;
    rig.settings.ack_wait_milliseconds = ack_wait_milliseconds;
    rig.settings.delivery = batches(0);
    let consumer = rig.open().await;
    (rig, consumer)
}

async fn wait_done(calls: &Calls, count: usize) {
    wait_until(DEADLINE, "so many messages to be done", || async {
        let done = calls.done().len();
        (done >= count).then_some(()).ok_or(format!("{done} of {count}"))
    })
    .await;
}

fn distinct(calls: &Calls) -> Vec<u64> {
    calls.done().into_iter().collect::<BTreeSet<u64>>().into_iter().collect()
}

fn up_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

#[tokio::test]
async fn every_message_is_in_one_batch_and_in_order_on_every_supported_server() {
    for version in VERSIONS {
        for retention in [Retention::Limits, Retention::Interest, Retention::WorkQueue] {
            let (rig, consumer) = rig(version, retention, 300_000).await;
            rig.publish_at_once(1_000).await;
            let calls = Calls::default();
            // A handler that takes no time may end before the next message is there, each time.
            let worker = Running::start_batches(rig.builder(0), Embedded::taking(&calls, ms(1)));
            rig.publish_at_once(1_000).await;
            rig.wait_settled(&consumer).await;
            assert_eq!(calls.done(), up_to(2_000), "{version} {retention:?}");
            assert_eq!(calls.largest(), MOST as usize, "{version} {retention:?}");
            // One by one as well: a batch of one does not wait for another message.
            for sequence in 2_001..=2_003 {
                rig.publish("k", "x").await;
                rig.wait_settled(&consumer).await;
                assert_eq!(calls.given().last(), Some(&(vec![sequence], 1)));
            }
            worker.stop().await;
            assert!(rig.lane_key(1).await.holders.is_empty());
        }
    }
}

#[tokio::test]
async fn a_batch_waits_until_it_is_full_where_it_may() {
    let mut rig = Rig::new().await;
    rig.settings.delivery = batches(60_000);
    let consumer = rig.open().await;
    let calls = Calls::default();
    let worker = Running::start_batches(rig.builder(0), Embedded::taking(&calls, ms(0)));
    for _ in 0..10 {
        rig.publish("k", "x").await;
        rig.wait_delivered(&consumer).await;
    }
    rig.wait_settled(&consumer).await;
    assert_eq!(calls.given(), [(up_to(5), 1), ((6..=10).collect(), 1)]);
    // What waits for others is no reason to wait with the end.
    rig.publish("k", "x").await;
    rig.wait_delivered(&consumer).await;
    worker.stop().await;
    assert_eq!(calls.given().len(), 2, "it was given back");
}

#[tokio::test]
async fn one_poison_message_costs_its_batch_nothing_but_time() {
    let breaker = Breaker { max_exhausted: 10, window_seconds: 600 };
    let (stream, subject) = ("DEAD".to_owned(), "lanekeeper.dlq.shop.orders".to_owned());
    let dead_letter =
        ExhaustedPolicy::DeadLetter { stream: stream.clone(), subject: subject.clone(), breaker };
    for policy in [ExhaustedPolicy::Block, dead_letter] {
        let mut rig = Rig::new().await;
        // Every batch is full.
        rig.settings.delivery = batches(60_000);
        rig.settings.on_exhausted = policy.clone();
        let config = async_nats::jetstream::stream::Config {
            name: stream.clone(),
            subjects: vec![subject.clone()],
            ..Default::default()
        };
        let dead = rig.connection.context().create_stream(config).await.unwrap();
        let consumer = rig.open().await;
        rig.publish_at_once(40).await;
        let calls = Calls::default();
        // Under Block the handler is mended at the sixth attempt of the message alone.
        let poison = |sequences: &[u64], attempt: u64| {
            let mended = sequences.len() == 1 && attempt >= 6;
            let fails = sequences.contains(&17) && !mended;
            (ms(0), if fails { Err(HandlerError::retry("poison")) } else { Ok(()) })
        };
        let worker = Running::start_batches(rig.builder(0), Embedded::new(&calls, poison));
        if policy == ExhaustedPolicy::Block {
            wait_until(DEADLINE, "the lane to say where it stands", || async {
                let report = rig.report(0, "orders-0").await.ok_or("there is no report")?;
                let blocked = report.blocked.ok_or("nothing is blocked")?;
                let right = blocked.by == BlockedBy::Policy && blocked.sequence == 17;
                right.then_some(()).ok_or("something else is blocked")
            })
            .await;
        }
        rig.wait_settled(&consumer).await;
        let letters = dead.get_info().await.unwrap().state.messages;
        let is_block = policy == ExhaustedPolicy::Block;
        assert_eq!(letters, u64::from(!is_block));
        let expected: Vec<u64> = (1..=40).filter(|sequence| is_block || *sequence != 17).collect();
        assert_eq!(calls.done(), expected, "{policy:?}: everything else once, in order");
        let with_it: Vec<(Vec<u64>, u64)> =
            calls.given().into_iter().filter(|(sequences, _)| sequences.contains(&17)).collect();
        let together = (1..=3).map(|attempt| ((16..=20).collect(), attempt));
        let alone = (1..=if is_block { 6 } else { 3 }).map(|attempt| (vec![17], attempt));
        assert_eq!(with_it, together.chain(alone).collect::<Vec<_>>(), "alone it begins anew");
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_killed_worker_costs_at_most_a_window_of_repeats_in_order() {
    for version in VERSIONS {
        let (rig, consumer) = rig(version, Retention::Limits, 2_000).await;
        rig.publish_at_once(300).await;
        let calls = Calls::default();
        let handler = OverHttp::taking(&calls, ms(10)).await;
        let worker = WorkerProcess::start(&rig, "a", &handler.url()).await;
        let standby = WorkerProcess::start(&rig, "b", &handler.url()).await;
        wait_done(&calls, 100).await;
        worker.kill().await;
        let again = WorkerProcess::start(&rig, "a", &handler.url()).await;
        rig.wait_settled(&consumer).await;
        assert_eq!(distinct(&calls), up_to(300), "{version}");
        calls.assert_lane_in_order(WINDOW as usize);
        assert!(calls.largest() > 1, "{version}");
        drop((standby, again));
    }
}

#[tokio::test]
async fn sigterm_lets_the_batch_finish_and_hands_the_rest_on() {
    // Nothing here may wait for a deadline: it is longer than the test.
    let (rig, consumer) = rig(LATEST, Retention::Limits, 300_000).await;
    rig.publish_at_once(200).await;
    let calls = Calls::default();
    let handler = OverHttp::taking(&calls, ms(20)).await;
    let mut worker = WorkerProcess::start(&rig, "old", &handler.url()).await;
    wait_done(&calls, 50).await;
    let standby = Running::start_batches(rig.builder(0).pod("new"), Embedded::taking(&calls, ms(0)));
    wait_until(DEADLINE, "a worker to stand by", || async { standby.status().state == State::Standby }).await;
    worker.signal("TERM");
    assert_eq!(worker.exit_code().await, Some(0), "{}", worker.log());
    rig.wait_settled(&consumer).await;
    assert_eq!(calls.done(), up_to(200), "once each, in order");
    assert!(calls.given().iter().all(|(_, attempt)| *attempt == 1));
    standby.stop().await;
}

#[tokio::test]
async fn a_frozen_owner_that_wakes_up_while_its_standby_works_gives_its_whole_batch_up() {
    let (rig, consumer) = rig(LATEST, Retention::Limits, 2_000).await;
    rig.publish_at_once(60).await;
    let old = Calls::default();
    let slow = OverHttp::taking(&old, ms(300)).await;
    let frozen = WorkerProcess::start(&rig, "frozen", &slow.url()).await;
    wait_done(&old, 10).await;
    let new = Calls::default();
    let standby = Running::start_batches(rig.builder(0).pod("new"), Embedded::taking(&new, ms(100)));
    frozen.signal("STOP");
    wait_until(DEADLINE, "the standby to work", || async { !new.given().is_empty() }).await;
    frozen.signal("CONT");
    let lost = "the deadline passed without proof: given up, nothing is sent for it";
    wait_until(DEADLINE, "the thawed worker to notice", || async { frozen.logged(lost).is_some() }).await;
    rig.wait_settled(&consumer).await;
    let (old, begun) = (old.done(), new.done());
    let first = begun[0];
    assert!(old.len() as u64 + 1 - first <= u64::from(WINDOW), "from {first} on after {old:?}");
    assert_eq!(begun, (first..=60).collect::<Vec<u64>>(), "and it had the lane to its end");
    standby.stop().await;
}

#[tokio::test]
async fn a_handler_that_knows_no_batches_gets_its_messages_one_at_a_time() {
    let (rig, consumer) = rig(LATEST, Retention::Limits, 300_000).await;
    rig.publish_at_once(200).await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(0)));
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), up_to(200));
    worker.stop().await;
}

#[tokio::test]
async fn a_lane_of_another_mode_gives_a_handler_of_batches_one_message_at_a_time() {
    let mut rig = Rig::new().await;
    rig.settings.delivery = Delivery::Pipelined { window: WINDOW };
    let consumer = rig.open().await;
    rig.publish_at_once(50).await;
    let (sent, mut got) = tokio::sync::mpsc::unbounded_channel();
    let handler = batch_handler(move |messages| {
        sent.send(messages.iter().map(lanekeeper_worker::Message::sequence).collect::<Vec<u64>>()).unwrap();
        std::future::ready(Ok(()))
    });
    let worker = Running::start_batches(rig.builder(0), handler);
    rig.wait_settled(&consumer).await;
    let given: Vec<Vec<u64>> = std::iter::from_fn(|| got.try_recv().ok()).collect();
    assert_eq!(given, (1..=50).map(|sequence| vec![sequence]).collect::<Vec<_>>());
    worker.stop().await;
}

/// Headers and payloads that are hard to carry.
async fn publish_odd(rig: &Rig) -> Vec<Vec<u8>> {
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("X-Odd", "Müller \"quoted\" \\ 😀");
    headers.append("X-Many", "a");
    headers.append("X-Many", "b");
    headers.insert("Content-Type", "application/x-odd");
    headers.insert("lane-fence", "forged");
    // The server counts headers and payload together.
    let large: Vec<u8> = (0..=255).cycle().take(1024 * 1024 - 4096).collect();
    let payloads = vec![b"first".to_vec(), large, Vec::new(), b"\n\r\0\xff\xfe]\n".to_vec()];
    for payload in &payloads {
        let context = rig.connection.context();
        let sent = context.publish_with_headers("orders.k", headers.clone(), payload.clone().into()).await;
        sent.unwrap().await.unwrap();
    }
    payloads
}

fn payload(event: &Value) -> Vec<u8> {
    STANDARD.decode(event["data_base64"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn over_http_a_batch_is_a_list_of_cloud_events_also_with_one() {
    let (rig, consumer) = rig(LATEST, Retention::Limits, 300_000).await;
    let payloads = publish_odd(&rig).await;
    let calls = Calls::default();
    let handler = OverHttp::taking(&calls, ms(0)).await;
    let worker = WorkerProcess::start(&rig, "a", &handler.url()).await;
    rig.wait_settled(&consumer).await;
    rig.publish("k2", "one").await;
    rig.wait_settled(&consumer).await;
    let bodies = handler.bodies();
    assert!(bodies.iter().all(|body| body.content_type == "application/cloudevents-batch+json"));
    assert_eq!(bodies.last().unwrap().events.len(), 1, "{}", worker.log());
    let events: Vec<Value> = bodies.into_iter().flat_map(|body| body.events).collect();
    assert_eq!(events[..4].iter().map(payload).collect::<Vec<_>>(), payloads);
    for (event, sequence) in events[..4].iter().zip(1..) {
        assert_eq!(event["id"], format!("ORDERS/{sequence}"));
        assert_eq!(event["datacontenttype"], "application/x-odd");
        assert_eq!(event["lanefence"], format!("0000000001-{sequence:020}"));
        let headers: Value = serde_json::from_str(event["natsheaders"].as_str().unwrap()).unwrap();
        assert_eq!(headers["X-Odd"], json!(["Müller \"quoted\" \\ 😀"]));
        assert_eq!((&headers["X-Many"], &headers["lane-fence"]), (&json!(["a", "b"]), &json!(["forged"])));
    }
    assert_eq!((payload(&events[4]), &events[4]["natsheaders"]), (b"one".to_vec(), &Value::Null));
}

/// Reads lists, keeps a record of them, and dies once in the middle of the third.
const PROGRAM: &str = r#"
import json, os, sys
folder = sys.argv[1]
for number, line in enumerate(sys.stdin):
    events = json.loads(line)
    with open(os.path.join(folder, "record"), "a") as record:
        record.write(line)
    mark = os.path.join(folder, "died")
    if number == 2 and not os.path.exists(mark):
        open(mark, "w").close()
        os._exit(9)
    print(json.dumps({"id": events[0]["id"], "result": "done"}), flush=True)
"#;

#[tokio::test]
async fn a_program_reads_a_list_a_line_and_answers_once() {
    let (rig, consumer) = rig(LATEST, Retention::Limits, 300_000).await;
    let payloads = publish_odd(&rig).await;
    rig.publish_at_once(40).await;
    let folder = tempfile::tempdir().unwrap();
    let command = json!(["python3", "-c", PROGRAM, folder.path()]).to_string();
    let path = std::env::var("PATH").unwrap();
    let variables = [("LANEKEEPER_HANDLER_EXEC", command.as_str()), ("PATH", path.as_str())];
    let worker = WorkerProcess::start_with(&rig, "a", "", &[], &variables).await;
    rig.wait_settled(&consumer).await;
    let record = std::fs::read_to_string(folder.path().join("record")).unwrap();
    let lines: Vec<Vec<Value>> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sequence = |event: &Value| event["sequence"].as_str().unwrap().parse::<u64>().unwrap();
    let sequences: Vec<Vec<u64>> = lines.iter().map(|line| line.iter().map(sequence).collect()).collect();
    assert_eq!(sequences[2], sequences[3], "the one that it died of came again: {}", worker.log());
    assert_eq!((&lines[2][0]["laneattempt"], &lines[3][0]["laneattempt"]), (&json!(1), &json!(2)));
    let once: Vec<u64> = sequences
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != 2)
        .flat_map(|(_, line)| line.clone())
        .collect();
    assert_eq!(once, up_to(44));
    let events: Vec<&Value> = lines.iter().flatten().take(4).collect();
    assert_eq!(events.iter().map(|event| payload(event)).collect::<Vec<_>>(), payloads);
    assert!(events.iter().all(|event| event["headers"]["X-Many"] == json!(["a", "b"])));
}

#[tokio::test]
async fn the_journal_of_batches_is_clean_when_they_fail_and_when_a_worker_is_killed() {
    let mut rig = audited().await;
    rig.settings.ack_wait_milliseconds = 2_000;
    rig.settings.delivery = batches(0);
    let consumer = rig.open().await;
    let mut published: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for _ in 0..50 {
        for key in ["a", "b", "c"] {
            published.entry(key).or_default().push(rig.publish(key, "x").await);
        }
    }
    let calls = Calls::default();
    let over_http = OverHttp::taking(&calls, ms(20)).await;
    let killed = WorkerProcess::start(&rig, "a", &over_http.url()).await;
    wait_done(&calls, 30).await;
    killed.kill().await;
    let failing = |sequences: &[u64], attempt: u64| {
        let fails = attempt == 1 && sequences.iter().any(|sequence| sequence % 20 == 0);
        (ms(1), if fails { Err(HandlerError::retry("not yet")) } else { Ok(()) })
    };
    let worker = Running::start_batches(rig.builder(0).pod("b"), Embedded::new(&calls, failing));
    rig.wait_settled(&consumer).await;
    worker.stop().await;
    let entries = wait_entries(&rig, 150).await;
    let report = judged(&entries, &published);
    // What was in the killed worker's hands had no entry yet, or came again.
    assert!(report.is_clean(), "{report}");
    assert!(entries.iter().any(|entry| entry.batch.is_some()), "there were batches");
    assert!(report.unfinished > 0, "some failed: {report}");
}

#[tokio::test]
async fn a_handler_slower_than_the_deadline_keeps_its_batch() {
    let (rig, consumer) = rig(LATEST, Retention::Limits, 1_500).await;
    rig.publish_at_once(20).await;
    let calls = Calls::default();
    let slow = |sequences: &[u64], _| (if sequences.contains(&7) { seconds(5) } else { ms(0) }, Ok(()));
    let worker = Running::start_batches(rig.builder(0), Embedded::new(&calls, slow));
    rig.wait_settled(&consumer).await;
    assert_eq!(calls.done(), up_to(20));
    assert!(calls.given().iter().all(|(_, attempt)| *attempt == 1), "{:?}", calls.given());
    worker.stop().await;
}
