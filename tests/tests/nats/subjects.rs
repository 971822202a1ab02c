//! Our hash, stored subjects and filters against what real servers do with the same mapping.

use std::collections::{BTreeMap, BTreeSet};

use async_nats::jetstream::consumer::pull;
use futures::{StreamExt, TryStreamExt, future::join_all};
use lanekeeper_core::{mapping::Mapping, share::shares};
use lanekeeper_nats::{Connection, observe, provision};
use lanekeeper_tests::{LATEST, NatsServer, VERSIONS};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};

use crate::common::{connect, consumer_spec, mapping, owner, stream_spec};

/// The same subjects on each run: a difference between runs would be a difference of the server.
fn generated(count: usize, tokens: usize) -> Vec<Vec<String>> {
    let seed = TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), seed);
    let token = prop_oneof![
        4 => "[a-z0-9_=-]{1,12}",
        2 => "[A-Za-z0-9$#@!%&()+,:;<?\\[\\]^`{|}~/'\"\\\\-]{1,20}",
        2 => "[\u{e4}\u{df}\u{142}\u{416}\u{6f22}\u{5b57}\u{1f600}a-z]{1,8}",
        1 => "[a-z0-9]{100}",
        1 => Just("0".to_owned()),
    ];
    let subject = prop::collection::vec(token, tokens);
    (0..count).map(|_| subject.new_tree(&mut runner).expect("any token will do").current()).collect()
}

/// Publishes to each subject, and what the stream stored them under, by the original's number.
async fn store(connection: &Connection, mapping: &Mapping, originals: &[String]) -> Vec<String> {
    let spec = stream_spec(mapping.clone());
    provision::create_stream(connection, &spec, &owner("orders"))
        .await
        .expect("the server accepts the mapping");
    for batch in originals.chunks(500) {
        let sent = batch.iter().map(|original| connection.context().publish(original.clone(), "".into()));
        for sent in join_all(sent).await {
            sent.expect("it can be sent").await.expect("it is stored");
        }
    }
    let stream = connection.context().get_stream(&mapping.stream).await.expect("it is there");
    let consumer = stream.create_consumer(pull::OrderedConfig::default());
    let messages = consumer.await.expect("it can be read").messages().await.expect("it can be read");
    let read: Vec<_> = messages.take(originals.len()).try_collect().await.expect("all of it can be read");
    let mut stored: Vec<(u64, String)> = read
        .iter()
        .map(|message| {
            (message.info().expect("it is of a stream").stream_sequence, message.subject.to_string())
        })
        .collect();
    stored.sort_unstable();
    stored.into_iter().map(|(_, subject)| subject).collect()
}

async fn agree(version: &str, server: &NatsServer, mapping: &Mapping, originals: &[String]) {
    let connection = connect(server).await;
    let mut expected: Vec<String> =
        originals.iter().map(|original| mapping.stored_subject(original).expect("it is mapped")).collect();
    let mut stored = store(&connection, mapping, originals).await;
    for subject in &stored {
        let original = mapping.original_subject(subject);
        assert!(original.is_some(), "{version}: {subject} has no original");
    }
    // Published at the same time, so the order of storing is not that of the list.
    expected.sort_unstable();
    stored.sort_unstable();
    for (expected, stored) in expected.iter().zip(&stored) {
        assert_eq!(expected, stored, "{version}, {mapping:?}");
    }
    assert_eq!(expected.len(), stored.len());
}

fn joined(prefix: &str, tokens: &[Vec<String>]) -> Vec<String> {
    tokens.iter().map(|tokens| format!("{prefix}{}", tokens.join("."))).collect()
}

#[tokio::test]
async fn thousands_of_subjects_are_stored_where_we_compute_on_every_server() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let one = joined("orders.", &generated(2000, 1));
        agree(version, &server, &mapping("ONE", "orders.*", &[1], 1024), &one).await;
        let two = joined("two.", &generated(1000, 2));
        agree(version, &server, &mapping("FORTH", "two.*.*", &[1, 2], 256), &two).await;
        let back: Vec<String> = two.iter().map(|subject| subject.replacen("two.", "back.", 1)).collect();
        agree(version, &server, &mapping("BACK", "back.*.*", &[2, 1], 256), &back).await;
        let rest = joined("rest.", &generated(500, 3));
        agree(version, &server, &mapping("REST", "rest.*.>", &[1], 16), &rest).await;
        let lone = joined("lone.", &generated(100, 1));
        agree(version, &server, &mapping("LONE", "lone.*", &[1], 1), &lone).await;
    }
}

