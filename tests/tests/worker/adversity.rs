//! What people, networks and handlers do to lanes with several messages on hand, and several of it at once.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lanekeeper_core::{
    order::{OrderOutcome, Verb},
    record::{BlockedBy, Breaker, Delivery, ExhaustedPolicy, Park},
    stream::Retention,
};
use lanekeeper_tests::{LATEST, NatsServer, TcpProxy, VERSIONS, wait_until};
use lanekeeper_worker::{HandlerError, Message};
use serde_json::json;

use crate::{
    DEADLINE,
    batch::given::{Calls, Embedded, Given},
    journal::{End, Journal, Script},
    orders::{give, order, results},
    parked,
    process::WorkerProcess,
    rig::{Rig, Running, STREAM, ms, seconds, share},
};

fn up_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

#[tokio::test]
async fn a_window_made_much_smaller_does_not_keep_the_next_worker_from_what_is_out() {
    for version in VERSIONS {
        let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
        rig.settings.ack_wait_milliseconds = 2_000;
        rig.settings.delivery = Delivery::Pipelined { window: 256 };
        let consumer = rig.open().await;
        rig.publish_at_once(300).await;
        let journal = Journal::default();
        let slow = Script::taking(&journal, seconds(600));
        let worker = Running::start(rig.builder(0).pod("a"), slow);
        wait_until(DEADLINE, "all to be on hand", || async {
            let out = rig.consumer(&consumer).await.map(|found| found.ack_pending);
            (out == Some(256)).then_some(()).ok_or(format!("{out:?}"))
        })
        .await;
        // As the operator does.
        rig.settings.delivery = Delivery::Pipelined { window: 4 };
        rig.assign(&rig.assignment(share(0, 1), 1)).await;
        rig.edit_consumer(&consumer, |config| config["max_ack_pending"] = json!(4)).await;
        worker.crash();
        let after = Journal::default();
        let next = Running::start(rig.builder(0).pod("b"), Script::taking(&after, ms(0)));
        rig.wait_settled(&consumer).await;
        assert_eq!(after.begun(), up_to(300), "{version}");
        next.stop().await;
    }
}

async fn with_park(delivery: Delivery) -> Rig {
    let mut rig = Rig::on(NatsServer::start(LATEST).await, Retention::WorkQueue).await;
    rig.settings.delivery = delivery;
    rig.settings.on_exhausted = ExhaustedPolicy::ParkKey { breaker: parked::BREAKER };
    rig.settings.park = Some(Park { stream: parked::PARK.into(), prefix: rig.set.park_prefix() });
    parked::make(&rig).await;
    rig
}

#[tokio::test]
async fn a_limit_that_was_raised_by_hand_and_put_back_leaves_a_lane_that_goes_on() {
    for version in VERSIONS {
        let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
        rig.settings.ack_wait_milliseconds = 2_000;
        rig.settings.delivery = Delivery::Pipelined { window: 4 };
        let consumer = rig.open().await;
        rig.edit_consumer(&consumer, |config| config["max_ack_pending"] = json!(1_000)).await;
        rig.publish_at_once(300).await;
        let stuck = Journal::default();
        // What the first one is given is out while the second one is given the next.
        let first = Running::start(rig.builder(0).pod("a"), Script::taking(&stuck, seconds(600)));
        wait_until(DEADLINE, "the first message to be in work", || async { stuck.begun() == [1] }).await;
        first.crash();
        let journal = Journal::default();
        // Not so fast that nobody sees it.
        let next = Running::start(rig.builder(0).pod("b"), Script::taking(&journal, ms(10)));
        wait_until(DEADLINE, "more to be out", || async {
            let out = rig.consumer(&consumer).await.map_or(0, |found| found.ack_pending);
            (out > 40).then_some(()).ok_or(out)
        })
        .await;
        rig.edit_consumer(&consumer, |config| config["max_ack_pending"] = json!(4)).await;
        rig.wait_settled(&consumer).await;
        assert_eq!(journal.begun(), up_to(300), "{version}");
        next.stop().await;
    }
}

