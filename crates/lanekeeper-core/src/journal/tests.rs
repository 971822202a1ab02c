//! Each kind of violation is planted, and has to be found; what is allowed has to pass.

mod histories;

use super::*;
use crate::{fence::Fence, invariants::JournalInvariant as Rule};

fn fence(sequence: u64) -> Fence {
    Fence { stream_incarnation: 1, sequence }
}

/// A handling by one pod that works.
fn handling(key: &str, sequence: u64, start: i64, end: i64) -> Entry {
    Entry {
        v: Entry::VERSION,
        namespace: "shop".into(),
        set: "orders".into(),
        partition: 2,
        incarnation: 7,
        pod: "orders-2-a".into(),
        instance: "first".into(),
        handling: 0,
        batch: None,
        key: key.into(),
        subject: format!("orders.{key}"),
        fence: fence(sequence),
        attempt: 1,
        start,
        end,
        outcome: Ending::Done,
    }
}

fn by(pod: &str, entry: Entry) -> Entry {
    Entry { pod: pod.into(), ..entry }
}

fn ended(outcome: Ending, entry: Entry) -> Entry {
    Entry { outcome, ..entry }
}

fn checker(options: Options, entries: &[Entry]) -> Checker {
    let mut checker = Checker::new(options);
    for entry in entries {
        checker.add(entry);
    }
    checker
}

fn report(entries: &[Entry]) -> Report {
    checker(Options::default(), entries).report()
}

/// Counts of violations, in the order of the invariants.
fn counts(report: &Report) -> [usize; 5] {
    Rule::ALL.map(|rule| report.of(rule).count)
}

/// Messages 1 to 4 of one key, one after another.
fn clean() -> Vec<Entry> {
    (1..=4).map(|one| handling("k", one, one.cast_signed() * 10, one.cast_signed() * 10 + 8)).collect()
}

#[test]
fn what_was_handled_in_order_is_clean_and_counted() {
    let mut entries = clean();
    entries.reverse();
    let report = report(&entries);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.keys, report.entries, report.handled, report.repeats), (1, 4, 4, 0));
    assert_eq!((report.first, report.last), (Some(10), Some(48)));
}

#[test]
fn a_step_back_is_found_and_so_is_what_came_too_early() {
    let mut entries = clean();
    (entries[1].start, entries[1].end) = (100, 105);
    let report = report(&entries);
    assert_eq!(counts(&report), [1, 1, 0, 0, 0], "{report}");
    let step = &report.of(Rule::NoStepBack).examples[0];
    assert_eq!(
        step,
        "message 0000000001-00000000000000000002 of k from 100 to 105 in orders-2-a (partition 2, attempt 1, done): \
         started after message 0000000001-00000000000000000003 was done, and is no repeat"
    );
    let early = &report.of(Rule::CompletedBeforeNext).examples[0];
    assert!(early.starts_with("message 0000000001-00000000000000000003 of k from 30 to 38"), "{early}");
    assert!(
        early.ends_with("started before message 0000000001-00000000000000000002 was done at 105"),
        "{early}"
    );
}

#[test]
fn a_repeat_of_what_was_completed_is_counted_and_allowed_however_it_ends() {
    let mut entries = clean();
    entries.push(handling("k", 2, 100, 105));
    entries.push(ended(Ending::Failed, handling("k", 3, 110, 115)));
    entries.push(handling("k", 3, 120, 125));
    entries.push(handling("k", 5, 130, 135));
    let report = report(&entries);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.handled, report.repeats, report.unfinished), (5, 2, 1));
}

#[test]
fn what_was_only_attempted_does_not_count_as_completed() {
    for ending in
        [Ending::Failed, Ending::Permanent, Ending::Waited, Ending::Unreachable, Ending::Lost, Ending::Cut]
    {
        let mut entries = clean();
        entries[1].outcome = ending;
        let report = report(&entries);
        assert_eq!(counts(&report), [0, 1, 0, 1, 0], "{ending}: {report}");
        let early = &report.of(Rule::CompletedBeforeNext).examples[0];
        assert!(early.contains("although message 0000000001-00000000000000000002 was never done"), "{early}");
        let gap = &report.of(Rule::NothingSkipped).examples[0];
        assert_eq!(
            gap,
            "message 0000000001-00000000000000000002 of k was never done, \
             although message 0000000001-00000000000000000004 was"
        );
    }
}

