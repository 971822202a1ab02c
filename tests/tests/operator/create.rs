//! From a set to a stream, consumers, records and Deployments.

use lanekeeper_core::{record::LaneState, share::Share};
use serde_json::{Value, json};

use crate::rig::{Rig, said};

#[tokio::test]
async fn a_set_becomes_a_stream_a_lane_for_each_partition_and_a_deployment_for_each() {
    let (rig, operator) = Rig::start("create").await;
    rig.create("orders", rig.spec(3)).await.unwrap();
    rig.wait_lanes("orders").await;

    let stream = rig.stream("ORDERS").await.expect("there is a stream");
    assert_eq!(stream.subjects, ["orders.*"]);
    let (source, destination) = stream.transform.expect("it has a transform");
    assert_eq!(source, "orders.*");
    assert!(destination.starts_with("lanes.ORDERS.{{partition(2,1)}}."), "{destination}");

    let consumers = rig.consumers("ORDERS").await;
    let filters: Vec<_> = consumers.iter().map(|one| (one.name.as_str(), one.filters[0].as_str())).collect();
    let names: Vec<String> =
        (0..3).map(|number| rig.name("orders").consumer(number, u64::from(number) + 1)).collect();
    assert_eq!(
        filters,
        [
            (names[0].as_str(), "lanes.ORDERS.0.0.>"),
            (names[1].as_str(), "lanes.ORDERS.1.>"),
            (names[2].as_str(), "lanes.ORDERS.0.2.>"),
        ]
    );
    for consumer in &consumers {
        assert_eq!((consumer.max_ack_pending, consumer.max_deliver), (1, -1), "{}", consumer.name);
    }

    let record = rig.record("orders").await.expect("there is a record");
    assert!(record.lanes.iter().all(|lane| lane.state == LaneState::Open && lane.opened));
    let assignment = rig.assignment("orders", 2).await.expect("partition 2 is assigned");
    assert_eq!(assignment.consumer, names[2]);
    assert_eq!(assignment.share, Share { modulus: 4, residue: 2 });
    assert_eq!(assignment.settings.handler_timeout_milliseconds, 30_000);

    crate::rig::wait_equal(
        "three Deployments",
        vec!["orders-0", "orders-1", "orders-2"].into_iter().map(String::from).collect(),
        || rig.deployment_names(),
    )
    .await;
    let status = rig.get("orders").await.status.expect("there is a status");
    assert_eq!(status.partitions, 3);
    assert_eq!(status.selector, "app.kubernetes.io/managed-by=lanekeeper,lanekeeper.dev/set=orders");
    let conditions: Vec<(String, String)> =
        status.conditions.iter().map(|one| (one.type_.clone(), said(one))).collect();
    for (name, said) in
        [("Rescaling", "False/Settled"), ("Blocked", "False/NoneBlocked"), ("Degraded", "False/AsSpecified")]
    {
        assert!(conditions.contains(&(name.to_owned(), said.to_owned())), "{name}: {conditions:?}");
    }
    rig.wait_condition("orders", "Ready", "False/WorkersStarting").await;
    rig.wait_event("StreamCreated", "ORDERS").await;
    rig.wait_event("LaneOpened", "partition 2").await;
    operator.stop().await;
}

#[tokio::test]
async fn the_pod_is_the_users_handler_as_a_sidecar_and_the_lane_beside_it() {
    let (rig, operator) = Rig::start("pod").await;
    let mut spec = rig.spec(1);
    spec["worker"]["podTemplate"] = json!({
        "metadata": {"labels": {"team": "logistics"}},
        "spec": {
            "nodeSelector": {"disk": "fast"},
            "containers": [{"name": "handler", "image": "example.com/handler:1", "env": [{"name": "A", "value": "1"}]}],
        },
    });
    spec["worker"]["resources"] = json!({"requests": {"cpu": "10m", "memory": "16Mi"}});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    crate::rig::wait_equal("a Deployment", vec!["orders-0".to_owned()], || rig.deployment_names()).await;
    let deployment = rig.deployment("orders-0").await;
    let template = &deployment["spec"]["template"];
    let pod = &template["spec"];
    assert_eq!(template["metadata"]["labels"]["team"], "logistics");
    assert_eq!(template["metadata"]["labels"]["lanekeeper.dev/set"], "orders");
    assert_eq!(pod["nodeSelector"]["disk"], "fast");
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["terminationGracePeriodSeconds"], 45);
    let handler = &pod["initContainers"][0];
    assert_eq!((&handler["name"], &handler["restartPolicy"]), (&json!("handler"), &json!("Always")));
    assert_eq!(handler["startupProbe"]["tcpSocket"]["port"], 8080);
    assert_eq!(handler["env"][0]["name"], "A");
    let lane = &pod["containers"][0];
    assert_eq!(lane["name"], "lane");
    assert_eq!(lane["resources"]["requests"]["cpu"], "10m");
    assert_eq!(lane["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    let value = |name: &str| {
        let env = lane["env"].as_array().unwrap();
        env.iter().find(|one| one["name"] == name).map(|one| one["value"].clone()).unwrap_or_default()
    };
    assert_eq!(value("LANEKEEPER_NAMESPACE"), rig.namespace);
    assert_eq!(value("LANEKEEPER_SET"), "orders");
    assert_eq!(value("LANEKEEPER_PARTITION"), "0");
    assert_eq!(value("LANEKEEPER_STREAM"), "ORDERS");
    assert_eq!(value("LANEKEEPER_NATS_SERVERS"), rig.nats.url());
    assert_eq!(value("LANEKEEPER_HANDLER_URL"), "http://127.0.0.1:8080/");
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    operator.stop().await;
}

