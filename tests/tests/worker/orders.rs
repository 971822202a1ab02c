//! Orders of persons: trying and skipping the message at which a lane stands, and everything that can come in between.

use async_nats::jetstream::stream::Config;
use lanekeeper_core::{
    aside as header,
    order::{Order, OrderOutcome, OrderResult, Verb},
    record::{Breaker, ExhaustedPolicy, LaneKey, Report},
    stream::Retention,
};
use lanekeeper_nats::observe;
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use lanekeeper_worker::{HandlerError, Message};

use crate::{
    DEADLINE,
    journal::{End, Journal, Script},
    rig::{Rig, Running, ms},
};

const DEAD: &str = "DEAD";
const SUBJECT: &str = "lanekeeper.dlq.shop.orders";

/// About message `sequence`.
pub(crate) fn order(id: &str, verb: Verb, sequence: u64) -> Order {
    Order {
        id: id.into(),
        verb,
        key: "k".into(),
        sequence: Some(sequence),
        through: None,
        reason: "seen before".into(),
        by: "ann".into(),
        at: String::new(),
        begun: false,
    }
}

/// Writes the orders into the key of incarnation 1, as the plugin does.
pub(crate) async fn give(rig: &Rig, orders: &[Order]) {
    let key = rig.set.lane_key(1);
    loop {
        let mut found = rig.bucket.get_json::<LaneKey>(&key).await.unwrap().unwrap();
        for order in orders {
            found.value.add_order(order.clone()).unwrap();
        }
        match rig.bucket.put_json(&key, &found.value, Some(found.revision)).await {
            Ok(_) => return,
            Err(error) => assert!(error.is_conflict(), "{error}"),
        }
    }
}

/// Waits until nothing is ordered any more; what came of it all.
pub(crate) async fn results(rig: &Rig) -> Vec<OrderResult> {
    wait_until(DEADLINE, "the orders to be over", || async {
        let key = rig.lane_key(1).await;
        if key.orders.is_empty() { Ok(key.results) } else { Err(format!("{key:?}")) }
    })
    .await
}

pub(crate) async fn outcomes(rig: &Rig) -> Vec<(OrderOutcome, u64)> {
    results(rig).await.into_iter().map(|result| (result.outcome, result.messages)).collect()
}

async fn wait_report(rig: &Rig, what: &str, holds: impl Fn(&Report) -> bool) -> Report {
    wait_until(DEADLINE, what, || async {
        let report = rig.report(0, "orders-0").await.ok_or("there is no report")?;
        if holds(&report) { Ok(report) } else { Err("another one") }
    })
    .await
}

async fn wait_blocked(rig: &Rig) {
    wait_report(rig, "the lane to stand", |report| report.blocked.is_some()).await;
}

async fn work_queue() -> Rig {
    Rig::on(NatsServer::start(LATEST).await, Retention::WorkQueue).await
}

/// The first message fails until the handler has been asked so often; everything else works.
fn fails(journal: &Journal, times: usize) -> Script {
    let known = journal.clone();
    Script::new(journal, move |message: &Message| {
        let asked = known.begun().iter().filter(|sequence| **sequence == 1).count();
        let fails = message.sequence() == 1 && asked <= times;
        (ms(0), if fails { Err(HandlerError::retry("no")) } else { Ok(()) })
    })
}

#[tokio::test]
async fn a_blocked_message_is_tried_at_once_whether_that_helps_or_not() {
    let mut rig = work_queue().await;
    rig.settings.retry.max_backoff_milliseconds = 600_000;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let journal = Journal::default();
    let worker = rig.start(fails(&journal, 4));
    wait_blocked(&rig).await;
    assert_eq!(journal.begun(), [1, 1, 1]);
    give(&rig, &[order("a", Verb::Retry, 1)]).await;
    let result = results(&rig).await.remove(0);
    assert_eq!((result.outcome, result.reason.as_str()), (OrderOutcome::Failed, "no"));
    assert_eq!(journal.begun(), [1; 4], "one further attempt");
    give(&rig, &[order("b", Verb::Retry, 1)]).await;
    assert_eq!(outcomes(&rig).await[1], (OrderOutcome::Succeeded, 1));
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), [1, 2]);
    worker.stop().await;
}

#[tokio::test]
async fn a_message_that_waits_for_its_next_attempt_is_called_back_from_the_server() {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 60_000;
    rig.settings.retry.initial_backoff_milliseconds = 300_000;
    rig.settings.retry.max_backoff_milliseconds = 300_000;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let journal = Journal::default();
    let worker = rig.start(fails(&journal, 1));
    wait_until(DEADLINE, "the first attempt to fail", || async { journal.story() == [(1, End::Failed)] })
        .await;
    give(&rig, &[order("a", Verb::Retry, 1)]).await;
    assert_eq!(outcomes(&rig).await, [(OrderOutcome::Succeeded, 1)]);
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.story(), [(1, End::Failed), (1, End::Done), (2, End::Done)]);
    worker.stop().await;
}