#[test]
fn an_attempt_that_nothing_overtook_is_no_gap() {
    let mut entries = clean();
    entries[3].outcome = Ending::Failed;
    let report = report(&entries);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.handled, report.unfinished, report.waiting), (3, 1, 1));
}

#[test]
fn two_handlings_of_a_key_at_once_are_found_also_behind_a_shorter_one() {
    let mut entries = clean();
    entries[3].end = 1000;
    entries.push(by("other", handling("k", 4, 50, 60)));
    entries.push(by("third", handling("k", 4, 500, 510)));
    entries.push(by("other", handling("another", 5, 50, 60)));
    let report = report(&entries);
    assert_eq!(counts(&report), [0, 0, 2, 0, 0], "{report}");
    let overlap = &report.of(Rule::OneAtATime).examples[1];
    assert!(overlap.contains("in third") && overlap.contains("while message"), "{overlap}");
}

#[test]
fn one_that_starts_when_the_other_ends_does_not_overlap() {
    let mut entries = clean();
    entries[1].end = entries[2].start;
    assert!(report(&entries).is_clean());
    entries[1].end += 1;
    assert_eq!(counts(&report(&entries)), [0, 1, 1, 0, 0]);
}

/// Messages 1 to 4 of one key, given to the handler at once.
fn batch() -> Vec<Entry> {
    let numbered = |one: u64| Entry { handling: one, batch: Some(1), ..handling("k", one, 10, 50) };
    (1..=4).map(numbered).collect()
}

#[test]
fn the_messages_of_a_batch_have_one_time_and_the_order_of_their_numbers() {
    let entries = batch();
    let clean = report(&entries);
    assert!(clean.is_clean(), "{clean}");
    assert_eq!((clean.handled, clean.repeats), (4, 0));
    let mut swapped = entries.clone();
    (swapped[1].handling, swapped[2].handling) = (3, 2);
    let found = report(&swapped);
    assert_eq!(counts(&found), [1, 1, 0, 0, 0], "handed over in the wrong order: {found}");
    let mut missing = entries.clone();
    missing.remove(1);
    let mut missing = checker(Options::default(), &missing);
    (1..=4).for_each(|one| missing.expect("k", fence(one), true, true));
    assert_eq!(missing.report().of(Rule::NothingSkipped).count, 1, "{}", missing.report());
}

#[test]
fn a_batch_overlaps_what_is_not_of_it() {
    for (other, what) in [
        (by("other", handling("k", 4, 20, 30)), "another pod"),
        (Entry { handling: 5, batch: Some(5), ..handling("k", 4, 20, 30) }, "another batch"),
        (Entry { handling: 5, ..handling("k", 4, 20, 30) }, "a message by itself"),
        (by("other", Entry { handling: 5, batch: Some(1), ..handling("k", 4, 20, 30) }), "the same number"),
    ] {
        let found = report(&[batch(), vec![other]].concat());
        assert!(found.of(Rule::OneAtATime).count > 0, "{what}: {found}");
    }
}

#[test]
fn a_batch_that_was_given_up_and_comes_again_is_clean() {
    let lost: Vec<Entry> = batch().into_iter().map(|entry| ended(Ending::Lost, entry)).collect();
    let again = batch().into_iter().map(|entry| by("other", Entry { start: 60, end: 70, ..entry }));
    let found = report(&lost.into_iter().chain(again).collect::<Vec<Entry>>());
    assert!(found.is_clean(), "{found}");
    assert_eq!((found.handled, found.unfinished), (4, 4));
}

