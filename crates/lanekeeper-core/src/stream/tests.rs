//! Each field of a stream that matters, changed on its own, and whose stream it is.

use super::*;
use crate::subject::SubjectPattern;

fn mapping(source: &str, tokens: &[i64]) -> Mapping {
    Mapping::new("ORDERS", SubjectPattern::parse(source).unwrap(), tokens, 4).unwrap()
}

fn spec() -> StreamSpec {
    StreamSpec {
        mapping: mapping("orders.*", &[1]),
        subjects: vec!["orders.*".into(), "extra.>".into()],
        replicas: 1,
        storage: Storage::File,
        retention: Retention::Limits,
        max_age_seconds: Some(3600),
        max_bytes: None,
        max_messages: Some(1000),
        duplicate_window_seconds: Some(60),
    }
}

fn us() -> StreamOwner {
    StreamOwner { id: "c1/shop/orders".into(), uid: "u1".into() }
}

fn as_specified() -> StreamFound {
    let spec = spec();
    StreamFound {
        name: "ORDERS".into(),
        created: "2026-01-01T00:00:00Z".into(),
        subjects: vec!["extra.>".into(), "orders.*".into()],
        transform: Some(("orders.*".into(), spec.mapping.destination())),
        replicas: 1,
        storage: "file".into(),
        retention: "limits".into(),
        max_age_seconds: 3600,
        max_bytes: -1,
        max_messages: 1000,
        max_messages_per_subject: -1,
        no_ack: false,
        sealed: false,
        consumer_limits: String::new(),
        duplicate_window_seconds: 60,
        sourced: false,
        metadata: metadata_of(&spec, &us()),
        first_sequence: 1,
        last_sequence: 0,
        messages: 0,
    }
}

#[test]
fn our_stream_as_specified_needs_nothing_and_foreign_metadata_is_no_drift() {
    let mut found = as_specified();
    found.metadata.insert("team".into(), "billing".into());
    found.metadata.insert("_nats.level".into(), "1".into());
    assert_eq!(judge(&spec(), &us(), &found), Judgement::Ours(vec![]));
}

#[test]
fn every_field_that_matters_is_found_alone() {
    type Change = fn(&mut StreamFound);
    let rows: [(&str, bool, Change); 17] = [
        ("storage", false, |found| found.storage = "memory".into()),
        ("retention", false, |found| found.retention = "interest".into()),
        ("sources", false, |found| found.sourced = true),
        ("sealed", false, |found| found.sealed = true),
        ("subject_transform", true, |found| found.transform = None),
        ("subject_transform", true, |found| {
            found.transform = Some(("orders.*".into(), "x.{{wildcard(1)}}".into()));
        }),
        ("subjects", true, |found| found.subjects.truncate(1)),
        ("num_replicas", true, |found| found.replicas = 3),
        ("max_age", true, |found| found.max_age_seconds = 1),
        ("max_bytes", true, |found| found.max_bytes = 10),
        ("max_msgs", true, |found| found.max_messages = -1),
        ("max_msgs_per_subject", true, |found| found.max_messages_per_subject = 1),
        ("no_ack", true, |found| found.no_ack = true),
        ("consumer_limits", true, |found| found.consumer_limits = "{\"max_ack_pending\":5}".into()),
        ("duplicate_window", true, |found| found.duplicate_window_seconds = 120),
        ("metadata", true, |found| drop(found.metadata.remove(metadata::KEY_TOKENS))),
        ("metadata", false, |found| drop(found.metadata.insert(metadata::KEY_TOKENS.into(), "2".into()))),
    ];
    for (field, repairable, change) in rows {
        let mut found = as_specified();
        change(&mut found);
        let drift = drift(&spec(), &us(), &found);
        assert_eq!(
            drift.iter().map(|one| (one.field, one.repairable)).collect::<Vec<_>>(),
            [(field, repairable)]
        );
        let judgement = judge(&spec(), &us(), &found);
        let expected =
            if repairable { Judgement::Ours(drift.clone()) } else { Judgement::Conflict(drift.clone()) };
        assert_eq!(judgement, expected, "{field}");
        // Another set may not repair it, so for that one each difference is a conflict.
        let other = StreamOwner { id: "c1/shop/billing".into(), uid: "u2".into() };
        assert_eq!(judge(&spec(), &other, &found), Judgement::Conflict(drift), "{field}");
    }
}

#[test]
fn an_equal_set_joins_and_takes_over_by_changing_only_the_owner() {
    let other = StreamOwner { id: "c1/shop/billing".into(), uid: "u2".into() };
    assert_eq!(judge(&spec(), &other, &as_specified()), Judgement::Joined(us()));
    let takeover = drift(&spec(), &other, &as_specified());
    assert!(takeover.iter().all(|one| one.repairable && one.field == "metadata"));
    assert_eq!(takeover.len(), 2);
}

#[test]
fn a_set_with_another_mapping_is_told_what_differs() {
    let other = StreamOwner { id: "c1/shop/billing".into(), uid: "u2".into() };
    let wanted = StreamSpec { mapping: mapping("*.*", &[2]), ..spec() };
    let Judgement::Conflict(conflicts) = judge(&wanted, &other, &as_specified()) else {
        panic!("must conflict")
    };
    let words: Vec<String> = conflicts.iter().map(ToString::to_string).collect();
    assert!(words.contains(
        &"metadata is lanekeeper.dev/key-tokens=1, must be lanekeeper.dev/key-tokens=2".to_owned()
    ));
    assert!(words.iter().any(|text| text.contains("lanekeeper.dev/subject=orders.*")));
}

#[test]
fn a_work_queue_has_one_set() {
    let wanted = StreamSpec { retention: Retention::WorkQueue, ..spec() };
    let found = StreamFound { retention: "workqueue".into(), ..as_specified() };
    let other = StreamOwner { id: "c1/shop/billing".into(), uid: "u2".into() };
    assert_eq!(judge(&wanted, &us(), &found), Judgement::Ours(vec![]));
    assert_eq!(judge(&wanted, &other, &found), Judgement::WorkQueueTaken(us()));
}

#[test]
fn a_stream_that_no_set_made_is_not_owned_even_when_it_looks_right() {
    let mut found = as_specified();
    found.metadata.clear();
    assert_eq!(judge(&spec(), &us(), &found), Judgement::NotOwned);
}

#[test]
fn a_set_made_again_keeps_its_stream() {
    let again = StreamOwner { uid: "u9".into(), ..us() };
    let Judgement::Ours(drift) = judge(&spec(), &again, &as_specified()) else { panic!("must be ours") };
    assert_eq!(drift.len(), 1);
    assert!(drift[0].wanted.ends_with("owner-uid=u9"));
}
