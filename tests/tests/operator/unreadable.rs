//! A set that this version cannot read: one such object must not stop all others.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use lanekeeper_api::OrderedPartitionSet;
use lanekeeper_tests::{LATEST, NatsServer, controlplane::ControlPlane, wait_until};
use serde_json::{Value, json};

use crate::rig::{DEADLINE, Rig};

#[tokio::test]
async fn a_set_that_cannot_be_read_is_told_so_and_stops_no_other() {
    // The definition is loosened, as one of another version might be; so no other test may share it.
    let control: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start().await));
    let rig = Rig::prepare_on(control, "unreadable", NatsServer::start(LATEST).await).await;
    let operator = rig.operator().await;
    rig.create("before", rig.spec(1)).await.unwrap();
    rig.wait_lanes("before").await;
    loosen(&rig).await;

    let sets: Api<DynamicObject> = Api::namespaced_with(
        rig.client.clone(),
        &rig.namespace,
        &kube::api::ApiResource::erase::<OrderedPartitionSet>(&()),
    );
    let broken = |finalizers: Value| {
        let set = json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "OrderedPartitionSet",
            "metadata": {"name": "broken", "finalizers": finalizers}, "spec": {"partitions": 1, "paused": "many"},
        });
        serde_json::from_value::<DynamicObject>(set).unwrap()
    };
    let finalizer = json!(["lanekeeper.dev/cleanup"]);
    wait_until(DEADLINE, "the API server to take anything", || async {
        sets.create(&PostParams::default(), &broken(finalizer.clone()))
            .await
            .map_err(|error| error.to_string())
    })
    .await;
    wait_until(DEADLINE, "the set to say that it cannot be read", || async {
        let found = sets.get("broken").await.map_err(|error| error.to_string())?;
        let ready = found.data["status"]["conditions"][0].clone();
        let right = ready["reason"] == "InvalidSpec"
            && ready["message"].as_str().unwrap_or_default().contains("many");
        if right { Ok(()) } else { Err(ready.to_string()) }
    })
    .await;

    // All others go on, those that come after it as well.
    rig.create("after", rig.spec(2)).await.unwrap();
    rig.wait_lanes("after").await;
    rig.patch("before", json!({"spec": {"partitions": 2}})).await;
    rig.wait_condition("before", "Rescaling", "False/Settled").await;

    // Its deletion is not held up.
    sets.delete("broken", &DeleteParams::default()).await.unwrap();
    wait_until(DEADLINE, "the set to be gone", || async { sets.get_opt("broken").await.unwrap().is_none() })
        .await;
    operator.stop().await;
}

async fn loosen(rig: &Rig) {
    let definitions: Api<CustomResourceDefinition> = Api::all(rig.client.clone());
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let name = "orderedpartitionsets.lanekeeper.dev";
    let mut definition = serde_json::to_value(definitions.get(name).await.unwrap()).unwrap();
    let version = &mut definition["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"]["properties"]["spec"] = anything;
    version["schema"]["openAPIV3Schema"].as_object_mut().unwrap().remove("x-kubernetes-validations");
    let patch = json!({"spec": {"versions": definition["spec"]["versions"]}});
    definitions.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}
