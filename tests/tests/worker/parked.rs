//! Parked keys on a real server: P01 with parking, what waits behind, handover, crashes at every step, and release.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_nats::{HeaderMap, jetstream::stream::Config};
use axum::http::StatusCode;
use lanekeeper_core::{
    aside,
    order::{Order, OrderOutcome, Verb},
    record::{BlockedBy, Breaker, ExhaustedPolicy, Floor, LaneKey, Park},
    share::Share,
    stream::Retention,
};
use lanekeeper_nats::observe;
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use lanekeeper_worker::{HandlerError, Message};

use crate::{
    DEADLINE,
    aside::{as_user, missing_then_full, stored, wait_blocked},
    journal::{End, Journal, Script},
    process::HttpScript,
    rig::{Rig, Running, ms, share},
};

pub(crate) const PARK: &str = "PARK";
pub(crate) const BREAKER: Breaker = Breaker { max_exhausted: 100, window_seconds: 600 };

/// A work queue whose keys are parked in a stream that does not exist yet.
async fn without_stream() -> Rig {
    on(NatsServer::start(LATEST).await).await
}

async fn on(server: NatsServer) -> Rig {
    let mut rig = Rig::on(server, Retention::WorkQueue).await;
    rig.settings.on_exhausted = ExhaustedPolicy::ParkKey { breaker: BREAKER };
    rig.settings.park = Some(Park { stream: PARK.into(), prefix: rig.set.park_prefix() });
    rig
}

async fn with_stream() -> Rig {
    let rig = without_stream().await;
    make(&rig).await;
    rig
}

fn config(rig: &Rig) -> Config {
    let subjects = vec![format!("{}.>", rig.set.park_prefix())];
    Config { name: PARK.into(), subjects, allow_direct: true, ..Config::default() }
}

pub(crate) async fn make(rig: &Rig) {
    rig.connection.context().create_stream(config(rig)).await.unwrap();
}

/// The original sequences of what is parked, in the order of the park stream.
pub(crate) async fn parked(rig: &Rig) -> Vec<u64> {
    let mut found = Vec::new();
    let mut from = 1;
    while let Some(one) = observe::next_under(&rig.connection, PARK, ">", from).await.unwrap() {
        from = one.sequence + 1;
        found.push(one.header(aside::SEQUENCE).unwrap().parse().unwrap());
    }
    found
}

/// What of this key fails for good until it is mended.
#[derive(Clone, Default)]
pub(crate) struct Mended(Arc<AtomicBool>);