#[tokio::test]
async fn a_program_is_a_deployment_that_the_api_server_takes_and_that_is_left_alone() {
    let (rig, operator) = Rig::start("program").await;
    let mut spec = rig.spec(1);
    spec["worker"] = json!({
        "handler": {"exec": {"command": ["python3", "/app/handle.py"], "timeoutSeconds": 30}},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "podTemplate": {"spec": {
            "containers": [{
                "name": "handler", "image": "example.com/python:3",
                "env": [{"name": "A", "value": "1"}],
                "volumeMounts": [{"name": "app", "mountPath": "/app"}],
            }],
            "volumes": [{"name": "app", "configMap": {"name": "app"}}],
        }},
    });
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    crate::rig::wait_equal("a Deployment", vec!["orders-0".to_owned()], || rig.deployment_names()).await;
    let deployment = rig.deployment("orders-0").await;
    let pod = &deployment["spec"]["template"]["spec"];
    let install = &pod["initContainers"][0];
    assert_eq!((&install["name"], &install["restartPolicy"]), (&json!("lane-install"), &json!(null)));
    assert_eq!(install["args"], json!(["install", "/var/run/lanekeeper/program"]));
    let lane = &pod["containers"][0];
    assert_eq!((&lane["name"], &lane["image"]), (&json!("lane"), &json!("example.com/python:3")));
    assert_eq!(lane["command"], json!(["/var/run/lanekeeper/program/lanekeeper-worker"]));
    assert_eq!(lane["resources"]["requests"]["memory"], "32Mi");
    let env = lane["env"].as_array().unwrap();
    let value = |name: &str| env.iter().find(|one| one["name"] == name).map(|one| one["value"].clone());
    assert_eq!(value("LANEKEEPER_HANDLER_EXEC"), Some(json!(r#"["python3","/app/handle.py"]"#)));
    assert_eq!((value("LANEKEEPER_HANDLER_URL"), value("A")), (None, Some(json!("1"))));
    assert_eq!(pod["terminationGracePeriodSeconds"], 45);
    assert_eq!(rig.assignment("orders", 0).await.unwrap().settings.handler_timeout_milliseconds, 30_000);
    // What is taken is what is wanted: a change of the lanes alone writes no Deployment.
    let before = written(&deployment);
    rig.patch("orders", json!({"spec": {"retry": {"maxAttempts": 9}}})).await;
    lanekeeper_tests::wait_until(crate::rig::DEADLINE, "the assignment to say so", || async {
        let settings = rig.assignment("orders", 0).await.ok_or("there is none")?.settings;
        if settings.retry.max_attempts == 9 { Ok(()) } else { Err(format!("{settings:?}")) }
    })
    .await;
    assert_eq!(written(&rig.deployment("orders-0").await), before);
    operator.stop().await;
}

#[tokio::test]
async fn health_and_metrics_are_served_and_the_end_is_orderly() {
    let (rig, operator) = Rig::start("admin").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    assert_eq!(operator.admin("/healthz").await.unwrap().0, 200);
    assert_eq!(operator.admin("/readyz").await.unwrap().0, 200);
    let (status, text) = operator.admin("/metrics").await.unwrap();
    assert_eq!(status, 200);
    for line in [
        "lanekeeper_operator_sets{ready=\"False\"} 1",
        "lanekeeper_operator_steps_total{step=\"create_consumer\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    operator.stop().await;
}

/// When its spec was last changed, and each field manager but the cluster's own last wrote.
fn written(deployment: &Value) -> (Value, Vec<Value>) {
    let fields = deployment["metadata"]["managedFields"].as_array().unwrap();
    let ours = fields.iter().filter(|one| one["manager"] == "lanekeeper").cloned().collect();
    (deployment["metadata"]["generation"].clone(), ours)
}
