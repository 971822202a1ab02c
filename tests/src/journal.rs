//! Judges by journals whether every message was handled, and in the order of its key.
//!
//! A handler writes one line per handling, repeats too; a publisher knows what it published.
//! This module compares the two and knows nothing else: no NATS, no lanes, no partitions, and
//! nothing about how the product works. It must stay that way, because it is the oracle that
//! the demo and the end-to-end tests trust, and an oracle that shares code or assumptions with
//! what it judges would share its faults.
//!
//! What counts as what:
//! - a **repeat** is a further handling of a number; it is allowed, because delivery is
//!   at-least-once, and it is counted;
//! - **out of order** is a handling that starts before the number published before it for that
//!   key has completed for the first time; one that steps back behind a number already started,
//!   unless it repeats a number that had completed; or one whose fence is not new and higher than
//!   every earlier fence of its key, unless it has the fence of its own number's earlier handling.
//!   A gap is therefore both: the missing number is lost, the one after it out of order;
//! - an **overlap** is a handling that starts while another one of its key is still running
//!   (one that starts in the nanosecond in which the other ends does not overlap it);
//! - **lost** is what was published and never handled, **unknown** what was handled and never
//!   published.
//!
//! The times of all entries have to come from clocks that agree: one machine's, here.

mod order;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use report::{Findings, Report};

/// One handling of one message, as the handler wrote it down. Other fields are ignored.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Entry {
    /// The key: within it, order matters.
    pub key: String,
    /// The number that the publisher gave the message, rising within its key.
    pub number: u64,
    /// What the lane said about the message's place; sorts as text.
    pub fence: String,
    /// The partition whose lane delivered it.
    pub partition: i64,
    /// The delivery attempt, from 1.
    pub attempt: i64,
    /// When the handler began, in nanoseconds since 1970.
    pub start: i64,
    /// When the handler was done, in nanoseconds since 1970.
    pub end: i64,
    /// Who wrote it.
    pub pod: String,
}

/// What was published, by key, each key's numbers rising.
#[derive(Clone, Debug, Default)]
pub struct Published {
    numbers: BTreeMap<String, Vec<u64>>,
}

/// Input that cannot be judged at all.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A line that is no entry.
    #[error("line {line} of the journal of {source_name} is no entry: {text:?}: {source}")]
    Malformed {
        /// Whose journal it is.
        source_name: String,
        /// The line, from 1.
        line: usize,
        /// What stands there.
        text: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// An entry that ends before it starts.
    #[error("line {line} of the journal of {source_name} ends at {end}, before its start at {start}")]
    EndsBeforeStart {
        /// Whose journal it is.
        source_name: String,
        /// The line, from 1.
        line: usize,
        /// The entry's start.
        start: i64,
        /// The entry's end.
        end: i64,
    },
    /// A published list whose numbers do not rise within a key.
    #[error("number {number} of {key} was published after number {previous}: the numbers of a key must rise")]
    NotRising {
        /// The key.
        key: String,
        /// The number that came too late.
        number: u64,
        /// The number before it.
        previous: u64,
    },
}

impl Published {
    /// Takes the messages in the order in which they were published.
    pub fn new<K: Into<String>>(messages: impl IntoIterator<Item = (K, u64)>) -> Result<Self, JournalError> {
        let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (key, number) in messages {
            let key = key.into();
            if let Some(&previous) = numbers.get(&key).and_then(|list| list.last())
                && previous >= number
            {
                return Err(JournalError::NotRising { key, number, previous });
            }
            numbers.entry(key).or_default().push(number);
        }
        Ok(Self { numbers })
    }

    /// How many messages were published.
    pub fn messages(&self) -> usize {
        self.numbers.values().map(Vec::len).sum()
    }
}

/// Reads a journal, one JSON object per line; `name` says in errors whose it is.
pub fn parse(name: &str, text: &str) -> Result<Vec<Entry>, JournalError> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(|(_, line)| !line.is_empty()).map(|(line, text)| parse_line(name, line, text)).collect()
}

fn parse_line(name: &str, line: usize, text: &str) -> Result<Entry, JournalError> {
    let entry: Entry = serde_json::from_str(text).map_err(|source| JournalError::Malformed {
        source_name: name.to_owned(),
        line,
        text: text.to_owned(),
        source,
    })?;
    if entry.end < entry.start {
        return Err(JournalError::EndsBeforeStart {
            source_name: name.to_owned(),
            line,
            start: entry.start,
            end: entry.end,
        });
    }
    Ok(entry)
}

/// Compares what was published with all journals together, in whatever order their entries come.
pub fn check(published: &Published, entries: &[Entry]) -> Report {
    let mut by_key: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        by_key.entry(&entry.key).or_default().push(entry);
    }
    let mut report = Report::new(published, entries);
    for (key, numbers) in &published.numbers {
        order::judge(key, numbers, by_key.remove(key.as_str()).unwrap_or_default(), &mut report);
    }
    for (key, entries) in by_key {
        order::judge(key, &[], entries, &mut report);
    }
    report
}
