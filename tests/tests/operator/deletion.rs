//! The end of a set.

use kube::api::{Patch, PatchParams};
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use serde_json::json;

use crate::rig::{DEADLINE, Rig, wait_equal};

#[tokio::test]
async fn retain_leaves_positions_and_a_set_of_the_same_name_goes_on_with_them() {
    let (rig, operator) = Rig::start("retain").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    let before = rig.record("orders").await.unwrap();
    rig.delete("orders").await;
    rig.wait_gone("orders").await;
    wait_equal("no Deployments", Vec::new(), || rig.deployment_names()).await;
    assert_eq!(rig.consumers("ORDERS").await.len(), 2);
    let again = rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    wait_until(DEADLINE, "the record to be the new set's", || async {
        let record = rig.record("orders").await.ok_or("it is gone")?;
        let adopted = Some(&record.owner.uid) == again.metadata.uid.as_ref() && record.lanes == before.lanes;
        if adopted { Ok(()) } else { Err(format!("{record:?}")) }
    })
    .await;
    rig.wait_event("StreamAdopted", "ORDERS").await;
    operator.stop().await;
}

#[tokio::test]
async fn retain_needs_no_nats() {
    let (mut rig, operator) = Rig::start("retain-down").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.nats.kill();
    rig.delete("orders").await;
    rig.wait_gone("orders").await;
    operator.stop().await;
}

#[tokio::test]
async fn delete_takes_consumers_and_records_of_this_set_only_and_leaves_the_stream() {
    let (rig, operator) = Rig::start("delete").await;
    let mut spec = rig.spec(2);
    spec["deletionPolicy"] = json!("Delete");
    rig.create("orders", spec.clone()).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.create("billing", spec).await.unwrap();
    rig.wait_lanes("billing").await;
    rig.delete("orders").await;
    rig.wait_gone("orders").await;
    assert_eq!(rig.consumers_of("orders", "ORDERS").await.len(), 0);
    assert_eq!(rig.consumers_of("billing", "ORDERS").await.len(), 2);
    assert!(rig.stream("ORDERS").await.is_some());
    let left = rig.bucket().await.load(&rig.name("orders").key_prefix()).await.unwrap();
    assert_eq!(left.len(), 0, "{left:?}");
    assert!(rig.record("billing").await.is_some());
    wait_equal("the other set's Deployments", vec!["billing-0".to_owned(), "billing-1".to_owned()], || {
        rig.deployment_names()
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn delete_stops_the_workers_at_once_and_waits_for_nats_without_blocking_others() {
    let (mut rig, operator) = Rig::start("delete-down").await;
    let other_nats = NatsServer::start(LATEST).await;
    let mut spec = rig.spec(1);
    spec["deletionPolicy"] = json!("Delete");
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.nats.kill();
    rig.delete("orders").await;
    let message = rig.wait_condition("orders", "Ready", "False/WaitingForNats").await;
    assert!(message.contains("Retain"), "{message}");
    wait_equal("no Deployments", Vec::new(), || rig.deployment_names()).await;

    // Another set is made meanwhile, on a NATS that is there.
    let mut other = rig.spec(1);
    other["nats"]["servers"] = json!([other_nats.url()]);
    rig.create("other", other).await.unwrap();
    rig.wait_lanes("other").await;
    assert!(!rig.is_gone("orders").await);

    rig.nats.start_again().await;
    rig.wait_gone("orders").await;
    assert_eq!(rig.record("orders").await, None);
    operator.stop().await;
}

#[tokio::test]
async fn changing_the_policy_lets_a_waiting_set_go() {
    let (mut rig, operator) = Rig::start("override").await;
    let mut spec = rig.spec(1);
    spec["deletionPolicy"] = json!("Delete");
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.nats.kill();
    rig.delete("orders").await;
    rig.wait_condition("orders", "Ready", "False/WaitingForNats").await;
    rig.patch("orders", json!({"spec": {"deletionPolicy": "Retain"}})).await;
    rig.wait_gone("orders").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_set_whose_credentials_went_first_is_released_and_says_what_stays_behind() {
    let rig = Rig::prepare("secret-gone", NatsServer::start(LATEST).await).await;
    let operator = rig.operator().await;
    let mut spec = rig.spec(1);
    spec["deletionPolicy"] = json!("Delete");
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    // The operator is restarted in between: it has no connection of its own any more.
    operator.stop().await;
    rig.patch(
        "orders",
        json!({"spec": {"nats": {"credentialsSecretRef": {"name": "gone", "key": "user.creds"}}}}),
    )
    .await;
    rig.delete("orders").await;
    let operator = rig.operator().await;
    rig.wait_gone("orders").await;
    rig.wait_event("CredentialsMissing", "lk_").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_finalizer_that_somebody_took_away_comes_back() {
    let (rig, operator) = Rig::start("finalizer").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let without = json!({"metadata": {"finalizers": null}});
    rig.sets().patch("orders", &PatchParams::default(), &Patch::Merge(&without)).await.unwrap();
    wait_until(DEADLINE, "the finalizer", || async {
        let finalizers = rig.get("orders").await.metadata.finalizers.unwrap_or_default();
        finalizers.iter().any(|one| one == "lanekeeper.dev/cleanup")
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn delete_says_which_workers_it_waits_for() {
    let (rig, operator) = Rig::start("delete-waits").await;
    let mut spec = rig.spec(1);
    spec["deletionPolicy"] = json!("Delete");
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let pods = crate::flowing::make_pod(&rig, "orders-0-a", 0).await;
    rig.delete("orders").await;
    let message = rig.wait_condition("orders", "Ready", "False/Deleting").await;
    assert!(message.contains("orders-0-a"), "{message}");
    assert_eq!(rig.consumers("ORDERS").await.len(), 1, "nothing is taken from under a worker");
    let now = kube::api::DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
    pods.delete("orders-0-a", &now).await.unwrap();
    rig.wait_gone("orders").await;
    assert_eq!(rig.consumers("ORDERS").await.len(), 0);
    operator.stop().await;
}