#[tokio::test]
async fn a_release_whose_worker_is_cut_off_is_given_up_at_the_deadline_in_every_mode() {
    let windowed =
        [Delivery::Pipelined { window: 16 }, Delivery::Batch { window: 16, most: 5, wait_milliseconds: 0 }];
    for delivery in [Delivery::Serial].into_iter().chain(windowed) {
        let mut rig = with_park(delivery).await;
        rig.settings.ack_wait_milliseconds = 2_000;
        let consumer = rig.open().await;
        rig.publish_many("bad", 3).await;
        let proxy = TcpProxy::start(rig.server.address()).await;
        let journal = Journal::default();
        let asked = AtomicU64::new(0);
        let script = Script::new(&journal, move |_: &Message| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => (ms(0), Err(HandlerError::permanent("no"))),
            1 => (seconds(600), Ok(())),
            _ => (ms(0), Ok(())),
        });
        let worker = Running::start(rig.builder_at(0, &proxy.url()), script);
        rig.wait_settled(&consumer).await;
        let id = parked::order(&rig, 1, Verb::Release, "bad", None).await;
        wait_until(DEADLINE, "the first one to be released", || async { journal.begun() == [1, 1] }).await;
        proxy.refuse();
        wait_until(seconds(20), "what is released to be given up", || async {
            let story = journal.story();
            (story[1].1 == End::Cut).then_some(()).ok_or(format!("{delivery:?}: {story:?}"))
        })
        .await;
        proxy.restore();
        assert_eq!(parked::outcome(&rig, 1, &id).await.0, OrderOutcome::Released);
        assert_eq!(journal.begun(), [1, 1, 1, 2, 3]);
        worker.stop().await;
    }
}

/// Nothing began before every earlier message that this is said to matter for was done; how much was repeated.
fn repeats_in_order(calls: &Calls, of: impl Fn(u64) -> Vec<u64>, context: &str) -> usize {
    let (mut done, mut repeats) = (BTreeSet::new(), 0);
    let mut before: Option<Given> = None;
    for call in calls.all() {
        let ended = before.as_ref().is_none_or(|before| before.ended.is_some_and(|at| at <= call.start));
        assert!(ended, "{context}: {call:?} began while {before:?} ran");
        for (index, sequence) in call.sequences.iter().enumerate() {
            let ahead = &call.sequences[..index];
            let missing = of(*sequence).into_iter().find(|one| !done.contains(one) && !ahead.contains(one));
            assert_eq!(missing, None, "{context}: {call:?} began before that one was done");
            repeats += usize::from(done.contains(sequence));
        }
        if call.end == End::Done {
            done.extend(call.sequences.iter().copied());
        }
        before = Some(call);
    }
    repeats
}

const DEAD: &str = "DEAD";
const LETTERS: &str = "lanekeeper.dlq.shop.orders";

fn batches() -> Delivery {
    Delivery::Batch { window: 16, most: 5, wait_milliseconds: 0 }
}

fn full_batches() -> Delivery {
    Delivery::Batch { window: 16, most: 5, wait_milliseconds: 60_000 }
}

fn dead_stream(max_messages: i64) -> async_nats::jetstream::stream::Config {
    async_nats::jetstream::stream::Config {
        name: DEAD.into(),
        subjects: vec![LETTERS.into()],
        max_messages,
        discard: async_nats::jetstream::stream::DiscardPolicy::New,
        ..Default::default()
    }
}

async fn wait_blocked(rig: &Rig, by: BlockedBy, sequence: u64) {
    wait_until(DEADLINE, "the lane to say where it stands", || async {
        let report = rig.report(0, "orders-0").await.ok_or("there is no report".to_owned())?;
        let blocked = report.blocked.ok_or("nothing is blocked")?;
        if (blocked.by, blocked.sequence) == (by, sequence) { Ok(()) } else { Err(format!("{blocked:?}")) }
    })
    .await;
}