impl Mended {
    pub(crate) fn mend(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn script(&self, journal: &Journal, poison: &'static str) -> Script {
        let mended = self.0.clone();
        Script::new(journal, move |message: &Message| {
            let fails = message.key() == poison && !mended.load(Ordering::Relaxed);
            (ms(0), if fails { Err(HandlerError::permanent("422: no such pen")) } else { Ok(()) })
        })
    }
}

#[tokio::test]
async fn a_poison_message_parks_its_key_in_order_and_the_other_keys_go_on() {
    let rig = with_stream().await;
    let consumer = rig.open().await;
    let mut headers = HeaderMap::new();
    for (name, value) in [("traceparent", "00-1"), ("Nats-Msg-Id", "mine"), ("Lanekeeper-Reason", "forged")] {
        headers.insert(name, value);
    }
    headers.append("many", "a");
    headers.append("many", "b");
    let context = rig.connection.context();
    let payload: Vec<u8> = (0..=255).collect();
    context.publish_with_headers("orders.bad", headers, payload.clone().into()).await.unwrap().await.unwrap();
    for key in ["good", "bad", "good", "bad"] {
        rig.publish(key, "x").await;
    }
    let journal = Journal::default();
    // Tried in place until no attempt is left.
    let worker = rig.start(Script::new(&journal, |message: &Message| {
        let fails = message.key() == "bad";
        (ms(0), if fails { Err(HandlerError::retry("no\nsuch pen")) } else { Ok(()) })
    }));
    rig.wait_settled(&consumer).await;
    let story = [(1, End::Failed), (1, End::Failed), (1, End::Failed), (2, End::Done), (4, End::Done)];
    assert_eq!(journal.story(), story, "what is behind it is not tried");
    assert_eq!((parked(&rig).await, stored(&rig).await), (vec![1, 3, 5], 0));
    let first = observe::message(&rig.connection, PARK, 1).await.unwrap().unwrap();
    let subject = rig.mapping.subject_under(&rig.set.park_prefix(), "orders.bad").unwrap();
    assert_eq!((first.subject.as_str(), &first.payload[..]), (subject.as_str(), &payload[..]));
    for (name, value) in [
        (aside::SUBJECT, "orders.bad"),
        (aside::KEY, "bad"),
        (aside::FENCE, "0000000001-00000000000000000001"),
        (aside::ATTEMPTS, "3"),
        (aside::REASON, "no such pen"),
        (aside::MESSAGE_ID, "mine"),
        ("traceparent", "00-1"),
        ("Nats-Msg-Id", "lanekeeper-park shop/orders ORDERS 0000000001-00000000000000000001"),
    ] {
        assert_eq!(first.header(name), Some(value), "{name}");
    }
    let behind = observe::message(&rig.connection, PARK, 2).await.unwrap().unwrap();
    assert_eq!(behind.header(aside::REASON), Some("an earlier message of its key is parked"));
    let report = wait_until(DEADLINE, "the key to be reported", || async {
        rig.report(0, "orders-0").await.and_then(|report| report.parked)
    })
    .await;
    assert_eq!((report.sequence, report.reason.as_str()), (1, "key bad: no\nsuch pen"));
    worker.stop().await;
}

#[tokio::test]
async fn the_next_worker_knows_what_is_parked_and_a_change_of_the_policy_unlocks_nothing() {
    let mut rig = with_stream().await;
    let consumer = rig.open().await;
    rig.publish("bad", "x").await;
    let (journal, mended) = (Journal::default(), Mended::default());
    let worker = rig.start(mended.script(&journal, "bad"));
    rig.wait_settled(&consumer).await;
    worker.stop().await;
    mended.mend();
    rig.settings.on_exhausted = ExhaustedPolicy::Block;
    rig.assign(&rig.assignment(share(0, 1), 1)).await;
    let worker = Running::start(rig.builder(0).pod("second"), mended.script(&journal, "bad"));
    rig.publish("bad", "y").await;
    rig.publish("good", "z").await;
    rig.wait_settled(&consumer).await;
    assert_eq!((journal.done(), parked(&rig).await), (vec![3], vec![1, 2]));
    worker.stop().await;
}

#[tokio::test]
async fn a_park_that_is_missing_or_full_keeps_the_message_in_hand_until_it_is_there() {
    let rig = without_stream().await;
    let count = async || parked(&rig).await.len();
    let story = missing_then_full(&rig, BlockedBy::Park, config(&rig), count).await;
    assert_eq!(story, [(1, End::Failed), (3, End::Done), (4, End::Done)], "what is behind it is not tried");
    assert_eq!(parked(&rig).await, [1, 2]);
}

const ACCOUNTS: &str = r#"
no_auth_user: all
accounts { APP { jetstream: enabled, users: [
  {user: all, password: all}
  {user: deaf, password: deaf, permissions: {publish: {deny: ["$JS.ACK.>"]}}}
  {user: blind, password: blind, permissions: {publish: {deny: ["$JS.API.STREAM.INFO.PARK"]}}}
  {user: keeping, password: keeping, permissions: {publish: {deny: ["$JS.API.STREAM.MSG.DELETE.PARK"]}}}
] } }
"#;

/// A set on a server with users of few rights, and a handler that refuses key `bad` until it is mended.
async fn with_users() -> (Rig, Journal, HttpScript, Mended) {
    let rig = on(NatsServer::builder(LATEST).config(ACCOUNTS).start().await).await;
    make(&rig).await;
    let (journal, mended) = (Journal::default(), Mended::default());
    let is_mended = mended.0.clone();
    let handler = HttpScript::start(&journal, move |got| {
        let fails = got.headers["ce-partitionkey"] == "bad" && !is_mended.load(Ordering::Relaxed);
        let status = if fails { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::NO_CONTENT };
        (ms(0), status, Vec::new())
    })
    .await;
    (rig, journal, handler, mended)
}

#[tokio::test]
async fn a_worker_killed_between_parking_and_acknowledging_leaves_it_parked_once_and_in_order() {
    let (rig, journal, handler, mended) = with_users().await;
    let consumer = rig.open().await;
    rig.publish_many("bad", 3).await;
    let first = as_user(&rig, "deaf", &handler).await;
    wait_until(DEADLINE, "the message to be parked", || async { parked(&rig).await == [1] }).await;
    first.kill().await;
    assert_eq!(stored(&rig).await, 3, "it is in both streams");
    // What would handle it now does not get it: its key is parked.
    mended.mend();
    let second = as_user(&rig, "all", &handler).await;
    rig.wait_settled(&consumer).await;
    assert_eq!((journal.begun(), parked(&rig).await, stored(&rig).await), (vec![1], vec![1, 2, 3], 0));
    second.kill().await;
}

#[tokio::test]
async fn a_worker_that_may_not_know_what_is_parked_handles_nothing_and_says_why() {
    let (rig, journal, handler, _) = with_users().await;
    rig.open().await;
    rig.publish("good", "x").await;
    let worker = as_user(&rig, "blind", &handler).await;
    wait_blocked(&rig, "p", BlockedBy::Park, "$JS.API.STREAM.INFO.PARK").await;
    assert!(journal.begun().is_empty());
    worker.kill().await;
}

#[tokio::test]
async fn parked_keys_move_with_their_partition_from_two_to_three_to_two() {
    let rig = with_stream().await;
    let keys: Vec<String> = (0..24).map(|number| format!("k{number}")).collect();
    // Every third key cannot be handled yet.
    let bad = |key: &str| key[1..].parse::<u64>().is_ok_and(|number| number % 3 == 0);
    let journal = Journal::default();
    let script = |journal: &Journal| {
        Script::new(journal, move |message: &Message| {
            (ms(0), if bad(&message.key()) { Err(HandlerError::permanent("422")) } else { Ok(()) })
        })
    };
    let workers: Vec<Running> =
        (0..3).map(|partition| Running::start(rig.builder(partition), script(&journal))).collect();
    let mut incarnation = 0;
    let mut lanes: BTreeMap<Share, u64> = BTreeMap::new();
    for partitions in [2, 3, 2] {
        let shares = lanekeeper_core::share::shares(partitions);
        let leaving: Vec<(Share, u64)> =
            lanes.iter().filter(|(share, _)| !shares.contains(share)).map(|(a, b)| (*a, *b)).collect();
        let mut floors = Vec::new();
        for (share, old) in &leaving {
            rig.retire(*share, *old).await;
            wait_until(DEADLINE, "the lane to be left", || async {
                rig.lane_key(*old).await.holders.is_empty()
            })
            .await;
            let consumer = rig.set.consumer(share.partition(), *old);
            let sequence = rig.consumer(&consumer).await.unwrap().floor;
            floors.push(Floor { share: *share, sequence });
            rig.by_hand(&format!("CONSUMER.DELETE.ORDERS.{consumer}"), serde_json::Value::Null).await;
            lanes.remove(share);
        }
        for share in shares.iter().filter(|share| !lanes.contains_key(share)).copied().collect::<Vec<_>>() {
            incarnation += 1;
            let floors = floors.iter().filter(|floor| floor.share.overlaps(share)).copied().collect();
            rig.open_lane(share, incarnation, None, floors).await;
            lanes.insert(share, incarnation);
        }
        for key in &keys {
            rig.publish(key, "x").await;
        }
        for (share, incarnation) in &lanes {
            rig.wait_settled(&rig.set.consumer(share.partition(), *incarnation)).await;
        }
    }
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(stored(&rig).await, 0);
    let (all, asked) = (parked(&rig).await, journal.story());
    assert_eq!(all.len(), 8 * 3, "each message of a parked key is parked once");
    let failed = asked.iter().filter(|(_, end)| *end == End::Failed).count();
    assert_eq!(failed, 8, "the handler was asked for the first one of each key alone: {asked:?}");
    assert_eq!(asked.len() - failed, 16 * 3);
}

#[tokio::test]
async fn two_workers_that_take_turns_never_handle_a_key_that_the_other_one_parked() {
    let rig = with_stream().await;
    let consumer = rig.open().await;
    let (journal, mended) = (Journal::default(), Mended::default());
    let first = Running::start(rig.builder(0).pod("a"), mended.script(&journal, "bad"));
    rig.publish("good", "x").await;
    rig.publish("bad", "x").await;
    wait_until(DEADLINE, "the key to be parked", || async { parked(&rig).await == [2] }).await;
    mended.mend();
    let second = Running::start(rig.builder(0).pod("b"), mended.script(&journal, "bad"));
    // The first one lets go of the pin, and the second one knows nothing of what it parked.
    first.stop().await;
    rig.publish("bad", "y").await;
    rig.publish("good", "y").await;
    rig.wait_settled(&consumer).await;
    assert_eq!((journal.done(), parked(&rig).await), (vec![1, 4], vec![2, 3]));
    second.stop().await;
}

/// Orders that what is parked of a key be released, or dropped; the order's id.
pub(crate) async fn order(
    rig: &Rig,
    incarnation: u64,
    verb: Verb,
    key: &str,
    sequence: Option<u64>,
) -> String {
    let lane = rig.set.lane_key(incarnation);
    let id = rig.connection.client().new_inbox();
    let text =
        serde_json::json!({"id": id, "verb": verb, "key": key, "sequence": sequence, "reason": "mended"});
    let order: Order = serde_json::from_value(text).unwrap();
    loop {
        let mut found = rig.bucket.get_json::<LaneKey>(&lane).await.unwrap().unwrap();
        found.value.add_order(order.clone()).unwrap();
        match rig.bucket.put_json(&lane, &found.value, Some(found.revision)).await {
            Ok(_) => return id,
            Err(error) => assert!(error.is_conflict(), "{error}"),
        }
    }
}

/// What came of an order.
pub(crate) async fn outcome(rig: &Rig, incarnation: u64, id: &str) -> (OrderOutcome, u64, String) {
    wait_until(Duration::from_secs(60), "the order to be carried out", || async {
        let results = rig.lane_key(incarnation).await.results;
        let result = results.into_iter().find(|result| result.id == id).ok_or("it has no result")?;
        Ok::<_, &str>((result.outcome, result.messages, result.reason))
    })
    .await
}

#[tokio::test]
async fn a_release_hands_over_what_was_published_in_order_on_a_quiet_lane_after_a_restart() {
    let rig = with_stream().await;
    let consumer = rig.open().await;
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", "00-1");
    headers.insert("Nats-Msg-Id", "mine");
    headers.append("many", "a");
    headers.append("many", "b");
    let context = rig.connection.context();
    context.publish_with_headers("orders.bad", headers, "first".into()).await.unwrap().await.unwrap();
    for key in ["good", "bad", "bad"] {
        rig.publish(key, "x").await;
    }
    let (journal, mended) = (Journal::default(), Mended::default());
    let worker = rig.start(mended.script(&journal, "bad"));
    rig.wait_settled(&consumer).await;
    worker.stop().await;
    assert_eq!(parked(&rig).await, [1, 3, 4]);
    mended.mend();
    let seen: Arc<Mutex<Vec<Message>>> = Arc::default();
    let keep = Arc::clone(&seen);
    let script = Script::new(&journal, move |message: &Message| {
        keep.lock().unwrap().push(message.clone());
        (ms(0), Ok(()))
    });
    // Nobody is pinned: there is no message.
    let worker = Running::start(rig.builder(0).pod("mended"), script);
    let id = order(&rig, 1, Verb::Release, "bad", None).await;
    assert_eq!(outcome(&rig, 1, &id).await, (OrderOutcome::Released, 3, String::new()));
    assert!(parked(&rig).await.is_empty());
    let key = rig.lane_key(1).await;
    assert!(key.orders.is_empty() && key.releasing.is_none());
    rig.publish("bad", "y").await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), [2, 1, 3, 4, 5], "the key is free");
    let seen = seen.lock().unwrap().clone();
    let first = &seen[0];
    assert_eq!((first.subject(), first.sequence(), first.attempt()), ("orders.bad", 1, 1));
    assert_eq!(
        (first.key().as_str(), first.fence().to_string().as_str(), &first.payload()[..]),
        ("bad", "0000000001-00000000000000000001", &b"first"[..])
    );
    let headers = first.headers().unwrap();
    assert_eq!(headers.get("traceparent").map(ToString::to_string).as_deref(), Some("00-1"));
    assert_eq!(headers.get("Nats-Msg-Id").map(ToString::to_string).as_deref(), Some("mine"));
    assert_eq!(headers.get_all("many").count(), 2);
    assert!(headers.iter().all(|(name, _)| !name.to_string().starts_with("Lanekeeper-")), "{headers:?}");
    let published = first.published().elapsed().unwrap();
    assert!(published < DEADLINE && seen[3].published() > first.published());
    worker.stop().await;
}

