//! A worker follows its partition from lane to lane.

use lanekeeper_core::{
    lane::State,
    record::{Assignment, Ownership},
    stream::Retention,
};
use lanekeeper_nats::{ConnectSettings, Files};
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use lanekeeper_worker::Worker;

use crate::{
    DEADLINE,
    journal::{Journal, Script},
    rig::{Rig, Running, STREAM, ms, seconds, share},
};

#[tokio::test]
async fn a_worker_moves_to_the_successor_after_what_it_has_in_hand() {
    let rig = Rig::new().await;
    rig.open().await;
    let share = share(0, 1);
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(300)));
    rig.publish_many("k", 6).await;
    wait_until(DEADLINE, "the second message to be in work", || async { journal.begun() == [1, 2] }).await;
    rig.retire(share, 1).await;
    wait_until(DEADLINE, "the lane to be left", || async { rig.lane_key(1).await.holders.is_empty() }).await;
    let floor = rig.consumer(&rig.set.consumer(0, 1)).await.unwrap().floor;
    assert_eq!(journal.done(), (1..=floor).collect::<Vec<_>>(), "all of it is settled and nothing after it");
    assert!(floor < 6);
    let successor = rig.open_lane(share, 2, Some(floor + 1), Vec::new()).await;
    rig.wait_settled(&successor).await;
    assert_eq!(journal.begun(), [1, 2, 3, 4, 5, 6]);
    journal.assert_in_order();
    assert_eq!(worker.status().incarnation, Some(2));
    worker.stop().await;
}

#[tokio::test]
async fn an_idle_lane_is_left_at_once_when_it_retires() {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 60_000;
    rig.open().await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(0)));
    wait_until(DEADLINE, "the lane to serve", || async { worker.status().state == State::Idle }).await;
    let asked = std::time::Instant::now();
    rig.retire(share(0, 1), 1).await;
    wait_until(DEADLINE, "the lane to be left", || async { rig.lane_key(1).await.holders.is_empty() }).await;
    assert!(asked.elapsed() < seconds(4), "it did not wait for its pull, but took {:?}", asked.elapsed());
    worker.stop().await;
}

#[tokio::test]
async fn a_paused_set_stops_after_the_message_in_hand_and_goes_on_later() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    let share = share(0, 1);
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(300)));
    rig.publish_many("k", 5).await;
    wait_until(DEADLINE, "the first message to be in work", || async { journal.begun() == [1] }).await;
    let mut paused = rig.assignment(share, 1);
    paused.settings.paused = true;
    rig.assign(&paused).await;
    wait_until(DEADLINE, "the lane to be left", || async { worker.status().state == State::Waiting }).await;
    let done = journal.done().len();
    assert!(done < 5);
    assert!(worker.status().in_place, "a worker of a paused set is where it should be");
    let found = rig.consumer(&consumer).await.unwrap();
    assert_eq!((found.floor, found.ack_pending), (done as u64, 0));
    rig.assign(&rig.assignment(share, 1)).await;
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.begun(), [1, 2, 3, 4, 5]);
    worker.stop().await;
}

#[tokio::test]
async fn a_message_of_another_share_is_refused_and_reported() {
    let rig = Rig::new().await;
    let share = share(1, 2);
    // The consumer's filter lets everything through, as a person might set it by hand.
    let consumer = rig.open_lane(share, 1, None, Vec::new()).await;
    rig.edit_consumer(&consumer, |config| config["filter_subject"] = rig.mapping.all_lanes().into()).await;
    let key = (0..1_000).map(|number| format!("k{number}")).find(|key| {
        let hash = rig.mapping.key_hash(&format!("orders.{key}")).unwrap();
        !share.contains_hash(hash)
    });
    rig.publish(&key.unwrap(), "x").await;
    let journal = Journal::default();
    let worker = Running::start(rig.builder(1).pod("p"), Script::taking(&journal, ms(0)));
    wait_until(DEADLINE, "the message to be reported as refused", || async {
        let report = rig.report(1, "p").await.ok_or("there is no report")?;
        report.refused.filter(|refused| refused.sequence == 1).map(drop).ok_or("nothing is refused")
    })
    .await;
    assert!(journal.begun().is_empty());
    assert_eq!(rig.consumer(&consumer).await.unwrap().floor, 0);
    worker.stop().await;
}

