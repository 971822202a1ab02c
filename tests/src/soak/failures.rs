//! What was broken on purpose, when, and whom it may have made repeat something.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::history::History;
use crate::journal::Entry;

/// A message that was delivered before a failure ended is handled within this time: in nanoseconds.
const AFTERMATH: i64 = 500_000_000;

/// Whose handlings a failure may have made come again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// Everybody's: a server or the network.
    Everybodys,
    /// Those of one pod.
    Pod(String),
    /// Those in the lanes of one partition.
    Partition(i64),
    /// Nobody's: it must be harmless.
    Nobodys,
}

/// Something that was broken.
#[derive(Debug, Clone)]
pub struct Failure {
    /// In words.
    pub what: &'static str,
    /// Whom it may have made repeat something.
    pub whose: Whose,
    /// When it began, in nanoseconds since 1970.
    pub from: i64,
    /// When it was over.
    pub until: i64,
}

impl Failure {
    /// Whether it explains why what was handled came again: it struck after the first handling had ended and before
    /// the next one began.
    pub fn explains(&self, first: &Entry, again: &Entry) -> bool {
        let (theirs, aftermath) = match &self.whose {
            Whose::Everybodys => (true, AFTERMATH),
            // A process that has ended handles nothing.
            Whose::Pod(pod) => (first.pod == *pod, 0),
            Whose::Partition(partition) => (first.partition == *partition, AFTERMATH),
            Whose::Nobodys => (false, 0),
        };
        theirs && self.from <= again.start && self.until.saturating_add(aftermath) >= first.end
    }
}

/// All that was broken in a run.
#[derive(Debug, Clone)]
pub struct Failures {
    history: History,
    list: Arc<Mutex<Vec<Failure>>>,
}

/// A failure that lasts.
#[derive(Debug)]
#[must_use]
pub struct Lasting {
    failures: Failures,
    index: usize,
}

impl Lasting {
    /// It works again.
    pub fn end(self) {
        let now = self.failures.history.now();
        self.failures.list()[self.index].until = now;
    }
}

impl Failures {
    /// Nothing was broken yet. Times are the history's.
    pub fn new(history: &History) -> Self {
        Self { history: history.clone(), list: Arc::default() }
    }

    /// Something breaks now.
    pub fn begin(&self, what: &'static str, whose: Whose) -> Lasting {
        let mut list = self.list();
        list.push(Failure { what, whose, from: self.history.now(), until: i64::MAX });
        Lasting { failures: self.clone(), index: list.len() - 1 }
    }

    /// Something that takes no time.
    pub fn moment(&self, what: &'static str, whose: Whose) {
        self.begin(what, whose).end();
    }

    /// All of them.
    pub fn all(&self) -> Vec<Failure> {
        self.list().clone()
    }

    /// How many there were of each kind.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for failure in self.list().iter() {
            *counts.entry(failure.what).or_default() += 1;
        }
        counts
    }

    fn list(&self) -> MutexGuard<'_, Vec<Failure>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
