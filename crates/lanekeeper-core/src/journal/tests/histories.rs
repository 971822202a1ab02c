//! Random histories: one that keeps the rules is never reported, and each planted fault always is.

use proptest::{prelude::*, sample::Index};

use super::*;

/// What happens next to a key.
#[derive(Debug, Clone)]
struct Step {
    key: usize,
    pod: usize,
    /// Attempts that fail before one works.
    failures: u64,
    /// So many completed messages are handled once more first, in order: somebody deleted the consumer.
    again: usize,
    /// How long each handling takes, and the pause before it.
    time: i64,
    pause: i64,
    /// The entry is sent twice.
    copied: bool,
}

const KEYS: usize = 3;
const PODS: usize = 4;
const TOLERANCE: i64 = 50;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let again = prop_oneof![8 => Just(0_usize), 1 => 1..5_usize];
    let failures = prop_oneof![6 => Just(0_u64), 1 => 1..4_u64];
    let step = (0..KEYS, 0..PODS, failures, again, 2..200_i64, 0..100_i64, prop::bool::weighted(0.1))
        .prop_map(|(key, pod, failures, again, time, pause, copied)| Step {
            key,
            pod,
            failures,
            again,
            time,
            pause,
            copied,
        });
    prop::collection::vec(step, 2..60)
}

/// Entries in the order in which handlings really ended, and what was published.
#[derive(Debug, Clone, Default)]
struct History {
    entries: Vec<Entry>,
    published: Vec<(String, u64)>,
}

/// Handles as the rules have it, with each pod's clock ahead by `ahead`.
fn history(steps: &[Step], ahead: [i64; PODS]) -> History {
    let mut history = History::default();
    let mut now = [1_000_i64; KEYS];
    let mut numbers = [0_u64; PODS];
    let mut done: [Vec<u64>; KEYS] = Default::default();
    let mut ends: Vec<(i64, Entry)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let sequence = index as u64 + 1;
        let key = format!("k{}", step.key);
        history.published.push((key.clone(), sequence));
        let repeated = done[step.key].iter().rev().take(step.again).rev().copied();
        let attempts =
            std::iter::repeat_n((sequence, Ending::Failed), usize::try_from(step.failures).unwrap());
        let handlings =
            repeated.map(|one| (one, Ending::Done)).chain(attempts).chain([(sequence, Ending::Done)]);
        for (attempt, (sequence, outcome)) in handlings.enumerate() {
            let start = now[step.key] + step.pause + 1;
            let end = start + step.time;
            now[step.key] = end;
            numbers[step.pod] += 1;
            let shown = handling(&key, sequence, start + ahead[step.pod], end + ahead[step.pod]);
            let entry = Entry {
                pod: format!("pod{}", step.pod),
                handling: numbers[step.pod],
                batch: None,
                attempt: attempt as u64 + 1,
                outcome,
                ..shown
            };
            if step.copied {
                ends.push((end, entry.clone()));
            }
            ends.push((end, entry));
        }
        done[step.key].push(sequence);
    }
    ends.sort_by_key(|(end, _)| *end);
    history.entries = ends.into_iter().map(|(_, entry)| entry).collect();
    history
}

fn judged(history: &History, options: Options, recorded: bool) -> Report {
    let mut checker = checker(options, &history.entries);
    for (key, sequence) in &history.published {
        checker.expect(key, fence(*sequence), true, recorded);
    }
    checker.report()
}

/// What was completed before something later of its key was: a victim for planting.
fn victims(history: &History) -> Vec<(String, u64)> {
    let later = |key: &str, sequence| {
        history.published.iter().any(|(other, after)| other == key && *after > sequence)
    };
    history.published.iter().filter(|(key, sequence)| later(key, *sequence)).cloned().collect()
}

/// A history whose clocks agree, with one victim.
fn with_victim() -> impl Strategy<Value = (History, (String, u64))> {
    (steps(), any::<Index>())
        .prop_map(|(steps, index)| (history(&steps, [0; PODS]), index))
        .prop_filter("some key has two messages", |(history, _)| !victims(history).is_empty())
        .prop_map(|(history, index)| {
            let victims = victims(&history);
            let victim = victims[index.index(victims.len())].clone();
            (history, victim)
        })
}

fn is(victim: &(String, u64)) -> impl Fn(&Entry) -> bool {
    let (key, sequence) = victim.clone();
    move |entry| entry.key == key && entry.fence.sequence == sequence
}

