//! No `JetStream` where it was asked for: the truth about it, and healing without a new connection.

use lanekeeper_nats::{Bucket, Cause, ConnectSettings, Connection, Files, observe};
use lanekeeper_tests::{LATEST, NatsServer, ServerBuilder, TOO_OLD, VERSIONS, wait_until};

use crate::common::{DEADLINE, settings, woken};

fn user(server: &NatsServer, name: &str) -> ConnectSettings {
    let files = [("user", name), ("password", name)];
    let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    ConnectSettings {
        credentials: Files::Memory(files.into()),
        request_timeout: std::time::Duration::from_secs(2),
        ..settings(server)
    }
}

async fn refused(connection: &Connection, cause: Cause) -> String {
    let error = observe::facts(connection).await.expect_err("there is no JetStream");
    assert_eq!(error.cause(), cause, "{error}");
    error.to_string()
}

async fn heals(connection: &Connection) {
    wait_until(DEADLINE, "JetStream through the same connection", || observe::facts(connection)).await;
    let bucket = Bucket::new(connection.clone(), "lanekeeper");
    wait_until(DEADLINE, "the bucket", || bucket.ensure(1)).await;
}

#[tokio::test]
async fn a_server_without_jetstream() {
    for version in VERSIONS {
        let mut server = NatsServer::builder(version).without_jetstream().start().await;
        let connection = Connection::connect(settings(&server)).await.expect("NATS itself is there");
        let words = refused(&connection, Cause::JetStreamUnavailable).await;
        assert!(words.contains(&server.url()) && words.contains("JetStream"), "{version}: {words}");
        server.restart_with(|builder| builder.jetstream("")).await;
        heals(&connection).await;
    }
}

const WITHOUT: &str = r"
    accounts {
        A { users: [{ user: a, password: a }] }
        B { jetstream: enabled, users: [{ user: b, password: b }] }
    }";

#[tokio::test]
async fn an_account_without_jetstream() {
    for version in VERSIONS {
        let mut server = NatsServer::builder(version).config(WITHOUT).start().await;
        let connection = Connection::connect(user(&server, "a")).await.expect("NATS itself is there");
        let words = refused(&connection, Cause::JetStreamUnavailable).await;
        assert!(words.contains("account"), "{version}: {words}");
        // Another account of the same server has it.
        let other = Connection::connect(user(&server, "b")).await.expect("NATS itself is there");
        observe::facts(&other).await.expect("this account has it");
        let with =
            |builder: ServerBuilder| builder.config(&WITHOUT.replace("A {", "A { jetstream: enabled,"));
        server.restart_with(with).await;
        heals(&connection).await;
    }
}

#[tokio::test]
async fn a_wrong_domain() {
    for version in VERSIONS {
        let mut server = NatsServer::builder(version).jetstream("domain: spoke").start().await;
        let wrong = ConnectSettings { domain: Some("hub".into()), ..settings(&server) };
        let connection = Connection::connect(wrong).await.expect("NATS itself is there");
        let words = refused(&connection, Cause::JetStreamUnavailable).await;
        assert!(words.contains("'hub'") && words.contains("$JS.hub.API"), "{version}: {words}");
        let right = ConnectSettings { domain: Some("spoke".into()), ..settings(&server) };
        let right = Connection::connect(right).await.expect("NATS itself is there");
        assert_eq!(observe::facts(&right).await.expect("it is there").domain.as_deref(), Some("spoke"));
        // Everything of a bucket works through a domain.
        let bucket = Bucket::new(right, "lanekeeper");
        bucket.ensure(1).await.expect("it can be made");
        let mut wakeups = bucket.wakeups("set.>").await.expect("it can subscribe");
        let revision = bucket.create("set.k", "a".into()).await.expect("it is free");
        assert_eq!(woken(&mut wakeups).await, "set.k");
        assert_eq!(bucket.load("set.").await.expect("it can be read")[0].revision, revision);
        server.restart_with(|builder| builder.jetstream("domain: hub")).await;
        heals(&connection).await;
    }
}

const DENIED: &str = r#"
    accounts { A { jetstream: enabled, users: [
        { user: a, password: a, permissions { publish: ["news.>"], subscribe: [">"] } }
    ] } }"#;

#[tokio::test]
async fn a_user_without_rights_to_the_api() {
    for version in VERSIONS {
        let mut server = NatsServer::builder(version).config(DENIED).start().await;
        // Longer than the test may take: the denial must be said at once, not after a time-out.
        let patient = ConnectSettings { request_timeout: DEADLINE * 10, ..user(&server, "a") };
        let connection = Connection::connect(patient).await.expect("NATS itself is there");
        let words = refused(&connection, Cause::PermissionDenied).await;
        assert!(words.contains("$JS.API.INFO"), "{version}: {words}");
        let with = |builder: ServerBuilder| builder.config(&DENIED.replace("news.>", ">"));
        server.restart_with(with).await;
        heals(&connection).await;
    }
}

const NO_INBOX: &str = r#"
    accounts { A { jetstream: enabled, users: [
        { user: a, password: a, permissions { publish: [">"], subscribe: ["news.>"] } }
    ] } }"#;

#[tokio::test]
async fn a_user_that_may_ask_but_not_hear_the_answer() {
    let server = NatsServer::builder(LATEST).config(NO_INBOX).start().await;
    let patient = ConnectSettings { request_timeout: DEADLINE * 10, ..user(&server, "a") };
    let connection = Connection::connect(patient).await.expect("NATS itself is there");
    let words = refused(&connection, Cause::PermissionDenied).await;
    assert!(words.contains("Subscription to \"_INBOX."), "{words}");
}

#[tokio::test]
async fn facts_say_the_version_and_its_level() {
    for (version, level) in VERSIONS.into_iter().zip([1, 2, 3]) {
        let server = NatsServer::start(version).await;
        let connection = Connection::connect(settings(&server)).await.expect("it connects");
        let facts = observe::facts(&connection).await.expect("it is new enough");
        assert!(facts.version.starts_with(version) && facts.api_level >= level, "{facts:?}");
        assert_eq!(facts.max_consumers, None);
    }
}

#[tokio::test]
async fn an_old_server_is_refused_by_version() {
    let server = NatsServer::start(TOO_OLD).await;
    let connection = Connection::connect(settings(&server)).await.expect("it connects");
    let words = refused(&connection, Cause::ServerTooOld).await;
    assert!(words.contains("version 2.10.") && words.contains("2.11 is the oldest"), "{words}");
}
