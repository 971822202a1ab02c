//! The verdict on a run, as numbers and as words. It decides nothing but what is a violation.

use std::fmt;
use std::time::Duration;

use lanekeeper_core::{
    invariants::JournalInvariant,
    journal::{self, Findings},
};

use super::Published;

/// How many examples of each violation are kept.
pub(super) const EXAMPLES: usize = 5;

/// What the journals say. `handled + repeats + unknown.count == entries`; a line that is there twice counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Different keys that were published.
    pub keys: usize,
    /// Messages that were published.
    pub published: usize,
    /// Lines of all journals together.
    pub entries: usize,
    /// Published messages that were handled at least once.
    pub handled: usize,
    /// Further handlings of published messages; allowed.
    pub repeats: usize,
    /// Handlings out of order.
    pub out_of_order: Findings,
    /// Handlings that started while another one of their key was running.
    pub overlaps: Findings,
    /// Published messages that were never handled.
    pub lost: Findings,
    /// Handlings of what was never published.
    pub unknown: Findings,
    /// Handlings whose fence does not rise with the numbers.
    pub fences: Findings,
    /// From the first start to the last end.
    pub elapsed: Duration,
}

impl Report {
    pub(super) fn new(published: &Published, found: &journal::Report, fences: Findings) -> Self {
        let of = |invariant| found.of(invariant).clone();
        let mut out_of_order = of(JournalInvariant::CompletedBeforeNext);
        let steps_back = of(JournalInvariant::NoStepBack);
        out_of_order.count += steps_back.count;
        out_of_order.examples.extend(steps_back.examples);
        out_of_order.examples.truncate(EXAMPLES);
        let (first, last) = (found.first.unwrap_or_default(), found.last.unwrap_or_default());
        Self {
            keys: published.numbers.len(),
            published: published.messages(),
            entries: found.entries,
            handled: found.handled,
            repeats: found.repeats,
            out_of_order,
            overlaps: of(JournalInvariant::OneAtATime),
            lost: of(JournalInvariant::NothingSkipped),
            unknown: of(JournalInvariant::NothingUnknown),
            fences,
            elapsed: Duration::from_nanos(first.abs_diff(last)),
        }
    }

    /// Whether everything was handled, in order, and nothing else. Repeats are no violation.
    pub fn is_clean(&self) -> bool {
        self.violations().iter().all(|(_, findings)| findings.count == 0)
    }

    /// Messages per second between the first start and the last end.
    #[expect(clippy::cast_precision_loss, reason = "counts of messages are far below 2^52")]
    pub fn messages_per_second(&self) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { self.handled as f64 / self.elapsed.as_secs_f64() }
    }

    fn violations(&self) -> [(&'static str, &Findings); 5] {
        [
            ("out of order", &self.out_of_order),
            ("overlaps", &self.overlaps),
            ("lost", &self.lost),
            ("unknown", &self.unknown),
            ("fences", &self.fences),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in [
            ("published", self.published),
            ("keys", self.keys),
            ("handled", self.handled),
            ("repeats", self.repeats),
        ] {
            writeln!(formatter, "{name:<13}{count:>9}")?;
        }
        for (name, findings) in self.violations() {
            writeln!(formatter, "{name:<13}{:>9}", findings.count)?;
        }
        writeln!(formatter, "{:<13}{:>9.0}", "msg/s", self.messages_per_second())?;
        for (name, findings) in self.violations() {
            for example in &findings.examples {
                writeln!(formatter, "{name}: {example}")?;
            }
        }
        Ok(())
    }
}
