//! Changing the number of partitions: what the operator drives. That keys stay in order is shown with real workers.

use kube::api::{Patch, PatchParams};
use lanekeeper_core::record::{Holder, LaneKey};
use lanekeeper_tests::wait_until;
use serde_json::json;

use crate::{
    flowing::make_pod,
    rig::{DEADLINE, Rig, wait_equal},
};

#[tokio::test]
async fn lanes_and_deployments_follow_the_number_up_and_down() {
    let (rig, operator) = Rig::start("updown").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    for wanted in [5, 3, 8, 1] {
        rig.patch("orders", json!({"spec": {"partitions": wanted}})).await;
        rig.wait_condition("orders", "Rescaling", "False/Settled").await;
        rig.wait_lanes("orders").await;
        assert_eq!(rig.get("orders").await.status.unwrap().partitions, wanted);
        let partitions: Vec<u32> = (0..u32::try_from(wanted).unwrap()).collect();
        assert_eq!(rig.open_partitions("orders").await, partitions);
        let names: Vec<String> = partitions.iter().map(|number| format!("orders-{number}")).collect();
        wait_equal("one Deployment for each", names, || rig.deployment_names()).await;
        wait_equal("one consumer for each", partitions.len(), || async {
            rig.consumers("ORDERS").await.len()
        })
        .await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn switched_off_the_old_number_stays_in_force_and_is_said() {
    let rig = Rig::prepare("off", lanekeeper_tests::NatsServer::start(lanekeeper_tests::LATEST).await).await;
    let operator = rig.operator_with(|settings| settings.handover = false).await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let before = rig.record("orders").await;
    rig.patch("orders", json!({"spec": {"partitions": 4}})).await;
    rig.wait_condition("orders", "Rescaling", "True/RescaleNotSupported").await;
    let message = rig.wait_condition("orders", "Ready", "False/WorkersStarting").await;
    drop(message);
    let status = rig.get("orders").await.status.unwrap();
    assert_eq!(status.partitions, 2);
    assert_eq!(rig.record("orders").await, before);
    assert_eq!(rig.deployment_names().await, ["orders-0", "orders-1"]);
    // Back to the old number, or on: nothing was half done.
    operator.stop().await;
    let operator = rig.operator().await;
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    assert_eq!(rig.open_partitions("orders").await, [0, 1, 2, 3]);
    operator.stop().await;
}

#[tokio::test]
async fn a_number_that_flaps_is_followed_once_in_the_minimum_interval() {
    let (rig, operator) = Rig::start("damped").await;
    let mut spec = rig.spec(2);
    spec["rescale"] = json!({"minimumIntervalSeconds": 600});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.patch("orders", json!({"spec": {"partitions": 3}})).await;
    // The first change waits for nothing.
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    wait_equal("the first change", vec![0, 1, 2], || rig.open_partitions("orders")).await;
    let changed = rig.record("orders").await.unwrap().changed_seconds.expect("a change is noted");
    for wanted in [8, 1, 5] {
        rig.patch("orders", json!({"spec": {"partitions": wanted}})).await;
    }
    let message = rig.wait_condition("orders", "Rescaling", "True/RescaleDelayed").await;
    assert!(message.contains("3 partitions stay in force until"), "{message}");
    wait_until(DEADLINE, "the operator to have seen the last number", || async {
        let set = rig.get("orders").await;
        set.status.unwrap().observed_generation == set.metadata.generation
    })
    .await;
    assert_eq!(rig.open_partitions("orders").await, [0, 1, 2]);
    assert_eq!(rig.deployment_names().await, ["orders-0", "orders-1", "orders-2"]);
    let status = rig.get("orders").await.status.unwrap();
    assert_eq!(status.partitions, 3);
    // An operator that is new knows as well: the record says when.
    operator.stop().await;
    let operator = rig.operator().await;
    rig.patch("orders", json!({"spec": {"rescale": {"minimumIntervalSeconds": 601}}})).await;
    wait_until(DEADLINE, "the new operator to have seen the set", || async {
        let set = rig.get("orders").await;
        set.status.unwrap().observed_generation == set.metadata.generation
    })
    .await;
    assert_eq!(rig.open_partitions("orders").await, [0, 1, 2]);
    assert_eq!(rig.record("orders").await.unwrap().changed_seconds, Some(changed));
    // Whoever does not want to wait says so.
    rig.patch("orders", json!({"spec": {"rescale": {"minimumIntervalSeconds": 0}}})).await;
    wait_equal("the last wish", vec![0, 1, 2, 3, 4], || rig.open_partitions("orders")).await;
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    operator.stop().await;
}

/// Adds a holder to a lane's key as a worker does.
async fn join(rig: &Rig, incarnation: u64, pod: &str) {
    let bucket = rig.bucket().await;
    let key = rig.name("orders").lane_key(incarnation);
    let found = bucket.get_json::<LaneKey>(&key).await.unwrap().expect("the lane has a key");
    let mut value = found.value;
    value.holders.push(Holder { pod: pod.to_owned(), instance: "one".to_owned() });
    bucket.put_json(&key, &value, Some(found.revision)).await.unwrap();
}

#[tokio::test]
async fn a_change_waits_for_a_worker_that_lives_and_goes_on_when_the_kubelet_says_that_it_ended() {
    let (rig, operator) = Rig::start("holder").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let pods = make_pod(&rig, "orders-0-a", 0).await;
    join(&rig, 1, "orders-0-a").await;
    rig.patch("orders", json!({"spec": {"partitions": 2}})).await;
    rig.wait_condition("orders", "Rescaling", "True/HandingOver").await;
    wait_until(DEADLINE, "the status to name the pod", || async {
        let attention = rig.get("orders").await.status.unwrap_or_default().attention;
        if attention.iter().any(|one| one.message.contains("orders-0-a")) {
            Ok(())
        } else {
            Err(format!("{attention:?}"))
        }
    })
    .await;
    assert_eq!(rig.open_partitions("orders").await, Vec::<u32>::new(), "nothing opens under a living holder");
    // What a kubelet writes at the end of a pod.
    let ended = json!({"status": {"phase": "Succeeded", "containerStatuses": [{
        "name": "lane", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
    }]}});
    pods.patch_status("orders-0-a", &PatchParams::default(), &Patch::Strategic(&ended)).await.unwrap();
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    assert_eq!(rig.open_partitions("orders").await, [0, 1]);
    operator.stop().await;
}

#[tokio::test]
async fn a_holder_without_a_pod_is_no_proof_of_its_end_so_one_ack_wait_passes() {
    let (rig, operator) = Rig::start("vanished").await;
    let mut spec = rig.spec(1);
    spec["consumer"]["ackWaitSeconds"] = json!(3);
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    join(&rig, 1, "orders-0-gone").await;
    let begun = std::time::Instant::now();
    rig.patch("orders", json!({"spec": {"partitions": 2}})).await;
    rig.wait_condition("orders", "Degraded", "True/HolderUnreachable").await;
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    let took = begun.elapsed();
    assert!(
        took >= std::time::Duration::from_secs(3),
        "{took:?}: the holder may have been at work that long"
    );
    assert_eq!(rig.open_partitions("orders").await, [0, 1]);
    operator.stop().await;
}

#[tokio::test]
async fn what_workers_report_is_a_condition_and_forgotten_with_their_pod() {
    let (rig, operator) = Rig::start("reports").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let pods = make_pod(&rig, "orders-0-b", 0).await;
    let bucket = rig.bucket().await;
    let key = rig.name("orders").report_key(0, "orders-0-b");
    let report = json!({"v": 1, "incarnation": 1, "blocked": {"sequence": 17, "reason": "the handler said 500: out of stock"}});
    bucket.put_json(&key, &report, None).await.unwrap();
    let message = rig.wait_condition("orders", "Blocked", "True/AttemptsExhausted").await;
    assert!(message.contains("sequence 17") && message.contains("out of stock"), "{message}");
    let status = rig.get("orders").await.status.unwrap();
    assert_eq!((status.attention[0].partition, status.attention[0].sequence), (0, Some(17)));
    assert_eq!(status.lanes.blocked, 1);
    rig.wait_condition("orders", "Ready", "False/AttemptsExhausted").await;
    let now = kube::api::DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
    pods.delete("orders-0-b", &now).await.unwrap();
    rig.wait_condition("orders", "Blocked", "False/NoneBlocked").await;
    wait_until(DEADLINE, "the report to be forgotten", || async {
        bucket.get(&key).await.unwrap().is_none()
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn what_workers_write_is_seen_without_waiting_for_the_resync() {
    let rig =
        Rig::prepare("woken", lanekeeper_tests::NatsServer::start(lanekeeper_tests::LATEST).await).await;
    let never = std::time::Duration::from_secs(3600);
    let operator = rig.operator_with(|settings| settings.resync = never).await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    // Blocked, and not any more.
    make_pod(&rig, "orders-0-a", 0).await;
    let bucket = rig.bucket().await;
    let key = rig.name("orders").report_key(0, "orders-0-a");
    let blocked = json!({"v": 1, "incarnation": 1, "blocked": {"sequence": 3, "reason": "no"}});
    let revision = bucket.put_json(&key, &blocked, None).await.unwrap();
    rig.wait_condition("orders", "Blocked", "True/AttemptsExhausted").await;
    bucket.put_json(&key, &json!({"v": 1, "incarnation": 1}), Some(revision)).await.unwrap();
    rig.wait_condition("orders", "Blocked", "False/NoneBlocked").await;
    // A change that waits for a worker goes on when that leaves.
    join(&rig, 1, "orders-0-a").await;
    rig.patch("orders", json!({"spec": {"partitions": 4}})).await;
    rig.wait_condition("orders", "Rescaling", "True/HandingOver").await;
    let key = rig.name("orders").lane_key(1);
    wait_until(DEADLINE, "the worker to leave", || async {
        let found = bucket.get_json::<LaneKey>(&key).await.unwrap().unwrap();
        let left = LaneKey { holders: Vec::new(), ..found.value };
        bucket.put_json(&key, &left, Some(found.revision)).await.map_err(|error| error.to_string())
    })
    .await;
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_change_that_the_account_has_no_room_for_does_not_begin_and_does_when_it_has() {
    let limits = |consumers: u32| {
        format!(
            "accounts {{ A {{ jetstream: {{max_consumers: {consumers}}}, users: [{{user: a, password: a}}] }} }}\nno_auth_user: a"
        )
    };
    let server =
        lanekeeper_tests::NatsServer::builder(lanekeeper_tests::LATEST).config(&limits(5)).start().await;
    let mut rig = Rig::prepare("noroom", server).await;
    let operator = rig.operator().await;
    rig.create("orders", rig.spec(4)).await.unwrap();
    rig.wait_lanes("orders").await;
    let before = rig.record("orders").await;
    rig.patch("orders", json!({"spec": {"partitions": 8}})).await;
    let message = rig.wait_condition("orders", "Rescaling", "True/InsufficientResources").await;
    assert!(message.contains("8 more consumers") && message.contains("allows 1 more"), "{message}");
    rig.wait_condition("orders", "LanesReady", "True/AsSpecified").await;
    assert_eq!(rig.record("orders").await, before, "no lane was taken down");
    assert_eq!(rig.open_partitions("orders").await, [0, 1, 2, 3]);
    rig.nats.reload_with(|builder| builder.config(&limits(12)));
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    assert_eq!(rig.open_partitions("orders").await.len(), 8);
    operator.stop().await;
}
