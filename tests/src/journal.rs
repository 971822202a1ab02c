//! Judges by journals whether every message was handled, and in the order of its key.
//!
//! A handler writes one line per handling, repeats too; a publisher knows what it published. This module reads the
//! lines and has them judged by the one checker that there is, [`lanekeeper_core::journal`], with everything that was
//! published expected and settled. Besides, it holds the fences that the lane gave against the publisher's numbers. It
//! knows nothing else: no NATS, no lanes, no partitions. It must stay that way, because it is the oracle that the demo
//! and the end-to-end tests trust, and so must the checker that it uses.
//!
//! What counts as what:
//! - a **repeat** is a further handling of a number that was completed; it is allowed, because delivery is
//!   at-least-once, and it is counted;
//! - **out of order** is what the checker calls a step back or too early: a handling that starts before the number
//!   published before it for that key has completed for the first time, or after a later one has, unless it repeats a
//!   number that had completed. A gap is therefore both: the missing number is lost, the one after it out of order;
//! - an **overlap** is a handling that starts while another one of its key is still running
//!   (one that starts in the nanosecond in which the other ends does not overlap it);
//! - **lost** is what was published and never handled, **unknown** what was handled and never published;
//! - a **fence** is wrong when it is not new and higher than every earlier fence of its key, unless it is the fence of
//!   its own number's earlier handling.
//!
//! The times of all entries have to come from clocks that agree: one machine's, here.

mod fences;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use lanekeeper_core::{
    fence::Fence,
    journal::{self, Checker, Options},
};
use serde::Deserialize;

pub use lanekeeper_core::journal::Findings;
pub use report::Report;

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
    let options = Options {
        examples: report::EXAMPLES,
        message: |fence| format!("number {}", fence.sequence),
        ..Options::default()
    };
    let mut checker = Checker::new(options);
    for (key, numbers) in &published.numbers {
        for &number in numbers {
            checker.expect(key, place(number), true, true);
        }
    }
    for entry in entries {
        checker.add(&handling(entry));
    }
    Report::new(published, &checker.report(), fences::judge(published, entries))
}

/// The checker orders by fences; here the publisher's numbers are the order.
fn place(number: u64) -> Fence {
    Fence { stream_incarnation: 1, sequence: number }
}

fn handling(entry: &Entry) -> journal::Entry {
    journal::Entry {
        v: journal::Entry::VERSION,
        namespace: String::new(),
        set: String::new(),
        partition: u32::try_from(entry.partition).unwrap_or_default(),
        incarnation: 0,
        pod: entry.pod.clone(),
        instance: String::new(),
        handling: 0,
        batch: None,
        key: entry.key.clone(),
        subject: String::new(),
        fence: place(entry.number),
        attempt: u64::try_from(entry.attempt).unwrap_or_default(),
        start: entry.start,
        end: entry.end,
        // The handlers of the examples write what they have done, and nothing of what they have not.
        outcome: journal::Ending::Done,
    }
}