#[tokio::test]
async fn two_thousand_parked_messages_are_released_in_order_while_others_come() {
    let rig = with_stream().await;
    let consumer = rig.open().await;
    let (journal, mended) = (Journal::default(), Mended::default());
    let worker = rig.start(mended.script(&journal, "bad"));
    let context = rig.connection.context();
    let mut sent = Vec::new();
    for _ in 0..2_000 {
        sent.push(context.publish("orders.bad", "x".into()).await.unwrap());
    }
    for one in sent {
        one.await.unwrap();
    }
    rig.wait_settled(&consumer).await;
    mended.mend();
    let id = order(&rig, 1, Verb::Release, "bad", None).await;
    for _ in 0..100 {
        rig.publish("bad", "y").await;
        rig.publish("good", "y").await;
    }
    let (outcome, messages, reason) = outcome(&rig, 1, &id).await;
    // Some may have come before the lane took note of the order, and are parked and released as well.
    assert_eq!((outcome, reason.as_str()), (OrderOutcome::Released, ""));
    assert!(messages >= 2_000);
    rig.wait_settled(&consumer).await;
    assert!(parked(&rig).await.is_empty());
    let bad: Vec<u64> = journal
        .all()
        .iter()
        .filter(|one| one.key == "bad" && one.end == End::Done)
        .map(|one| one.sequence)
        .collect();
    assert_eq!(bad.len(), 2_100);
    assert!(bad.is_sorted_by(|one, other| one < other), "in order, each once");
    worker.stop().await;
}

