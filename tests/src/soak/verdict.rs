//! The verdict: order and completeness by the journal's checker, and a reason for every repeat.

use std::{collections::BTreeMap, fmt};

use super::failures::Failure;
use crate::journal::{Entry, Published, Report, check};

/// How many repeats without a reason are told in words.
const EXAMPLES: usize = 5;

/// What is to be said of a run.
#[derive(Debug)]
pub struct Verdict {
    /// The checker's.
    pub report: Report,
    /// Repeats by what explains them.
    pub explained: BTreeMap<&'static str, usize>,
    /// How many repeats nothing explains.
    pub unexplained: usize,
    /// The first few of them.
    pub examples: Vec<String>,
}

impl Verdict {
    /// Whether everything was handled in order, and nothing twice without a reason.
    pub fn is_clean(&self) -> bool {
        self.report.is_clean() && self.unexplained == 0
    }
}

/// Judges a run.
pub fn judge(published: &Published, entries: &[Entry], failures: &[Failure]) -> Verdict {
    let mut verdict = Verdict {
        report: check(published, entries),
        explained: BTreeMap::new(),
        unexplained: 0,
        examples: Vec::new(),
    };
    let mut handlings: BTreeMap<(&str, u64), Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        handlings.entry((&entry.key, entry.number)).or_default().push(entry);
    }
    for same in handlings.values_mut() {
        same.sort_by_key(|entry| entry.start);
        for pair in same.windows(2) {
            if let Some(failure) = failures.iter().find(|failure| failure.explains(pair[0], pair[1])) {
                *verdict.explained.entry(failure.what).or_default() += 1;
                continue;
            }
            verdict.unexplained += 1;
            if verdict.examples.len() < EXAMPLES {
                verdict.examples.push(format!("{:?} and again {:?}", pair[0], pair[1]));
            }
        }
    }
    verdict
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            published, keys, handled, repeats, out_of_order, overlaps, lost, unknown, fences, ..
        } = &self.report;
        write!(
            formatter,
            "{published} messages of {keys} keys, {handled} handled: {} out of order, {} overlaps, {} lost, {} unknown, {} wrong fences, {repeats} repeats",
            out_of_order.count, overlaps.count, lost.count, unknown.count, fences.count
        )?;
        for (what, count) in &self.explained {
            write!(formatter, ", {count} by {what}")?;
        }
        write!(formatter, ", {} without a reason", self.unexplained)?;
        let findings =
            [out_of_order, overlaps, lost, unknown, fences].into_iter().flat_map(|one| &one.examples);
        for example in findings.chain(&self.examples) {
            write!(formatter, "\n  {example}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::failures::Whose;

    fn entry(number: u64, start: i64, end: i64, pod: &str) -> Entry {
        Entry {
            key: "k".to_owned(),
            number,
            fence: format!("{number:03}"),
            partition: 1,
            attempt: 1,
            start,
            end,
            pod: pod.to_owned(),
        }
    }

    fn failure(whose: Whose, from: i64, until: i64) -> Failure {
        Failure { what: "a test", whose, from, until }
    }

    #[test]
    fn a_repeat_needs_a_failure_of_its_own_pod_between_the_two_handlings() {
        let published = Published::new([("k", 1), ("k", 2)]).unwrap();
        let entries = [entry(1, 10, 20, "a"), entry(1, 40, 50, "b"), entry(2, 60, 70, "b")];
        let unexplained = |failures: &[Failure]| {
            let verdict = judge(&published, &entries, failures);
            assert!(verdict.report.is_clean(), "{verdict}");
            assert_eq!(verdict.report.repeats, 1);
            verdict.unexplained
        };
        assert_eq!(unexplained(&[]), 1);
        assert_eq!(unexplained(&[failure(Whose::Pod("a".into()), 30, 30)]), 0);
        assert_eq!(unexplained(&[failure(Whose::Pod("a".into()), 5, 15)]), 1, "it struck before");
        assert_eq!(unexplained(&[failure(Whose::Pod("a".into()), 55, 60)]), 1, "it struck after");
        assert_eq!(unexplained(&[failure(Whose::Pod("b".into()), 30, 30)]), 1, "it was another pod");
        assert_eq!(unexplained(&[failure(Whose::Partition(1), 0, 100)]), 0);
        assert_eq!(unexplained(&[failure(Whose::Partition(1), 45, 100)]), 1, "it struck after");
        assert_eq!(unexplained(&[failure(Whose::Partition(2), 0, 100)]), 1);
        assert_eq!(unexplained(&[failure(Whose::Everybodys, 15, 25)]), 0);
        assert_eq!(unexplained(&[failure(Whose::Nobodys, 0, 100)]), 1);
    }
}
