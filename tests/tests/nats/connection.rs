//! The connection: why it is not there, credentials that change, and healing by itself.

use std::{collections::BTreeMap, path::Path, time::Duration};

use lanekeeper_nats::{Cause, ConnectSettings, Connection, ConnectionEvent, Files};
use lanekeeper_tests::{LATEST, NatsServer, TcpProxy, wait_until};
use serde_json::Value;

use crate::common::{DEADLINE, settings};

fn user(name: &str, password: &str) -> Files {
    let files = [("user", name), ("password", password)];
    Files::Memory(files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into())
}

fn write_user(folder: &Path, name: &str, password: &str) {
    std::fs::write(folder.join("user"), name).expect("it can be written");
    std::fs::write(folder.join("password"), password).expect("it can be written");
}

const USERS: &str = "authorization { users: [ { user: a, password: old }, { user: b, password: b } ] }";

#[tokio::test]
async fn why_there_is_no_connection_is_said_with_its_cause() {
    let server = NatsServer::builder(LATEST).config(USERS).start().await;
    let mut nobody = NatsServer::start(LATEST).await;
    nobody.kill();
    let rows = [
        (
            ConnectSettings { credentials: user("a", "wrong"), ..settings(&server) },
            Cause::AuthorizationFailed,
            "authorization",
        ),
        (settings(&server), Cause::AuthorizationFailed, "authorization"),
        (settings(&nobody), Cause::NatsUnreachable, "refused"),
        (
            ConnectSettings::new(["nats://no-such-host.invalid:4222"], "tests"),
            Cause::NatsUnreachable,
            "no-such-host",
        ),
        (ConnectSettings::new(["http:// x"], "tests"), Cause::NatsUnreachable, "nats://host:port"),
        (
            ConnectSettings {
                credentials: Files::Memory(BTreeMap::from([("user.creds".into(), b"x".to_vec())])),
                ..settings(&server)
            },
            Cause::CredentialsInvalid,
            "user.creds",
        ),
        (
            ConnectSettings {
                tls: Files::Memory(BTreeMap::from([("ca.crt".into(), b"x".to_vec())])),
                ..settings(&server)
            },
            Cause::CredentialsInvalid,
            "ca.crt",
        ),
    ];
    for (settings, cause, words) in rows {
        let error = Connection::connect(settings).await.expect_err("it must fail");
        assert_eq!(error.cause(), cause, "{error}");
        assert!(error.to_string().to_lowercase().contains(words), "{error}");
    }
}

#[tokio::test]
async fn credentials_in_a_folder_are_read_again_at_each_connect() {
    let mut server = NatsServer::builder(LATEST).config(USERS).start().await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    write_user(folder.path(), "a", "old");
    let settings = ConnectSettings { credentials: Files::Folder(folder.path().into()), ..settings(&server) };
    let connection = Connection::connect(settings).await.expect("the password is right");
    server.restart_with(|builder| builder.config(&USERS.replace("old", "new"))).await;
    wait_until(DEADLINE, "the refusal to be said", || async {
        connection.health().cause() == Cause::AuthorizationFailed
    })
    .await;
    assert!(!connection.health().connected);
    write_user(folder.path(), "a", "new");
    wait_until(DEADLINE, "the connection to heal by itself", || async { connection.health().connected })
        .await;
    connection.api::<Value>("INFO", &Value::Null).await.expect("it works again");
}

#[tokio::test]
async fn a_connection_can_start_before_its_server_and_before_its_credentials() {
    let mut server = NatsServer::builder(LATEST).config(USERS).start().await;
    server.kill();
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(folder.path().join("user"), "a").expect("it can be written");
    let settings = ConnectSettings {
        credentials: Files::Folder(folder.path().into()),
        request_timeout: Duration::from_millis(200),
        ..settings(&server)
    };
    let connection = Connection::start(settings).await.expect("only settings could fail");
    let mut events = connection.events();
    let unreachable = || async { connection.health().last_error.filter(|text| text.contains("refused")) };
    wait_until(DEADLINE, "the reason to be said", unreachable).await;
    let error = connection.api::<Value>("INFO", &Value::Null).await.expect_err("there is no server");
    assert_eq!(error.cause(), Cause::NatsUnreachable, "{error}");
    server.start_again().await;
    wait_until(DEADLINE, "the missing password to be said", || async {
        connection.health().last_error.filter(|text| text.contains("password"))
    })
    .await;
    assert_eq!(connection.health().cause(), Cause::CredentialsInvalid);
    std::fs::write(folder.path().join("password"), "old").expect("it can be written");
    wait_until(DEADLINE, "the connection to come up", || async { connection.health().connected }).await;
    assert_eq!(events.try_recv(), Ok(ConnectionEvent::Connected));
}

#[tokio::test]
async fn twenty_lost_connections_are_twenty_reconnects() {
    let server = NatsServer::start(LATEST).await;
    let proxy = TcpProxy::start(server.address()).await;
    let connection =
        Connection::connect(ConnectSettings::new([proxy.url()], "tests")).await.expect("it connects");
    for round in 1..=20 {
        wait_until(DEADLINE, "the connection", || async { connection.health().connects == round }).await;
        connection.api::<Value>("INFO", &Value::Null).await.expect("it works");
        proxy.cut();
    }
}
