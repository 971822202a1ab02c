//! The scale subresource, as `kubectl scale` and autoscalers use it (P32).

use k8s_openapi::api::{
    autoscaling::{v1::Scale, v2::HorizontalPodAutoscaler},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use lanekeeper_tests::wait_until;
use serde_json::json;

use crate::rig::{DEADLINE, Rig, wait_equal};

#[tokio::test]
async fn scale_can_be_read_at_once_and_written_and_says_the_true_number() {
    let (rig, operator) = Rig::start("scale").await;
    let mut spec = rig.spec(1);
    spec.as_object_mut().unwrap().remove("partitions");
    rig.create("orders", spec).await.unwrap();
    let scale: Scale = rig.sets().get_scale("orders").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(1), "the default can be read at once");
    rig.wait_lanes("orders").await;
    let change = json!({"spec": {"replicas": 6}});
    rig.sets().patch_scale("orders", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    assert_eq!(rig.get("orders").await.spec.partitions, 6);
    wait_equal("six replicas in the status", Some(6), || async {
        rig.sets().get_scale("orders").await.unwrap().status.map(|status| status.replicas)
    })
    .await;
    // Beyond what the mapping has it is refused, by the API server or by no one.
    let change = json!({"spec": {"replicas": 17}});
    let refused = rig.sets().patch_scale("orders", &PatchParams::default(), &Patch::Merge(&change)).await;
    let words = refused.unwrap_err().to_string();
    assert!(words.contains("spec.partitions") && words.contains("maxPartitions"), "{words}");
    operator.stop().await;
}

#[tokio::test]
async fn standbys_are_further_pods_of_each_lane_and_no_partitions() {
    let (rig, operator) = Rig::start("standbys").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let replicas = || async {
        let [first, second] = [rig.deployment("orders-0").await, rig.deployment("orders-1").await];
        [first["spec"]["replicas"].clone(), second["spec"]["replicas"].clone()]
    };
    wait_equal("one pod for each lane", [json!(1), json!(1)], replicas).await;
    rig.patch("orders", json!({"spec": {"worker": {"standbys": 2}}})).await;
    wait_equal("two more", [json!(3), json!(3)], replicas).await;
    let scale: Scale = rig.sets().get_scale("orders").await.unwrap();
    assert_eq!(scale.status.unwrap().replicas, 2, "partitions, whatever pods they have");
    let by_hand = Patch::Merge(json!({"spec": {"replicas": 1}}));
    rig.deployments().patch("orders-0", &PatchParams::default(), &by_hand).await.unwrap();
    wait_equal("what a person took away to come back", [json!(3), json!(3)], replicas).await;
    rig.patch("orders", json!({"spec": {"worker": {"standbys": 0}}})).await;
    wait_equal("one pod again", [json!(1), json!(1)], replicas).await;
    operator.stop().await;
}

/// A pod as a set's Deployment would make it.
async fn pod(rig: &Rig, name: &str, labels: serde_json::Value) {
    let pods: Api<Pod> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let pod = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "lane", "image": "example.com/lane:1"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

#[tokio::test]
async fn the_selector_matches_the_workers_of_the_set_and_no_other_pod() {
    let (rig, operator) = Rig::start("selector").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let template = rig.deployment("orders-1").await["spec"]["template"]["metadata"]["labels"].clone();
    pod(&rig, "orders-1-a", template.clone()).await;
    let mut other = template.clone();
    other["lanekeeper.dev/set"] = json!("orders-1");
    pod(&rig, "orders-1-1-a", other).await;
    pod(&rig, "somebody", json!({"lanekeeper.dev/set": "orders"})).await;
    let scale: Scale = rig.sets().get_scale("orders").await.unwrap();
    let selector = scale.status.unwrap().selector.expect("a string");
    let pods: Api<Pod> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let found = pods.list(&ListParams::default().labels(&selector)).await.unwrap();
    let names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
    assert!(names.contains(&"orders-1-a".to_owned()), "{selector}: {names:?}");
    let strangers = ["orders-1-1-a", "somebody"];
    assert!(names.iter().all(|name| !strangers.contains(&name.as_str())), "{selector}: {names:?}");
    // What Deployments made is this set's too.
    let of_the_set = |pod: &Pod| pod.labels().get("lanekeeper.dev/set").is_some_and(|set| set == "orders");
    assert!(found.iter().all(of_the_set), "{names:?}");
    operator.stop().await;
}

#[tokio::test]
async fn an_autoscaler_can_read_the_scale_of_a_set() {
    let (rig, operator) = Rig::start("autoscaler").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let autoscaler = json!({
        "metadata": {"name": "orders"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "lanekeeper.dev/v1alpha1", "kind": "OrderedPartitionSet", "name": "orders"},
            "minReplicas": 3, "maxReplicas": 8,
        },
    });
    autoscalers.create(&PostParams::default(), &serde_json::from_value(autoscaler).unwrap()).await.unwrap();
    // Below its minimum it needs no measurement to scale.
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    wait_equal("the minimum", vec![0, 1, 2], || rig.open_partitions("orders")).await;
    wait_until(DEADLINE, "the autoscaler to say that it can scale", || async {
        let status = autoscalers.get("orders").await.unwrap().status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let able = conditions.iter().any(|one| one.type_ == "AbleToScale" && one.status == "True");
        if able && status.current_replicas == Some(3) { Ok(()) } else { Err(format!("{conditions:?}")) }
    })
    .await;
    operator.stop().await;
}
