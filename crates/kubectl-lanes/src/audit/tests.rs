use std::collections::BTreeMap;

use lanekeeper_core::{
    invariants::JournalInvariant as Rule,
    journal::Ending,
    record::{Floor, LaneRecord, LaneState, Mode, Owner, Ownership, Record},
    share::Share,
};

use super::{expected::Stored, *};

const BEGUN: &str = "2026-11-30T06:00:00Z";

fn whole() -> Share {
    Share::of_partition(0, 1).unwrap()
}

fn lane(incarnation: u64, share: Share, floors: Vec<Floor>) -> LaneRecord {
    LaneRecord {
        incarnation,
        share,
        state: LaneState::Open,
        ownership: Ownership::Pin,
        mode: Mode::Serial,
        start: 1,
        floors,
        opened: true,
        fenced: false,
        fence_milliseconds: 0,
        checkpoint: 0,
    }
}

fn record(lanes: &[LaneRecord]) -> Record {
    let text = |text: &str| text.to_owned();
    let owner = Owner { cluster: text("c"), namespace: text("shop"), name: text("orders"), uid: text("u") };
    let json = serde_json::json!({
        "v": 1, "owner": owner, "stream": "ORDERS", "streamCreated": BEGUN, "streamIncarnation": 1, "counter": 9,
        "lanes": lanes,
    });
    serde_json::from_value(json).unwrap()
}

fn reader() -> Reader {
    Reader {
        namespace: "shop".into(),
        set: "orders".into(),
        checker: Checker::new(Options { partial: true, message, time, ..Options::default() }),
        begun: None,
        seen: Some(Vec::new()),
    }
}

fn entry(sequence: u64) -> Entry {
    let start = i64::try_from(sequence).unwrap() * 10;
    Entry {
        v: 1,
        namespace: "shop".into(),
        set: "orders".into(),
        partition: 0,
        incarnation: 1,
        pod: "orders-0-a".into(),
        instance: "i".into(),
        handling: sequence,
        batch: None,
        key: "k".into(),
        subject: "orders.k".into(),
        fence: Fence { stream_incarnation: 1, sequence },
        attempt: 1,
        start,
        end: start + 5,
        outcome: Ending::Done,
    }
}

fn stored_entry(entry: &Entry) -> StoredMessage {
    StoredMessage {
        subject: "audit.orders.0".into(),
        sequence: entry.fence.sequence,
        time: BEGUN.into(),
        payload: serde_json::to_vec(entry).unwrap().into(),
    }
}

/// Messages of the key, published at the second of the same number after the journal began.
fn stored(seconds: &[(u64, i64)]) -> BTreeMap<u64, Stored> {
    let begun: Timestamp = BEGUN.parse().unwrap();
    let at = |seconds| begun.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(seconds)).ok();
    let stored = |&(sequence, seconds)| (sequence, Stored { key: "k".into(), hash: 7, time: at(seconds) });
    seconds.iter().map(stored).collect()
}

fn judged(entries: &[Entry], floor: u64, published: &[(u64, i64)], last: u64) -> Report {
    let mut reader = reader();
    for entry in entries {
        reader.stored(&stored_entry(entry));
    }
    let expected = Expected {
        record: record(&[lane(1, whole(), Vec::new())]),
        floors: BTreeMap::from([(1, floor)]),
        stored: stored(published),
    };
    expected.tell(&mut reader, last);
    reader.checker.report()
}

#[test]
fn what_is_below_the_floor_and_was_published_under_the_journals_eyes_must_have_an_entry() {
    let report = judged(&[entry(1), entry(2)], 3, &[(1, 0), (2, 70), (3, 80), (4, 90)], 4);
    assert_eq!(report.of(Rule::NothingSkipped).examples, ["message 3 of k was never done"]);
    assert_eq!((report.handled, report.waiting), (2, 1), "{report}");
    // In the first minute not every worker may have known of the journal, unless it has something before it.
    let report = judged(&[entry(2)], 2, &[(1, 10), (2, 20)], 2);
    assert!(report.is_clean(), "{report}");
    let report = judged(&[entry(1)], 2, &[(1, 10), (2, 20)], 2);
    assert_eq!(report.of(Rule::NothingSkipped).count, 1, "{report}");
}

#[test]
fn what_the_stream_has_under_another_key_or_not_yet_is_unknown_and_what_it_discarded_is_not() {
    let other = Entry { key: "other".into(), ..entry(2) };
    let report = judged(&[entry(1), other, entry(9)], 2, &[(2, 70)], 8);
    let unknown = &report.of(Rule::NothingUnknown).examples;
    assert_eq!(unknown.len(), 2, "{report}");
    assert!(unknown[0].starts_with("message 9 of k ") && unknown[1].starts_with("message 2 of other "));
    assert_eq!(report.handled, 1, "number 1 is not there any more: {report}");
}

#[test]
fn floors_that_a_lane_inherited_count_for_the_keys_that_they_are_of() {
    let (even, odd) = (Share::new(2, 0).unwrap(), Share::new(2, 1).unwrap());
    let floors = vec![Floor { share: odd, sequence: 5 }, Floor { share: even, sequence: 3 }];
    let expected = Expected {
        record: record(&[lane(3, whole(), floors)]),
        floors: BTreeMap::from([(3, 3)]),
        stored: stored(&[(3, 70), (4, 70), (5, 70), (6, 70)]),
    };
    let mut reader = reader();
    reader.stored(&stored_entry(&entry(1)));
    expected.tell(&mut reader, 6);
    let report = reader.checker.report();
    assert_eq!(report.of(Rule::NothingSkipped).count, 3, "3, 4 and 5 of an odd hash: {report}");
}

#[test]
fn entries_of_others_are_left_out_and_what_is_no_entry_is_named() {
    let mut reader = reader();
    reader.stored(&stored_entry(&Entry { set: "billing".into(), ..entry(1) }));
    assert_eq!(reader.begun, None);
    reader.stored(&StoredMessage { payload: "nonsense".into(), ..stored_entry(&entry(2)) });
    reader.stored(&stored_entry(&Entry { v: 2, ..entry(3) }));
    let report = reader.checker.report();
    assert_eq!((report.entries, report.unreadable.count), (0, 2));
    assert!(report.unreadable.examples[0].starts_with("number 2 of the journal: expected"), "{report}");
    assert_eq!(report.unreadable.examples[1], "number 3 of the journal: has version 2, and only 1 is known");
}

#[test]
fn the_words_have_the_verdict_and_times_that_people_read() {
    let mut reader = reader();
    for entry in [entry(1), Entry { start: 12, end: 14, ..entry(2) }] {
        reader.stored(&stored_entry(&entry));
    }
    let report = reader.checker.report();
    let audit = Audit {
        set: "shop/orders".into(),
        subject: "audit.orders.*".into(),
        stream: Some("AUDIT".into()),
        against_stream: false,
        clock_tolerance_milliseconds: 100,
        clean: report.is_clean(),
        report,
    };
    let text = render(&audit);
    assert!(text.contains("Journal:        audit.orders.* in stream AUDIT\n"), "{text}");
    assert!(text.contains("From:           1970-01-01T00:00:00.00001Z\n"), "{text}");
    assert!(text.contains("overlaps: message 2 of k from 1970-01-01T00:00:00.000012Z to"), "{text}");
    assert!(text.ends_with("Verdict: 2 violations\n"), "{text}");
    let json = serde_json::to_value(&audit).unwrap();
    assert_eq!(json["report"]["violations"]["oneAtATime"]["count"], 1, "{json}");
    assert_eq!(json["clean"], false);
}