#[tokio::test]
async fn dead_letters_of_a_batch_wait_for_their_stream_and_for_room_in_it_and_the_breaker_holds() {
    let mut rig = Rig::new().await;
    rig.settings.delivery = full_batches();
    let breaker = Breaker { max_exhausted: 2, window_seconds: 600 };
    rig.settings.on_exhausted =
        ExhaustedPolicy::DeadLetter { stream: DEAD.into(), subject: LETTERS.into(), breaker };
    let consumer = rig.open().await;
    rig.publish_at_once(30).await;
    let calls = Calls::default();
    let mended = Arc::new(AtomicU64::new(0));
    let is_mended = Arc::clone(&mended);
    let poison = move |sequences: &[u64], _| {
        let fails =
            sequences.iter().any(|one| [7, 9, 22].contains(one)) && is_mended.load(Ordering::Relaxed) == 0;
        (ms(0), if fails { Err(HandlerError::permanent("poison")) } else { Ok(()) })
    };
    let worker = Running::start_batches(rig.builder(0), Embedded::new(&calls, poison));
    wait_blocked(&rig, BlockedBy::DeadLetter, 7).await;
    let context = rig.connection.context();
    context.create_stream(dead_stream(1)).await.unwrap();
    wait_blocked(&rig, BlockedBy::DeadLetter, 9).await;
    context.update_stream(dead_stream(100)).await.unwrap();
    wait_blocked(&rig, BlockedBy::Breaker, 22).await;
    mended.store(1, Ordering::Relaxed);
    rig.wait_settled(&consumer).await;
    let expected: Vec<u64> = (1..=30).filter(|one| ![7, 9].contains(one)).collect();
    assert_eq!(calls.done(), expected);
    worker.stop().await;
}

#[tokio::test]
async fn orders_for_messages_inside_a_running_batch_and_behind_it_are_followed_in_their_place() {
    for fails in [false, true] {
        let mut rig = Rig::new().await;
        rig.settings.delivery = Delivery::Batch { window: 16, most: 5, wait_milliseconds: 500 };
        let consumer = rig.open().await;
        rig.publish_many("k", 20).await;
        let calls = Calls::default();
        let (open, gate) = tokio::sync::watch::channel(false);
        let inner = calls.clone();
        let handler = lanekeeper_worker::batch_handler(move |messages: Vec<Message>| {
            let (mut gate, calls) = (gate.clone(), inner.clone());
            async move {
                let sequences: Vec<u64> = messages.iter().map(Message::sequence).collect();
                let attempt = messages[0].attempt();
                let mut running = calls.begin(sequences, attempt);
                gate.wait_for(|open| *open).await.unwrap();
                let result = if fails && attempt == 1 { Err(HandlerError::retry("no")) } else { Ok(()) };
                running.end = if result.is_ok() { End::Done } else { End::Failed };
                result
            }
        });
        let worker = Running::start_batches(rig.builder(0), handler);
        wait_until(DEADLINE, "the first batch to run", || async { calls.all().len() == 1 }).await;
        give(&rig, &[order("a", Verb::Skip, 3), order("b", Verb::Retry, 4), order("c", Verb::Skip, 8)]).await;
        // Until the lane has read them; whether it has decides nothing but what is tried here.
        tokio::time::sleep(ms(500)).await;
        open.send(true).unwrap();
        let results = results(&rig).await;
        let came: Vec<OrderOutcome> = results.into_iter().map(|one| one.outcome).collect();
        // The batch that ran was all or nothing; what it had completed there was nothing to skip of any more.
        let (skip, retry) = if fails {
            (OrderOutcome::Skipped, OrderOutcome::Failed)
        } else {
            (OrderOutcome::Void, OrderOutcome::Succeeded)
        };
        assert_eq!(came, [skip, retry, OrderOutcome::Skipped]);
        rig.publish_many("k", 1).await;
        rig.wait_settled(&consumer).await;
        let missing: &[u64] = if fails { &[3, 8] } else { &[8] };
        let expected: Vec<u64> = (1..=21).filter(|one| !missing.contains(one)).collect();
        assert_eq!(calls.done(), expected);
        worker.stop().await;
    }
}

#[tokio::test]
async fn window_and_batches_change_in_place_under_load() {
    for version in VERSIONS {
        let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
        let consumer = rig.open_with(Delivery::Batch { window: 64, most: 64, wait_milliseconds: 0 }).await;
        rig.publish_at_once(4_000).await;
        let calls = Calls::default();
        let worker = Running::start_batches(rig.builder(0), Embedded::taking(&calls, ms(4)));
        let mut count = 0;
        for (window, most, wait_milliseconds) in
            [(2, 1, 0), (32, 2, 50), (4, 4, 200), (128, 100, 5), (2, 2, 60_000), (1024, 1024, 0)]
        {
            count += 200;
            wait_until(DEADLINE, "some to be done", || async {
                let done = calls.done().len();
                (done >= count).then_some(()).ok_or(done)
            })
            .await;
            count = calls.done().len();
            rig.settings.delivery = Delivery::Batch { window, most, wait_milliseconds };
            rig.assign(&rig.assignment(share(0, 1), 1)).await;
            rig.edit_consumer(&consumer, |config| config["max_ack_pending"] = json!(window)).await;
        }
        rig.wait_settled(&consumer).await;
        assert_eq!(calls.done(), up_to(4_000), "{version}");
        worker.stop().await;
    }
}