const ACCOUNTS: &str = r#"
accounts {
  APP {
    jetstream: enabled
    users [
      {user: all, password: all}
      {user: worker, password: worker, permissions: {
        publish: [
          "$JS.API.STREAM.INFO.KV_lanekeeper"
          "$JS.API.DIRECT.GET.KV_lanekeeper.$KV.lanekeeper.set.shop.orders.>"
          "$KV.lanekeeper.set.shop.orders.report.>"
          "$KV.lanekeeper.set.shop.orders.lane.>"
          "$JS.API.CONSUMER.MSG.NEXT.ORDERS.*"
          "$JS.API.CONSUMER.INFO.ORDERS.*"
          "$JS.ACK.ORDERS.>"
          "lanekeeper.dlq.shop.orders"
          "$JS.API.STREAM.MSG.GET.lk_shop_orders_dlq"
        ]
        subscribe: ["_INBOX.>", "$KV.lanekeeper.set.shop.orders.>"]
      }}
      {user: stranger, password: stranger, permissions: {
        publish: ["$JS.API.CONSUMER.MSG.NEXT.ORDERS.*", "$JS.API.CONSUMER.INFO.ORDERS.*", "$JS.ACK.ORDERS.>"]
        subscribe: ["_INBOX.>"]
      }}
    ]
  }
}
"#;

fn as_user(rig: &Rig, user: &str) -> ConnectSettings {
    let mut settings = ConnectSettings::new([rig.server.url()], "worker");
    let files = [("user", user), ("password", user)];
    settings.credentials = Files::Memory(files.map(|(name, value)| (name.to_owned(), value.into())).into());
    settings
}

async fn with_accounts() -> Rig {
    let server =
        NatsServer::builder(LATEST).config(&format!("{ACCOUNTS}\nno_auth_user: all\n")).start().await;
    Rig::on(server, Retention::Limits).await
}

#[tokio::test]
async fn the_documented_permissions_of_a_worker_are_enough() {
    for ownership in [Ownership::Pin, Ownership::Lease] {
        let mut rig = with_accounts().await;
        rig.settings.ownership = ownership;
        let consumer = rig.open().await;
        rig.publish_many("k", 20).await;
        let journal = Journal::default();
        let builder = Worker::builder(rig.set.clone(), 0, STREAM, as_user(&rig, "worker"));
        let worker = Running::start(builder, Script::taking(&journal, ms(0)));
        rig.wait_settled(&consumer).await;
        let share = share(0, 1);
        rig.assign(&Assignment { retiring: true, ..rig.assignment(share, 1) }).await;
        wait_until(DEADLINE, "the lane to be left", || async { rig.lane_key(1).await.holders.is_empty() })
            .await;
        assert_eq!(journal.done().len(), 20, "{ownership:?}");
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_worker_without_permission_for_the_bucket_starts_no_lane_and_says_why() {
    let rig = with_accounts().await;
    let consumer = rig.open().await;
    rig.publish("k", "x").await;
    let journal = Journal::default();
    let builder = Worker::builder(rig.set.clone(), 0, STREAM, as_user(&rig, "stranger"));
    let worker = Running::start(builder, Script::taking(&journal, ms(0)));
    wait_until(DEADLINE, "the worker to say why", || async {
        let trouble = worker.status().trouble.unwrap_or_default();
        trouble.contains("no permission for bucket 'lanekeeper'").then_some(()).ok_or(trouble)
    })
    .await;
    assert!(journal.begun().is_empty());
    assert_eq!(rig.consumer(&consumer).await.unwrap().delivered, 0);
    worker.stop().await;
}
