//! Keys, tokens and destinations on a real server.

use std::collections::BTreeSet;

use async_nats::jetstream;
use lanekeeper_core::{mapping::Mapping, share::partition_of, subject::SubjectPattern};
use serde_json::{Value, json};

use crate::rig::Rig;

fn spec(rig: &Rig, partitions: u32, stream: &str, subject: &str, tokens: &[i64]) -> Value {
    let mut spec = rig.spec(partitions);
    spec["stream"] = json!({"name": stream, "subjects": [subject], "storage": "Memory"});
    spec["mapping"] = json!({"subject": subject, "keyTokens": tokens, "maxPartitions": 8});
    spec
}

/// Publishes and says which partitions of the set have messages waiting.
async fn publish(rig: &Rig, set: &str, stream: &str, subjects: &[String]) -> BTreeSet<u32> {
    let context = jetstream::new(rig.nats.client().await);
    for subject in subjects {
        context.publish(subject.clone(), "".into()).await.unwrap().await.unwrap();
    }
    let found = rig.consumers_of(set, stream).await;
    assert_eq!(found.iter().map(|one| one.pending).sum::<u64>(), subjects.len() as u64);
    let with_messages = found.iter().filter(|one| one.pending > 0);
    with_messages.map(|one| rig.name(set).parse_consumer(&one.name).unwrap().0).collect()
}

#[tokio::test]
async fn the_tokens_that_are_named_decide_and_server_filter_and_our_hash_agree() {
    let (rig, operator) = Rig::start("tokens").await;
    for (set, stream, root, tokens, expected) in
        [("first", "FIRST", "foo", vec![1], 1), ("both", "BOTH", "bar", vec![1, 2], 4)]
    {
        let subject = format!("{root}.*.*");
        rig.create(set, spec(&rig, 4, stream, &subject, &tokens)).await.unwrap();
        rig.wait_lanes(set).await;
        let subjects: Vec<String> = (0..40).map(|number| format!("{root}.same.{number}")).collect();
        let with_messages = publish(&rig, set, stream, &subjects).await;
        assert_eq!(with_messages.len(), expected, "{with_messages:?}");
        let mapping = Mapping::new(stream, SubjectPattern::parse(&subject).unwrap(), &tokens, 8).unwrap();
        let ours: BTreeSet<u32> =
            subjects.iter().map(|subject| partition_of(mapping.key_hash(subject).unwrap(), 4)).collect();
        assert_eq!(ours, with_messages);
    }
    operator.stop().await;
}

#[tokio::test]
async fn every_wildcard_is_kept_and_the_order_of_tokens_is_a_mapping_of_its_own() {
    let (rig, operator) = Rig::start("wildcards").await;
    let subject = "ci.runs.*.*.*.*";
    rig.create("runs", spec(&rig, 3, "RUNS", subject, &[3, 4])).await.unwrap();
    rig.wait_lanes("runs").await;
    let (_, destination) = rig.stream("RUNS").await.unwrap().transform.unwrap();
    let kept = "ci.runs.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}.{{wildcard(4)}}";
    assert!(destination.ends_with(kept), "{destination}");
    let subjects: Vec<String> = (0..30).map(|number| format!("ci.runs.a.b.c{number}.d")).collect();
    publish(&rig, "runs", "RUNS", &subjects).await;
    let mapping = Mapping::new("RUNS", SubjectPattern::parse(subject).unwrap(), &[3, 4], 8).unwrap();
    let context = jetstream::new(rig.nats.client().await);
    let stream = context.get_stream("RUNS").await.unwrap();
    for (number, original) in subjects.iter().enumerate() {
        let stored = stream.get_raw_message(number as u64 + 1).await.unwrap().subject.to_string();
        assert_eq!(mapping.stored_subject(original).as_deref(), Some(stored.as_str()));
        assert_eq!(mapping.original_subject(&stored), Some(original.as_str()));
    }
    // The other order is another mapping: refused on this stream, by name.
    rig.create("reversed", spec(&rig, 3, "RUNS", subject, &[4, 3])).await.unwrap();
    let message = rig.wait_condition("reversed", "StreamReady", "False/StreamConfigConflict").await;
    assert!(message.contains("key-tokens"), "{message}");
    operator.stop().await;
}

#[tokio::test]
async fn messages_that_no_lane_would_see_and_limits_that_discard_are_said() {
    let (rig, operator) = Rig::start("degraded").await;
    let mut wide = spec(&rig, 1, "WIDE", "wide.*", &[1]);
    wide["stream"]["subjects"] = json!(["wide.*", "other.>"]);
    rig.create("wide", wide).await.unwrap();
    let message = rig.wait_condition("wide", "Degraded", "True/UnmappedMessages").await;
    assert!(message.contains("other.>"), "{message}");
    let mut limited = spec(&rig, 1, "LIMITED", "limited.*", &[1]);
    limited["stream"]["maxMessages"] = json!(10);
    rig.create("limited", limited).await.unwrap();
    let message = rig.wait_condition("limited", "Degraded", "True/RetentionMayDiscard").await;
    assert!(message.contains("spec.stream.maxMessages"), "{message}");
    operator.stop().await;
}
