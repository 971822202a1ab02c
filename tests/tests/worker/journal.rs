//! A handler that does as it is told and keeps a journal of what it did.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use lanekeeper_worker::{Handler, HandlerError, Message};

/// How a handling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It has not.
    Running,
    Done,
    Failed,
    /// The lane dropped it.
    Cut,
}

#[derive(Debug, Clone)]
pub(crate) struct Handling {
    pub who: &'static str,
    pub sequence: u64,
    pub key: String,
    pub attempt: u64,
    pub start: Instant,
    pub end: End,
    pub ended: Option<Instant>,
}

/// Shared by all handlers of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    entries: Arc<Mutex<Vec<Handling>>>,
}

impl Journal {
    pub(crate) fn all(&self) -> Vec<Handling> {
        self.entries.lock().unwrap().clone()
    }

    pub(crate) fn begin(&self, who: &'static str, sequence: u64, key: String, attempt: u64) -> usize {
        let mut entries = self.entries.lock().unwrap();
        let (start, end) = (Instant::now(), End::Running);
        entries.push(Handling { who, sequence, key, attempt, start, end, ended: None });
        entries.len() - 1
    }

    pub(crate) fn end(&self, index: usize, end: End) {
        let mut entries = self.entries.lock().unwrap();
        entries[index].end = end;
        entries[index].ended = Some(Instant::now());
    }

    /// Sequences in the order in which their handling began.
    pub(crate) fn begun(&self) -> Vec<u64> {
        self.all().iter().map(|handling| handling.sequence).collect()
    }

    /// Sequences and how each handling ended, in the order in which they began.
    pub(crate) fn story(&self) -> Vec<(u64, End)> {
        self.all().iter().map(|handling| (handling.sequence, handling.end)).collect()
    }

    pub(crate) fn done(&self) -> Vec<u64> {
        let all = self.all();
        all.iter().filter(|handling| handling.end == End::Done).map(|handling| handling.sequence).collect()
    }

    /// No message of a key began before every earlier one of that key was done, and no two ran at once.
    pub(crate) fn assert_in_order(&self) {
        let all = self.all();
        let mut last: std::collections::HashMap<&str, &Handling> = std::collections::HashMap::new();
        for handling in &all {
            if let Some(before) = last.get(handling.key.as_str()) {
                let ended = before.ended.is_some_and(|ended| ended <= handling.start);
                assert!(ended, "{handling:?} began while {before:?} ran");
                let progress = handling.sequence > before.sequence && before.end == End::Done;
                let repeat = handling.sequence <= before.sequence;
                assert!(progress || repeat, "{handling:?} began before {before:?} was done");
            }
            last.insert(&handling.key, handling);
        }
    }
}

type Behaviour = dyn Fn(&Message) -> (Duration, Result<(), HandlerError>) + Send + Sync;

/// Handles by a function that says how long it takes and how it ends.
pub(crate) struct Script {
    who: &'static str,
    journal: Journal,
    behaviour: Box<Behaviour>,
}

impl Script {
    pub(crate) fn new(
        journal: &Journal,
        behaviour: impl Fn(&Message) -> (Duration, Result<(), HandlerError>) + Send + Sync + 'static,
    ) -> Self {
        Self { who: "one", journal: journal.clone(), behaviour: Box::new(behaviour) }
    }

    pub(crate) fn named(mut self, who: &'static str) -> Self {
        self.who = who;
        self
    }

    /// Each message takes this long and works.
    pub(crate) fn taking(journal: &Journal, time: Duration) -> Self {
        Self::new(journal, move |_| (time, Ok(())))
    }
}

/// Notices when a handling is dropped in the middle.
struct Entry {
    journal: Journal,
    index: usize,
    ended: bool,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.ended {
            self.journal.end(self.index, End::Cut);
        }
    }
}

impl Handler for Script {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let index = self.journal.begin(self.who, message.sequence(), message.key(), message.attempt());
        let mut entry = Entry { journal: self.journal.clone(), index, ended: false };
        let (time, result) = (self.behaviour)(message);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        self.journal.end(index, if result.is_ok() { End::Done } else { End::Failed });
        entry.ended = true;
        result
    }
}
