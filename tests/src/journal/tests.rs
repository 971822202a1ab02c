//! Each kind of violation is planted, and has to be found; what is allowed has to pass.

use std::time::Duration;

use super::*;

const FIRST: i64 = 1_700_000_000_000_000_000;

/// Publishes numbers 1 to `each` of keys `N0`, `N1`, … in turns.
fn published(keys: u64, each: u64) -> Published {
    let messages = (1..=each).flat_map(|number| (0..keys).map(move |key| (format!("N{key}"), number)));
    Published::new(messages).unwrap()
}

/// A handling from `start` to `end`, as if the message were the `sequence`-th of its stream.
fn handling(key: &str, number: u64, sequence: u64, start: i64, end: i64) -> Entry {
    Entry {
        key: key.to_owned(),
        number,
        fence: format!("{:010}-{sequence:020}", 1),
        partition: 2,
        attempt: 1,
        start: FIRST + start,
        end: FIRST + end,
        pod: "flights-2".to_owned(),
    }
}

/// Three keys, four numbers each, handled one after another, as they were published.
fn clean() -> (Published, Vec<Entry>) {
    let mut entries = Vec::new();
    for number in 1..=4_u32 {
        for key in 0..3_u32 {
            let sequence = (number - 1) * 3 + key + 1;
            let start = i64::from(sequence) * 10;
            entries.push(handling(&format!("N{key}"), number.into(), sequence.into(), start, start + 8));
        }
    }
    (published(3, 4), entries)
}

fn position(entries: &[Entry], key: &str, number: u64) -> usize {
    entries.iter().position(|entry| entry.key == key && entry.number == number).unwrap()
}

/// Out of order, overlaps, lost, unknown, fences.
fn violations(report: &Report) -> [usize; 5] {
    [&report.out_of_order, &report.overlaps, &report.lost, &report.unknown, &report.fences]
        .map(|findings| findings.count)
}

#[test]
fn a_clean_journal_passes_whatever_the_order_of_its_lines() {
    let (published, mut entries) = clean();
    for _ in 0..2 {
        let report = check(&published, &entries);
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.keys, report.published, report.entries), (3, 12, 12));
        assert_eq!((report.handled, report.repeats), (12, 0));
        assert_eq!(report.elapsed, Duration::from_nanos(118));
        entries.reverse();
    }
}

#[test]
fn a_loss_is_found_and_so_is_what_was_handled_over_the_gap() {
    let (published, mut entries) = clean();
    entries.remove(position(&entries, "N1", 2));
    let report = check(&published, &entries);
    assert_eq!(violations(&report), [1, 0, 1, 0, 0], "{report}");
    assert_eq!(report.handled, 11);
    assert_eq!(report.lost.examples, ["number 2 of N1 was never done, although number 4 was"]);
    assert!(report.out_of_order.examples[0].starts_with("number 3 of N1"), "{report}");
    assert!(report.out_of_order.examples[0].ends_with("although number 2 was never done"), "{report}");
}

#[test]
fn a_loss_at_the_end_of_a_key_and_of_a_whole_key_are_found() {
    let (published, mut entries) = clean();
    entries.remove(position(&entries, "N1", 4));
    entries.retain(|entry| entry.key != "N2");
    let report = check(&published, &entries);
    assert_eq!(violations(&report), [0, 0, 5, 0, 0], "{report}");
}

#[test]
fn a_repeat_of_what_was_done_is_counted_and_allowed() {
    let (published, mut entries) = clean();
    // Right after its first handling, and once more after later numbers were done.
    entries.push(handling("N0", 1, 1, 19, 20));
    entries.push(handling("N0", 2, 4, 1000, 1010));
    entries.push(handling("N0", 3, 7, 1010, 1020));
    let report = check(&published, &entries);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.entries, report.handled, report.repeats), (15, 12, 3));
}

#[test]
fn a_message_that_was_stored_twice_counts_as_a_repeat() {
    let (published, mut entries) = clean();
    entries.push(handling("N0", 4, 99, 1000, 1010));
    let report = check(&published, &entries);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.repeats, 1);
}

#[test]
fn a_swap_is_found_in_both_its_halves() {
    let (published, mut entries) = clean();
    let (second, third) = (position(&entries, "N1", 2), position(&entries, "N1", 3));
    let times = [second, third].map(|index| (entries[index].start, entries[index].end));
    (entries[second].start, entries[second].end) = times[1];
    (entries[third].start, entries[third].end) = times[0];
    let report = check(&published, &entries);
    assert_eq!(violations(&report), [2, 0, 0, 0, 1], "{report}");
    assert!(report.out_of_order.examples[0].contains("number 3 of N1"), "{report}");
    assert!(report.out_of_order.examples[0].contains("before number 2 was done"), "{report}");
    assert!(
        report.out_of_order.examples[1].contains("after number 3 was done, and is no repeat"),
        "{report}"
    );
}

