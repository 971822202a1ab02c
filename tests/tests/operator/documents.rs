//! The permissions of docs/security.md are enough for a set's whole life, and no more than that.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::StreamExt;
use lanekeeper_nats::{ConnectSettings, Connection, Files};
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use lanekeeper_worker::{HandlerError, Message, Worker, handler};
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::rig::{DEADLINE, Rig};

/// Publish and subscribe lists of each user on the page.
fn documented(namespace: &str) -> BTreeMap<String, Value> {
    let page = include_str!("../../../docs/security.md");
    let block =
        page.split("```nats\n").nth(1).and_then(|rest| rest.split("```").next()).expect("there is a block");
    let block = block.replace("set.shop.orders", &format!("set.{namespace}.orders"));
    let block = block.replace("dlq.shop.orders", &format!("dlq.{namespace}.orders"));
    let block = block.replace("lk_shop_orders_dlq", &format!("lk_{namespace}_orders_dlq"));
    let block = block.replace("park.shop.orders", &format!("park.{namespace}.orders"));
    let block = block.replace("lk_shop_orders_park", &format!("lk_{namespace}_orders_park"));
    let list = |user: &str, name: &str| -> Vec<String> {
        let rest = user.split(&format!("{name}: [")).nth(1).expect("there is a list");
        let list = rest.split(']').next().expect("it has an end");
        list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let users = block.split("{ user: ").skip(1);
    users
        .map(|user| {
            let name = user.split(',').next().expect("it has a name").to_owned();
            (
                name,
                json!({"pub": {"allow": list(user, "publish")}, "sub": {"allow": list(user, "subscribe")}}),
            )
        })
        .collect()
}

/// A claim, signed as NATS signs them.
fn token(issuer: &KeyPair, subject: &KeyPair, nats: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": "test",
        "nats": nats,
    });
    let signed = format!("{}.{}", part(&json!({"typ": "JWT", "alg": "ed25519-nkey"})), part(&claims));
    let signature = issuer.sign(signed.as_bytes()).expect("the issuer has a seed");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// One account of an operator, with JetStream.
struct Account {
    keys: KeyPair,
    config: String,
}

impl Account {
    fn new() -> Self {
        let (operator, system, keys) =
            (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
        let account = |account: &KeyPair, storage: i64| {
            let limits = json!({
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
                "leaf": -1, "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage,
            });
            token(&operator, account, &json!({"type": "account", "version": 2, "limits": limits}))
        };
        let config = format!(
            "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload {{\n  {}: {}\n  {}: {}\n}}",
            token(&operator, &operator, &json!({"type": "operator", "version": 2})),
            system.public_key(),
            system.public_key(),
            account(&system, 0),
            keys.public_key(),
            account(&keys, -1),
        );
        Self { keys, config }
    }

    /// A credentials file with these permissions.
    fn credentials(&self, permissions: &Value) -> String {
        let user = KeyPair::new_user();
        let mut claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
        claims["pub"] = permissions["pub"].clone();
        claims["sub"] = permissions["sub"].clone();
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            token(&self.keys, &user, &claims),
            user.seed().expect("a new pair has its seed")
        )
    }
}

fn settings(rig: &Rig, credentials: &str) -> ConnectSettings {
    let mut settings = ConnectSettings::new([rig.nats.url()], "documents");
    settings.credentials = Files::Memory([("user.creds".to_owned(), credentials.into())].into());
    settings
}

