//! Several accounts of one NATS: credentials that are rotated, and connections that are never shared.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::DeleteParams};
use lanekeeper_nats::{ConnectSettings, Connection, Files, connection::file_names, observe};
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::rig::{DEADLINE, Rig};

/// Signs claims as NATS does: <https://docs.nats.io/running-a-nats-service/nats_admin/security/jwt>.
fn token(issuer: &KeyPair, subject: &str, nats: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(&json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let claims = json!({
        "jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject, "name": "test", "nats": nats,
    });
    let signed = format!("{header}.{}", part(&claims));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// A NATS operator with two accounts.
struct Authority {
    operator: KeyPair,
    system: KeyPair,
    accounts: [KeyPair; 2],
}

impl Authority {
    fn new() -> Self {
        Self {
            operator: KeyPair::new_operator(),
            system: KeyPair::new_account(),
            accounts: [KeyPair::new_account(), KeyPair::new_account()],
        }
    }

    /// The server's configuration; `revoked` are public keys of users of the first account.
    fn config(&self, revoked: &[String]) -> String {
        let account = |pair: &KeyPair, storage: i64, revoked: &[String]| {
            let limits = json!({
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
                "leaf": -1, "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage,
            });
            let revocations: Value =
                revoked.iter().map(|user| (user.clone(), json!(1_800_000_000))).collect();
            let claims =
                json!({"type": "account", "version": 2, "limits": limits, "revocations": revocations});
            format!("{}: {}", pair.public_key(), token(&self.operator, &pair.public_key(), &claims))
        };
        format!(
            "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload {{\n  {}\n  {}\n  {}\n}}",
            token(&self.operator, &self.operator.public_key(), &json!({"type": "operator", "version": 2})),
            self.system.public_key(),
            account(&self.system, 0, &[]),
            account(&self.accounts[0], -1, revoked),
            account(&self.accounts[1], -1, &[]),
        )
    }

    /// The credentials file of a user of an account.
    fn credentials(&self, account: usize, user: &KeyPair) -> String {
        let claims = json!({"type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1});
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            token(&self.accounts[account], &user.public_key(), &claims),
            user.seed().unwrap()
        )
    }
}

async fn connect(rig: &Rig, credentials: &str) -> Connection {
    let files = Files::Memory([(file_names::CREDENTIALS.to_owned(), credentials.as_bytes().to_vec())].into());
    let settings = ConnectSettings { credentials: files, ..ConnectSettings::new([rig.nats.url()], "tests") };
    Connection::connect(settings).await.expect("the server accepts this user")
}

#[tokio::test]
async fn accounts_stay_apart_and_rotated_credentials_are_used_without_a_restart() {
    let authority = Authority::new();
    let nats = NatsServer::builder(LATEST).config(&authority.config(&[])).start().await;
    let mut rig = Rig::prepare("accounts", nats).await;
    let operator = rig.operator().await;
    let users = [KeyPair::new_user(), KeyPair::new_user()];
    let credentials = [authority.credentials(0, &users[0]), authority.credentials(1, &users[1])];
    // The same stream, bucket and partitions in both: whoever used the other's connection would meet the other's.
    for (index, set) in ["first", "second"].into_iter().enumerate() {
        let secret = format!("{set}-creds");
        rig.secret(&secret, json!({"user.creds": credentials[index]})).await;
        let mut spec = rig.spec(2);
        spec["nats"]["credentialsSecretRef"] = json!({"name": secret, "key": "user.creds"});
        rig.create(set, spec).await.unwrap();
    }
    for set in ["first", "second"] {
        rig.wait_lanes(set).await;
    }
    for (index, set) in ["first", "second"].into_iter().enumerate() {
        let theirs = connect(&rig, &credentials[index]).await;
        let found = observe::consumers(&theirs, "ORDERS").await.unwrap();
        assert_eq!(found.len(), 2, "{set}");
        assert!(
            found.iter().all(|one| rig.name(set).parse_consumer(&one.name).is_some()),
            "{set}: {found:?}"
        );
    }

    // A new user for the first account; the old one is revoked.
    let new = authority.credentials(0, &KeyPair::new_user());
    let revoked = authority.config(&[users[0].public_key()]);
    rig.nats.reload_with(|settings| settings.config(&revoked));
    rig.wait_condition("first", "Ready", "False/AuthorizationFailed").await;
    rig.secret("first-creds", json!({"user.creds": new})).await;
    rig.wait_lanes("first").await;

    // It works with the new one: drift is repaired again.
    let theirs = connect(&rig, &new).await;
    let name = rig.name("first").consumer(0, 1);
    let gone: Value = theirs.api(&format!("CONSUMER.DELETE.ORDERS.{name}"), &Value::Null).await.unwrap();
    assert_eq!(gone["success"], true);
    wait_until(DEADLINE, "a successor in the first account", || async {
        let found = observe::consumers(&theirs, "ORDERS").await.map_err(|error| error.to_string())?;
        let right = found.len() == 2 && found.iter().all(|one| one.name != name);
        if right { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    rig.wait_lanes("second").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_secret_that_goes_before_its_set_does_not_keep_consumers_from_being_deleted() {
    let authority = Authority::new();
    let nats = NatsServer::builder(LATEST).config(&authority.config(&[])).start().await;
    let rig = Rig::prepare("secret-first", nats).await;
    let operator = rig.operator().await;
    let credentials = authority.credentials(0, &KeyPair::new_user());
    rig.secret("creds", json!({"user.creds": credentials})).await;
    let mut spec = rig.spec(2);
    spec["nats"]["credentialsSecretRef"] = json!({"name": "creds", "key": "user.creds"});
    spec["deletionPolicy"] = json!("Delete");
    rig.create("orders", spec).await.unwrap();
    rig.wait_lanes("orders").await;
    let theirs = connect(&rig, &credentials).await;
    assert_eq!(observe::consumers(&theirs, "ORDERS").await.unwrap().len(), 2);
    // As when a whole namespace is deleted: nobody chooses the order.
    let secrets: Api<Secret> = Api::namespaced(rig.client.clone(), &rig.namespace);
    secrets.delete("creds", &DeleteParams::default()).await.unwrap();
    rig.delete("orders").await;
    rig.wait_gone("orders").await;
    assert_eq!(observe::consumers(&theirs, "ORDERS").await.unwrap().len(), 0);
    operator.stop().await;
}
