//! Disruption budgets: lanes with standbys have one each, nobody else has.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use lanekeeper_tests::wait_until;
use serde_json::{Value, json};

use crate::rig::{DEADLINE, Rig, wait_equal};

impl Rig {
    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Names of all disruption budgets of the namespace, in order.
    async fn budget_names(&self) -> Vec<String> {
        let list = self.budgets().list(&ListParams::default()).await.expect("the API server answers");
        let mut names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    }

    async fn wait_budgets(&self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        wait_equal("the disruption budgets", names, || self.budget_names()).await;
    }

    async fn budget(&self, name: &str) -> Option<Value> {
        let found = self.budgets().get_opt(name).await.expect("the API server answers");
        found.map(|found| serde_json::to_value(found).expect("it is JSON"))
    }

    fn with_standbys(&self, partitions: u32, standbys: u32) -> Value {
        let mut spec = self.spec(partitions);
        spec["worker"]["standbys"] = json!(standbys);
        spec
    }
}

#[tokio::test]
async fn lanes_with_standbys_have_a_disruption_budget_each_for_as_long_as_they_have_them() {
    let (rig, operator) = Rig::start("budgets").await;
    rig.create("orders", rig.with_standbys(3, 1)).await.unwrap();
    rig.create("billing", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.wait_lanes("billing").await;
    wait_equal("all Deployments", 5, || async { rig.deployment_names().await.len() }).await;
    rig.wait_budgets(&["orders-0", "orders-1", "orders-2"]).await;

    let (budget, deployment) = (rig.budget("orders-1").await.unwrap(), rig.deployment("orders-1").await);
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
    for same in ["labels", "ownerReferences"] {
        assert_eq!(budget["metadata"][same], deployment["metadata"][same], "{same}");
    }
    rig.wait_event("DisruptionBudgetCreated", "orders-1").await;

    // Nothing is written any more.
    let passes = || async { crate::idle::passes(&operator).await };
    let begun = passes().await;
    wait_until(DEADLINE, "everything to come to rest", || async { passes().await >= begun + 8 }).await;
    let position = rig.control.audit_position();
    let begun = passes().await;
    wait_until(DEADLINE, "several more looks", || async { passes().await >= begun + 6 }).await;
    assert_eq!(crate::idle::of_operator(rig.control.writes(&rig.namespace, position)), Vec::<String>::new());

    // A lane that goes takes its own along, standbys that go all of them.
    rig.patch("orders", json!({"spec": {"partitions": 2}})).await;
    rig.wait_budgets(&["orders-0", "orders-1"]).await;
    rig.patch("orders", json!({"spec": {"worker": {"standbys": 0}}})).await;
    rig.wait_budgets(&[]).await;
    rig.wait_event("DisruptionBudgetDeleted", "orders-1").await;
    assert_eq!(rig.deployment_names().await.len(), 4, "the lanes stay");
    rig.patch("billing", json!({"spec": {"worker": {"standbys": 2}}})).await;
    rig.wait_budgets(&["billing-0", "billing-1"]).await;
    rig.delete("billing").await;
    rig.wait_gone("billing").await;
    rig.wait_budgets(&[]).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_disruption_budget_that_a_person_changed_or_deleted_comes_back() {
    let (rig, operator) = Rig::start("budget-drift").await;
    rig.create("orders", rig.with_standbys(1, 1)).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.wait_budgets(&["orders-0"]).await;
    let before = rig.budget("orders-0").await.unwrap();
    let as_before = |now: &Value| {
        now["spec"] == before["spec"]
            && ["labels", "ownerReferences", "annotations"]
                .iter()
                .all(|part| now["metadata"][part] == before["metadata"][part])
    };
    let cases = [
        // Nothing could be drained any more.
        ("the number", json!({"spec": {"maxUnavailable": 0}})),
        // The two cannot be together, and apply alone takes nothing of a person's away.
        ("the other number", json!({"spec": {"maxUnavailable": null, "minAvailable": 2}})),
        ("the selector", json!({"spec": {"selector": {"matchLabels": {"app": "something-else"}}}})),
        ("the policy", json!({"spec": {"unhealthyPodEvictionPolicy": "IfHealthyBudget"}})),
        (
            "the label by which it is found",
            json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}),
        ),
        ("the owner", json!({"metadata": {"ownerReferences": null}})),
        (
            "the mark of what was applied",
            json!({"metadata": {"annotations": {"lanekeeper.dev/applied": "0"}}}),
        ),
    ];
    for (what, patch) in cases {
        let patched = rig.budgets().patch("orders-0", &PatchParams::default(), &Patch::Merge(&patch)).await;
        let patched = patched.unwrap_or_else(|error| panic!("{what} can be changed: {error}"));
        assert!(!as_before(&serde_json::to_value(patched).unwrap()), "{what} was changed");
        wait_until(DEADLINE, &format!("{what} to come back"), || async {
            let now = rig.budget("orders-0").await.ok_or_else(|| "there is none".to_owned())?;
            if as_before(&now) { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
    }
    rig.wait_event("DisruptionBudgetRepaired", "spec.maxUnavailable").await;
    rig.budgets().delete("orders-0", &DeleteParams::default()).await.unwrap();
    rig.wait_budgets(&["orders-0"]).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_strangers_disruption_budget_of_the_same_name_is_never_taken_over() {
    let (rig, operator) = Rig::start("budget-stranger").await;
    let stranger: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "orders-0"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "something-else"}}},
    }))
    .unwrap();
    rig.budgets().create(&PostParams::default(), &stranger).await.unwrap();
    let before = rig.budget("orders-0").await.unwrap()["spec"].clone();
    rig.create("orders", rig.with_standbys(2, 1)).await.unwrap();
    let message = rig.wait_condition("orders", "WorkersReady", "False/DisruptionBudgetConflict").await;
    assert!(message.contains("PodDisruptionBudget orders-0"), "{message}");
    rig.wait_budgets(&["orders-0", "orders-1"]).await;
    wait_equal("the Deployments", 2, || async { rig.deployment_names().await.len() }).await;
    rig.patch("orders", json!({"spec": {"worker": {"standbys": 0}}})).await;
    rig.wait_budgets(&["orders-0"]).await;
    assert_eq!(rig.budget("orders-0").await.unwrap()["spec"], before);
    rig.wait_condition("orders", "WorkersReady", "False/WorkersStarting").await;
    operator.stop().await;
}