#[tokio::test]
async fn what_is_purged_while_its_batch_runs_takes_nothing_else_with_it() {
    for version in VERSIONS {
        for crash in [false, true] {
            let mut rig = Rig::on(NatsServer::start(version).await, Retention::WorkQueue).await;
            rig.settings.ack_wait_milliseconds = 2_000;
            let consumer = rig.open_with(batches()).await;
            rig.publish_at_once(40).await;
            let calls = Calls::default();
            let slow = Embedded::new(&calls, |sequences, _| {
                (if sequences[0] == 1 { seconds(3) } else { ms(0) }, Ok(()))
            });
            let worker = Running::start_batches(rig.builder(0).pod("a"), slow);
            wait_until(DEADLINE, "the window to be full", || async {
                let out = rig.consumer(&consumer).await.map(|found| found.ack_pending);
                (out == Some(16) && !calls.all().is_empty()).then_some(()).ok_or(format!("{out:?}"))
            })
            .await;
            for sequence in [3, 12, 20] {
                rig.by_hand(&format!("STREAM.MSG.DELETE.{STREAM}"), json!({"seq": sequence})).await;
            }
            rig.by_hand(&format!("STREAM.PURGE.{STREAM}"), json!({"seq": 8})).await;
            let (next, others) = if crash {
                worker.crash();
                let others = Calls::default();
                (Running::start_batches(rig.builder(0).pod("b"), Embedded::taking(&others, ms(0))), others)
            } else {
                (worker, calls.clone())
            };
            rig.publish_at_once(10).await;
            rig.wait_settled(&consumer).await;
            let done: Vec<u64> = others.done().into_iter().filter(|one| *one >= 8).collect();
            let expected: Vec<u64> = (8..=50).filter(|one| *one != 20 && (!crash || *one != 12)).collect();
            assert_eq!(done, expected, "{version} {crash}");
            // All of it, in the middle of one.
            rig.by_hand(&format!("STREAM.PURGE.{STREAM}"), json!(null)).await;
            rig.publish_at_once(30).await;
            rig.wait_settled(&consumer).await;
            let done: Vec<u64> = others.done().into_iter().filter(|one| *one > 50).collect();
            assert_eq!(done, (51..=80).collect::<Vec<_>>(), "{version} {crash}");
            next.stop().await;
        }
    }
}

#[tokio::test]
async fn a_consumer_deleted_while_a_batch_runs_costs_repeats_in_order() {
    for version in VERSIONS {
        let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
        let consumer = rig.open_with(batches()).await;
        rig.publish_at_once(200).await;
        let calls = Calls::default();
        let worker = Running::start_batches(rig.builder(0), Embedded::taking(&calls, ms(20)));
        wait_until(DEADLINE, "some to be done", || async { calls.done().len() >= 50 }).await;
        let floor = rig.consumer(&consumer).await.unwrap().floor;
        rig.by_hand(&format!("CONSUMER.DELETE.{STREAM}.{consumer}"), json!(null)).await;
        wait_until(DEADLINE, "the worker to leave", || async { rig.lane_key(1).await.holders.is_empty() })
            .await;
        let consumer = rig.open_lane(share(0, 1), 2, Some(floor + 1), Vec::new()).await;
        rig.wait_settled(&consumer).await;
        let repeats = repeats_in_order(&calls, up_to_before, version);
        assert!(repeats <= 32, "{repeats}");
        assert_eq!(calls.done().into_iter().collect::<BTreeSet<_>>().len(), 200);
        worker.stop().await;
    }
}

fn up_to_before(sequence: u64) -> Vec<u64> {
    (1..sequence).collect()
}