#[test]
fn between_two_pods_only_more_than_the_tolerance_is_certain_and_within_one_everything_is() {
    let options = Options { clock_tolerance: 100, ..Options::default() };
    let apart = |by_others: i64, pod: &str| {
        let entries = [handling("k", 1, 1000, 2000), by(pod, handling("k", 2, 2000 - by_others, 3000))];
        counts(&checker(options, &entries).report())
    };
    assert_eq!(apart(100, "other"), [0; 5]);
    assert_eq!(apart(101, "other"), [0, 1, 1, 0, 0]);
    assert_eq!(apart(1, "orders-2-a"), [0, 1, 1, 0, 0]);
    let back = |by_others: i64, pod: &str| {
        let entries = [handling("k", 2, 1000, 2000), by(pod, handling("k", 1, 2000 + by_others, 3000))];
        checker(options, &entries).report().of(Rule::NoStepBack).count
    };
    assert_eq!((back(99, "other"), back(100, "other"), back(0, "orders-2-a")), (0, 1, 1));
}

#[test]
fn what_is_expected_and_settled_must_have_been_completed() {
    let mut checker = checker(Options::default(), &clean()[..3]);
    for sequence in 1..=3 {
        checker.expect("k", fence(sequence), true, true);
    }
    assert!(checker.report().is_clean());
    checker.expect("k", fence(4), false, true);
    let waiting = checker.report();
    assert!(waiting.is_clean(), "its turn may still come");
    assert_eq!((waiting.expected, waiting.waiting), (4, 1));
    checker.expect("k", fence(4), true, true);
    checker.expect("silent", fence(9), true, true);
    let report = checker.report();
    assert_eq!(counts(&report), [0, 0, 0, 2, 0], "{report}");
    assert_eq!(
        report.of(Rule::NothingSkipped).examples[1],
        "message 0000000001-00000000000000000009 of silent was never done"
    );
}

#[test]
fn a_hole_in_what_is_expected_is_a_gap_and_what_comes_after_it_too_early() {
    let mut entries = clean();
    entries.remove(1);
    let mut checker = checker(Options::default(), &entries);
    for sequence in 1..=4 {
        checker.expect("k", fence(sequence), false, true);
    }
    let report = checker.report();
    assert_eq!(counts(&report), [0, 1, 0, 1, 0], "{report}");
}

#[test]
fn what_was_never_published_or_has_another_key_is_unknown() {
    let mut checker = checker(Options::default(), &clean());
    for sequence in 1..=3 {
        checker.expect("k", fence(sequence), true, true);
    }
    checker.expect("other", fence(4), false, true);
    let report = checker.report();
    assert_eq!(counts(&report), [0, 0, 0, 0, 1], "{report}");
    assert_eq!(report.handled, 3);
    let words = &report.of(Rule::NothingUnknown).examples[0];
    assert!(words.starts_with("message 0000000001-00000000000000000004 of k from 40"), "{words}");
}

#[test]
fn a_partial_journal_misses_nothing_ahead_of_its_beginning() {
    let entries = [handling("k", 5, 10, 12), handling("k", 3, 20, 22), handling("k", 6, 30, 32)];
    assert_eq!(counts(&report(&entries)), [1, 1, 0, 0, 0], "from the beginning, 3 is a step back");
    let partial = Options { partial: true, ..Options::default() };
    let report = checker(partial, &entries).report();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.handled, report.repeats), (2, 1));
    // A message that was published under the eyes of the journal has no such excuse.
    let mut seen = checker(partial, &entries);
    for (sequence, recorded) in [(2, false), (3, true), (4, true), (5, true), (6, true)] {
        seen.expect("k", fence(sequence), true, recorded);
    }
    let report = seen.report();
    assert_eq!(counts(&report), [1, 1, 0, 1, 0], "{report}");
}

#[test]
fn where_clocks_differ_a_partial_journal_may_begin_with_what_seems_to_come_second() {
    let ahead = Entry { pod: "ahead".into(), ..handling("k", 5, 30, 32) };
    let repeats = [handling("k", 3, 10, 12), handling("k", 4, 20, 90), handling("k", 5, 91, 92)];
    let entries: Vec<Entry> = repeats.into_iter().chain([ahead]).collect();
    let partial = Options { partial: true, clock_tolerance: 50, ..Options::default() };
    let report = checker(partial, &entries).report();
    assert!(report.is_clean(), "{report}");
    let exact = Options { clock_tolerance: 5, ..partial };
    assert!(
        !checker(exact, &entries).report().is_clean(),
        "5 certainly began after 3, and before 4 was done"
    );
}

