//! Who we are to the server: credentials files, keys, tokens and certificates, each against a server that asks for it.

use std::{collections::BTreeMap, path::Path, process::Command};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use lanekeeper_nats::{Cause, ConnectSettings, Connection, Files, observe};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS};
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::common::settings;

fn files<const N: usize>(entries: [(&str, String); N]) -> Files {
    Files::Memory(entries.map(|(name, text)| (name.to_owned(), text.into_bytes())).into())
}

/// The same files, as a mounted Secret has them.
fn folder(files: &Files) -> (tempfile::TempDir, Files) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let Files::Memory(entries) = files else { panic!("they are in memory") };
    for (name, content) in entries {
        std::fs::write(folder.path().join(name), content).expect("it can be written");
    }
    let files = Files::Folder(folder.path().into());
    (folder, files)
}

async fn works(settings: ConnectSettings) {
    let connection = Connection::connect(settings).await.expect("the server accepts us");
    observe::facts(&connection).await.expect("we may ask");
}

fn key(pair: &KeyPair) -> String {
    pair.seed().expect("a new pair has its seed")
}

/// A claim, signed as NATS signs them: <https://docs.nats.io/running-a-nats-service/nats_admin/security/jwt>.
fn token(issuer: &KeyPair, subject: &KeyPair, nats: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(&json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let claims = json!({
        "jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": "test",
        "nats": nats,
    });
    let signed = format!("{header}.{}", part(&claims));
    let signature = issuer.sign(signed.as_bytes()).expect("the issuer has a seed");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn account(operator: &KeyPair, account: &KeyPair, storage: i64) -> String {
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
        "leaf": -1, "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage,
    });
    token(operator, account, &json!({"type": "account", "version": 2, "limits": limits}))
}

#[tokio::test]
async fn a_credentials_file_of_an_operator_works_from_memory_and_from_a_folder() {
    let (operator, system, ours, user) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account(), KeyPair::new_user());
    let config = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload {{\n  {}: {}\n  {}: {}\n}}",
        token(&operator, &operator, &json!({"type": "operator", "version": 2})),
        system.public_key(),
        system.public_key(),
        account(&operator, &system, 0),
        ours.public_key(),
        account(&operator, &ours, -1),
    );
    let claims =
        json!({"type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1});
    let creds = |user: &KeyPair, seed: &str| {
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n",
            token(&ours, user, &claims)
        )
    };
    let good = files([("user.creds", creds(&user, &key(&user)))]);
    let bad = files([("user.creds", creds(&user, &key(&KeyPair::new_user())))]);
    for version in VERSIONS {
        let server = NatsServer::builder(version).config(&config).start().await;
        let (_folder, mounted) = folder(&good);
        for credentials in [good.clone(), mounted] {
            works(ConnectSettings { credentials, ..settings(&server) }).await;
        }
        let settings = ConnectSettings { credentials: bad.clone(), ..settings(&server) };
        let error = Connection::connect(settings).await.expect_err("the signature is of another key");
        assert_eq!(error.cause(), Cause::AuthorizationFailed, "{version}: {error}");
    }
}

#[tokio::test]
async fn a_seed_and_a_token_work_from_memory_and_from_a_folder() {
    let pair = KeyPair::new_user();
    let by_key = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", pair.public_key());
    let rows = [
        (by_key, files([("nkey", key(&pair))]), files([("nkey", key(&KeyPair::new_user()))])),
        (
            "authorization { token: t0 }".to_owned(),
            files([("token", "t0".into())]),
            files([("token", "t1".into())]),
        ),
    ];
    for (config, good, bad) in rows {
        let server = NatsServer::builder(LATEST).config(&config).start().await;
        let (_folder, mounted) = folder(&good);
        for credentials in [good, mounted] {
            works(ConnectSettings { credentials, ..settings(&server) }).await;
        }
        let settings = ConnectSettings { credentials: bad, ..settings(&server) };
        let error = Connection::connect(settings).await.expect_err("it is another one");
        assert_eq!(error.cause(), Cause::AuthorizationFailed, "{error}");
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let run = Command::new("openssl").current_dir(folder).args(arguments.split(' ')).output();
    let run = run.expect("the program openssl is needed for certificates");
    assert!(run.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&run.stderr));
}