#[tokio::test]
async fn a_blocked_message_is_skipped_and_what_follows_is_handled() {
    let rig = work_queue().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 3).await;
    let journal = Journal::default();
    let worker = rig.start(fails(&journal, usize::MAX));
    wait_blocked(&rig).await;
    give(&rig, &[order("a", Verb::Skip, 1)]).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(outcomes(&rig).await, [(OrderOutcome::Skipped, 1)]);
    assert_eq!(journal.done(), [2, 3]);
    let report = wait_report(&rig, "it to be said", |report| report.skipped.is_some()).await;
    let skipped = report.skipped.unwrap();
    assert_eq!((skipped.sequence, skipped.by.as_str(), skipped.reason.as_str()), (1, "ann", "seen before"));
    worker.stop().await;
}

#[tokio::test]
async fn what_stands_in_the_key_before_a_worker_comes_is_carried_out_once_whoever_finds_it() {
    let rig = work_queue().await;
    let consumer = rig.open().await;
    for key in ["k", "other", "k", "k"] {
        rig.publish(key, "x").await;
    }
    let all_of_k = Order { sequence: None, through: Some(3), ..order("a", Verb::Skip, 0) };
    give(&rig, std::slice::from_ref(&all_of_k)).await;
    let journal = Journal::default();
    let first = rig.start(Script::taking(&journal, ms(0)));
    rig.wait_settled(&consumer).await;
    assert_eq!(outcomes(&rig).await, [(OrderOutcome::Skipped, 2)]);
    assert_eq!(journal.done(), [2, 4], "neither another key nor what came later");
    first.crash();

    // As it is when a worker dies after it carried an order out and before it took it out: nothing is done a second time.
    give(&rig, &[all_of_k, order("b", Verb::Skip, 1), order("c", Verb::Retry, 4)]).await;
    rig.publish("k", "later").await;
    let second = Running::start(rig.builder(0), Script::taking(&journal, ms(0)));
    rig.wait_settled(&consumer).await;
    let void = (OrderOutcome::Void, 0);
    assert_eq!(outcomes(&rig).await[1..], [void.clone(), void.clone(), void]);
    assert_eq!(journal.done(), [2, 4, 5]);
    second.stop().await;
}

#[tokio::test]
async fn an_idle_lane_says_of_an_order_that_it_is_past_it() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish("k", "x").await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(0)));
    rig.wait_settled(&consumer).await;
    give(&rig, &[order("a", Verb::Skip, 1)]).await;
    let result = results(&rig).await.remove(0);
    assert_eq!(result.outcome, OrderOutcome::Void);
    assert!(result.reason.contains("the lane is past it"), "{result:?}");
    worker.stop().await;
}

#[tokio::test]
async fn with_dead_letters_a_skipped_message_is_one_first() {
    let mut rig = work_queue().await;
    let breaker = Breaker { max_exhausted: 1, window_seconds: 600 };
    rig.settings.on_exhausted =
        ExhaustedPolicy::DeadLetter { stream: DEAD.into(), subject: SUBJECT.into(), breaker };
    let consumer = rig.open().await;
    rig.publish_many("k", 3).await;
    give(&rig, &[Order { sequence: None, through: Some(2), ..order("a", Verb::Skip, 0) }]).await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(0)));
    // There is no such stream yet.
    wait_blocked(&rig).await;
    assert_eq!(rig.lane_key(1).await.orders.len(), 1);
    let config = Config { name: DEAD.into(), subjects: vec![SUBJECT.into()], ..Config::default() };
    rig.connection.context().create_stream(config).await.unwrap();
    rig.wait_settled(&consumer).await;
    assert_eq!(outcomes(&rig).await, [(OrderOutcome::Skipped, 2)]);
    assert_eq!(journal.begun(), [3]);
    for (number, sequence) in [(1, "1"), (2, "2")] {
        let letter = observe::message(&rig.connection, DEAD, number).await.unwrap().unwrap();
        assert_eq!(letter.header(header::SEQUENCE), Some(sequence));
        assert_eq!(letter.header(header::REASON), Some("skipped by ann: seen before"));
        assert_eq!(letter.header(header::ATTEMPTS), Some("0"));
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_handler_that_runs_is_not_cut_off_by_an_order() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let journal = Journal::default();
    let worker = rig.start(Script::new(&journal, |message: &Message| {
        let first = message.sequence() == 1;
        (ms(if first { 1_500 } else { 0 }), if first { Err(HandlerError::retry("no")) } else { Ok(()) })
    }));
    wait_until(DEADLINE, "the handler to run", || async { (!journal.all().is_empty()).then_some(()) }).await;
    give(&rig, &[order("a", Verb::Skip, 1)]).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.story(), [(1, End::Failed), (2, End::Done)]);
    assert_eq!(outcomes(&rig).await, [(OrderOutcome::Skipped, 1)]);
    worker.stop().await;
}
