//! What cannot be is refused by name, and nothing is made of it.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::rig::{Rig, wait_equal};

#[tokio::test]
async fn a_specification_that_is_no_partitioning_is_refused_at_admission_and_makes_nothing() {
    let (rig, operator) = Rig::start("admission").await;
    let mapping =
        |subject: &str, tokens: Value| ("/mapping", json!({"subject": subject, "keyTokens": tokens}));
    for ((path, value), words) in [
        (mapping("orders.>", json!([1])), "instead of 'orders.>'"),
        (mapping("orders", json!([1])), "at least one '*'"),
        (mapping("orders.*", json!([2])), "spec.mapping.keyTokens"),
        (mapping("orders.*", json!([0])), "greater than or equal to 1"),
        (mapping("orders.*", json!([-1])), "greater than or equal to 1"),
        (mapping("orders.*", json!([])), "at least 1"),
        (mapping("orders.*", json!([1, 1])), "must be distinct"),
        (("/partitions", json!(0)), "spec.partitions"),
        (("/partitions", json!(-1)), "spec.partitions"),
        (("/partitions", json!(1_000_000)), "spec.partitions"),
        (("/stream/name", json!("")), "spec.stream.name"),
        (("/stream/subjects", json!(["elsewhere.*"])), "must be covered"),
        (("/worker/handler", json!({})), "exactly one of"),
        (("/colour", json!("red")), "unknown field \"spec.colour\""),
        (("/stream/max_age", json!(5)), "unknown field \"spec.stream.max_age\""),
    ] {
        let mut spec = rig.spec(2);
        let (parent, field) = path.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[field] = value.clone();
        let refused = rig.create("orders", spec).await.expect_err(&format!("{path} {value} is refused"));
        assert!(refused.contains(words), "{path} {value}: {refused}");
    }
    assert_eq!(rig.deployment_names().await, Vec::<String>::new());
    assert_eq!(rig.stream("ORDERS").await, None);
    assert_eq!(rig.stream("KV_lanekeeper").await, None);
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    operator.stop().await;
}

#[tokio::test]
async fn what_admission_cannot_see_is_a_condition_that_names_the_field_and_makes_nothing() {
    let (rig, operator) = Rig::start("invalid").await;
    let container = json!([{"name": "handler", "image": "example.com/handler:1"}]);
    for (name, template, words) in [
        ("no-handler", json!({"spec": {"containers": []}}), "handler"),
        ("hosted", json!({"spec": {"containers": container, "hostNetwork": true}}), "hostNetwork"),
        (
            "graceful",
            json!({"spec": {"containers": container, "terminationGracePeriodSeconds": 5}}),
            "terminationGracePeriodSeconds",
        ),
    ] {
        let mut spec = rig.spec(1);
        spec["worker"]["podTemplate"] = template;
        rig.create(name, spec).await.unwrap();
        let message = rig.wait_condition(name, "Ready", "False/InvalidSpec").await;
        assert!(message.contains(words), "{message}");
        rig.wait_event("InvalidSpec", words).await;
    }
    assert_eq!(rig.deployment_names().await, Vec::<String>::new());
    assert_eq!(rig.stream("ORDERS").await, None);
    operator.stop().await;
}

#[tokio::test]
async fn a_misspelt_field_of_the_pod_template_is_named_and_put_right_by_its_author() {
    let (rig, operator) = Rig::start("misspelt").await;
    let mut spec = rig.spec(1);
    spec["worker"]["podTemplate"]["spec"]["nodeSelectro"] = json!({"disk": "fast"});
    rig.create("orders", spec).await.unwrap();
    let message = rig.wait_condition("orders", "WorkersReady", "False/DeploymentRefused").await;
    assert!(message.contains("nodeSelectro"), "{message}");
    rig.wait_condition("orders", "LanesReady", "True/AsSpecified").await;
    assert_eq!(rig.deployment_names().await, Vec::<String>::new());
    rig.patch("orders", json!({"spec": {"worker": {"podTemplate": {"spec": {"nodeSelectro": null}}}}})).await;
    wait_equal("the Deployment", vec!["orders-0".to_owned()], || rig.deployment_names()).await;
    rig.wait_condition("orders", "WorkersReady", "False/WorkersStarting").await;
    operator.stop().await;
}

#[tokio::test]
async fn what_can_never_change_is_refused_at_admission_and_the_set_stays_as_it_is() {
    let (rig, operator) = Rig::start("immutable").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let record = rig.record("orders").await;
    for (patch, field) in [
        (json!({"stream": {"name": "OTHER"}}), "spec.stream.name"),
        (json!({"stream": {"storage": "File"}}), "spec.stream.storage"),
        (json!({"stream": {"retention": "Interest"}}), "spec.stream.retention"),
        (json!({"consumer": {"start": "New"}}), "spec.consumer.start"),
        (json!({"mapping": {"maxPartitions": 32}}), "spec.mapping"),
    ] {
        let patch = Patch::Merge(json!({"spec": patch}));
        let refused = rig.sets().patch("orders", &PatchParams::default(), &patch).await;
        let words = refused.expect_err(field).to_string();
        assert!(words.contains(field) && words.contains("immutable"), "{field}: {words}");
    }
    assert_eq!(rig.record("orders").await, record);
    operator.stop().await;
}

#[tokio::test]
async fn settings_of_lanes_reach_the_assignment_without_a_change_of_the_deployment() {
    let (rig, operator) = Rig::start("settings").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    wait_equal("the Deployment", vec!["orders-0".to_owned()], || rig.deployment_names()).await;
    let before = rig.deployment("orders-0").await["metadata"]["generation"].clone();
    rig.patch(
        "orders",
        json!({"spec": {"paused": true, "retry": {"maxAttempts": 9}, "consumer": {"ackWaitSeconds": 2}}}),
    )
    .await;
    lanekeeper_tests::wait_until(crate::rig::DEADLINE, "the assignment to say so", || async {
        let settings = rig.assignment("orders", 0).await.ok_or("there is none")?.settings;
        let right =
            settings.paused && settings.retry.max_attempts == 9 && settings.ack_wait_milliseconds == 2000;
        if right { Ok(()) } else { Err(format!("{settings:?}")) }
    })
    .await;
    wait_equal("the consumer's deadline", 2000, || async {
        rig.consumers("ORDERS").await[0].ack_wait_milliseconds
    })
    .await;
    assert_eq!(rig.deployment("orders-0").await["metadata"]["generation"], before);
    operator.stop().await;
}