#[tokio::test]
async fn modes_change_while_workers_are_killed() {
    for version in VERSIONS {
        let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
        rig.settings.ack_wait_milliseconds = 2_000;
        rig.publish_at_once(700).await;
        let calls = Calls::default();
        let handler = TwoModes::start(&calls).await;
        let pods = ["a", "b"];
        let mut workers = Vec::new();
        for pod in pods {
            workers.push(Some(WorkerProcess::start(&rig, pod, &handler.url()).await));
        }
        let modes =
            [Delivery::Serial, batches(), Delivery::Pipelined { window: 16 }, batches(), Delivery::Serial];
        let mut start = None;
        for (mode, incarnation) in modes.into_iter().zip(1..) {
            rig.settings.delivery = mode;
            let consumer = rig.open_lane(share(0, 1), incarnation, start, Vec::new()).await;
            for which in [0, 1] {
                let before = calls.done().len();
                wait_until(DEADLINE, "more to be done", || async { calls.done().len() >= before + 50 }).await;
                workers[which].take().unwrap().kill().await;
                workers[which] = Some(WorkerProcess::start(&rig, pods[which], &handler.url()).await);
            }
            if incarnation < 5 {
                rig.retire(share(0, 1), incarnation).await;
                wait_until(DEADLINE, "the workers to leave", || async {
                    rig.lane_key(incarnation).await.holders.is_empty()
                })
                .await;
                start = Some(rig.consumer(&consumer).await.unwrap().floor + 1);
                rig.by_hand(&format!("CONSUMER.DELETE.{STREAM}.{consumer}"), json!(null)).await;
            } else {
                rig.wait_settled(&consumer).await;
            }
        }
        let repeats = repeats_in_order(&calls, up_to_before, version);
        assert!(repeats <= 10 * 16, "{repeats}");
        assert_eq!(calls.done().into_iter().collect::<BTreeSet<_>>(), up_to(700).into_iter().collect());
    }
}

/// Behind HTTP, for events in binary and in batched mode.
struct TwoModes {
    address: std::net::SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl TwoModes {
    async fn start(calls: &Calls) -> Self {
        use axum::{
            Router,
            body::Bytes,
            http::{HeaderMap, StatusCode},
            routing::post,
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = calls.clone();
        let answer = move |headers: HeaderMap, body: Bytes| async move {
            let number = |text: &str| text.parse::<u64>().unwrap();
            let sequences = match headers.get("ce-sequence") {
                Some(sequence) => vec![number(sequence.to_str().unwrap())],
                None => serde_json::from_slice::<Vec<serde_json::Value>>(&body)
                    .unwrap()
                    .iter()
                    .map(|event| number(event["sequence"].as_str().unwrap()))
                    .collect(),
            };
            let mut running = calls.begin(sequences, 1);
            tokio::time::sleep(ms(5)).await;
            running.end = End::Done;
            StatusCode::NO_CONTENT
        };
        let router = Router::new().route("/in", post(answer));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, task }
    }

    fn url(&self) -> String {
        format!("http://{}/in", self.address)
    }
}

impl Drop for TwoModes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server that knows nothing of HTTP but to read a request, and answers with these bytes one after another.
async fn raw(answers: Vec<(&'static str, bool)>) -> (String, Arc<std::sync::Mutex<Vec<Vec<u64>>>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let asked: Arc<std::sync::Mutex<Vec<Vec<u64>>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let answers = Arc::new(answers);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
            tokio::spawn(async move {
                let mut read = Vec::new();
                loop {
                    let whole = loop {
                        let end = read.windows(4).take(16_384).position(|four| four == b"\r\n\r\n");
                        if let Some(end) = end {
                            let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
                            let length: usize = head
                                .lines()
                                .find_map(|line| line.strip_prefix("content-length: "))
                                .map_or(0, |text| text.parse().unwrap());
                            if read.len() >= end + 4 + length {
                                break String::from_utf8_lossy(&read[end + 4..]).into_owned();
                            }
                        }
                        let mut buffer = vec![0; 1 << 20];
                        let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
                        read.extend(&buffer[..count]);
                    };
                    read.clear();
                    let events: Vec<serde_json::Value> = serde_json::from_str(&whole).unwrap();
                    let sequences = events
                        .iter()
                        .map(|event| event["sequence"].as_str().unwrap().parse().unwrap())
                        .collect();
                    let number = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(sequences);
                        seen.len() - 1
                    };
                    let (answer, keep) =
                        answers.get(number).copied().unwrap_or(("HTTP/1.1 204 No Content\r\n\r\n", true));
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                    if !keep {
                        return;
                    }
                }
            });
        }
    });
    (url, asked)
}

