//! Messages without attempts left: P01 with dead letters and with dropping, the breaker, and everything that can be wrong
//! with the other stream.

use async_nats::{
    HeaderMap, HeaderValue,
    jetstream::{consumer::pull, stream::Config},
};
use axum::http::StatusCode;
use futures::StreamExt;
use lanekeeper_core::{
    aside as header,
    fence::Fence,
    journal::{Checker, Ending, Entry, Options},
    record::{BlockedBy, Breaker, ExhaustedPolicy},
    stream::Retention,
};
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use lanekeeper_worker::{HandlerError, Message};

use crate::{
    DEADLINE,
    aside::{as_user, missing_then_full, stored, wait_blocked},
    journal::{End, Journal, Script},
    process::HttpScript,
    rig::{Rig, Running, ms, share},
};

const DEAD: &str = "DEAD";
const SUBJECT: &str = "lanekeeper.dlq.shop.orders";
const BREAKER: Breaker = Breaker { max_exhausted: 100, window_seconds: 600 };

fn dead_letters(breaker: Breaker) -> ExhaustedPolicy {
    ExhaustedPolicy::DeadLetter { stream: DEAD.into(), subject: SUBJECT.into(), breaker }
}

/// A work queue whose dead letters go to a stream that does not exist yet.
async fn without_stream() -> Rig {
    let mut rig = Rig::on(NatsServer::start(LATEST).await, Retention::WorkQueue).await;
    rig.settings.on_exhausted = dead_letters(BREAKER);
    rig
}

async fn with_stream() -> Rig {
    let rig = without_stream().await;
    make(&rig).await;
    rig
}

fn config() -> Config {
    Config { name: DEAD.into(), subjects: vec![SUBJECT.into()], ..Config::default() }
}

async fn make(rig: &Rig) {
    rig.connection.context().create_stream(config()).await.unwrap();
}

/// A dead letter as it is stored.
struct Letter {
    headers: HeaderMap,
    payload: Vec<u8>,
}

impl Letter {
    fn says(&self, name: &str) -> &str {
        self.headers.get(name).map(HeaderValue::as_str).unwrap_or_default()
    }
}

async fn letters(rig: &Rig) -> Vec<Letter> {
    let stream = rig.connection.context().get_stream(DEAD).await.unwrap();
    let count = usize::try_from(stream.cached_info().state.messages).unwrap();
    // Not message by message: read like that, the client keeps one value of each header.
    let consumer = stream.create_consumer(pull::OrderedConfig::default()).await.unwrap();
    let messages = consumer.messages().await.unwrap().take(count);
    let letters = messages.map(|message| {
        let message = message.unwrap();
        let headers = message.headers.clone().unwrap_or_default();
        Letter { headers, payload: message.payload.to_vec() }
    });
    letters.collect().await
}

/// The first message always fails, everything else works.
fn poison(journal: &Journal) -> Script {
    Script::new(journal, |message: &Message| {
        let fails = message.sequence() == 1;
        (ms(0), if fails { Err(HandlerError::retry("poison\nin two lines")) } else { Ok(()) })
    })
}

#[tokio::test]
async fn a_poison_message_becomes_one_dead_letter_and_the_lane_goes_on() {
    let mut rig = with_stream().await;
    rig.settings.journal = Some("audit".into());
    let audit = Config { name: "AUDIT".into(), subjects: vec!["audit.*".into()], ..Config::default() };
    rig.connection.context().create_stream(audit).await.unwrap();
    let consumer = rig.open().await;
    let mut headers = HeaderMap::new();
    for (name, value) in [("traceparent", "00-1"), ("Nats-Msg-Id", "mine"), ("Lanekeeper-Reason", "forged")] {
        headers.insert(name, value);
    }
    headers.append("many", "a");
    headers.append("many", "b");
    let payload: Vec<u8> = (0..=255).collect();
    let context = rig.connection.context();
    let sent = context.publish_with_headers("orders.k", headers, payload.clone().into()).await.unwrap();
    sent.await.unwrap();
    rig.publish_many("k", 2).await;
    let journal = Journal::default();
    let worker = rig.start(poison(&journal));
    rig.wait_settled(&consumer).await;
    let story = [(1, End::Failed), (1, End::Failed), (1, End::Failed), (2, End::Done), (3, End::Done)];
    assert_eq!(journal.story(), story, "exactly three attempts, in place");
    assert_eq!(stored(&rig).await, 0, "the work queue is empty");
    let letters = letters(&rig).await;
    let [letter] = &letters[..] else { panic!("{} dead letters", letters.len()) };
    assert_eq!(letter.payload, payload);
    for (name, value) in [
        (header::SUBJECT, "orders.k"),
        (header::STREAM, "ORDERS"),
        (header::SEQUENCE, "1"),
        (header::KEY, "k"),
        (header::SET, "shop/orders"),
        (header::PARTITION, "0"),
        (header::ATTEMPTS, "3"),
        (header::REASON, "poison in two lines"),
        (header::MESSAGE_ID, "mine"),
        ("traceparent", "00-1"),
        ("Nats-Msg-Id", "lanekeeper-dlq shop/orders ORDERS 0000000001-00000000000000000001"),
    ] {
        assert_eq!(letter.says(name), value, "{name}");
    }
    assert_eq!(letter.headers.get_all("many").count(), 2);
    worker.stop().await;
    // The journal tells of it, and its checker has nothing against it.
    let mut checker = Checker::new(Options::default());
    for sequence in 1..=3 {
        checker.expect("k", Fence { stream_incarnation: 1, sequence }, true, true);
    }
    let audit = context.get_stream("AUDIT").await.unwrap();
    let mut away = 0;
    for sequence in 1..=audit.cached_info().state.last_sequence {
        let entry: Entry =
            serde_json::from_slice(&audit.get_raw_message(sequence).await.unwrap().payload).unwrap();
        away += usize::from(entry.outcome == Ending::PutAway && entry.fence.sequence == 1);
        checker.add(&entry);
    }
    let verdict = checker.report();
    assert!(verdict.is_clean() && away == 1 && verdict.missing == 0, "{verdict}");
}