#[test]
fn two_handlings_of_a_key_at_once_are_found_and_of_two_keys_are_not() {
    let (published, mut entries) = clean();
    // N1 and N2 run at the same time: that is what partitions are for.
    let other = position(&entries, "N2", 2);
    (entries[other].start, entries[other].end) = (FIRST + 50, FIRST + 58);
    assert!(check(&published, &entries).is_clean());
    let second = position(&entries, "N1", 2);
    entries[second].end = entries[position(&entries, "N1", 3)].start + 1;
    let report = check(&published, &entries);
    // Number 3 started one nanosecond before number 2 was done: an overlap and out of order.
    assert_eq!(violations(&report), [1, 1, 0, 0, 0], "{report}");
    assert!(report.overlaps.examples[0].starts_with("number 3 of N1"), "{report}");
    assert!(report.overlaps.examples[0].contains("while number 2 of N1"), "{report}");
}

#[test]
fn a_handling_that_starts_as_the_other_ends_does_not_overlap() {
    let (published, mut entries) = clean();
    let second = position(&entries, "N1", 2);
    entries[second].end = entries[position(&entries, "N1", 3)].start;
    assert!(check(&published, &entries).is_clean());
}

#[test]
fn a_second_handler_of_the_same_message_at_the_same_time_is_an_overlap_even_behind_a_shorter_one() {
    let (published, mut entries) = clean();
    let last = position(&entries, "N1", 4);
    entries[last].end = entries[last].start + 1000;
    let start = entries[last].start - FIRST;
    entries.push(handling("N1", 4, 11, start + 10, start + 20));
    entries.push(handling("N1", 4, 11, start + 30, start + 40));
    let report = check(&published, &entries);
    assert_eq!(violations(&report), [0, 2, 0, 0, 0], "{report}");
    assert_eq!(report.repeats, 2);
}

#[test]
fn a_fence_that_falls_or_stays_while_the_number_rises_is_found() {
    for fence in [2, 3] {
        let published = published(1, 3);
        let mut entries: Vec<_> =
            vec![handling("N0", 1, 2, 0, 1), handling("N0", 2, 3, 2, 3), handling("N0", 3, 4, 4, 5)];
        assert!(check(&published, &entries).is_clean());
        entries[2].fence = format!("{:010}-{fence:020}", 1);
        let report = check(&published, &entries);
        assert_eq!(violations(&report), [0, 0, 0, 0, 1], "{report}");
        assert!(
            report.fences.examples[0].contains("is not above 0000000001-00000000000000000003 of number 2"),
            "{report}"
        );
    }
}

#[test]
fn a_repeat_with_a_lower_fence_than_before_is_found() {
    let (published, mut entries) = clean();
    entries.push(handling("N0", 2, 3, 1000, 1010));
    assert_eq!(violations(&check(&published, &entries)), [0, 0, 0, 0, 1]);
}

#[test]
fn what_was_never_published_is_unknown_and_nothing_else() {
    let (published, mut entries) = clean();
    entries.push(handling("N0", 9, 50, 1000, 1010));
    entries.push(handling("STRANGER", 1, 51, 1010, 1020));
    let report = check(&published, &entries);
    assert_eq!(violations(&report), [0, 0, 0, 2, 0], "{report}");
    assert_eq!(report.handled + report.repeats + report.unknown.count, report.entries);
}

#[test]
fn numbers_may_start_anywhere_and_have_gaps_if_they_were_published_so() {
    let published = Published::new([("a", 5), ("a", 7)]).unwrap();
    let entries = [handling("a", 5, 1, 0, 1), handling("a", 7, 2, 2, 3)];
    assert!(check(&published, &entries).is_clean());
    assert_eq!(violations(&check(&published, &entries[1..])), [1, 0, 1, 0, 0]);
}

#[test]
fn an_empty_journal_loses_everything_and_gives_a_few_examples() {
    let report = check(&published(3, 4), &[]);
    assert_eq!(violations(&report), [0, 0, 12, 0, 0]);
    assert_eq!(report.lost.examples.len(), 5);
    assert!(!report.is_clean());
    let words = report.to_string();
    assert!(words.contains("lost                12\n"), "{words}");
    assert!(words.contains("lost: number 1 of N0 was never done\n"), "{words}");
}

#[test]
fn a_journal_is_read_line_by_line_and_what_is_no_entry_is_named() {
    let line = r#"{"key":"N14228","number":7,"fence":"f","partition":2,"attempt":3,"start":10,"end":12,"pod":"p","more":1}"#;
    let entries = parse("p", &format!("{line}\n\n{line}\n")).unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!((entries[1].number, entries[1].partition, entries[1].attempt), (7, 2, 3));
    let torn = parse("p", &format!("{line}\n{}", &line[..20])).unwrap_err().to_string();
    assert!(torn.starts_with("line 2 of the journal of p is no entry"), "{torn}");
    let backwards = parse("p", &line.replace("10", "13")).unwrap_err().to_string();
    assert_eq!(backwards, "line 1 of the journal of p ends at 12, before its start at 13");
}

#[test]
fn a_published_list_that_does_not_rise_is_refused() {
    for numbers in [[2, 1], [2, 2]] {
        let error = Published::new(numbers.map(|number| ("a", number))).unwrap_err().to_string();
        assert!(error.contains("of a was published after number 2"), "{error}");
    }
}
