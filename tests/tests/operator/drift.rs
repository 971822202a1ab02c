//! Deployments that a person changed come back; those of others are left alone.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use lanekeeper_tests::wait_until;
use serde_json::{Value, json};

use crate::rig::{DEADLINE, Rig, wait_equal};

/// What a person does to the Deployment, and where it must be as before.
struct Case {
    what: &'static str,
    patch: Value,
    path: &'static str,
}

fn cases() -> Vec<Case> {
    let container = |kind: &str, value: Value| json!({"spec": {"template": {"spec": {kind: [value]}}}});
    let case = |what, patch, path| Case { what, patch, path };
    vec![
        case(
            "the strategy",
            json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}),
            "/spec/strategy",
        ),
        case(
            "the surge",
            json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}),
            "/spec/strategy/rollingUpdate",
        ),
        case("the history", json!({"spec": {"revisionHistoryLimit": 9}}), "/spec/revisionHistoryLimit"),
        case(
            "the grace period",
            json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}),
            "/spec/template/spec/terminationGracePeriodSeconds",
        ),
        case(
            "the token of the service account",
            json!({"spec": {"template": {"spec": {"automountServiceAccountToken": true}}}}),
            "/spec/template/spec/automountServiceAccountToken",
        ),
        case(
            "the pod's security context",
            json!({"spec": {"template": {"spec": {"securityContext": {"runAsNonRoot": false}}}}}),
            "/spec/template/spec/securityContext",
        ),
        case(
            "the lane's image",
            container("containers", json!({"name": "lane", "image": "example.com/other:1"})),
            "/spec/template/spec/containers/0/image",
        ),
        case(
            "a variable of the lane",
            container(
                "containers",
                json!({"name": "lane", "env": [{"name": "LANEKEEPER_PARTITION", "value": "7"}]}),
            ),
            "/spec/template/spec/containers/0/env",
        ),
        case(
            "the lane's readiness",
            container(
                "containers",
                json!({"name": "lane", "readinessProbe": {"httpGet": {"path": "/", "port": 9797}}}),
            ),
            "/spec/template/spec/containers/0/readinessProbe",
        ),
        case(
            "the lane's security context",
            container(
                "containers",
                json!({"name": "lane", "securityContext": {"readOnlyRootFilesystem": false}}),
            ),
            "/spec/template/spec/containers/0/securityContext",
        ),
        case(
            "the handler's image",
            container("initContainers", json!({"name": "handler", "image": "example.com/other:1"})),
            "/spec/template/spec/initContainers/0/image",
        ),
        case(
            "the handler's life beside the lane",
            container(
                "initContainers",
                json!({"name": "handler", "restartPolicy": null, "startupProbe": null}),
            ),
            "/spec/template/spec/initContainers/0/restartPolicy",
        ),
        case(
            "the label by which it is found",
            json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}),
            "/metadata/labels",
        ),
        case("the owner", json!({"metadata": {"ownerReferences": null}}), "/metadata/ownerReferences"),
        case(
            "the mark of what was applied",
            json!({"metadata": {"annotations": {"lanekeeper.dev/applied": "0"}}}),
            "/metadata/annotations/lanekeeper.dev~1applied",
        ),
    ]
}

#[tokio::test]
async fn every_field_of_a_deployment_that_the_operator_owns_comes_back() {
    let (rig, operator) = Rig::start("drift").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    wait_equal("the Deployment", vec!["orders-0".to_owned()], || rig.deployment_names()).await;
    for case in cases() {
        let before = rig.deployment("orders-0").await.pointer(case.path).cloned();
        let patched = rig
            .deployments()
            .patch("orders-0", &PatchParams::default(), &Patch::Strategic(&case.patch))
            .await;
        patched.unwrap_or_else(|error| panic!("{} can be changed: {error}", case.what));
        wait_until(DEADLINE, &format!("{} to come back", case.what), || async {
            let now = rig.deployment("orders-0").await;
            let found = now.pointer(case.path).cloned();
            if found == before { Ok(()) } else { Err(format!("it is {found:?}, was {before:?}")) }
        })
        .await;
    }
    rig.wait_event("DeploymentRepaired", "spec.strategy").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_deleted_deployment_is_made_again() {
    let (rig, operator) = Rig::start("deleted").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let both = vec!["orders-0".to_owned(), "orders-1".to_owned()];
    wait_equal("the Deployments", both.clone(), || rig.deployment_names()).await;
    let uid = rig.deployments().get("orders-1").await.unwrap().uid();
    rig.deployments().delete("orders-1", &DeleteParams::default()).await.unwrap();
    wait_until(DEADLINE, "a new Deployment", || async {
        let found = rig.deployments().get_opt("orders-1").await.map_err(|error| error.to_string())?;
        let new = found.is_some_and(|one| one.uid() != uid && one.metadata.deletion_timestamp.is_none());
        new.then_some(()).ok_or_else(|| "there is none".to_owned())
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn what_others_add_to_a_deployment_stays_and_costs_no_write() {
    let (rig, operator) = Rig::start("neighbour").await;
    let mut spec = rig.spec(1);
    // The server writes these amounts in its own way.
    spec["worker"]["resources"] = json!({"requests": {"cpu": "1000m", "memory": "1024Ki"}});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    wait_equal("the Deployment", vec!["orders-0".to_owned()], || rig.deployment_names()).await;
    let neighbour = json!({
        "metadata": {"annotations": {"mesh.example.com/injected": "yes"}},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "mesh", "image": "example.com/mesh:1"}]}}},
    });
    rig.deployments()
        .patch("orders-0", &PatchParams::default(), &Patch::Strategic(&neighbour))
        .await
        .unwrap();
    let passes = || async { crate::idle::passes(&operator).await };
    let begun = passes().await;
    wait_until(DEADLINE, "several looks", || async { passes().await >= begun + 3 }).await;
    let position = rig.control.audit_position();
    let begun = passes().await;
    wait_until(DEADLINE, "several more looks", || async { passes().await >= begun + 4 }).await;
    assert_eq!(crate::idle::of_operator(rig.control.writes(&rig.namespace, position)), Vec::<String>::new());
    let deployment = rig.deployment("orders-0").await;
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(deployment["metadata"]["annotations"]["mesh.example.com/injected"], "yes");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 2);
    operator.stop().await;
}

#[tokio::test]
async fn a_strangers_deployment_of_the_same_name_is_never_taken_over() {
    let (rig, operator) = Rig::start("stranger").await;
    let labels = json!({"app": "something-else"});
    let stranger: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "orders-1"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}},
        },
    }))
    .unwrap();
    let deployments: Api<Deployment> = rig.deployments();
    deployments.create(&PostParams::default(), &stranger).await.unwrap();
    let before = rig.deployment("orders-1").await["spec"].clone();
    rig.create("orders", rig.spec(3)).await.unwrap();
    let message = rig.wait_condition("orders", "WorkersReady", "False/DeploymentConflict").await;
    assert!(message.contains("Deployment orders-1"), "{message}");
    assert_eq!(rig.deployment("orders-1").await["spec"], before);
    let others = ["orders-0", "orders-1", "orders-2"].map(String::from).to_vec();
    wait_equal("the other partitions' Deployments", others, || rig.deployment_names()).await;
    deployments.delete("orders-1", &DeleteParams::default()).await.unwrap();
    rig.wait_condition("orders", "WorkersReady", "False/WorkersStarting").await;
    operator.stop().await;
}
