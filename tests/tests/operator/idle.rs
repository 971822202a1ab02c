//! At rest nothing is written; what is broken is tried ever less often and said once.

use std::collections::BTreeMap;

use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use lanekeeper_tests::wait_until;
use serde_json::json;

use crate::rig::{DEADLINE, Operator, Rig, wait_equal};

/// Passes that ended well so far, whatever they waited for.
pub(crate) async fn passes(operator: &Operator) -> u64 {
    counted(operator, "lanekeeper_operator_reconciles_total").await
}

/// The sum of a counter over its labels.
pub(crate) async fn counted(operator: &Operator, counter: &str) -> u64 {
    let Ok((_, text)) = operator.admin("/metrics").await else { return 0 };
    let lines = text.lines().filter(|line| line.starts_with(counter));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Without what the controllers of Kubernetes itself write.
pub(crate) fn of_operator(writes: Vec<String>) -> Vec<String> {
    writes.into_iter().filter(|write| write.starts_with("admin ")).collect()
}

async fn versions(rig: &Rig) -> BTreeMap<String, String> {
    let version = |meta: kube::api::ObjectMeta| meta.resource_version.unwrap_or_default();
    let sets = rig.sets().list(&ListParams::default()).await.unwrap();
    let deployments = rig.deployments().list(&ListParams::default()).await.unwrap();
    let sets = sets.into_iter().map(|set| (format!("set {}", set.name_any()), version(set.metadata)));
    let deployments =
        deployments.into_iter().map(|one| (format!("Deployment {}", one.name_any()), version(one.metadata)));
    sets.chain(deployments).collect()
}

#[tokio::test]
async fn sets_at_rest_are_looked_at_and_nothing_is_written() {
    let (rig, operator) = Rig::start("idle").await;
    for set in ["a", "b", "c", "d", "e"] {
        let mut spec = rig.spec(4);
        // What the server writes in another way than it was asked must not look like drift for ever.
        spec["worker"]["resources"] = json!({"requests": {"cpu": "1000m"}});
        rig.create(set, spec).await.unwrap();
    }
    for set in ["a", "b", "c", "d", "e"] {
        rig.wait_lanes(set).await;
        rig.wait_condition(set, "WorkersReady", "False/WorkersStarting").await;
    }
    wait_equal("all Deployments", 20, || async { rig.deployment_names().await.len() }).await;
    // The controllers of Kubernetes itself come to rest as well.
    let begun = passes(&operator).await;
    wait_until(DEADLINE, "everything to come to rest", || async { passes(&operator).await >= begun + 15 })
        .await;

    let before = versions(&rig).await;
    let position = rig.control.audit_position();
    let consumers = rig.consumers("ORDERS").await;
    let last = rig.stream("KV_lanekeeper").await.unwrap().last_sequence;
    let begun = passes(&operator).await;
    wait_until(DEADLINE, "six looks at each of five sets", || async {
        passes(&operator).await >= begun + 30
    })
    .await;
    assert_eq!(versions(&rig).await, before);
    assert_eq!(of_operator(rig.control.writes(&rig.namespace, position)), Vec::<String>::new());
    assert_eq!(rig.stream("KV_lanekeeper").await.unwrap().last_sequence, last);
    assert_eq!(rig.consumers("ORDERS").await, consumers);
    operator.stop().await;
}

#[tokio::test]
async fn a_set_whose_nats_is_gone_is_written_once_however_often_it_is_tried() {
    let (mut rig, operator) = Rig::start("broken").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.nats.kill();
    rig.wait_condition("orders", "Ready", "False/NatsUnreachable").await;
    let begun = counted(&operator, "lanekeeper_operator_failures_total").await;
    let tried = |more| {
        let operator = &operator;
        async move { counted(operator, "lanekeeper_operator_failures_total").await >= begun + more }
    };
    wait_until(DEADLINE, "another try", || tried(1)).await;
    let position = rig.control.audit_position();
    let before = versions(&rig).await;
    wait_until(DEADLINE, "three more tries", || tried(4)).await;
    assert_eq!(versions(&rig).await, before);
    assert_eq!(of_operator(rig.control.writes(&rig.namespace, position)), Vec::<String>::new());
    operator.stop().await;
}

#[tokio::test]
async fn a_new_operator_finds_everything_as_it_is_and_writes_nothing() {
    let (rig, operator) = Rig::start("restart").await;
    rig.create("orders", rig.spec(3)).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.wait_condition("orders", "WorkersReady", "False/WorkersStarting").await;
    wait_equal("all Deployments", 3, || async { rig.deployment_names().await.len() }).await;
    let begun = passes(&operator).await;
    wait_until(DEADLINE, "the set to come to rest", || async { passes(&operator).await >= begun + 5 }).await;
    operator.stop().await;
    let before = versions(&rig).await;
    let position = rig.control.audit_position();
    let operator = rig.operator().await;
    wait_until(DEADLINE, "the new operator's looks", || async { passes(&operator).await >= 4 }).await;
    assert_eq!(versions(&rig).await, before);
    assert_eq!(of_operator(rig.control.writes(&rig.namespace, position)), Vec::<String>::new());
    operator.stop().await;
}

#[tokio::test]
async fn a_status_that_somebody_deleted_is_written_again_and_changes_nothing_else() {
    let (rig, operator) = Rig::start("status").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let record = rig.record("orders").await;
    let none = json!({"status": null});
    rig.sets().patch_status("orders", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    rig.wait_lanes("orders").await;
    assert_eq!(rig.get("orders").await.status.unwrap().partitions, 2);
    assert_eq!(rig.record("orders").await, record);
    operator.stop().await;
}
