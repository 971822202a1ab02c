//! Collects entries in whatever order they arrive, and has each key judged.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use super::{Ending, Entry, Report, numbers::Numbers, order::Judge};
use crate::fence::Fence;

/// How a journal is judged.
#[derive(Clone, Copy)]
pub struct Options {
    /// How far the clocks of two instances may be apart, in the unit of the entries' times (microseconds): what two
    /// instances did within less than it is given the benefit of the doubt. One instance's own times are exact.
    pub clock_tolerance: i64,
    /// The journal may begin in the middle: of each key, what is ahead of the first message seen is taken to be
    /// completed. Otherwise the journal has to begin with the first message of every key.
    pub partial: bool,
    /// Cases of each finding that are kept in words.
    pub examples: usize,
    /// Of each key at least as many of the latest handlings are kept; older ones are judged and forgotten, so that
    /// memory has a bound. By default all are. What is expected is never forgotten, so use it without.
    pub keep: Option<usize>,
    /// The words for a message.
    pub message: fn(Fence) -> String,
    /// The words for a point in time.
    pub time: fn(i64) -> String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock_tolerance: 0,
            partial: false,
            examples: 5,
            keep: None,
            message: |fence| format!("message {fence}"),
            time: |microseconds| microseconds.to_string(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("clock_tolerance", &self.clock_tolerance)
            .field("partial", &self.partial)
            .field("examples", &self.examples)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

/// A message that is known to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    /// Its turn has been: a floor is past it, or the run is over.
    pub(super) settled: bool,
    /// It was published when the journal was already written, so its handling belongs into it.
    pub(super) recorded: bool,
}

/// An entry without what its key and its instance have in common with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handling {
    pub(super) fence: Fence,
    pub(super) start: i64,
    pub(super) end: i64,
    /// Index of the instance.
    pub(super) instance: u32,
    pub(super) number: u64,
    pub(super) batch: Option<u64>,
    pub(super) partition: u32,
    pub(super) attempt: u64,
    pub(super) outcome: Ending,
}

impl Handling {
    /// Whether the handler was given both at once; then their numbers are their order, and their times say nothing.
    pub(super) fn is_in_batch_of(&self, other: &Self) -> bool {
        self.batch.is_some() && (self.instance, self.batch) == (other.instance, other.batch)
    }
}

/// One start of a container, and which of its handlings are known.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    pub(super) pod: String,
    numbers: Numbers,
}

/// Everything of one key.
#[derive(Debug, Default)]
struct Key {
    handlings: Vec<Handling>,
    expected: BTreeMap<Fence, Expected>,
    /// Every message below it is taken to be completed: its handlings were judged and forgotten.
    base: Option<Fence>,
}

/// Judges the handlings of one set. Feed it with [`Checker::add`] and ask for the [`Checker::report`].
#[derive(Debug, Default)]
pub struct Checker {
    options: Options,
    keys: BTreeMap<String, Key>,
    instances: Vec<Instance>,
    by_instance: HashMap<(String, String), u32>,
    expecting: bool,
    /// What was judged and forgotten, and what was never an entry.
    settled: Report,
}

impl Checker {
    /// A checker that knows nothing yet.
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// This message exists. Once anything is expected, everything that is handled has to be.
    ///
    /// `settled`: its turn has been, because a floor is past it or the run is over. `recorded`: it was published when
    /// the journal was already written; without that, nothing is missed before the first entry of its key.
    pub fn expect(&mut self, key: &str, fence: Fence, settled: bool, recorded: bool) {
        self.expecting = true;
        self.key(key).expected.insert(fence, Expected { settled, recorded });
    }

    /// This handling took place. Arrival may be in any order.
    pub fn add(&mut self, entry: &Entry) {
        let instance = self.instance(entry);
        let handling = Handling {
            fence: entry.fence,
            start: entry.start,
            end: entry.end,
            instance,
            number: entry.handling,
            batch: entry.batch,
            partition: entry.partition,
            attempt: entry.attempt,
            outcome: entry.outcome,
        };
        self.key(&entry.key).handlings.push(handling);
        if let Some(keep) = self.options.keep.filter(|_| !self.expecting)
            && self.key(&entry.key).handlings.len() >= 2 * keep.max(1)
        {
            self.forget(&entry.key, keep.max(1));
        }
    }

    /// Something that is no entry; `words` says what and why.
    pub fn unreadable(&mut self, words: impl FnOnce() -> String) {
        self.settled.unreadable.add(self.options.examples, words);
    }

    /// The verdict on everything so far.
    pub fn report(&mut self) -> Report {
        let mut report = self.settled.clone();
        report.keys = self.keys.len();
        for (name, key) in &mut self.keys {
            report.expected += key.expected.len();
            let judge = Judge { name, options: &self.options, instances: &self.instances };
            let all = key.handlings.len();
            judge.judge(&mut key.handlings, &key.expected, self.expecting, key.base, all, &mut report);
        }
        report.missing = self.instances.iter().map(|one| one.numbers.missing(self.options.partial)).sum();
        report
    }

    fn key(&mut self, name: &str) -> &mut Key {
        if !self.keys.contains_key(name) {
            self.keys.insert(name.to_owned(), Key::default());
        }
        self.keys.entry(name.to_owned()).or_default()
    }

    fn instance(&mut self, entry: &Entry) -> u32 {
        let key = (entry.pod.clone(), entry.instance.clone());
        let next = u32::try_from(self.instances.len()).unwrap_or(u32::MAX);
        let index = *self.by_instance.entry(key).or_insert(next);
        if index == next {
            self.instances.push(Instance { pod: entry.pod.clone(), numbers: Numbers::default() });
        }
        if let Some(instance) = self.instances.get_mut(index as usize) {
            instance.numbers.insert(entry.handling);
        }
        index
    }

    /// Judges the oldest handlings of a key and drops them.
    fn forget(&mut self, name: &str, keep: usize) {
        let Some(key) = self.keys.get_mut(name) else { return };
        let judge = Judge { name, options: &self.options, instances: &self.instances };
        judge.judge(&mut key.handlings, &key.expected, false, key.base, keep, &mut self.settled);
        let forgotten = key.handlings.drain(..keep.min(key.handlings.len()));
        let completed = forgotten.filter(|handling| handling.outcome.is_settled());
        let highest = completed.map(|handling| handling.fence).max();
        let above = highest.map(|fence| Fence { sequence: fence.sequence.saturating_add(1), ..fence });
        key.base = key.base.max(above);
    }
}
