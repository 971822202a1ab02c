//! Real workers in this process; each has a Pod object, as its pod's would be.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use lanekeeper_nats::ConnectSettings;
use lanekeeper_tests::controlplane::ControlPlane;
use lanekeeper_worker::{Handler, HandlerError, Message, Worker, handler};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::rig::Rig;

/// How many messages the worker of each partition handled.
#[derive(Clone, Default)]
pub(crate) struct Handled(Arc<Mutex<BTreeMap<u32, u64>>>);

impl Handled {
    pub(crate) fn of(&self, partition: u32) -> u64 {
        self.0.lock().unwrap().get(&partition).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> u64 {
        self.0.lock().unwrap().values().sum()
    }

    fn count(&self, partition: u32) {
        *self.0.lock().unwrap().entry(partition).or_default() += 1;
    }
}

/// The worker of one partition.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(rig: &Rig, partition: u32, handled: &Handled) -> Self {
        let handled = handled.clone();
        let handler = handler(move |_: Arc<Message>| {
            handled.count(partition);
            async { Ok::<(), HandlerError>(()) }
        });
        Self::start_with(rig, partition, handler).await
    }

    pub(crate) async fn start_with(rig: &Rig, partition: u32, handler: impl Handler) -> Self {
        let pod = format!("orders-{partition}-a");
        make_pod(rig, &pod, partition).await;
        let connect = ConnectSettings::new([rig.nats.url()], "worker");
        let worker = Worker::builder(rig.name("orders"), partition, "ORDERS", connect).pod(&pod).build();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let shutdown = async move {
                let _ = stopped.await;
            };
            worker.run_until(handler, shutdown).await.expect("the worker ends well");
        });
        Self { stop, task }
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.expect("a worker ends without a defect");
    }
}

/// A pod that the API server knows; one that is there already is fine.
pub(crate) async fn make_pod(rig: &Rig, name: &str, partition: u32) -> Api<Pod> {
    ControlPlane::worker_pod(&rig.client, &rig.namespace, "orders", partition, name).await
}