#[tokio::test]
async fn what_will_never_work_is_put_away_after_one_attempt_whatever_its_size() {
    let rig = with_stream().await;
    let consumer = rig.open().await;
    let context = rig.connection.context();
    let room = 1024 * 1024 - 2_000;
    for payload in [Vec::new(), vec![0_u8; room]] {
        context.publish("orders.k", payload.into()).await.unwrap().await.unwrap();
    }
    rig.publish("k", "fine").await;
    let journal = Journal::default();
    let worker = rig.start(Script::new(&journal, |message: &Message| {
        let fails = message.sequence() < 3;
        (ms(0), if fails { Err(HandlerError::permanent("422")) } else { Ok(()) })
    }));
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.story(), [(1, End::Failed), (2, End::Failed), (3, End::Done)]);
    let sizes: Vec<usize> = letters(&rig).await.iter().map(|letter| letter.payload.len()).collect();
    assert_eq!(sizes, [0, room]);
    worker.stop().await;
}

#[tokio::test]
async fn a_message_that_leaves_no_room_for_the_headers_stops_its_lane_and_says_so() {
    let rig = with_stream().await;
    let consumer = rig.open().await;
    let context = rig.connection.context();
    context.publish("orders.k", vec![0_u8; 1024 * 1024].into()).await.unwrap().await.unwrap();
    rig.publish("k", "next").await;
    let journal = Journal::default();
    let worker = rig.start(poison(&journal));
    wait_blocked(&rig, "orders-0", BlockedBy::DeadLetter, "Payload size limit of 1048576 exceeded").await;
    assert_eq!(journal.begun(), [1, 1, 1]);
    let found = rig.consumer(&consumer).await.unwrap();
    assert_eq!((found.floor, found.ack_pending), (0, 1), "it is kept");
    worker.stop().await;
    assert_eq!(stored(&rig).await, 2);
}

#[tokio::test]
async fn a_stream_that_is_missing_or_full_stops_the_lane_until_it_is_there() {
    let rig = without_stream().await;
    let count = async || letters(&rig).await.len();
    let story = missing_then_full(&rig, BlockedBy::DeadLetter, config(), count).await;
    assert_eq!(story, [(1, End::Failed), (2, End::Failed), (3, End::Done), (4, End::Done)]);
}

const ACCOUNTS: &str = r#"
no_auth_user: all
accounts { APP { jetstream: enabled, users: [
  {user: all, password: all}
  {user: deaf, password: deaf, permissions: {publish: {deny: ["$JS.ACK.>"]}}}
  {user: mute, password: mute, permissions: {publish: {deny: ["lanekeeper.dlq.>"]}}}
] } }
"#;

/// A set on a server with users of few rights, and a handler that refuses the first message.
async fn with_users() -> (Rig, Journal, HttpScript) {
    let server = NatsServer::builder(LATEST).config(ACCOUNTS).start().await;
    let mut rig = Rig::on(server, Retention::WorkQueue).await;
    rig.settings.on_exhausted = dead_letters(BREAKER);
    rig.settings.retry.max_attempts = 1;
    let journal = Journal::default();
    let handler = HttpScript::start(&journal, |got| {
        let first = got.headers["ce-sequence"].ends_with("01");
        let status = if first { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::NO_CONTENT };
        (ms(0), status, Vec::new())
    })
    .await;
    (rig, journal, handler)
}

#[tokio::test]
async fn a_worker_killed_before_the_dead_letter_is_stored_leaves_it_to_the_next_one() {
    let (rig, journal, handler) = with_users().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let first = as_user(&rig, "all", &handler).await;
    wait_blocked(&rig, "p", BlockedBy::DeadLetter, "no stream takes").await;
    first.kill().await;
    make(&rig).await;
    let second = as_user(&rig, "all", &handler).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.begun(), [1, 2], "the only attempt was made");
    let letters = letters(&rig).await;
    assert_eq!((letters.len(), letters[0].says(header::ATTEMPTS)), (1, "1"));
    second.kill().await;
}