#[tokio::test]
async fn four_wildcards_of_which_two_are_the_key_are_accepted_and_their_order_matters() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let originals = joined("ci.runs.", &generated(500, 4));
        let forth = mapping("FORTH", "ci.runs.*.*.*.*", &[3, 4], 4);
        agree(version, &server, &forth, &originals).await;
        let server = NatsServer::start(version).await;
        let back = mapping("BACK", "ci.runs.*.*.*.*", &[4, 3], 4);
        agree(version, &server, &back, &originals).await;
        let moved = originals.iter().filter(|one| forth.key_hash(one) != back.key_hash(one)).count();
        assert!(moved > 400, "the order of key tokens must matter, but only {moved} of 500 keys differ");
    }
}

#[tokio::test]
async fn equal_first_tokens_go_to_one_partition_by_the_first_and_to_all_by_both() {
    let originals: Vec<String> = (1..=40).map(|id| format!("foo.same.{id}")).collect();
    for version in VERSIONS {
        for (tokens, partitions) in [(&[1][..], 1), (&[1, 2], 4)] {
            let server = NatsServer::start(version).await;
            let mapping = mapping("FOO", "foo.*.*", tokens, 4);
            let stored = store(&connect(&server).await, &mapping, &originals).await;
            let used: BTreeSet<&str> =
                stored.iter().map(|subject| &subject[.."lanes.FOO.0.0".len()]).collect();
            assert_eq!(used.len(), partitions, "{version}, {tokens:?}: {used:?}");
        }
    }
}

#[tokio::test]
async fn the_filters_of_any_number_of_partitions_share_the_messages_out_without_rest_or_overlap() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let connection = connect(&server).await;
        let mapping = mapping("ORDERS", "orders.*", &[1], 16);
        let originals = joined("orders.", &generated(600, 1));
        store(&connection, &mapping, &originals).await;
        for partitions in [1, 2, 3, 5, 8, 13, 16] {
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for share in shares(partitions) {
                let spec = consumer_spec(&mapping, share, u64::from(partitions));
                let hashes = originals.iter().filter_map(|one| mapping.key_hash(one));
                let count = hashes.filter(|hash| share.contains_hash(*hash)).count();
                expected.insert(spec.name.clone(), count as u64);
                provision::create_consumer(&connection, "ORDERS", &spec).await.expect("it can be made");
            }
            let found = observe::consumers(&connection, "ORDERS").await.expect("they can be listed");
            let mine = found.iter().filter(|one| expected.contains_key(&one.name));
            let pending: BTreeMap<String, u64> = mine.map(|one| (one.name.clone(), one.pending)).collect();
            assert_eq!(pending, expected, "{version}, {partitions} partitions");
            assert_eq!(pending.values().sum::<u64>(), originals.len() as u64);
        }
    }
}

#[tokio::test]
async fn a_source_that_begins_with_a_wildcard_is_refused_by_servers_with_words() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let spec = stream_spec(mapping("WHOLE", "*.whole", &[1], 8));
        let error = provision::create_stream(&connect(&server).await, &spec, &owner("orders")).await;
        // It would take the server's own subjects as well.
        let error = error.expect_err("it overlaps with the API").to_string();
        assert!(error.contains("10052") && error.contains("jetstream api"), "{version}: {error}");
    }
}

#[tokio::test]
async fn a_message_whose_subject_the_mapping_does_not_match_reaches_no_lane() {
    let server = NatsServer::start(LATEST).await;
    let connection = connect(&server).await;
    let spec = lanekeeper_core::stream::StreamSpec {
        subjects: vec!["orders.>".into()],
        ..stream_spec(mapping("ORDERS", "orders.*", &[1], 4))
    };
    provision::create_stream(&connection, &spec, &owner("orders")).await.expect("it can be made");
    let acknowledged = connection.context().publish("orders.a.b", "".into()).await.expect("it can be sent");
    acknowledged.await.expect("the server says nothing against it");
    let stream = connection.context().get_stream("ORDERS").await.expect("it is there");
    let config = pull::Config { filter_subject: "orders.a.b".into(), ..pull::Config::default() };
    let unmapped = stream.create_consumer(config).await.expect("it can be read");
    assert_eq!(unmapped.cached_info().num_pending, 1);
    assert_eq!(spec.mapping.stored_subject("orders.a.b"), None);
    assert_eq!(spec.mapping.original_subject("orders.a.b"), None);
}