/// An authority `ca`, and a certificate of it for each name, good for this machine.
fn certificates(folder: &Path, names: &[&str]) {
    certificates_for(folder, names, "IP:127.0.0.1");
}

fn certificates_for(folder: &Path, names: &[&str], host: &str) {
    const KEYS: &str = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(
        folder,
        &format!("{KEYS} -keyout ca.key -out ca.crt -subj /CN=ca -addext basicConstraints=critical,CA:TRUE"),
    );
    for name in names {
        openssl(
            folder,
            &format!(
                "{KEYS} -keyout {name}.key -out {name}.crt -CA ca.crt -CAkey ca.key -subj /CN={name} \
                 -addext basicConstraints=critical,CA:FALSE -addext subjectAltName={host}"
            ),
        );
    }
}

#[tokio::test]
async fn certificates_of_an_own_authority_work_both_ways_and_wrong_ones_are_said() {
    let ours = tempfile::tempdir().expect("a folder can be made");
    let others = tempfile::tempdir().expect("a folder can be made");
    certificates(ours.path(), &["server", "client"]);
    certificates(others.path(), &["client"]);
    let at = ours.path().display();
    let config = format!(
        "tls {{ cert_file: \"{at}/server.crt\", key_file: \"{at}/server.key\", ca_file: \"{at}/ca.crt\", verify: true }}"
    );
    let server = NatsServer::builder(LATEST).config(&config).start().await;
    let read = |folder: &Path, name: &str| std::fs::read(folder.join(name)).expect("it was made");
    let tls = |authority: &Path, client: Option<&Path>| {
        let mut files = BTreeMap::from([("ca.crt".to_owned(), read(authority, "ca.crt"))]);
        if let Some(client) = client {
            files.insert("tls.crt".into(), read(client, "client.crt"));
            files.insert("tls.key".into(), read(client, "client.key"));
        }
        Files::Memory(files)
    };
    let good = tls(ours.path(), Some(ours.path()));
    let (_folder, mounted) = folder(&good);
    for tls in [good, mounted] {
        works(ConnectSettings { tls, ..settings(&server) }).await;
    }
    for (tls, words) in [
        (tls(others.path(), Some(ours.path())), "certificate"),
        (tls(ours.path(), None), "certificate"),
        (tls(ours.path(), Some(others.path())), ""),
    ] {
        let error = Connection::connect(ConnectSettings { tls, ..settings(&server) }).await;
        let error = error.expect_err("one of the two is not trusted");
        assert_eq!(error.cause(), Cause::NatsUnreachable, "{error}");
        assert!(error.to_string().to_lowercase().contains(words), "{error}");
    }
}

#[tokio::test]
async fn behind_a_forwarded_port_the_certificate_must_be_for_the_host_that_the_port_stands_for() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    certificates_for(folder.path(), &["server"], "DNS:nats.messaging.svc");
    let at = folder.path().display();
    let config = format!("tls {{ cert_file: \"{at}/server.crt\", key_file: \"{at}/server.key\" }}");
    let server = NatsServer::builder(LATEST).config(&config).start().await;
    let authority = std::fs::read(folder.path().join("ca.crt")).expect("it was made");
    let tls = Files::Memory(BTreeMap::from([("ca.crt".to_owned(), authority)]));
    let standing_for = |host: Option<&str>| ConnectSettings {
        tls: tls.clone(),
        stands_for: host.map(str::to_owned),
        ..settings(&server)
    };
    works(standing_for(Some("nats.messaging.svc"))).await;
    for other in [None, Some("nats.elsewhere.svc")] {
        let error = Connection::connect(standing_for(other)).await.expect_err("it is for another host");
        assert!(error.to_string().to_lowercase().contains("certificate"), "{other:?}: {error}");
    }
}
