//! Sets whose names look alike, on one stream (P25): each has its own consumers, Deployments and positions.

use std::collections::BTreeMap;

use lanekeeper_core::names::SetName;
use lanekeeper_tests::{
    flights::{STREAM, data::numbered, manifests::put},
    kubectl::{condition, is_ready},
    wait_until,
};
use serde_json::{Value, json};

use crate::{FLOW, PODS, machine::beside_others, story::Story};

#[tokio::test]
async fn sets_with_names_that_look_alike_share_a_stream_without_touching_each_other() {
    let _shared = beside_others().await;
    let mut story = Story::begin("alike", 1).await;
    let base = story.namespace.clone();
    // The pairs of the case: `orders.v2` and `orders-v2`, `a-b/orders` and `a/b-orders`.
    let other = format!("{base}-b");
    story
        .kubectl
        .apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})])
        .unwrap();
    let names = [(&base, "orders.v2"), (&base, "orders-v2"), (&other, "orders"), (&base, "b-orders")];
    let sets: Vec<Value> = names.iter().map(|(namespace, name)| set(&story, namespace, name)).collect();
    story.kubectl.apply(&sets).unwrap();
    for (namespace, name) in names {
        wait_until(PODS, &format!("{namespace}/{name} to be ready"), || async {
            let found = story.kubectl.set(namespace, name).await.map_err(|error| error.to_string())?;
            let found = found.ok_or("there is none")?;
            if is_ready(&found) { Ok(()) } else { Err(format!("{:?}", condition(&found, "Ready"))) }
        })
        .await;
    }
    let before = consumers(&story, &names).await;
    assert_eq!(before.len(), names.len(), "each set has a consumer of its own: {before:?}");

    story.publish(numbered(5, 4)).await;
    wait_until(FLOW, "each set to have everything", || async {
        let left: u64 = consumers(&story, &names).await.values().sum();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
    })
    .await;

    story.run(&["delete", "ops", "orders-v2", "--timeout=60s"]);
    let after = consumers(&story, &names).await;
    let gone: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    assert_eq!(
        gone,
        [&SetName::new(&base, "orders-v2").consumer_prefix()],
        "only its own consumers are touched"
    );
    for (namespace, name) in names.into_iter().filter(|(_, name)| *name != "orders-v2") {
        let found = story.kubectl.set(namespace, name).await.unwrap().unwrap();
        assert!(is_ready(&found), "{namespace}/{name}: {:?}", condition(&found, "Ready"));
    }
    story.kubectl.run(&["-n", &other, "delete", "ops", "--all", "--timeout=60s"]).unwrap();
    story.kubectl.run(&["-n", &base, "delete", "ops", "--all", "--timeout=60s"]).unwrap();
    story.kubectl.run(&["delete", "namespace", &other, "--wait=false"]).unwrap();
}

/// A set of one partition. Its handlers keep their journal in the pod: several handle each message.
fn set(story: &Story, namespace: &str, name: &str) -> Value {
    let mut set = story.set.clone();
    for (pointer, value) in [
        ("/metadata/namespace", json!(namespace)),
        ("/metadata/name", json!(name)),
        ("/spec/deletionPolicy", json!("Delete")),
        ("/spec/worker/podTemplate/spec/volumes/0", json!({"name": "journal", "emptyDir": {}})),
    ] {
        put(&mut set, pointer, value).unwrap();
    }
    set
}

/// What is left before the consumers of each set, by the prefix of their names.
async fn consumers(story: &Story, names: &[(&String, &str)]) -> BTreeMap<String, u64> {
    use futures::TryStreamExt;
    let stream = story.jetstream.get_stream(STREAM).await.unwrap();
    let all: Vec<_> = stream.consumers().try_collect().await.unwrap();
    let mut left = BTreeMap::new();
    for consumer in all {
        let owner = names.iter().map(|(namespace, name)| SetName::new(namespace.as_str(), *name));
        let owners: Vec<SetName> = owner.filter(|one| one.parse_consumer(&consumer.name).is_some()).collect();
        assert_eq!(owners.len(), 1, "{} belongs to exactly one set", consumer.name);
        *left.entry(owners[0].consumer_prefix()).or_default() +=
            consumer.num_pending + consumer.num_ack_pending as u64;
    }
    left
}
