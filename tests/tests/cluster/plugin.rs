//! The plugin with the set's own addresses: NATS is reached through the API server.

use std::process::{Command, Output};

use lanekeeper_tests::flights::{SET, data::numbered};
use serde_json::Value;

use crate::{machine::beside_others, story::Story};

/// `kubectl lanes` as a person of this machine calls it.
fn plugin(story: &Story, arguments: &[&str]) -> Output {
    let mut command = Command::new(&story.machine.images.plugin.program);
    command
        .args(["-n", &story.namespace])
        .args(arguments)
        .env("KUBECONFIG", &story.machine.cluster.kubeconfig);
    let output = command.output().expect("the plugin can be started");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

#[tokio::test]
async fn the_plugin_forwards_a_port_to_nats_shows_what_a_change_would_do_and_watches_it() {
    let _shared = beside_others().await;
    let mut story = Story::begin("plugin", 2).await;
    story.slow_handler("20ms").apply_and_wait().await;
    story.publish(numbered(20, 60)).await;

    let output = plugin(&story, &["plan", SET, "--partitions", "4", "-o", "json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("forwarding 127.0.0.1:"), "{said}");
    assert!(said.contains(&format!("pod {}/nats-", story.namespace)), "{said}");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("the answer is JSON");
    let groups = plan["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2, "{plan}");
    for group in groups {
        assert_eq!(group["kind"], "split", "{plan}");
        assert!(
            !group["before"][0]["holders"].as_array().unwrap().is_empty(),
            "its worker has joined: {plan}"
        );
        assert!(
            group["after"].as_array().unwrap().iter().all(|one| one["waiting"]["exact"] == true),
            "{plan}"
        );
    }

    story.run(&["scale", &format!("ops/{SET}"), "--replicas=4"]);
    let output = plugin(&story, &["status", SET, "--watch", "--until-settled", "--timeout", "3m"]);
    let lines = String::from_utf8_lossy(&output.stdout);
    assert!(lines.lines().last().is_some_and(|line| line.contains("4  open 0 to 3")), "{lines}");
    story.wait_for_all_in_order().await;

    // Each worker's port is forwarded, and the worker takes that for its own pod.
    let output = plugin(&story, &["keys", SET, "--top", "3", "-o", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("the answer is JSON");
    assert_eq!(told["keys"].as_array().unwrap().len(), 3, "{told}");
    assert!(told["notAsked"].is_null(), "{told}");
}
