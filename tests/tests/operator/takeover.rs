//! A worker whose pod has ended, on the kubelet's word: its standby has the lane at once.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lanekeeper_core::record::LaneKey;
use lanekeeper_nats::ConnectSettings;
use lanekeeper_tests::wait_until;
use lanekeeper_worker::{HandlerError, Message, Worker, handler};
use serde_json::json;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    flowing::{make_pod, publish},
    rig::{DEADLINE, Rig},
};

/// A worker that tells which message it begins, and takes this long.
fn start(
    rig: &Rig,
    pod: &'static str,
    work: Duration,
    begun: mpsc::UnboundedSender<(&'static str, u64)>,
) -> JoinHandle<()> {
    let connect = ConnectSettings::new([rig.nats.url()], "worker");
    let worker = Worker::builder(rig.name("orders"), 0, "ORDERS", connect).pod(pod).build();
    let handler = handler(move |message: Arc<Message>| {
        let begun = begun.clone();
        async move {
            let _ = begun.send((pod, message.sequence()));
            tokio::time::sleep(work).await;
            Ok::<(), HandlerError>(())
        }
    });
    tokio::spawn(async move {
        worker.run_until(handler, std::future::pending()).await.expect("it does not end by itself");
    })
}

async fn key(rig: &Rig) -> LaneKey {
    let key = rig.name("orders").lane_key(1);
    rig.bucket().await.get_json::<LaneKey>(&key).await.unwrap().unwrap().value
}

#[tokio::test]
async fn the_standby_of_a_terminated_pod_has_its_message_long_before_any_deadline() {
    let (rig, operator) = Rig::start("takeover").await;
    let mut spec = rig.spec(1);
    spec["consumer"]["ackWaitSeconds"] = json!(3600);
    spec["worker"]["standbys"] = json!(1);
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let pods: Api<Pod> = make_pod(&rig, "orders-0-a", 0).await;
    make_pod(&rig, "orders-0-b", 0).await;
    publish(&rig, 1, 2).await;
    let (sender, mut begun) = mpsc::unbounded_channel();
    let owner = start(&rig, "orders-0-a", Duration::from_secs(3600), sender.clone());
    assert_eq!(begun.recv().await, Some(("orders-0-a", 1)));
    wait_until(DEADLINE, "the owner to note its pin", || async { key(&rig).await.owner.is_some() }).await;
    let standby = start(&rig, "orders-0-b", Duration::ZERO, sender);
    wait_until(DEADLINE, "the standby to be in the lane", || async { key(&rig).await.holders.len() == 2 })
        .await;
    // Its node loses power: no word to anybody. Nothing is handed on before there is proof.
    owner.abort();
    assert!(owner.await.is_err_and(|error| error.is_cancelled()));
    assert!(begun.try_recv().is_err());
    let ended = json!({"status": {"phase": "Failed", "containerStatuses": [{
        "name": "lane", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 137, "reason": "Error"}},
    }]}});
    pods.patch_status("orders-0-a", &PatchParams::default(), &Patch::Strategic(&ended)).await.unwrap();
    for sequence in [1, 2] {
        let next = tokio::time::timeout(DEADLINE, begun.recv()).await.expect("long before the deadline");
        assert_eq!(next, Some(("orders-0-b", sequence)));
    }
    standby.abort();
    operator.stop().await;
}
