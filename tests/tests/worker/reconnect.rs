//! NATS goes away and comes back: P39, and what else breaks under a running lane.

use std::time::{Duration, Instant};

use lanekeeper_core::{lane::State, record::Floor};
use lanekeeper_tests::{Direction, Flow, TcpProxy, wait_until};

use crate::{
    DEADLINE, full_length,
    journal::{Journal, Script},
    rig::{Rig, Running, ms, seconds, share},
};

/// Handled again within this of NATS being reachable.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_lane_handles_again_after_each_way_of_losing_nats() {
    let mut rig = Rig::new().await;
    let consumer = rig.open().await;
    let proxy = TcpProxy::start(rig.server.address()).await;
    let journal = Journal::default();
    let worker = Running::start(rig.builder_at(0, &proxy.url()), Script::taking(&journal, ms(20)));
    let (silence, outage) =
        if full_length() { (seconds(60), seconds(300)) } else { (seconds(5), seconds(5)) };
    let mut published = 0;
    for round in 0..20 {
        for _ in 0..3 {
            rig.publish("k", "x").await;
            published += 1;
        }
        match round % 5 {
            0 => proxy.cut(),
            1 => {
                for direction in [Direction::ToServer, Direction::ToClient] {
                    proxy.set(direction, Flow::Hold);
                }
                pass(silence).await;
                proxy.restore();
            }
            2 => rig.server.restart().await,
            3 => {
                // Half-open: the connection looks healthy and carries nothing back.
                proxy.set(Direction::ToClient, Flow::Swallow);
                pass(silence).await;
                proxy.restore();
            }
            _ => {
                rig.server.kill();
                if round == 4 {
                    pass(outage).await;
                }
                rig.server.start_again().await;
            }
        }
        let reachable = Instant::now();
        rig.publish("k", "after").await;
        published += 1;
        wait_until(DEADLINE, "the lane to handle again", || async {
            let done = journal.done();
            (done.last() == Some(&published)).then_some(()).ok_or(format!("{done:?} of {published}"))
        })
        .await;
        assert!(reachable.elapsed() <= SOON, "round {round}: after {:?}", reachable.elapsed());
    }
    rig.wait_settled(&consumer).await;
    let mut handled = journal.done();
    let all = journal.all();
    for pair in all.windows(2) {
        assert!(pair[1].sequence <= pair[0].sequence + 1, "{:?} came before what precedes it", pair[1]);
    }
    handled.sort_unstable();
    handled.dedup();
    assert_eq!(handled, (1..=published).collect::<Vec<_>>());
    worker.stop().await;
}

/// The case says how long; nothing is decided by it.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test]
async fn a_completed_message_whose_ack_was_lost_comes_again_and_is_not_handled_again() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    let proxy = TcpProxy::start(rig.server.address()).await;
    let journal = Journal::default();
    let worker = Running::start(rig.builder_at(0, &proxy.url()), Script::taking(&journal, ms(500)));
    rig.publish_many("k", 2).await;
    wait_until(DEADLINE, "the first message to be in work", || async { journal.begun() == [1] }).await;
    proxy.set(Direction::ToServer, Flow::Swallow);
    wait_until(DEADLINE, "the first message to be done", || async { journal.done() == [1] }).await;
    wait_until(DEADLINE, "the lane to give it up", || async { worker.status().state == State::Lost }).await;
    assert_eq!(rig.consumer(&consumer).await.unwrap().ack_pending, 1, "the server never got the ack");
    proxy.restore();
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.begun(), [1, 2]);
    let info = rig.by_hand(&format!("CONSUMER.INFO.ORDERS.{consumer}"), serde_json::json!(null)).await;
    assert!(info["delivered"]["consumer_seq"].as_u64() > Some(2), "the first message was delivered again");
    worker.stop().await;
}

#[tokio::test]
async fn a_half_open_connection_is_noticed_by_the_lane_itself() {
    let rig = Rig::new().await;
    rig.open().await;
    let proxy = TcpProxy::start(rig.server.address()).await;
    let journal = Journal::default();
    let worker = Running::start(rig.builder_at(0, &proxy.url()), Script::taking(&journal, ms(0)));
    wait_until(DEADLINE, "the lane to serve", || async { worker.status().state == State::Idle }).await;
    proxy.set(Direction::ToClient, Flow::Swallow);
    rig.publish("k", "x").await;
    // New connections are healthy: only the present ones are not.
    let first = proxy.connections();
    wait_until(DEADLINE, "the lane to give the connection up", || async {
        proxy.connections() < first || !worker.status().connected
    })
    .await;
    proxy.restore();
    wait_until(DEADLINE, "the message to be handled", || async { journal.done() == [1] }).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_that_starts_before_nats_serves_when_it_comes() {
    let mut rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish("k", "x").await;
    rig.server.stop().await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(0)));
    wait_until(DEADLINE, "the worker to say that NATS is away", || async {
        worker.status().not_ready().is_some_and(|why| why.contains("not connected"))
    })
    .await;
    rig.server.start_again().await;
    wait_until(DEADLINE, "the message to be handled", || async { journal.done() == [1] }).await;
    rig.wait_settled(&consumer).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_deleted_consumer_ends_the_lane_and_the_worker_follows_its_successor() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    let journal = Journal::default();
    let worker = rig.start(Script::taking(&journal, ms(1)));
    rig.publish_many("k", 50).await;
    rig.wait_settled(&consumer).await;
    rig.by_hand(&format!("CONSUMER.DELETE.ORDERS.{consumer}"), serde_json::json!(null)).await;
    wait_until(DEADLINE, "the worker to leave the lane", || async {
        let holders = rig.lane_key(1).await.holders;
        (holders.is_empty() && worker.status().state == State::Waiting)
            .then_some(())
            .ok_or(format!("{holders:?}"))
    })
    .await;
    assert!(!worker.has_ended());
    rig.publish_many("k", 50).await;
    // As the operator does: a successor after the last floor that it knew, which may be a little old.
    let share = share(0, 1);
    let floor = Floor { share, sequence: 50 };
    let successor = rig.open_lane(share, 2, Some(46), vec![floor]).await;
    rig.wait_settled(&successor).await;
    assert_eq!(journal.done(), (1..=100).collect::<Vec<_>>());
    worker.stop().await;
}
