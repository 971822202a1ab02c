//! The way to NATS: what is used, and what is said when there is none.

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, Resource, api::PostParams};
use lanekeeper_tests::{LATEST, NatsServer};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    calling::{plugin, plugin_as},
    rig::Rig,
};

async fn make<K>(rig: &Rig, value: Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let object = serde_json::from_value(value).expect("it has the right shape");
    api.create(&PostParams::default(), &object).await.expect("it can be made");
}

/// What the status says of the way to NATS.
async fn why(rig: &Rig, arguments: &str) -> String {
    let status = plugin(rig, arguments).await.json();
    assert_eq!(status["nats"]["reached"], false, "{status}");
    status["nats"]["why"].as_str().expect("it says why").to_owned()
}

#[tokio::test]
async fn status_shows_lanes_with_what_waits_in_them_and_works_without_nats() {
    let (rig, operator) = Rig::start("status").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let context = async_nats::jetstream::new(rig.nats.client().await);
    for key in 0..20 {
        context.publish(format!("orders.{key}"), "x".into()).await.unwrap().await.unwrap();
    }
    let status = plugin(&rig, "status orders -o json").await.json();
    let lanes = status["nats"]["lanes"].as_array().unwrap();
    assert_eq!(lanes.len(), 2, "{status}");
    assert!(lanes.iter().all(|lane| lane["state"] == "open"), "{status}");
    let waiting: u64 = lanes.iter().map(|lane| lane["position"]["waiting"].as_u64().unwrap()).sum();
    assert_eq!(waiting, 20, "{status}");
    let text = plugin(&rig, "status orders").await.text();
    assert!(text.contains("PARTITION   KEYS   LANE   WAITING   IN HAND   HELD BY   PODS READY"), "{text}");

    let text = plugin(&rig, "status orders --no-nats").await.text();
    assert!(
        text.contains("PARTITION   KEYS   DEPLOYMENT   PODS READY") && !text.contains("WAITING"),
        "{text}"
    );
    let text = plugin(&rig, "status orders --nats-server nats://127.0.0.1:1").await.text();
    assert!(text.contains("not reached") && text.contains("127.0.0.1:1"), "{text}");
    assert!(text.contains("PARTITION   KEYS   DEPLOYMENT   PODS READY"), "{text}");
    let words = plugin(&rig, "status nope").await.refusal();
    assert!(words.contains("there is no set nope"), "{words}");
    operator.stop().await;
}

#[tokio::test]
async fn what_keeps_from_nats_is_said_with_what_helps() {
    let rig = Rig::prepare("way", NatsServer::start(LATEST).await).await;
    let mut spec = rig.spec(2);
    spec["nats"]["servers"] = json!([format!("nats://nats.{}:4222", rig.namespace)]);
    rig.create("orders", spec).await.unwrap();

    let words = why(&rig, "status orders -o json").await;
    assert!(words.contains("there is no Service 'nats'") && words.contains("--nats-server"), "{words}");
    let ports = json!([{"name": "client", "port": 4222}]);
    make::<Service>(&rig, json!({"metadata": {"name": "nats"}, "spec": {"ports": ports}})).await;
    let words = why(&rig, "status orders -o json").await;
    assert!(words.contains("no ready pod to forward port 4222 to"), "{words}");
    // A pod that no kubelet runs: the API server refuses, in its own words.
    let container = json!({"name": "nats", "image": "example.com/nats:1"});
    make::<Pod>(&rig, json!({"metadata": {"name": "nats-0"}, "spec": {"containers": [container]}})).await;
    let labels = json!({"kubernetes.io/service-name": "nats"});
    let pod = json!({"kind": "Pod", "name": "nats-0"});
    let slice = json!({
        "metadata": {"name": "nats-1", "labels": labels}, "addressType": "IPv4",
        "ports": [{"name": "client", "port": 4222}],
        "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": pod}],
    });
    make::<EndpointSlice>(&rig, slice).await;
    let words = why(&rig, "status orders -o json").await;
    assert!(words.contains("port 4222 of pod 'nats-0'") && words.contains("pods/portforward"), "{words}");

    // Another address stands for all of that.
    let words = why(&rig, &format!("status orders -o json --nats-server {}", rig.nats.url())).await;
    assert_eq!(words, "bucket 'lanekeeper' does not exist; --nats-bucket names another");
    let words = why(&rig, "status orders -o json --nats-server nats.messaging:4222").await;
    assert!(words.starts_with("--nats-server: 'nats.messaging:4222' is no address"), "{words}");
}

#[tokio::test]
async fn secrets_are_read_with_the_rights_of_the_caller() {
    let config = "accounts { A { jetstream: enabled, users: [{user: a, password: b}] } }";
    let rig = Rig::prepare("rights", NatsServer::builder(LATEST).config(config).start().await).await;
    let mut spec = rig.spec(2);
    spec["nats"]["credentialsSecretRef"] = json!({"name": "creds", "key": "user.creds"});
    rig.create("orders", spec).await.unwrap();
    let words = why(&rig, "status orders -o json").await;
    assert!(words.contains("there is no Secret 'creds'"), "{words}");
    rig.secret("creds", json!({"other": "x"})).await;
    let words = why(&rig, "status orders -o json").await;
    assert!(words.contains("has no key 'user.creds'"), "{words}");

    // Somebody who may look at sets and Deployments, and at no Secret.
    let rules = json!([
        {"apiGroups": ["lanekeeper.dev"], "resources": ["orderedpartitionsets"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
    ]);
    make::<Role>(&rig, json!({"metadata": {"name": "looker"}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looker"});
    let looker = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "looker"});
    make::<RoleBinding>(&rig, json!({"metadata": {"name": "looker"}, "roleRef": role, "subjects": [looker]}))
        .await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("looker");
    let text = std::fs::read_to_string(rig.control.kubeconfig()).unwrap();
    let mut config: Value = serde_yaml::from_str(&text).unwrap();
    for user in config["users"].as_array_mut().unwrap() {
        user["user"]["as"] = json!("looker");
    }
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let status = plugin_as(&rig, &kubeconfig, "status orders -o json").await.json();
    let words = status["nats"]["why"].as_str().unwrap();
    assert!(words.contains("Secret 'creds'") && words.contains("forbidden"), "{words}");
    assert!(words.contains("--nats-creds"), "{words}");

    // A file of the caller's own is used instead of the Secret.
    let mine = folder.path().join("mine.creds");
    std::fs::write(&mine, "no credentials").unwrap();
    let arguments = format!("status orders -o json --nats-creds {}", mine.display());
    let status = plugin_as(&rig, &kubeconfig, &arguments).await.json();
    let words = status["nats"]["why"].as_str().unwrap();
    assert!(words.contains("credentials cannot be used"), "{words}");
    let words = why(&rig, "status orders -o json --nats-creds /nonexistent/creds").await;
    assert!(words.starts_with("--nats-creds /nonexistent/creds: the file cannot be read"), "{words}");
}