#[tokio::test]
async fn a_worker_killed_between_the_dead_letter_and_the_acknowledgement_leaves_one_dead_letter() {
    let (rig, journal, handler) = with_users().await;
    make(&rig).await;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    // Its acknowledgements are refused by the server, so it stays between the two.
    let first = as_user(&rig, "deaf", &handler).await;
    wait_until(DEADLINE, "the dead letter to be stored", || async { letters(&rig).await.len() == 1 }).await;
    first.kill().await;
    assert_eq!(stored(&rig).await, 2, "it is in both streams");
    let second = as_user(&rig, "all", &handler).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.begun(), [1, 2], "what is a dead letter is not handled again");
    assert_eq!((letters(&rig).await.len(), stored(&rig).await), (1, 0));
    second.kill().await;
}

#[tokio::test]
async fn a_worker_that_may_not_publish_dead_letters_keeps_the_message_and_says_why() {
    let (rig, journal, handler) = with_users().await;
    make(&rig).await;
    rig.open().await;
    rig.publish_many("k", 2).await;
    let worker = as_user(&rig, "mute", &handler).await;
    wait_blocked(&rig, "p", BlockedBy::DeadLetter, "lanekeeper.dlq.shop.orders").await;
    assert_eq!((journal.begun(), stored(&rig).await), (vec![1], 2));
    let (_, metrics) = worker.ask("/metrics").await;
    let failures = "lanekeeper_lane_dead_letter_failures_total";
    let counted = metrics.lines().find(|line| line.starts_with(failures));
    assert!(counted.is_some_and(|line| !line.ends_with(" 0")), "{metrics}");
    worker.kill().await;
}

#[tokio::test]
async fn a_lane_that_is_succeeded_while_it_stands_leaves_the_message_to_its_successor() {
    let rig = without_stream().await;
    let first = rig.open().await;
    rig.publish_many("k", 2).await;
    let journal = Journal::default();
    let worker = rig.start(poison(&journal));
    wait_blocked(&rig, "orders-0", BlockedBy::DeadLetter, "no stream takes").await;
    rig.retire(share(0, 1), 1).await;
    wait_until(DEADLINE, "the lane to be left", || async { rig.lane_key(1).await.holders.is_empty() }).await;
    let floor = rig.consumer(&first).await.unwrap().floor;
    assert_eq!(floor, 0, "nothing was acknowledged");
    rig.connection
        .api::<serde_json::Value>(&format!("CONSUMER.DELETE.ORDERS.{first}"), &serde_json::Value::Null)
        .await
        .unwrap();
    make(&rig).await;
    let second = rig.open_lane(share(0, 1), 2, None, Vec::new()).await;
    rig.wait_settled(&second).await;
    assert_eq!((letters(&rig).await.len(), journal.done()), (1, vec![2]));
    worker.stop().await;
}

#[tokio::test]
async fn more_than_the_breaker_allows_stop_the_lane_also_over_a_restart_of_the_worker() {
    let mut rig = without_stream().await;
    make(&rig).await;
    rig.settings.on_exhausted = dead_letters(Breaker { max_exhausted: 2, window_seconds: 600 });
    let consumer = rig.open().await;
    rig.publish_many("k", 5).await;
    let journal = Journal::default();
    let broken = |_: &Message| (ms(0), Err(HandlerError::permanent("the database is away")));
    let worker = rig.start(Script::new(&journal, broken));
    let blocked = wait_blocked(&rig, "orders-0", BlockedBy::Breaker, "the database is away").await;
    assert_eq!((blocked.sequence, letters(&rig).await.len()), (3, 2));
    wait_until(DEADLINE, "the breaker to be recorded", || async { rig.lane_key(1).await.breaker == Some(3) })
        .await;
    worker.stop().await;
    let worker = Running::start(rig.builder(0).pod("second"), Script::new(&journal, broken));
    wait_blocked(&rig, "second", BlockedBy::Breaker, "the database is away").await;
    assert_eq!(letters(&rig).await.len(), 2);
    worker.stop().await;
    let mended = Running::start(rig.builder(0).pod("third"), Script::taking(&journal, ms(0)));
    rig.wait_settled(&consumer).await;
    assert_eq!((journal.done(), letters(&rig).await.len()), (vec![3, 4, 5], 2));
    mended.stop().await;
}

#[tokio::test]
async fn a_dropped_message_leaves_a_report_and_the_lane_goes_on() {
    let mut rig = Rig::on(NatsServer::start(LATEST).await, Retention::WorkQueue).await;
    rig.settings.on_exhausted = ExhaustedPolicy::Drop { breaker: BREAKER };
    let consumer = rig.open().await;
    rig.publish_many("k", 3).await;
    let journal = Journal::default();
    let worker = rig.start(poison(&journal));
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.begun(), [1, 1, 1, 2, 3]);
    let dropped = wait_until(DEADLINE, "the drop to be reported", || async {
        rig.report(0, "orders-0").await.and_then(|report| report.dropped)
    })
    .await;
    assert_eq!((dropped.sequence, stored(&rig).await), (1, 0));
    worker.stop().await;
}
