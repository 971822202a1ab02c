//! The main thing: every message, once, in order.

use lanekeeper_core::{lane::State, share::shares, stream::Retention};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS, wait_until};

use crate::{
    DEADLINE,
    journal::{Journal, Script},
    rig::{Rig, Running, ms},
};

const KEYS: u64 = 20;
const MESSAGES: u64 = 600;

#[tokio::test]
async fn every_message_is_handled_once_and_in_order_on_every_supported_server() {
    for version in VERSIONS {
        let rig = Rig::on(NatsServer::start(version).await, Retention::Limits).await;
        let mut consumers = Vec::new();
        for share in shares(2) {
            consumers.push(rig.open_lane(share, 1 + u64::from(share.partition()), None, Vec::new()).await);
        }
        let journal = Journal::default();
        let workers =
            [0, 1].map(|partition| Running::start(rig.builder(partition), Script::taking(&journal, ms(0))));
        for number in 0..MESSAGES {
            rig.publish(&format!("k{}", number % KEYS), "x").await;
        }
        for consumer in &consumers {
            rig.wait_settled(consumer).await;
        }
        journal.assert_in_order();
        let mut handled = journal.begun();
        handled.sort_unstable();
        assert_eq!(handled, (1..=MESSAGES).collect::<Vec<_>>(), "server {version}");
        assert!(journal.all().iter().all(|handling| handling.attempt == 1));
        for worker in workers {
            worker.stop().await;
        }
    }
}

#[tokio::test]
async fn of_two_workers_of_one_lane_one_has_all_messages() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 200).await;
    let journal = Journal::default();
    let pod = |name| Running::start(rig.builder(0).pod(name), Script::taking(&journal, ms(2)).named(name));
    let (first, second) = (pod("first"), pod("second"));
    rig.wait_settled(&consumer).await;
    journal.assert_in_order();
    assert_eq!(journal.begun(), (1..=200).collect::<Vec<_>>());
    let all = journal.all();
    assert!(all.iter().all(|handling| handling.who == all[0].who), "the server gives them to one");
    assert_eq!(rig.lane_key(1).await.holders.len(), 2);
    first.stop().await;
    second.stop().await;
    assert!(rig.lane_key(1).await.holders.is_empty());
}

#[tokio::test]
async fn messages_that_come_one_by_one_are_settled_one_by_one() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(0)));
    for number in 1..=20 {
        assert_eq!(rig.publish("k", "x").await, number);
        rig.wait_settled(&consumer).await;
        wait_until(DEADLINE, "the lane to know it", || async { worker.status().state == State::Idle }).await;
    }
    assert_eq!(journal.done(), (1..=20).collect::<Vec<_>>());
    worker.stop().await;
}

#[tokio::test]
async fn a_consumer_with_a_raised_limit_is_not_served_until_it_is_lowered() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.edit_consumer(&consumer, |config| config["max_ack_pending"] = 100.into()).await;
    rig.publish_many("k", 5).await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(0)));
    wait_until(DEADLINE, "the lane to say what is wrong", || async {
        let report = rig.report(0, "orders-0").await.ok_or("there is no report")?;
        let refused = report.refused.ok_or("nothing is refused")?;
        refused.reason.contains("max_ack_pending").then_some(()).ok_or(refused.reason)
    })
    .await;
    assert!(journal.begun().is_empty());
    rig.edit_consumer(&consumer, |config| config["max_ack_pending"] = 1.into()).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), [1, 2, 3, 4, 5]);
    wait_until(DEADLINE, "the report to be taken back", || async {
        rig.report(0, "orders-0").await.is_some_and(|report| report.refused.is_none())
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn the_newer_form_of_ack_subjects_is_understood() {
    let server = NatsServer::builder(LATEST).config("feature_flags { js_ack_fc_v2: true }").start().await;
    let rig = Rig::on(server, Retention::Limits).await;
    let consumer = rig.open().await;
    rig.publish_many("k", 20).await;
    // What a message looks like to others, to be sure that the server speaks that form at all.
    let mut seen = rig.connection.client().subscribe("$JS.ACK.>").await.unwrap();
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(0)));
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.begun(), (1..=20).collect::<Vec<_>>());
    let ack = wait_until(DEADLINE, "an ack to be seen", || {
        let next = futures::FutureExt::now_or_never(futures::StreamExt::next(&mut seen)).flatten();
        async { next }
    })
    .await;
    assert_eq!(ack.subject.split('.').count(), 11, "{}", ack.subject);
    worker.stop().await;
}
