//! What keeps the operator from NATS is said truthfully, and heals without a restart.

use lanekeeper_tests::{LATEST, NatsServer, NatsTrio};
use serde_json::json;

use crate::rig::Rig;

const ACCOUNTS: &str = r"
accounts {
  WITH { jetstream: enabled, users: [{user: with, password: pw}] }
  WITHOUT { users: [{user: without, password: pw}] }
}
";

#[tokio::test]
async fn nats_that_goes_and_comes_back_is_a_condition_and_no_more() {
    let (mut rig, operator) = Rig::start("down").await;
    rig.create("orders", rig.spec(2)).await.unwrap();
    rig.wait_lanes("orders").await;
    rig.nats.kill();
    let message = rig.wait_condition("orders", "Ready", "False/NatsUnreachable").await;
    let address = rig.nats.address().to_string();
    assert!(message.contains(&address) && message.contains("spec.nats.servers"), "{message} names {address}");
    // Workers run on while the operator cannot look.
    assert_eq!(rig.deployment_names().await, ["orders-0", "orders-1"]);
    rig.wait_condition("orders", "LanesReady", "Unknown/NatsUnreachable").await;
    assert_eq!(rig.get("orders").await.status.unwrap().partitions, 2);
    rig.nats.start_again().await;
    rig.wait_condition("orders", "Ready", "False/WorkersStarting").await;
    rig.wait_event("NatsUnreachable", &address).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_server_without_jetstream_is_told_from_one_that_cannot_be_reached() {
    let rig =
        Rig::prepare("no-jetstream", NatsServer::builder(LATEST).without_jetstream().start().await).await;
    let operator = rig.operator().await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    let message = rig.wait_condition("orders", "Ready", "False/JetStreamUnavailable").await;
    assert!(message.contains("JetStream"), "{message}");
    assert_eq!(rig.deployment_names().await, Vec::<String>::new());
    let mut rig = rig;
    rig.nats.restart_with(|settings| settings.jetstream("")).await;
    rig.wait_lanes("orders").await;
    operator.stop().await;
}

#[tokio::test]
async fn an_account_without_jetstream_and_a_wrong_domain_are_said() {
    let config = format!("{ACCOUNTS}\nno_auth_user: without");
    let nats = NatsServer::builder(LATEST).jetstream("domain: hub").config(&config).start().await;
    let mut rig = Rig::prepare("account", nats).await;
    let operator = rig.operator().await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_condition("orders", "Ready", "False/JetStreamUnavailable").await;

    let mut elsewhere = rig.spec(1);
    elsewhere["nats"]["jetStreamDomain"] = json!("nowhere");
    elsewhere["stream"]["name"] = json!("OTHER");
    elsewhere["stream"]["subjects"] = json!(["other.*"]);
    elsewhere["mapping"]["subject"] = json!("other.*");
    rig.create("elsewhere", elsewhere).await.unwrap();
    let message = rig.wait_condition("elsewhere", "Ready", "False/JetStreamUnavailable").await;
    assert!(message.contains("nowhere"), "{message}");

    let config = format!("{ACCOUNTS}\nno_auth_user: with");
    rig.nats.restart_with(|settings| settings.config(&config)).await;
    rig.wait_lanes("orders").await;
    rig.patch("elsewhere", json!({"spec": {"nats": {"jetStreamDomain": "hub"}}})).await;
    rig.wait_lanes("elsewhere").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_user_that_may_not_do_it_is_told_what_it_lacks_and_nothing_is_half_made() {
    let config = |denied: &str| {
        format!(
            r"
accounts {{
  A {{ jetstream: enabled, users: [{{user: a, password: pw, permissions: {{publish: {{deny: [{denied}]}}}}}}] }}
}}
no_auth_user: a
"
        )
    };
    let nats =
        NatsServer::builder(LATEST).config(&config(r#""$JS.API.STREAM.CREATE.KV_lanekeeper""#)).start().await;
    let mut rig = Rig::prepare("denied", nats).await;
    let operator = rig.operator().await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    let message = rig.wait_condition("orders", "Ready", "False/KvForbidden").await;
    assert!(message.contains("$JS.API.STREAM.CREATE.KV_lanekeeper"), "{message}");
    assert!(rig.stream("ORDERS").await.is_none(), "nothing is made without a bucket");
    assert_eq!(rig.deployment_names().await, Vec::<String>::new());

    let stream = config(r#""$JS.API.STREAM.CREATE.ORDERS""#);
    rig.nats.restart_with(|settings| settings.config(&stream)).await;
    let message = rig.wait_condition("orders", "Ready", "False/PermissionDenied").await;
    assert!(message.contains("$JS.API.STREAM.CREATE.ORDERS"), "{message}");

    let nothing = config(r#""unused""#);
    rig.nats.restart_with(|settings| settings.config(&nothing)).await;
    rig.wait_lanes("orders").await;
    operator.stop().await;
}

#[tokio::test]
async fn credentials_that_are_missing_wrong_or_refused_are_named_and_never_quoted() {
    let config = "authorization { user: me, password: secret }";
    let rig = Rig::prepare("credentials", NatsServer::builder(LATEST).config(config).start().await).await;
    let operator = rig.operator().await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_condition("orders", "Ready", "False/AuthorizationFailed").await;

    let reference =
        json!({"spec": {"nats": {"credentialsSecretRef": {"name": "nats-creds", "key": "user.creds"}}}});
    rig.patch("orders", reference).await;
    let message = rig.wait_condition("orders", "Ready", "False/CredentialsMissing").await;
    assert!(message.contains("Secret 'nats-creds'"), "{message}");
    rig.secret("nats-creds", json!({"other": "geheim"})).await;
    let message = wait_message(&rig, "has no key 'user.creds'").await;
    assert!(!message.contains("geheim"), "{message}");
    rig.secret("nats-creds", json!({"user.creds": "geheim"})).await;
    let message = rig.wait_condition("orders", "Ready", "False/CredentialsInvalid").await;
    assert!(!message.contains("geheim"), "{message}");
    assert!(message.contains("key user.creds of Secret nats-creds"), "{message}");
    operator.stop().await;
}

async fn wait_message(rig: &Rig, words: &str) -> String {
    lanekeeper_tests::wait_until(crate::rig::DEADLINE, words, || async {
        let conditions = rig.get("orders").await.status.unwrap_or_default().conditions;
        let ready = conditions
            .into_iter()
            .find(|one| one.type_ == "Ready")
            .map(|one| one.message)
            .unwrap_or_default();
        if ready.contains(words) { Ok(ready) } else { Err(ready) }
    })
    .await
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_by_its_version() {
    let rig = Rig::prepare("old", NatsServer::start("2.10").await).await;
    let operator = rig.operator().await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    let message = rig.wait_condition("orders", "Ready", "False/ServerTooOld").await;
    assert!(message.contains("2.10"), "{message}");
    assert_eq!(rig.deployment_names().await, Vec::<String>::new());
    operator.stop().await;
}

#[tokio::test]
async fn copies_that_one_server_cannot_place_are_the_servers_own_words() {
    let (rig, operator) = Rig::start("copies").await;
    let mut spec = rig.spec(1);
    spec["stream"]["replicas"] = json!(3);
    rig.create("orders", spec).await.unwrap();
    let message = rig.wait_condition("orders", "Ready", "False/InsufficientResources").await;
    assert!(message.contains("error code") && message.contains("spec.stream.replicas is 3"), "{message}");
    assert_eq!(rig.deployment_names().await, Vec::<String>::new());
    operator.stop().await;
}

#[tokio::test]
async fn a_set_made_while_most_servers_are_down_comes_when_they_are_back_and_others_stay_as_they_were() {
    let trio = NatsTrio::start(LATEST).await;
    let urls = trio.urls();
    let mut nodes = trio.nodes.into_iter();
    let mut rig = Rig::prepare("trio", nodes.next().unwrap()).await;
    let mut others: Vec<NatsServer> = nodes.collect();
    let operator = rig.operator().await;
    let spec = |name: &str, copies: u32| {
        let mut spec = rig.spec(2);
        spec["nats"]["servers"] = json!(urls);
        spec["stream"] = json!({"name": name, "subjects": [format!("{name}.*")], "replicas": copies});
        spec["mapping"] = json!({"subject": format!("{name}.*"), "keyTokens": [1], "maxPartitions": 16});
        spec
    };
    rig.create("running", spec("running", 3)).await.unwrap();
    rig.wait_lanes("running").await;
    let before = rig.record("running").await;
    for server in &mut others {
        server.kill();
    }
    rig.create("copied", spec("copied", 3)).await.unwrap();
    rig.wait_condition("copied", "Ready", "False/JetStreamUnavailable").await;
    assert_eq!(rig.deployment_names().await.iter().filter(|name| name.starts_with("copied")).count(), 0);
    for server in &mut others {
        server.start_again().await;
    }
    rig.wait_lanes("copied").await;
    // The lanes of the other set were never touched.
    rig.wait_lanes("running").await;
    let unchanged = |record: Option<lanekeeper_core::record::Record>| {
        record.map(|record| (record.counter, record.lanes.len()))
    };
    assert_eq!(unchanged(rig.record("running").await), unchanged(before));
    operator.stop().await;
    rig.nats.kill();
}
