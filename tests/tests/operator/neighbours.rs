//! Quotas, namespaces that end, a second operator: what others do around a set.

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use lanekeeper_tests::wait_until;
use serde_json::json;

use crate::rig::{DEADLINE, Rig, wait_equal};

#[tokio::test]
async fn partitions_whose_pods_a_quota_refuses_are_named_with_its_words() {
    let (rig, operator) = Rig::start("quota").await;
    let quota: ResourceQuota =
        serde_json::from_value(json!({"metadata": {"name": "three"}, "spec": {"hard": {"pods": "3"}}}))
            .unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(rig.client.clone(), &rig.namespace);
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    wait_until(DEADLINE, "the quota to be counted", || async {
        let quota = quotas.get("three").await.map_err(|error| error.to_string())?;
        let counted = quota.status.is_some_and(|status| status.used.is_some());
        counted.then_some(()).ok_or_else(|| "it is not".to_owned())
    })
    .await;
    rig.create("orders", rig.spec(5)).await.unwrap();
    rig.wait_lanes("orders").await;
    let message = rig.wait_condition("orders", "WorkersReady", "False/QuotaExceeded").await;
    rig.wait_event("QuotaExceeded", "partitions without a ready worker").await;
    assert!(message.contains("exceeded quota: three"), "{message}");
    quotas.delete("three", &DeleteParams::default()).await.unwrap();
    rig.wait_condition("orders", "WorkersReady", "False/WorkersStarting").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_namespace_that_is_deleted_goes_with_its_sets_and_their_consumers() {
    let (rig, operator) = Rig::start("ending").await;
    let mut spec = rig.spec(2);
    spec["deletionPolicy"] = json!("Delete");
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let namespaces: Api<Namespace> = Api::all(rig.client.clone());
    namespaces.delete(&rig.namespace, &DeleteParams::default()).await.unwrap();
    wait_until(DEADLINE, "the namespace to be gone", || async {
        namespaces.get_opt(&rig.namespace).await.unwrap().is_none()
    })
    .await;
    assert_eq!(rig.consumers("ORDERS").await.len(), 0);
    assert_eq!(rig.record("orders").await, None);
    operator.stop().await;
}

#[tokio::test]
async fn two_operators_at_once_come_to_the_same_end() {
    let (rig, one) = Rig::start("two").await;
    let other = rig.operator().await;
    rig.create("orders", rig.spec(3)).await.unwrap();
    rig.wait_lanes("orders").await;
    for wanted in [6, 2] {
        rig.patch("orders", json!({"spec": {"partitions": wanted}})).await;
        rig.wait_condition("orders", "Rescaling", "False/Settled").await;
        let partitions: Vec<u32> = (0..wanted).collect();
        wait_equal("the lanes", partitions.clone(), || rig.open_partitions("orders")).await;
        wait_equal("one consumer for each", partitions.len(), || async {
            rig.consumers("ORDERS").await.len()
        })
        .await;
        wait_equal("one Deployment for each", partitions.len(), || async {
            rig.deployment_names().await.len()
        })
        .await;
    }
    // Each incarnation was given once.
    let record = rig.record("orders").await.unwrap();
    let mut numbers: Vec<u64> = record.lanes.iter().map(|lane| lane.incarnation).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), record.lanes.len());
    one.stop().await;
    other.stop().await;
}
