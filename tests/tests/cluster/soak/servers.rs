//! Three NATS servers that find each other, made of the example's one.

use lanekeeper_tests::flights::manifests::put;
use serde_json::{Value, json};

/// The Service by which the servers find each other, before they are ready.
const ROUTES: &str = "nats-routes";
pub(super) const SERVERS: usize = 3;

/// The example's NATS with three servers. Their files are in folders of one volume.
pub(crate) fn three(nats: &mut Vec<Value>, namespace: &str) {
    let set = nats.iter_mut().find(|object| object["kind"] == "StatefulSet").expect("NATS is a StatefulSet");
    let routes: Vec<String> =
        (0..SERVERS).map(|number| format!("nats://nats-{number}.{ROUTES}.{namespace}:6222")).collect();
    for (pointer, value) in [
        ("/spec/replicas", json!(SERVERS)),
        ("/spec/serviceName", json!(ROUTES)),
        ("/spec/podManagementPolicy", json!("Parallel")),
        (
            "/spec/template/spec/containers/0/args",
            json!([
                "--jetstream",
                "--store_dir=/data/$(POD)",
                "--http_port=8222",
                "--server_name=$(POD)",
                "--cluster_name=story",
                "--cluster=nats://0.0.0.0:6222",
                format!("--routes={}", routes.join(",")),
            ]),
        ),
        (
            "/spec/template/spec/containers/0/env",
            json!([{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        ),
    ] {
        put(set, pointer, value).expect("the example has that place");
    }
    nats.push(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": ROUTES, "namespace": namespace},
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true,
            "selector": {"app.kubernetes.io/name": "nats"},
            "ports": [{"name": "routes", "port": 6222}],
        },
    }));
}