#[tokio::test]
async fn the_documented_permissions_are_enough_to_make_serve_change_repair_and_delete_a_set() {
    let account = Account::new();
    let nats = NatsServer::builder(LATEST).config(&account.config).start().await;
    let rig = Rig::prepare("permissions", nats).await;
    let users = documented(&rig.namespace);
    assert_eq!(users.keys().collect::<Vec<_>>(), ["operator", "worker"]);
    for (user, permissions) in &users {
        let credentials = account.credentials(permissions);
        rig.secret(&format!("nats-{user}"), json!({"user.creds": credentials})).await;
    }
    let operator = rig.operator().await;
    let mut spec = rig.spec(1);
    spec["deletionPolicy"] = json!("Delete");
    spec["nats"]["credentialsSecretRef"] = json!({"name": "nats-operator", "key": "user.creds"});
    spec["onExhausted"] = json!({"policy": "DeadLetter"});
    spec["worker"]["journal"] = json!({"subject": "audit.orders"});
    spec["nats"]["workerCredentialsSecretRef"] = json!({"name": "nats-worker", "key": "user.creds"});
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;

    // Serve.
    let worker_settings = settings(&rig, &account.credentials(&users["worker"]));
    let handled = Arc::new(Mutex::new(Vec::new()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::builder(rig.name("orders"), 0, "ORDERS", worker_settings.clone()).build();
    let journal = Arc::clone(&handled);
    let serve = handler(move |message: Arc<Message>| {
        journal.lock().unwrap().push(message.sequence());
        let poison = message.key() == "b";
        async move { if poison { Err(HandlerError::permanent("422")) } else { Ok(()) } }
    });
    let running = tokio::spawn(worker.run_until(serve, async {
        let _ = stopped.await;
    }));
    let all = Connection::connect(settings(&rig, &account.credentials(&json!({"pub": {}, "sub": {}}))))
        .await
        .unwrap();
    let audit = all.client().subscribe("audit.orders.*").await.unwrap();
    all.client().flush().await.unwrap();
    for key in ["a", "b", "c"] {
        all.context().publish(format!("orders.{key}"), "x".into()).await.unwrap().await.unwrap();
    }
    wait_until(DEADLINE, "the worker to handle all", || async { *handled.lock().unwrap() == [1, 2, 3] })
        .await;
    let written = tokio::time::timeout(DEADLINE, audit.take(4).count()).await;
    assert_eq!(written, Ok(4), "it keeps its journal");

    let dead = rig.name("orders").dead_letter_stream();
    wait_until(DEADLINE, "the dead letter", || async {
        let stream = lanekeeper_nats::observe::stream(&all, &dead).await.unwrap();
        stream.is_some_and(|stream| stream.messages == 1)
    })
    .await;

    // Park.
    rig.patch("orders", json!({"spec": {"onExhausted": {"policy": "ParkKey"}}})).await;
    wait_until(DEADLINE, "the lane to be told where to park", || async {
        let bucket = lanekeeper_nats::Bucket::new(all.clone(), "lanekeeper");
        let key = rig.name("orders").assignment_key(0);
        let found = bucket.get_json::<lanekeeper_core::record::Assignment>(&key).await.unwrap();
        found.is_some_and(|found| found.value.settings.park.is_some())
    })
    .await;
    let park = rig.name("orders").park_stream();
    wait_until(DEADLINE, "a parked message", || async {
        // The worker may learn of it after we do, and put the first away in the old way.
        all.context().publish("orders.b", "x".into()).await.unwrap().await.unwrap();
        let stream = lanekeeper_nats::observe::stream(&all, &park).await.unwrap();
        stream.is_some_and(|stream| stream.messages > 0)
    })
    .await;

    // Change, while the worker holds the lane.
    rig.patch("orders", json!({"spec": {"partitions": 2}})).await;
    rig.wait_condition("orders", "Rescaling", "False/Settled").await;
    wait_until(DEADLINE, "the worker to follow", || async {
        let key = rig.name("orders").lane_key(2);
        let bucket = lanekeeper_nats::Bucket::new(all.clone(), "lanekeeper");
        let key = bucket.get_json::<lanekeeper_core::record::LaneKey>(&key).await.unwrap();
        key.is_some_and(|key| !key.value.holders.is_empty())
    })
    .await;

    // Repair.
    let consumer = rig.name("orders").consumer(1, 3);
    let until = json!({"pause_until": "2099-01-01T00:00:00Z"});
    all.api::<Value>(&format!("CONSUMER.PAUSE.ORDERS.{consumer}"), &until).await.unwrap();
    rig.wait_event("ConsumerRepaired", "pause_until").await;

    // No more than that.
    let narrow = Connection::connect(worker_settings).await.unwrap();
    let other = rig.name("orders").assignment_key(0);
    for operation in [format!("CONSUMER.DELETE.ORDERS.{consumer}"), "STREAM.INFO.ORDERS".to_owned()] {
        let error = narrow.api::<Value>(&operation, &Value::Null).await.unwrap_err();
        assert_eq!(error.reason(), "PermissionDenied", "{operation}: {error}");
    }
    let bucket = lanekeeper_nats::Bucket::new(narrow, "lanekeeper");
    let error = bucket.put(&other, "{}".into()).await.unwrap_err();
    assert_eq!(error.reason(), "KvForbidden", "{error}");

    // Delete.
    drop(stop);
    running.await.expect("the worker does not panic").expect("it ends well");
    rig.delete("orders").await;
    rig.wait_gone("orders").await;
    let left: Value = all.api("CONSUMER.NAMES.ORDERS", &Value::Null).await.unwrap();
    assert_eq!(left["total"], 0, "{left}");
    operator.stop().await;
}
