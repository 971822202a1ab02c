//! Creating streams: strictly, whose they are, and subjects that belong to someone else.

use lanekeeper_core::stream::{Judgement, Retention, StreamSpec, judge};
use lanekeeper_nats::{Cause, observe, provision};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS};
use serde_json::json;

use crate::common::{by_hand, connect, mapping, orders, owner, stream_spec};

#[tokio::test]
async fn a_stream_is_made_with_its_mapping_in_one_step_and_the_same_again_is_no_new_one() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let spec = stream_spec(mapping("ORDERS", "orders.*", &[1], 1024));
        assert_eq!(observe::stream(&connection, "ORDERS").await.expect("no error"), None);
        let first =
            provision::create_stream(&connection, &spec, &owner("orders")).await.expect("it can be made");
        let again =
            provision::create_stream(&connection, &spec, &owner("orders")).await.expect("it is the same");
        assert!(first.new && !again.new, "{version}");
        assert_eq!(first.stream.created, again.stream.created, "{version}");
        assert_eq!(judge(&spec, &owner("orders"), &again.stream), Judgement::Ours(vec![]), "{version}");
        assert_eq!(
            judge(&spec, &owner("billing"), &again.stream),
            Judgement::Joined(owner("orders")),
            "{version}"
        );
        let sent = connection.context().publish("orders.a", "".into()).await.expect("it can be sent");
        assert_eq!(sent.await.expect("it is stored").sequence, 1);
        let found =
            observe::stream(&connection, "ORDERS").await.expect("it can be read").expect("it is there");
        assert_eq!((found.messages, found.last_sequence), (1, 1), "{version}");
    }
}

#[tokio::test]
async fn of_two_sets_that_make_one_stream_at_once_one_owns_it() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let spec = stream_spec(mapping("ORDERS", "orders.*", &[1], 4));
        let (orders, billing) = (owner("orders"), owner("billing"));
        let (one, two) = tokio::join!(
            provision::create_stream(&connection, &spec, &orders),
            provision::create_stream(&connection, &spec, &billing)
        );
        let (winner, lost) = match (one, two) {
            (Ok(won), Err(lost)) => ((orders, won), lost),
            (Err(lost), Ok(won)) => ((billing, won), lost),
            other => panic!("{version}: exactly one must win: {other:?}"),
        };
        assert!(winner.1.new, "{version}");
        assert_eq!(lost.cause(), Cause::StreamConfigConflict, "{version}: {lost}");
        let found =
            observe::stream(&connection, "ORDERS").await.expect("it can be read").expect("it is there");
        assert_eq!(judge(&spec, &winner.0, &found), Judgement::Ours(vec![]), "{version}");
    }
}

#[tokio::test]
async fn subjects_of_another_stream_are_said_with_its_name_and_the_code_and_heal() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let other = json!({"name": "LEGACY", "subjects": ["orders.eu.>", "orders.eu"]});
        by_hand(&connection, "STREAM.CREATE.LEGACY", &other).await.expect("anybody may");
        let spec = stream_spec(mapping("ORDERS", "orders.*", &[1], 4));
        let error =
            provision::create_stream(&connection, &spec, &owner("orders")).await.expect_err("they overlap");
        assert_eq!(error.cause(), Cause::SubjectsOverlap, "{version}: {error}");
        assert!(
            error.to_string().contains("LEGACY") && error.to_string().contains("10065"),
            "{version}: {error}"
        );
        let legacy =
            observe::stream(&connection, "LEGACY").await.expect("it can be read").expect("it is there");
        assert_eq!(
            legacy.subjects,
            ["orders.eu.>", "orders.eu"],
            "{version}: nothing of the other was changed"
        );
        by_hand(&connection, "STREAM.DELETE.LEGACY", &serde_json::Value::Null).await.expect("anybody may");
        provision::create_stream(&connection, &spec, &owner("orders")).await.expect("the overlap is gone");
    }
}

#[tokio::test]
async fn subjects_that_our_lanes_are_stored_under_may_belong_to_another_stream() {
    // Stored subjects are not published, so another stream's subjects do not overlap with them.
    let server = NatsServer::start(LATEST).await;
    let connection = connect(&server).await;
    let other = json!({"name": "LANES", "subjects": ["lanes.>"]});
    by_hand(&connection, "STREAM.CREATE.LANES", &other).await.expect("anybody may");
    orders(&connection).await;
    let sent = connection.context().publish("orders.a", "".into()).await.expect("it can be sent");
    assert_eq!(sent.await.expect("it is stored").stream, "ORDERS");
}

#[tokio::test]
async fn what_one_server_cannot_place_is_said_with_its_code() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let spec = StreamSpec { replicas: 3, ..stream_spec(mapping("ORDERS", "orders.*", &[1], 4)) };
        let error =
            provision::create_stream(&connection, &spec, &owner("orders")).await.expect_err("one server");
        assert_eq!(error.cause(), Cause::InsufficientResources, "{version}: {error}");
        assert!(error.to_string().contains("10074"), "{version}: {error}");
        assert_eq!(observe::stream(&connection, "ORDERS").await.expect("no error"), None, "{version}");
    }
}

#[tokio::test]
async fn a_stream_of_a_person_and_a_work_queue_of_another_set_are_not_ours() {
    let server = NatsServer::start(LATEST).await;
    let connection = connect(&server).await;
    let theirs = json!({"name": "ORDERS", "subjects": ["orders.*"]});
    by_hand(&connection, "STREAM.CREATE.ORDERS", &theirs).await.expect("anybody may");
    let spec = stream_spec(mapping("ORDERS", "orders.*", &[1], 4));
    let found = observe::stream(&connection, "ORDERS").await.expect("it can be read").expect("it is there");
    assert_eq!(judge(&spec, &owner("orders"), &found), Judgement::NotOwned);
    let spec =
        StreamSpec { retention: Retention::WorkQueue, ..stream_spec(mapping("JOBS", "jobs.*", &[1], 4)) };
    let made = provision::create_stream(&connection, &spec, &owner("jobs")).await.expect("it can be made");
    assert_eq!(judge(&spec, &owner("billing"), &made.stream), Judgement::WorkQueueTaken(owner("jobs")));
}