#[tokio::test]
async fn garbage_from_a_handler_of_batches_over_http_costs_attempts_and_no_order() {
    let mut rig = Rig::new().await;
    rig.settings.handler_timeout_milliseconds = 700;
    rig.settings.retry.max_attempts = 100;
    rig.settings.retry.initial_backoff_milliseconds = 10;
    let consumer = rig.open_with(full_batches()).await;
    rig.publish_at_once(30).await;
    let (url, asked) = raw(vec![
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", true),
        ("HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n", true),
        ("HTTP/1.1 413 Payload Too Large\r\nContent-Length: 0\r\n\r\n", true),
        ("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nContent-Le", false),
        ("", true),
        ("garbage\r\n\r\n", true),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 no\r\nContent-Length: 3\r\n\r\nno", false),
        ("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n", true),
    ])
    .await;
    let worker = WorkerProcess::start(&rig, "a", &url).await;
    rig.wait_settled(&consumer).await;
    let asked = asked.lock().unwrap().clone();
    let firsts: Vec<u64> = asked.iter().map(|one| one[0]).collect();
    assert_eq!(firsts, [1, 6, 11, 11, 11, 11, 11, 11, 11, 16, 21, 26], "{}", worker.log());
}

const GARBAGE: &str = r#"
import json, os, sys, time
folder = sys.argv[1]
path = os.path.join(folder, "lines")
for line in sys.stdin:
    events = json.loads(line)
    with open(path, "a") as record:
        record.write(line)
    number = len(open(path).readlines())
    first, last = events[0]["id"], events[-1]["id"]
    say = lambda text: (sys.stdout.write(text), sys.stdout.flush())
    done = lambda id: json.dumps({"id": id, "result": "done"}) + "\n"
    if number == 2: say(done(last))
    elif number == 3: say('{"result": "done"}\n')
    elif number == 4: say(done(first)[:-8]); time.sleep(600)
    elif number == 5: say(done(first)[:-8]); os._exit(9)
    elif number == 6: say(json.dumps([{"id": e["id"], "result": "done"} for e in events]) + "\n")
    elif number == 7: say(done(first) + done(first))
    elif number == 8: say(done(first) + done(last)[:-4])
    elif number == 9: os.kill(os.getpid(), 9)
    else: say(done(first))
"#;

