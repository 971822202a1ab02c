//! Real workers under an operator that changes the number of partitions while messages flow. Each worker has a Pod
//! object, as its pod's would be; the process itself is this one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use lanekeeper_nats::ConnectSettings;
use lanekeeper_tests::wait_until;
use lanekeeper_worker::{HandlerError, Message, Worker, handler};
use serde_json::json;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::rig::{DEADLINE, Rig};

const KEYS: u64 = 20;
/// Messages that wait while lanes change.
const BACKLOG: u64 = 600;
const MOST_PARTITIONS: u32 = 6;
const CHANGES: [u32; 6] = [3, 5, 4, 6, 1, 2];

/// Numbers in the order in which each key's messages were begun.
type Journal = Arc<Mutex<BTreeMap<String, Vec<u64>>>>;

struct Workers {
    tasks: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Workers {
    /// One for each partition that there will ever be; those without a lane wait for one.
    async fn start(rig: &Rig, journal: &Journal) -> Self {
        let mut tasks = Vec::new();
        for partition in 0..MOST_PARTITIONS {
            let pod = format!("orders-{partition}-a");
            make_pod(rig, &pod, partition).await;
            let connect = ConnectSettings::new([rig.nats.url()], "worker");
            let worker = Worker::builder(rig.name("orders"), partition, "ORDERS", connect).pod(&pod).build();
            let (stop, stopped) = oneshot::channel::<()>();
            let journal = Arc::clone(journal);
            let handler = handler(move |message: Arc<Message>| {
                let journal = Arc::clone(&journal);
                async move {
                    let number: u64 = String::from_utf8_lossy(message.payload()).parse().unwrap();
                    journal.lock().unwrap().entry(message.subject().to_owned()).or_default().push(number);
                    // Long enough for messages to be in hand when lanes change.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    Ok::<(), HandlerError>(())
                }
            });
            let task = tokio::spawn(async move {
                let shutdown = async move {
                    let _ = stopped.await;
                };
                worker.run_until(handler, shutdown).await.expect("the worker ends well");
            });
            tasks.push((stop, task));
        }
        Self { tasks }
    }

    async fn stop(self) {
        for (stop, task) in self.tasks {
            let _ = stop.send(());
            task.await.expect("a worker ends without a defect");
        }
    }
}

async fn make_pod(rig: &Rig, name: &str, partition: u32) {
    let pods: Api<Pod> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {
            "app.kubernetes.io/name": "lanekeeper-worker", "app.kubernetes.io/managed-by": "lanekeeper",
            "lanekeeper.dev/set": "orders", "lanekeeper.dev/partition": partition.to_string(),
        }},
        "spec": {"containers": [{"name": "lane", "image": "example.com/lane:1"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

fn handled(journal: &Journal) -> u64 {
    journal.lock().unwrap().values().map(|numbers| numbers.len() as u64).sum()
}

/// Publishes numbered messages of all keys until it is told to stop, never far ahead of the workers; how many each
/// key has.
fn publish(client: async_nats::Client, journal: Journal) -> (oneshot::Sender<()>, JoinHandle<u64>) {
    let context = async_nats::jetstream::new(client);
    let (stop, mut stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let mut number = 0;
        while matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            number += 1;
            for key in 0..KEYS {
                let stored =
                    context.publish(format!("orders.{key}"), number.to_string().into()).await.unwrap();
                stored.await.expect("NATS stores it");
            }
            wait_until(DEADLINE, "the workers to keep up", || async {
                number * KEYS < handled(&journal) + BACKLOG
            })
            .await;
        }
        number
    });
    (stop, task)
}

async fn in_order_through_changes(name: &str, retention: &str) {
    let (rig, operator) = Rig::start(name).await;
    let mut spec = rig.spec(2);
    spec["stream"]["retention"] = json!(retention);
    // Nothing here dies, so no deadline needs to pass; a handover that waited for one would take much longer.
    spec["consumer"]["ackWaitSeconds"] = json!(30);
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let journal = Journal::default();
    let workers = Workers::start(&rig, &journal).await;
    let (stop, publisher) = publish(rig.nats.client().await, Arc::clone(&journal));
    for partitions in CHANGES {
        rig.patch("orders", json!({"spec": {"partitions": partitions}})).await;
        rig.wait_condition("orders", "Rescaling", "False/Settled").await;
        assert_eq!(rig.open_partitions("orders").await, (0..partitions).collect::<Vec<_>>());
        // Messages flow in the lanes of each number.
        let before = handled(&journal);
        wait_until(DEADLINE, "the lanes to handle messages", || async { handled(&journal) > before + 200 })
            .await;
    }
    let _ = stop.send(());
    let published = publisher.await.unwrap();
    wait_until(DEADLINE, "everything to be handled", || async {
        let journal = journal.lock().unwrap();
        let last = |numbers: &Vec<u64>| numbers.last() == Some(&published);
        let done = journal.len() as u64 == KEYS && journal.values().all(last);
        if done {
            Ok(())
        } else {
            Err(format!(
                "{published} published: {:?}",
                journal.values().map(|numbers| numbers.last()).collect::<Vec<_>>()
            ))
        }
    })
    .await;
    workers.stop().await;
    operator.stop().await;
    for (key, numbers) in journal.lock().unwrap().iter() {
        // A repeat of a completed message is allowed, but nothing here gives a reason for one.
        assert_eq!(*numbers, (1..=published).collect::<Vec<_>>(), "{key}");
    }
}

#[tokio::test]
async fn keys_stay_in_order_while_the_number_of_partitions_changes_on_a_limits_stream() {
    in_order_through_changes("flow-limits", "Limits").await;
}

#[tokio::test]
async fn keys_stay_in_order_while_the_number_of_partitions_changes_on_an_interest_stream() {
    in_order_through_changes("flow-interest", "Interest").await;
}

#[tokio::test]
async fn keys_stay_in_order_while_the_number_of_partitions_changes_on_a_work_queue() {
    in_order_through_changes("flow-queue", "WorkQueue").await;
}
