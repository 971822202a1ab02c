//! The plugin as it is called, by kubectl and alone, against a real API server.

// The helpers of tests may fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../lanekeeper-api/tests/control_plane/mod.rs"]
mod control_plane;

use std::{env, path::Path, sync::OnceLock};

use control_plane::{Answer, ControlPlane, tool};
use serde_json::{Value, json};

const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-lanes");

/// An API server with one set in namespace `shop`, one partition of which waits for a person.
fn plane() -> &'static ControlPlane {
    static FILLED: OnceLock<()> = OnceLock::new();
    let plane = ControlPlane::with_definition();
    FILLED.get_or_init(|| {
        plane.kubectl(&["create", "namespace", "shop"], None).expect();
        let set = json!({
            "apiVersion": "lanekeeper.dev/v1alpha1",
            "kind": "OrderedPartitionSet",
            "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {
                "partitions": 2,
                "nats": {"servers": ["nats://nats:4222"]},
                "stream": {"name": "ORDERS", "subjects": ["orders.*"]},
                "mapping": {"subject": "orders.*", "keyTokens": [1]},
                "worker": {
                    "handler": {"http": {}},
                    "podTemplate": {"spec": {"containers": [{"name": "handler", "image": "a:1"}]}},
                },
            },
        });
        plane.kubectl(&["create", "-f", "-"], Some(&set)).expect();
        let waiting = json!({"partition": 1, "reason": "AttemptsExhausted", "sequence": 42, "message": "no stock"});
        let status = json!({"status": {"observedGeneration": 1, "partitions": 2, "lanes": {"open": 1, "blocked": 1}, "attention": [waiting]}});
        let status = status.to_string();
        let patch = ["-n", "shop", "patch", "ops", "orders", "--subresource=status", "--type=merge", "-p", &status];
        plane.kubectl(&patch, None).expect();
    });
    plane
}

fn plugin(arguments: &[&str]) -> Answer {
    plane().run(PLUGIN, arguments, None)
}

#[test]
fn one_set_is_shown_with_what_it_waits_for() {
    let text = plugin(&["status", "orders", "-n", "shop"]).expect();
    assert!(
        text.contains("2 wanted, 2 in force: 1 open, 0 handing over, 1 blocked, 0 without worker"),
        "{text}"
    );
    assert!(text.contains("AttemptsExhausted   42         no stock"), "{text}");
}

#[test]
fn all_sets_are_found_in_all_namespaces_and_none_in_an_empty_one() {
    let everywhere = plugin(&["status", "-A"]).expect();
    assert!(everywhere.contains("shop        orders   2 "), "{everywhere}");
    assert_eq!(plugin(&["status"]).expect(), "There are no sets in namespace default.\n");
}

#[test]
fn a_key_is_found_with_its_deployment() {
    let text = plugin(&["where", "orders", "a", "-n", "shop", "-o", "json"]).expect();
    let place: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(place["hash"], 3_826_002_220_u32);
    assert_eq!((&place["partition"], &place["deployment"]), (&json!(0), &json!("orders-0")));
    assert_eq!(place["filter"], "lanes.ORDERS.0.>");
}

#[test]
fn errors_say_what_is_wrong_in_one_line() {
    for (arguments, words) in [
        (&["status", "nope", "-n", "shop"][..], "error: there is no set nope in namespace shop\n"),
        (&["where", "orders", "a.b", "-n", "shop"], "a key has 1 token (keyTokens [1]), not 2\n"),
        (&["status", "--context", "nope"], "nope"),
        (&["status", "--kubeconfig", "/nope"], "/nope"),
    ] {
        let refusal = plugin(arguments).refusal();
        assert!(refusal.starts_with("error: ") && refusal.contains(words), "{arguments:?}: {refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
}

#[test]
fn a_user_without_rights_gets_the_api_servers_words() {
    let plane = plane();
    let stranger = plane.kubeconfig().with_file_name("stranger");
    let config = plane.kubectl(&["config", "view", "--minify", "--raw", "-o", "json"], None).expect();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = json!({});
    std::fs::write(&stranger, config.to_string()).unwrap();
    let refusal = plugin(&["status", "--kubeconfig", stranger.to_str().unwrap()]).refusal();
    assert!(refusal.starts_with("error: sets cannot be read: "), "{refusal}");
    assert!(refusal.contains("orderedpartitionsets.lanekeeper.dev is forbidden"), "{refusal}");
    assert_eq!(refusal.lines().count(), 1, "{refusal}");
}

#[test]
fn kubectl_finds_the_plugin_by_its_name() {
    let folder = Path::new(PLUGIN).parent().unwrap();
    let path = format!("{}:{}", folder.display(), env::var("PATH").unwrap());
    let kubectl = tool("kubectl");
    let script = format!("PATH='{path}' '{}' lanes where orders orders.a -n shop", kubectl.display());
    let text = plane().run("sh", &["-c", &script], None).expect();
    assert!(text.contains("Partition:   0 of 2"), "{text}");
}