#[test]
fn what_was_put_away_is_not_lost_and_its_successor_does_not_overtake_it() {
    let failed = Entry { outcome: Ending::Permanent, ..handling("k", 1, 10, 12) };
    let away = Entry { outcome: Ending::PutAway, ..handling("k", 1, 13, 13) };
    let next = handling("k", 2, 20, 22);
    let mut judged = checker(Options::default(), &[failed.clone(), away, next.clone()]);
    judged.expect("k", fence(1), true, true);
    judged.expect("k", fence(2), true, true);
    let report = judged.report();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.handled, report.put_away, report.unfinished, report.entries), (1, 1, 1, 3));
    assert!(report.to_string().contains("put away"), "{report}");
    assert!(!checker(Options::default(), &[failed, next]).report().is_clean(), "without it, it is skipped");
}

#[test]
fn a_copy_is_no_repeat() {
    let mut entries = clean();
    entries.push(entries[2].clone());
    entries.push(entries[2].clone());
    let report = report(&entries);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.entries, report.copies, report.repeats), (4, 2, 0));
}

#[test]
fn entries_that_did_not_arrive_are_counted_and_are_no_violation() {
    let mut entries = clean();
    for (entry, number) in entries.iter_mut().zip([2, 3, 7, 8]) {
        entry.handling = number;
    }
    let report = report(&entries);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.missing, 4);
    let partial = Options { partial: true, ..Options::default() };
    assert_eq!(checker(partial, &entries).report().missing, 3);
}

#[test]
fn what_cannot_be_read_is_named_and_no_journal_with_it_is_clean() {
    let mut checker = checker(Options::default(), &clean());
    checker.unreadable(|| "record 7: no entry".into());
    let report = checker.report();
    assert!(!report.is_clean());
    assert!(report.to_string().ends_with("unreadable: record 7: no entry\n"), "{report}");
}

#[test]
fn only_so_many_examples_are_kept_and_all_are_counted() {
    let options = Options { examples: 2, ..Options::default() };
    let mut checker = checker(options, &[]);
    for sequence in 1..=9 {
        checker.expect("k", fence(sequence), true, true);
    }
    let report = checker.report();
    assert_eq!(
        (report.of(Rule::NothingSkipped).count, report.of(Rule::NothingSkipped).examples.len()),
        (9, 2)
    );
}

#[test]
fn the_wire_form_is_frozen_and_unknown_fields_are_ignored() {
    let entry = Entry { handling: 17, attempt: 3, outcome: Ending::Permanent, ..handling("pen", 42, 10, 12) };
    let text = r#"{"v":1,"namespace":"shop","set":"orders","partition":2,"incarnation":7,"pod":"orders-2-a","instance":"first","handling":17,"key":"pen","subject":"orders.pen","fence":"0000000001-00000000000000000042","attempt":3,"start":10,"end":12,"outcome":"permanent"}"#;
    assert_eq!(serde_json::to_string(&entry).unwrap(), text);
    let newer = text.replace(r#""v":1"#, r#""more":[1],"v":1"#);
    let read: Entry = serde_json::from_str(&newer).unwrap();
    assert_eq!(read.clone().judgeable(), Ok(entry));
    let error = Entry { v: 2, ..read.clone() }.judgeable().unwrap_err().to_string();
    assert_eq!(error, "has version 2, and only 1 is known");
    let error = Entry { start: 13, ..read }.judgeable().unwrap_err().to_string();
    assert_eq!(error, "ends at 12, before its start at 13");
    let broken = text.replace("0000000001-", "1-");
    assert!(serde_json::from_str::<Entry>(&broken).unwrap_err().to_string().contains("is no fence"));
}

#[test]
fn every_number_of_a_report_is_in_its_words() {
    let mut checker = checker(Options::default(), &clean());
    for sequence in 1..=4 {
        checker.expect("k", fence(sequence), true, true);
    }
    let words = checker.report().to_string();
    for name in ["keys", "expected", "entries", "handled", "repeats", "unfinished", "copies", "missing"] {
        assert!(words.lines().any(|line| line.starts_with(name)), "{name} is missing in\n{words}");
    }
    for rule in Rule::ALL {
        assert!(words.contains(&format!("{:<13}{:>9}\n", rule.name(), 0)), "{rule} is missing in\n{words}");
    }
}
