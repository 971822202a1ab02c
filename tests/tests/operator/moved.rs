//! A set whose `spec.nats` points elsewhere.

use lanekeeper_tests::{LATEST, NatsServer};
use serde_json::json;

use crate::rig::{Rig, wait_equal};

#[tokio::test]
async fn a_set_that_is_pointed_at_another_nats_stops_until_a_person_confirms() {
    let (rig, operator) = Rig::start("moved").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    wait_equal("the Deployments", 2, || async { rig.deployment_names().await.len() }).await;
    let before = rig.deployment("orders-0").await["spec"].clone();

    let elsewhere = NatsServer::start(LATEST).await;
    rig.patch("orders", json!({"spec": {"nats": {"servers": [elsewhere.url()]}}})).await;
    let message = rig.wait_condition("orders", "StreamReady", "False/StreamChanged").await;
    assert!(message.contains("lanekeeper.dev/accept-stream=new"), "{message}");
    assert_eq!(rig.deployment("orders-0").await["spec"], before, "workers stay where they are");
    let there = Rig {
        nats: elsewhere,
        namespace: rig.namespace.clone(),
        client: rig.client.clone(),
        control: rig.control,
    };
    assert_eq!(there.stream("ORDERS").await, None, "nothing is made there");

    // Back again, and nothing happened.
    rig.patch("orders", json!({"spec": {"nats": {"servers": [rig.nats.url()]}}})).await;
    rig.wait_lanes("orders").await;

    rig.patch(
        "orders",
        json!({
            "metadata": {"annotations": {"lanekeeper.dev/accept-stream": "new"}},
            "spec": {"nats": {"servers": [there.nats.url()]}},
        }),
    )
    .await;
    there.wait_lanes("orders").await;
    assert_eq!(there.open_partitions("orders").await, [0, 1]);
    operator.stop().await;
}

#[tokio::test]
async fn another_address_of_the_same_nats_needs_no_confirmation() {
    let (rig, operator) = Rig::start("renamed").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let record = rig.record("orders").await;
    let address = rig.nats.url().replace("127.0.0.1", "localhost");
    rig.patch("orders", json!({"spec": {"nats": {"servers": [address]}}})).await;
    wait_equal("the workers' servers", address.clone(), || async {
        let deployment = rig.deployment("orders-0").await;
        let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
        let servers = env.into_iter().find(|one| one["name"] == "LANEKEEPER_NATS_SERVERS");
        servers.and_then(|one| one["value"].as_str().map(str::to_owned)).unwrap_or_default()
    })
    .await;
    rig.wait_lanes("orders").await;
    assert_eq!(rig.record("orders").await, record);
    operator.stop().await;
}