#[tokio::test]
async fn a_message_that_fails_again_stays_parked_and_the_lane_goes_on() {
    let mut rig = with_stream().await;
    rig.settings.retry.max_attempts = 2;
    let consumer = rig.open().await;
    rig.publish_many("bad", 2).await;
    let journal = Journal::default();
    let worker = rig.start(Script::new(&journal, |message: &Message| {
        let fails = message.key() == "bad";
        (ms(0), if fails { Err(HandlerError::retry("still no such pen")) } else { Ok(()) })
    }));
    rig.wait_settled(&consumer).await;
    let id = order(&rig, 1, Verb::Release, "bad", None).await;
    let (result, messages, reason) = outcome(&rig, 1, &id).await;
    assert_eq!((result, messages), (OrderOutcome::Failed, 0));
    assert!(reason.contains("still no such pen"), "{reason}");
    rig.publish("good", "x").await;
    rig.wait_settled(&consumer).await;
    assert_eq!((journal.begun(), parked(&rig).await), (vec![1, 1, 1, 1, 3], vec![1, 2]));
    worker.stop().await;
}

#[tokio::test]
async fn one_message_or_a_whole_key_is_dropped_by_the_lane_and_the_key_is_free() {
    let rig = with_stream().await;
    let consumer = rig.open().await;
    rig.publish_many("bad", 3).await;
    let (journal, mended) = (Journal::default(), Mended::default());
    let worker = rig.start(mended.script(&journal, "bad"));
    rig.wait_settled(&consumer).await;
    mended.mend();
    let id = order(&rig, 1, Verb::Drop, "bad", Some(2)).await;
    assert_eq!(outcome(&rig, 1, &id).await, (OrderOutcome::Dropped, 1, String::new()));
    assert_eq!(parked(&rig).await, [1, 3]);
    rig.publish("bad", "x").await;
    rig.wait_settled(&consumer).await;
    assert_eq!(parked(&rig).await, [1, 3, 4], "it is parked still");
    let id = order(&rig, 1, Verb::Drop, "bad", None).await;
    assert_eq!(outcome(&rig, 1, &id).await, (OrderOutcome::Dropped, 3, String::new()));
    rig.publish("bad", "y").await;
    rig.wait_settled(&consumer).await;
    assert_eq!((journal.begun(), parked(&rig).await), (vec![1, 5], Vec::new()));
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_killed_between_handling_and_deleting_repeats_that_message_and_loses_none() {
    let (rig, journal, handler, mended) = with_users().await;
    let consumer = rig.open().await;
    rig.publish_many("bad", 3).await;
    let first = as_user(&rig, "keeping", &handler).await;
    rig.wait_settled(&consumer).await;
    mended.mend();
    let id = order(&rig, 1, Verb::Release, "bad", None).await;
    // It may not delete, so it stays between the two.
    wait_until(DEADLINE, "the first one to be handled", || async { journal.begun() == [1, 1] }).await;
    first.kill().await;
    let second = as_user(&rig, "all", &handler).await;
    assert_eq!(outcome(&rig, 1, &id).await.0, OrderOutcome::Released);
    assert_eq!((journal.begun(), parked(&rig).await), (vec![1, 1, 1, 2, 3], Vec::new()));
    second.kill().await;
}

#[tokio::test]
async fn of_two_workers_of_a_lane_one_releases_and_each_message_once() {
    let rig = with_stream().await;
    let consumer = rig.open().await;
    rig.publish_many("bad", 20).await;
    let (journal, mended) = (Journal::default(), Mended::default());
    let a = Running::start(rig.builder(0).pod("a"), mended.script(&journal, "bad"));
    let b = Running::start(rig.builder(0).pod("b"), mended.script(&journal, "bad"));
    rig.wait_settled(&consumer).await;
    mended.mend();
    let id = order(&rig, 1, Verb::Release, "bad", None).await;
    assert_eq!(outcome(&rig, 1, &id).await.0, OrderOutcome::Released);
    let expected: Vec<u64> = std::iter::once(1).chain(1..=20).collect();
    assert_eq!((journal.begun(), parked(&rig).await), (expected, Vec::new()));
    a.stop().await;
    b.stop().await;
}