#[tokio::test]
async fn garbage_from_a_program_of_batches_costs_attempts_and_no_order() {
    let mut rig = Rig::new().await;
    rig.settings.handler_timeout_milliseconds = 1_500;
    rig.settings.retry.max_attempts = 100;
    rig.settings.retry.initial_backoff_milliseconds = 10;
    let consumer = rig.open_with(full_batches()).await;
    rig.publish_at_once(35).await;
    let folder = tempfile::tempdir().unwrap();
    let command = json!(["python3", "-c", GARBAGE, folder.path()]).to_string();
    let path = std::env::var("PATH").unwrap();
    let variables = [("LANEKEEPER_HANDLER_EXEC", command.as_str()), ("PATH", path.as_str())];
    let worker = WorkerProcess::start_with(&rig, "a", "", &[], &variables).await;
    rig.wait_settled(&consumer).await;
    let record = std::fs::read_to_string(folder.path().join("lines")).unwrap();
    let firsts: Vec<u64> = record
        .lines()
        .map(|line| {
            serde_json::from_str::<Vec<serde_json::Value>>(line).unwrap()[0]["sequence"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    assert_eq!(firsts, [1, 6, 6, 6, 6, 6, 6, 11, 16, 16, 21, 26, 31], "{}", worker.log());
}

#[tokio::test]
async fn a_batch_of_64_mebibytes_is_one_request_and_memory_is_bounded() {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 30_000;
    let consumer = rig.open_with(Delivery::Batch { window: 64, most: 64, wait_milliseconds: 60_000 }).await;
    let context = rig.connection.context();
    let payload: bytes::Bytes = vec![7; 1_000_000].into();
    for number in 0..128 {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("X-Large", "y".repeat(40_000).as_str());
        context
            .publish_with_headers(format!("orders.k{}", number % 3), headers, payload.clone())
            .await
            .unwrap()
            .await
            .unwrap();
    }
    let (url, asked) = raw(Vec::new()).await;
    let worker = WorkerProcess::start(&rig, "a", &url).await;
    rig.wait_settled(&consumer).await;
    let asked = asked.lock().unwrap().clone();
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 600 * 1024, "{peak} KiB: the window, and the batch once more as it is sent");
    assert_eq!(asked, [up_to(64), (65..=128).collect()], "{}", worker.log());
}

#[tokio::test]
async fn what_was_deleted_and_is_still_counted_far_below_keeps_no_later_worker_waiting() {
    for version in VERSIONS {
        let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
        rig.settings.ack_wait_milliseconds = 2_000;
        rig.settings.delivery = Delivery::Pipelined { window: 16 };
        let ours = share(0, 2);
        let consumer = rig.open_lane(ours, 1, None, Vec::new()).await;
        let filter = rig.mapping.filter(ours);
        let is_ours = |key: &String| {
            let stored = rig.mapping.stored_subject(&format!("orders.{key}")).unwrap();
            stored.starts_with(filter.trim_end_matches('>'))
        };
        let (mine, others): (Vec<String>, Vec<String>) =
            (0..20).map(|number| format!("k{number}")).partition(is_ours);
        let (mine, other) = (mine[0].clone(), others[0].clone());
        let first = rig.publish(&mine, "x").await;
        let deleted = rig.publish(&mine, "x").await;
        let client = rig.connection.client();
        for _ in 0..10_500 {
            client.publish(format!("orders.{other}"), "x".into()).await.unwrap();
        }
        let last = wait_until(DEADLINE, "all to be stored", || async {
            let info = rig.by_hand(&format!("STREAM.INFO.{STREAM}"), json!(null)).await;
            let last = info["state"]["last_seq"].as_u64().unwrap();
            (last >= deleted + 10_500).then_some(last).ok_or(last)
        })
        .await;
        rig.publish_many(&mine, 5).await;
        let stuck = Journal::default();
        let worker = Running::start(rig.builder(0).pod("a"), Script::taking(&stuck, seconds(600)));
        wait_until(DEADLINE, "all to be out", || async {
            let out = rig.consumer(&consumer).await.unwrap().ack_pending;
            (out == 7).then_some(()).ok_or(out)
        })
        .await;
        worker.crash();
        rig.by_hand(&format!("STREAM.MSG.DELETE.{STREAM}"), json!({"seq": deleted})).await;
        let journal = Journal::default();
        let mut expected = vec![first];
        expected.extend(last + 1..=last + 5);
        for (round, pod) in ["b", "c", "d"].into_iter().enumerate() {
            let worker = Running::start(rig.builder(0).pod(pod), Script::taking(&journal, ms(0)));
            if round > 0 {
                expected.push(rig.publish(&mine, "x").await);
            }
            wait_until(seconds(30), "everything to be done", || async {
                let done = journal.done();
                (done.len() == expected.len()).then_some(()).ok_or(format!(
                    "{version} {pod}: {done:?} of {expected:?}, {:?}",
                    rig.consumer(&consumer).await
                ))
            })
            .await;
            worker.stop().await;
        }
        assert_eq!(journal.begun(), expected, "{version}");
    }
}

#[tokio::test]
async fn what_was_deleted_is_found_though_the_count_hides_it_behind_what_was_acknowledged() {
    for version in VERSIONS {
        let mut rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
        rig.settings.ack_wait_milliseconds = 2_000;
        let consumer = rig.open_with(Delivery::Pipelined { window: 16 }).await;
        rig.publish_at_once(10).await;
        let stuck = Journal::default();
        let worker = Running::start(rig.builder(0).pod("a"), Script::taking(&stuck, seconds(600)));
        wait_until(DEADLINE, "all to be out", || async {
            let out = rig.consumer(&consumer).await.unwrap().ack_pending;
            (out == 10).then_some(()).ok_or(out)
        })
        .await;
        worker.crash();
        rig.by_hand(&format!("STREAM.MSG.DELETE.{STREAM}"), json!({"seq": 2})).await;
        // As if a worker had gone on behind it, and had been killed before it could acknowledge what is gone.
        for sequence in 3..=5 {
            let ack = format!("$JS.ACK.{STREAM}.{consumer}.1.{sequence}.{sequence}.0.0");
            rig.connection.client().request(ack, "+ACK".into()).await.unwrap();
        }
        let journal = Journal::default();
        let next = Running::start(rig.builder(0).pod("b"), Script::taking(&journal, ms(0)));
        rig.wait_settled(&consumer).await;
        assert_eq!(journal.begun(), [1, 6, 7, 8, 9, 10], "{version}");
        next.stop().await;
    }
}
