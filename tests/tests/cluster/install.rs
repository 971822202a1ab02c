//! From a manifest to messages that flow in order.

use lanekeeper_core::names::SetName;
use lanekeeper_tests::flights::{SET, STREAM, data::numbered};
use serde_json::json;

use crate::{machine::beside_others, story::Story};

#[tokio::test]
async fn a_set_becomes_a_stream_a_consumer_and_a_deployment_per_partition_and_messages_flow_in_order() {
    let _shared = beside_others().await;
    let mut story = Story::begin("flow", 4).await;
    story.apply_and_wait().await;

    let set = story.resource().await.unwrap();
    assert_eq!(set["status"]["partitions"], 4);
    assert_eq!(set["status"]["lanes"]["open"], 4);
    let names: Vec<String> = (0..4).map(|partition| format!("{SET}-{partition}")).collect();
    let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", story.namespace);
    let found: Vec<String> = story.kubectl.list(&deployments).await.unwrap().iter().map(name_of).collect();
    assert_eq!(found, names);
    let consumers = story.consumers().await;
    let set_name = SetName::new(&story.namespace, SET);
    for (partition, consumer) in consumers.iter().enumerate() {
        assert_eq!(set_name.parse_consumer(&consumer.name).unwrap().0 as usize, partition);
        assert_eq!(consumer.config.max_ack_pending, 1);
        assert_eq!(consumer.config.max_deliver, -1, "a limit would make the server skip messages");
    }
    assert_eq!(consumers.len(), 4);
    let stream = story.jetstream.get_stream(STREAM).await.unwrap();
    assert!(stream.cached_info().config.subject_transform.is_some(), "the mapping is the stream's own");

    story.publish(numbered(20, 50)).await;
    let report = story.wait_for_all_in_order().await;
    assert_eq!(report.repeats, 0, "nothing failed, so nothing is handled twice");
    let partitions: std::collections::BTreeSet<i64> =
        story.entries().iter().map(|one| one.partition).collect();
    assert_eq!(partitions.len(), 4, "20 keys fall into all of 4 partitions");
}

#[tokio::test]
async fn worker_pods_satisfy_the_restricted_standard_and_hold_no_token_and_no_lane() {
    let _shared = beside_others().await;
    let story = Story::begin("pods", 1).await;
    // The namespace enforces the standard, so that the pod runs at all is the API server's own verdict.
    story.apply_and_wait().await;
    let pods = story.workers().await;
    let spec = &pods[0]["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["initContainers"][0]["name"], "handler");
    assert_eq!(spec["initContainers"][0]["restartPolicy"], "Always", "the handler outlives the lane");
    assert!(
        spec["initContainers"][0]["startupProbe"].is_object(),
        "the lane starts when the handler answers"
    );
    assert_eq!(spec["terminationGracePeriodSeconds"], 45, "the handler's 30 s and 15 s to settle");
    let lane = &spec["containers"][0];
    assert_eq!(lane["securityContext"]["readOnlyRootFilesystem"], true);
    let environment = lane["env"].to_string();
    let consumers = story.consumer_names().await;
    assert!(!environment.contains(&consumers[0]), "a worker follows its assignment: {environment}");
    assert_eq!(pods[0]["metadata"]["ownerReferences"][0]["kind"], json!("ReplicaSet"));
}

fn name_of(object: &serde_json::Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}
