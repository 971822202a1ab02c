//! What a journal says, as numbers and as words. Decides nothing but what a violation is.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::invariants::JournalInvariant;

/// A count with the first few cases of it in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// How many there are.
    pub count: usize,
    /// The first few, by key and then by start.
    pub examples: Vec<String>,
}

impl Findings {
    /// Counts one more, and keeps its words while there are less than `limit`.
    pub fn add(&mut self, limit: usize, words: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < limit {
            self.examples.push(words());
        }
    }
}

/// What a journal says. `entries == handled + put_away + parked + repeats + unfinished + violations of
/// NothingUnknown`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Different keys that were handled or expected.
    pub keys: usize,
    /// Messages that were expected; 0 also when nothing was known of what to expect.
    pub expected: usize,
    /// Different entries.
    pub entries: usize,
    /// Entries that came more than once; a worker sends one again when it cannot know that it arrived.
    pub copies: usize,
    /// Messages that were completed.
    pub handled: usize,
    /// Entries of messages that were dead-lettered or dropped.
    pub put_away: usize,
    /// Entries of messages that were parked; they have others when they are released.
    pub parked: usize,
    /// Handlings that completed a message again; allowed, because delivery is at least once.
    pub repeats: usize,
    /// Handlings that did not complete: failed, cut, and the like.
    pub unfinished: usize,
    /// Messages that are known and not completed, without anything being wrong: their turn may still come, or was
    /// before the journal began.
    pub waiting: usize,
    /// Handlings of which no entry arrived, as the numbering of each instance shows.
    pub missing: usize,
    /// The first start, in the time of the entries.
    pub first: Option<i64>,
    /// The last end.
    pub last: Option<i64>,
    /// What was in the journal and is no entry.
    pub unreadable: Findings,
    /// Violations of each invariant.
    pub violations: BTreeMap<JournalInvariant, Findings>,
}

impl Report {
    /// The violations of one invariant.
    pub fn of(&self, invariant: JournalInvariant) -> &Findings {
        static NONE: Findings = Findings { count: 0, examples: Vec::new() };
        self.violations.get(&invariant).unwrap_or(&NONE)
    }

    /// How many violations there are.
    pub fn violated(&self) -> usize {
        self.violations.values().map(|findings| findings.count).sum()
    }

    /// No violation, and nothing that could hide one: what cannot be read cannot be judged. Repeats are allowed, and
    /// missing entries alone are no violation.
    pub fn is_clean(&self) -> bool {
        self.violated() == 0 && self.unreadable.count == 0
    }

    pub(super) fn violation(
        &mut self,
        invariant: JournalInvariant,
        limit: usize,
        words: impl FnOnce() -> String,
    ) {
        self.violations.entry(invariant).or_default().add(limit, words);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, count: usize| writeln!(f, "{name:<13}{count:>9}");
        line(f, "keys", self.keys)?;
        if self.expected > 0 {
            line(f, "expected", self.expected)?;
        }
        line(f, "entries", self.entries)?;
        line(f, "handled", self.handled)?;
        if self.put_away > 0 {
            line(f, "put away", self.put_away)?;
        }
        if self.parked > 0 {
            line(f, "parked", self.parked)?;
        }
        line(f, "repeats", self.repeats)?;
        line(f, "unfinished", self.unfinished)?;
        line(f, "waiting", self.waiting)?;
        line(f, "copies", self.copies)?;
        line(f, "missing", self.missing)?;
        for invariant in JournalInvariant::ALL {
            line(f, invariant.name(), self.of(invariant).count)?;
        }
        line(f, "unreadable", self.unreadable.count)?;
        for invariant in JournalInvariant::ALL {
            for example in &self.of(invariant).examples {
                writeln!(f, "{invariant}: {example}")?;
            }
        }
        for example in &self.unreadable.examples {
            writeln!(f, "unreadable: {example}")?;
        }
        Ok(())
    }
}
