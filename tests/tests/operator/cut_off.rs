//! A worker that cannot be reached goes on with its message: nobody else begins it, or what follows it, before the longest
//! deadline is over that the worker may go by.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lanekeeper_core::record::LaneState;
use lanekeeper_nats::ConnectSettings;
use lanekeeper_tests::{Direction, Flow, TcpProxy, wait_until};
use lanekeeper_worker::{HandlerError, Message, Worker, handler};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    flowing::publish,
    rig::{DEADLINE, Rig},
};

const KEYS: u64 = 2;
const EACH: u64 = 2;
/// What the worker goes by, and less than that for its handler.
const ACK_WAIT_SECONDS: u64 = 12;
const WORK: Duration = Duration::from_secs(9);

/// What handlers do, as they do it.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    busy: BTreeMap<String, u32>,
    overlaps: Vec<String>,
    done: Vec<String>,
}

impl Watch {
    fn begin(&self, pod: &str, message: &Message) {
        let mut seen = self.0.lock().unwrap();
        let busy = seen.busy.entry(message.subject().to_owned()).or_default();
        *busy += 1;
        if *busy > 1 {
            let overlap = format!("{pod} begins {} while another handles its key", message.fence());
            seen.overlaps.push(overlap);
        }
    }

    fn end(&self, message: &Message) {
        let mut seen = self.0.lock().unwrap();
        *seen.busy.entry(message.subject().to_owned()).or_default() -= 1;
        seen.done.push(message.fence().to_string());
    }

    fn is_busy(&self) -> bool {
        self.0.lock().unwrap().busy.values().any(|busy| *busy > 0)
    }

    /// Different messages that were handled.
    fn done(&self) -> usize {
        let mut done = self.0.lock().unwrap().done.clone();
        done.sort_unstable();
        done.dedup();
        done.len()
    }
}

/// A worker without a Pod object, as after a forced deletion: nobody can say that it has ended.
fn start(
    rig: &Rig,
    pod: &'static str,
    partition: u32,
    url: String,
    watch: &Watch,
    work: Duration,
) -> JoinHandle<()> {
    let connect = ConnectSettings::new([url], "worker");
    let worker = Worker::builder(rig.name("orders"), partition, "ORDERS", connect).pod(pod).build();
    let watch = watch.clone();
    let handler = handler(move |message: Arc<Message>| {
        let watch = watch.clone();
        async move {
            watch.begin(pod, &message);
            tokio::time::sleep(work).await;
            watch.end(&message);
            Ok::<(), HandlerError>(())
        }
    });
    tokio::spawn(async move {
        worker.run_until(handler, std::future::pending()).await.expect("the worker does not end by itself");
    })
}

/// What else happens between the shorter deadline and the change of the number.
#[derive(Clone, Copy, PartialEq)]
enum Meanwhile {
    Nothing,
    OperatorRestarts,
    EverythingDeleted,
}

async fn shortened_under_a_worker_that_is_cut_off(name: &str, meanwhile: Meanwhile) {
    let (rig, mut operator) = Rig::start(name).await;
    let mut spec = rig.spec(1);
    spec["consumer"]["ackWaitSeconds"] = json!(ACK_WAIT_SECONDS);
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let proxy = TcpProxy::start(rig.nats.address()).await;
    let watch = Watch::default();
    publish(&rig, KEYS, EACH).await;
    let cut_off = start(&rig, "orders-0-a", 0, proxy.url(), &watch, WORK);
    wait_until(DEADLINE, "the worker to begin", || async { watch.is_busy() }).await;
    proxy.set(Direction::ToServer, Flow::Hold);
    proxy.set(Direction::ToClient, Flow::Hold);

    rig.patch("orders", json!({"spec": {"consumer": {"ackWaitSeconds": 1}}})).await;
    wait_until(DEADLINE, "the operator to act on it", || async {
        let acted = rig.consumers("ORDERS").await.iter().all(|one| one.ack_wait_milliseconds == 1000);
        acted || rig.record("orders").await.is_some_and(|record| record.lanes[0].state != LaneState::Open)
    })
    .await;
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::OperatorRestarts => {
            operator.stop().await;
            operator = rig.operator().await;
        }
        Meanwhile::EverythingDeleted => {
            let connection = rig.connection().await;
            for one in rig.consumers("ORDERS").await {
                // The operator may be faster.
                let operation = format!("CONSUMER.DELETE.ORDERS.{}", one.name);
                let _ = connection.api::<Value>(&operation, &Value::Null).await;
            }
            connection.api::<Value>("STREAM.DELETE.KV_lanekeeper", &Value::Null).await.unwrap();
        }
    }
    rig.patch("orders", json!({"spec": {"partitions": 2}})).await;
    let others = [("orders-0-b", 0), ("orders-1-b", 1)].map(|(pod, partition)| {
        start(&rig, pod, partition, rig.nats.url(), &watch, Duration::from_millis(100))
    });
    wait_until(DEADLINE, "everything to be handled", || async {
        let (done, busy) = (watch.done(), watch.is_busy());
        let all = usize::try_from(KEYS * EACH).unwrap();
        if done == all && !busy { Ok(()) } else { Err(format!("{done} of {all}")) }
    })
    .await;
    assert_eq!(watch.0.lock().unwrap().overlaps, Vec::<String>::new());
    for task in others.into_iter().chain([cut_off]) {
        task.abort();
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_shorter_ack_wait_does_not_let_go_of_a_worker_that_is_cut_off() {
    shortened_under_a_worker_that_is_cut_off("cut-off", Meanwhile::Nothing).await;
}

#[tokio::test]
async fn nor_does_it_when_another_operator_takes_over() {
    shortened_under_a_worker_that_is_cut_off("cut-off-restart", Meanwhile::OperatorRestarts).await;
}

#[tokio::test]
async fn nor_does_it_when_consumers_and_records_are_deleted() {
    shortened_under_a_worker_that_is_cut_off("cut-off-deleted", Meanwhile::EverythingDeleted).await;
}

#[tokio::test]
async fn a_record_of_a_later_version_is_neither_read_nor_written_over() {
    let (rig, operator) = Rig::start("later").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let (bucket, key) = (rig.bucket().await, rig.name("orders").record_key());
    let found = bucket.get(&key).await.unwrap().unwrap().value.unwrap();
    let mut later: Value = serde_json::from_slice(&found).unwrap();
    later["v"] = json!(99);
    let revision = bucket.put(&key, later.to_string().into()).await.unwrap();
    rig.patch("orders", json!({"spec": {"partitions": 3}})).await;
    let message = rig.wait_condition("orders", "Ready", "False/RecordUnreadable").await;
    assert!(message.contains("v 99"), "{message}");
    assert_eq!(bucket.get(&key).await.unwrap().unwrap().revision, revision);
    bucket.put(&key, found).await.unwrap();
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    operator.stop().await;
}