proptest! {
    #[test]
    fn a_history_that_keeps_the_rules_is_never_reported(
        steps in steps(), ahead in prop::array::uniform4(0..=TOLERANCE), mix: u64, cut: Index
    ) {
        let mut history = history(&steps, ahead);
        let options = Options { clock_tolerance: TOLERANCE, ..Options::default() };
        let cut = cut.index(history.entries.len());
        let tail = History { entries: history.entries[cut..].to_vec(), ..history.clone() };
        // Any order of arrival.
        let length = history.entries.len() as u64;
        history.entries.sort_by_key(|entry| {
            (entry.handling.wrapping_mul(0x9e37_79b9).wrapping_add(mix)).wrapping_mul(0x85eb_ca6b) % length
        });
        for report in [judged(&history, options, true), checker(options, &history.entries).report()] {
            prop_assert!(report.is_clean(), "{report}");
            prop_assert_eq!(report.handled, history.published.len());
            prop_assert_eq!(report.entries, report.handled + report.repeats + report.unfinished);
            prop_assert_eq!(report.entries + report.copies, history.entries.len());
            prop_assert_eq!((report.missing, report.waiting), (0, 0));
        }
        let partial = Options { partial: true, ..options };
        for report in [judged(&tail, partial, false), checker(partial, &tail.entries).report()] {
            prop_assert!(report.is_clean(), "from the {cut}th on: {report}");
        }
    }

    #[test]
    fn what_is_forgotten_was_counted(steps in steps(), keep in 1..8_usize) {
        let mut history = history(&steps, [0; PODS]);
        // A copy of what was forgotten counts as a repeat.
        history.entries.dedup();
        let all = checker(Options::default(), &history.entries).report();
        let few = checker(Options { keep: Some(keep), ..Options::default() }, &history.entries).report();
        prop_assert!(few.is_clean(), "{few}");
        prop_assert_eq!(
            (few.handled + few.repeats, few.unfinished, few.first, few.last),
            (all.handled + all.repeats, all.unfinished, all.first, all.last)
        );
        prop_assert!(few.handled <= all.handled);
    }

    #[test]
    fn a_lost_message_is_found((mut history, victim) in with_victim()) {
        history.entries.retain(|entry| !is(&victim)(entry));
        let report = judged(&history, Options::default(), true);
        prop_assert_eq!(report.of(Rule::NothingSkipped).count, 1, "{}", report);
        prop_assert!(report.of(Rule::CompletedBeforeNext).count >= 1, "{}", report);
    }

    #[test]
    fn a_message_that_only_failed_is_found_without_knowing_what_to_expect((mut history, victim) in with_victim()) {
        for entry in history.entries.iter_mut().filter(|entry| is(&victim)(entry)) {
            entry.outcome = Ending::Failed;
        }
        let report = checker(Options::default(), &history.entries).report();
        prop_assert_eq!(report.of(Rule::NothingSkipped).count, 1, "{}", report);
        prop_assert!(report.of(Rule::CompletedBeforeNext).count >= 1, "{}", report);
    }

    #[test]
    fn a_step_back_is_always_found((mut history, victim) in with_victim()) {
        for entry in history.entries.iter_mut().filter(|entry| is(&victim)(entry)) {
            (entry.start, entry.end) = (entry.start + 1_000_000, entry.end + 1_000_000);
        }
        for report in [
            judged(&history, Options::default(), true),
            checker(Options::default(), &history.entries).report(),
        ] {
            prop_assert!(report.of(Rule::NoStepBack).count >= 1, "{}", report);
            prop_assert!(report.of(Rule::CompletedBeforeNext).count >= 1, "{}", report);
        }
    }

    #[test]
    fn an_overlap_is_always_found((mut history, victim) in with_victim()) {
        let last = history.entries.iter().rposition(is(&victim)).unwrap();
        let end = history.entries[last].end;
        let following = history.entries.iter_mut().filter(|entry| entry.key == victim.0 && entry.start >= end);
        let Some(next) = following.min_by_key(|entry| entry.start) else { return Ok(()) };
        next.start = end - 1;
        for report in [
            judged(&history, Options::default(), true),
            checker(Options::default(), &history.entries).report(),
        ] {
            prop_assert!(report.of(Rule::OneAtATime).count >= 1, "{}", report);
        }
    }

    #[test]
    fn a_stranger_is_always_found((mut history, _) in with_victim(), key in "[a-z]{3,8}") {
        let number = history.published.len() as u64 + 1;
        history.entries.push(handling(&key, number, 5_000_000, 5_000_001));
        let report = judged(&history, Options::default(), true);
        prop_assert_eq!(report.of(Rule::NothingUnknown).count, 1, "{}", report);
        prop_assert_eq!(report.violated(), 1, "{}", report);
    }
}
