//! One entry of a journal, as it is published.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fence::Fence;

/// The subject of a partition's entries: nothing but the set's journal subject and the partition.
pub fn subject(journal: &str, partition: u32) -> String {
    format!("{journal}.{partition}")
}

/// How a handling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    /// The handler is done with the message.
    Done,
    /// The attempt failed, or took longer than the handler's timeout.
    Failed,
    /// The handler said that the message will never work.
    Permanent,
    /// The handler asked to wait; no attempt.
    Waited,
    /// The handler was not there; no attempt.
    Unreachable,
    /// The lane's deadline passed without proof: the handler was stopped and its result would not have counted.
    Lost,
    /// A shutdown could not wait for the handler; no attempt.
    Cut,
    /// No handling, but the end of it: no attempt was left, and the message was dead-lettered or dropped.
    PutAway,
    /// No handling, and not the end of it: it was parked, and is handled or put away when its key is released.
    Parked,
}

impl Ending {
    /// Whether the message's turn is over.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Done | Self::PutAway)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Permanent => "permanent",
            Self::Waited => "waited",
            Self::Unreachable => "unreachable",
            Self::Lost => "lost",
            Self::Cut => "cut",
            Self::PutAway => "put away",
            Self::Parked => "parked",
        })
    }
}

/// One handling of one message, by the process that ran the handler. JSON; fields that are not known are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The version of the form: 1.
    pub v: u32,
    /// The namespace of the set whose journal it is.
    pub namespace: String,
    /// The set's name.
    pub set: String,
    /// The partition whose lane handled it.
    pub partition: u32,
    /// The incarnation of that lane.
    pub incarnation: u64,
    /// The pod.
    pub pod: String,
    /// One start of the lane's container.
    pub instance: String,
    /// How many handlings that instance had begun, this one included. A hole is an entry that did not arrive.
    pub handling: u64,
    /// Where the handler was given several messages at once: the `handling` of the first of them. They have the same start
    /// and the same end, and were handled in the order of their numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The key: within it, order matters.
    pub key: String,
    /// The subject that was published to.
    pub subject: String,
    /// The message, and its place among all of its key.
    #[serde(with = "fence_as_text")]
    pub fence: Fence,
    /// The delivery attempt, from 1.
    pub attempt: u64,
    /// When the handler was called, in microseconds since 1970 by the pod's clock. Never before the end of the
    /// instance's handling before it, and always after its start.
    pub start: i64,
    /// When the handling ended, in microseconds since 1970.
    pub end: i64,
    /// How it ended.
    pub outcome: Ending,
}

/// A text that is no entry, or not one of this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryError(String);

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EntryError {}

impl Entry {
    /// The version that is written, and the only one that is read.
    pub const VERSION: u32 = 1;

    /// An entry that was read (by whatever reads JSON), if it can be judged.
    pub fn judgeable(self) -> Result<Self, EntryError> {
        if self.v != Self::VERSION {
            return Err(EntryError(format!("has version {}, and only {} is known", self.v, Self::VERSION)));
        }
        if self.end < self.start {
            return Err(EntryError(format!("ends at {}, before its start at {}", self.end, self.start)));
        }
        Ok(self)
    }
}

mod fence_as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::fence::Fence;

    pub(super) fn serialize<S: Serializer>(fence: &Fence, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(fence)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Fence, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
