//! Messages that flow: real workers of a set, a publisher, and a journal of what was handled. Each worker has a Pod
//! object, as its pod's would be; the process itself is this one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use lanekeeper_nats::ConnectSettings;
use lanekeeper_tests::{controlplane::ControlPlane, wait_until};
use lanekeeper_worker::{HandlerError, Message, Worker, handler};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::rig::{DEADLINE, Operator, Rig};

/// Numbers in the order in which each key's messages were completed.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<BTreeMap<String, Vec<u64>>>>);

impl Journal {
    fn note(&self, subject: &str, number: u64) {
        self.0.lock().unwrap().entry(subject.to_owned()).or_default().push(number);
    }

    /// How many messages were completed, repeats included.
    pub(crate) fn handled(&self) -> u64 {
        self.0.lock().unwrap().values().map(|numbers| numbers.len() as u64).sum()
    }

    /// How many messages of one subject were completed, repeats included.
    pub(crate) fn handled_of(&self, subject: &str) -> usize {
        self.0.lock().unwrap().get(subject).map_or(0, Vec::len)
    }

    /// Waits until every key's last message was completed.
    pub(crate) async fn wait_for_all(&self, keys: u64, published: u64) {
        wait_until(DEADLINE, "everything to be handled", || async {
            let journal = self.0.lock().unwrap();
            let last = |numbers: &Vec<u64>| numbers.last() == Some(&published);
            if journal.len() as u64 == keys && journal.values().all(last) {
                return Ok(());
            }
            let last: Vec<_> = journal.values().map(|numbers| numbers.last()).collect();
            Err(format!("{published} published for each of {keys} keys; last: {last:?}"))
        })
        .await;
    }

    /// Each key's messages were completed from the first to the last; a repeat comes before anything newer. The number
    /// of repeats.
    pub(crate) fn repeats(&self, published: u64) -> usize {
        let mut repeats = 0;
        for (key, numbers) in self.0.lock().unwrap().iter() {
            let mut next = 1;
            for number in numbers {
                assert!(*number <= next, "{key}: {number} was handled before {next}: {numbers:?}");
                if *number == next {
                    next += 1;
                } else {
                    repeats += 1;
                }
            }
            assert_eq!(next, published + 1, "{key}: not all were handled");
        }
        repeats
    }
}

/// How the handler treats a message.
pub(crate) type Behaviour = dyn Fn(&Message) -> (Duration, Result<(), HandlerError>) + Send + Sync;

/// Workers of a set, one for each partition that there will ever be; those without a lane wait for one.
pub(crate) struct Workers {
    tasks: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Workers {
    pub(crate) async fn start(
        rig: &Rig,
        partitions: u32,
        journal: &Journal,
        behaviour: impl Fn(&Message) -> (Duration, Result<(), HandlerError>) + Send + Sync + 'static,
    ) -> Self {
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let mut tasks = Vec::new();
        for partition in 0..partitions {
            let pod = format!("orders-{partition}-a");
            make_pod(rig, &pod, partition).await;
            let connect = ConnectSettings::new([rig.nats.url()], "worker");
            let worker = Worker::builder(rig.name("orders"), partition, "ORDERS", connect).pod(&pod).build();
            let (stop, stopped) = oneshot::channel::<()>();
            let (journal, behaviour) = (journal.clone(), Arc::clone(&behaviour));
            let handler = handler(move |message: Arc<Message>| {
                let (journal, behaviour) = (journal.clone(), Arc::clone(&behaviour));
                async move {
                    let (time, result) = behaviour(&message);
                    tokio::time::sleep(time).await;
                    result?;
                    let number = String::from_utf8_lossy(message.payload()).parse().unwrap();
                    journal.note(message.subject(), number);
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

    pub(crate) async fn stop(self) {
        for (stop, task) in self.tasks {
            let _ = stop.send(());
            task.await.expect("a worker ends without a defect");
        }
    }
}

/// A pod of a worker of `orders` as the API server knows it.
pub(crate) async fn make_pod(rig: &Rig, name: &str, partition: u32) -> Api<Pod> {
    ControlPlane::worker_pod(&rig.client, &rig.namespace, "orders", partition, name).await
}

/// Publishes one more message of each key, with confirmation.
async fn publish_round(context: &async_nats::jetstream::Context, keys: u64, number: u64) {
    for key in 0..keys {
        let stored = context.publish(format!("orders.{key}"), number.to_string().into()).await.unwrap();
        stored.await.expect("NATS stores it");
    }
}

/// Publishes messages numbered from 1 to `count` of each key.
pub(crate) async fn publish(rig: &Rig, keys: u64, count: u64) {
    let context = async_nats::jetstream::new(rig.nats.client().await);
    for number in 1..=count {
        publish_round(&context, keys, number).await;
    }
}

/// Publishes until it is told to stop.
pub(crate) struct Publisher {
    stop: oneshot::Sender<()>,
    task: JoinHandle<u64>,
}

impl Publisher {
    /// How many messages each key has.
    pub(crate) async fn stop(self) -> u64 {
        let _ = self.stop.send(());
        self.task.await.unwrap()
    }
}

/// The end of a story: everything that was published of each key is handled, in order, and workers and operator end. The
/// number of repeats.
pub(crate) async fn end(
    operator: Operator,
    workers: Workers,
    journal: &Journal,
    keys: u64,
    published: u64,
) -> usize {
    journal.wait_for_all(keys, published).await;
    workers.stop().await;
    operator.stop().await;
    journal.repeats(published)
}

/// Publishes numbered messages of all keys, never more than `backlog` ahead of the workers.
pub(crate) async fn keep_publishing(rig: &Rig, keys: u64, backlog: u64, journal: &Journal) -> Publisher {
    let context = async_nats::jetstream::new(rig.nats.client().await);
    let journal = journal.clone();
    let (stop, mut stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let mut number = 0;
        while matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            number += 1;
            publish_round(&context, keys, number).await;
            wait_until(DEADLINE, "the workers to keep up", || async {
                number * keys < journal.handled() + backlog
            })
            .await;
        }
        number
    });
    Publisher { stop, task }
}
