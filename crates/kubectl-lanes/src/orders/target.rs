//! Which messages an order is about, and which lane has them now. I/O: one look at the message.

use lanekeeper_api::validate::Validated;
use lanekeeper_core::{
    consumer::ConsumerFound,
    hash::fnv1a32,
    order::{Order, Verb},
    record::{LaneRecord, LaneState},
    share::partition_of,
    subject::{SubjectError, check_subject},
};
use lanekeeper_nats::{ApiError, observe};
use serde::Serialize;

use crate::{look::Seen, reach::Reached};

/// What a person asks for.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// Try the message at which a lane stands.
    Retry(Head),
    /// Skip one message.
    SkipOne { sequence: u64, reason: String },
    /// Skip what there is of a key.
    SkipKey { key: String, reason: String },
    /// Release what is parked of a key.
    Release { key: String },
    /// Drop what is parked of a key, or one message of it.
    DropParked { key: String, sequence: Option<u64>, reason: String },
}

/// A message at which a lane stands, by what a person knows of it.
#[derive(Debug, Clone)]
pub(crate) enum Head {
    Sequence(u64),
    Key(String),
    Partition(u32),
}

impl Asked {
    pub(crate) fn verb(&self) -> Verb {
        match self {
            Self::Retry(_) => Verb::Retry,
            Self::SkipOne { .. } | Self::SkipKey { .. } => Verb::Skip,
            Self::Release { .. } => Verb::Release,
            Self::DropParked { .. } => Verb::Drop,
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Retry(_) | Self::Release { .. } => "",
            Self::SkipOne { reason, .. } | Self::SkipKey { reason, .. } | Self::DropParked { reason, .. } => {
                reason
            }
        }
    }

    /// As far as it can be told without a lane.
    pub(crate) fn partition(&self, set: &Validated) -> u32 {
        match self {
            Self::Retry(Head::Partition(partition)) => *partition,
            Self::Retry(Head::Key(key))
            | Self::SkipKey { key, .. }
            | Self::Release { key }
            | Self::DropParked { key, .. } => {
                partition_of(fnv1a32(key.split('.').map(str::as_bytes)), set.partitions)
            }
            Self::Retry(Head::Sequence(_)) | Self::SkipOne { .. } => 0,
        }
    }
}

/// Why there is nothing to order.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the set has no record yet, so there are no lanes")]
    NoRecord,
    #[error("--key: {0}")]
    Key(SubjectError),
    #[error("--key '{key}' has {found} tokens: a key has {wanted} (keyTokens {key_tokens:?})")]
    Tokens { key: String, found: usize, wanted: usize, key_tokens: Vec<u32> },
    #[error("--partition is {partition}: the set has the partitions 0 to {}", partitions.saturating_sub(1))]
    Partition { partition: u32, partitions: u32 },
    #[error("stream {stream} has no message {sequence} (any more)")]
    NoMessage { stream: String, sequence: u64 },
    #[error("message {sequence} of stream {stream} is stored as '{subject}', which is no lane's")]
    NoLane { stream: String, sequence: u64, subject: String },
    #[error("stream {stream} has no message of key '{key}' that is not settled")]
    NothingOfKey { stream: String, key: String },
    #[error("message {sequence} is settled already: partition {partition} is past it")]
    Settled { sequence: u64, partition: u32 },
    #[error("partition {partition} stands at nothing: no message of it is out")]
    NothingOut { partition: u32 },
    #[error("partition {partition} stands at message {head}, which comes before {sequence}")]
    NotTheHead { partition: u32, head: u64, sequence: u64 },
    #[error("partition {partition} stands at message {head} of key '{of}', not of '{key}'")]
    OtherKey { partition: u32, head: u64, of: String, key: String },
}

/// The messages, and the lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Target {
    pub(crate) partition: u32,
    pub(crate) incarnation: u64,
    pub(crate) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) through: Option<u64>,
}

impl Target {
    pub(crate) fn fill(&self, order: &mut Order) {
        order.key.clone_from(&self.key);
        (order.sequence, order.through) = (self.sequence, self.through);
    }
}

/// Finds them. `None`: the key is between two lanes at this moment.
pub(super) async fn find(
    reached: &Reached,
    set: &Validated,
    seen: &Seen,
    asked: &Asked,
) -> Result<Option<Target>, TargetError> {
    let lanes = seen.record.as_ref().ok_or(TargetError::NoRecord)?.value.lanes.as_slice();
    let place = Place { reached, set, seen, lanes };
    match asked {
        Asked::Retry(head) => place.head(head).await,
        Asked::SkipOne { sequence, .. } => {
            let key = place.key_at(*sequence).await?;
            let Some(lane) = place.lane_of(&key) else { return Ok(None) };
            let partition = lane.share.partition();
            if place.floor(lane) >= *sequence {
                return Err(TargetError::Settled { sequence: *sequence, partition });
            }
            Ok(Some(target(lane, key, Some(*sequence), None)))
        }
        Asked::SkipKey { key, .. } => place.whole_key(key).await,
        Asked::Release { key } => Ok(place.lane_of(key).map(|lane| target(lane, key.clone(), None, None))),
        Asked::DropParked { key, sequence, .. } => {
            Ok(place.lane_of(key).map(|lane| target(lane, key.clone(), *sequence, None)))
        }
    }
}

fn target(lane: &LaneRecord, key: String, sequence: Option<u64>, through: Option<u64>) -> Target {
    let (partition, incarnation) = (lane.share.partition(), lane.incarnation);
    Target { partition, incarnation, key, sequence, through }
}

struct Place<'a> {
    reached: &'a Reached,
    set: &'a Validated,
    seen: &'a Seen,
    lanes: &'a [LaneRecord],
}

impl Place<'_> {
    fn stream(&self) -> String {
        self.set.stream.mapping.stream.clone()
    }

    /// The open lane that has a key.
    fn lane_of(&self, key: &str) -> Option<&LaneRecord> {
        let hash = fnv1a32(key.split('.').map(str::as_bytes));
        self.lanes.iter().find(|lane| lane.state == LaneState::Open && lane.share.contains_hash(hash))
    }

    fn consumer(&self, lane: &LaneRecord) -> Option<&ConsumerFound> {
        self.seen.consumers.get(&lane.incarnation)
    }

    fn floor(&self, lane: &LaneRecord) -> u64 {
        self.consumer(lane).map_or(0, |found| found.floor)
    }

    /// The message at which the lane stands: the first of those that are out.
    async fn out(&self, lane: &LaneRecord) -> Result<u64, TargetError> {
        let nothing = TargetError::NothingOut { partition: lane.share.partition() };
        let Some(found) = self.consumer(lane).filter(|found| found.ack_pending > 0) else {
            return Err(nothing);
        };
        let filter = self.set.stream.mapping.filter(lane.share);
        let connection = &self.reached.connection;
        let first = observe::next_under(connection, &self.stream(), &filter, found.floor + 1).await?;
        first.map(|first| first.sequence).filter(|first| *first <= found.delivered).ok_or(nothing)
    }

    /// The key of a message.
    async fn key_at(&self, sequence: u64) -> Result<String, TargetError> {
        let stream = self.stream();
        let found = observe::message(&self.reached.connection, &stream, sequence).await?;
        let Some(found) = found else { return Err(TargetError::NoMessage { stream, sequence }) };
        let mapping = &self.set.stream.mapping;
        let key = mapping.original_subject(&found.subject).and_then(|subject| mapping.key_of(subject));
        match key {
            Some(key) => Ok(key.join(".")),
            None => Err(TargetError::NoLane { stream, sequence, subject: found.subject }),
        }
    }

    fn tokens<'k>(&self, key: &'k str) -> Result<Vec<&'k str>, TargetError> {
        check_subject(key).map_err(TargetError::Key)?;
        let tokens: Vec<&str> = key.split('.').collect();
        let key_tokens = &self.set.stream.mapping.key_tokens;
        if tokens.len() == key_tokens.len() {
            return Ok(tokens);
        }
        let (found, wanted) = (tokens.len(), key_tokens.len());
        Err(TargetError::Tokens { key: key.to_owned(), found, wanted, key_tokens: key_tokens.clone() })
    }

    /// The message at which a lane stands.
    async fn head(&self, head: &Head) -> Result<Option<Target>, TargetError> {
        let lane = match head {
            Head::Sequence(sequence) => self.lane_of(&self.key_at(*sequence).await?),
            Head::Key(key) => {
                self.tokens(key)?;
                self.lane_of(key)
            }
            Head::Partition(partition) => {
                let mut all = self.lanes.iter().filter(|lane| lane.share.partition() == *partition);
                if all.clone().next().is_none() && *partition >= self.set.partitions {
                    let partitions = self.set.partitions;
                    return Err(TargetError::Partition { partition: *partition, partitions });
                }
                all.find(|lane| lane.state == LaneState::Open)
            }
        };
        let Some(lane) = lane else { return Ok(None) };
        let partition = lane.share.partition();
        if let Head::Sequence(sequence) = head
            && self.floor(lane) >= *sequence
        {
            return Err(TargetError::Settled { sequence: *sequence, partition });
        }
        let out = self.out(lane).await?;
        if let Head::Sequence(sequence) = head
            && *sequence != out
        {
            return Err(TargetError::NotTheHead { partition, head: out, sequence: *sequence });
        }
        let key = self.key_at(out).await?;
        if let Head::Key(wanted) = head
            && *wanted != key
        {
            return Err(TargetError::OtherKey { partition, head: out, of: key, key: wanted.clone() });
        }
        Ok(Some(target(lane, key, Some(out), None)))
    }

    async fn whole_key(&self, key: &str) -> Result<Option<Target>, TargetError> {
        let filter = self.set.stream.mapping.key_filter(&self.tokens(key)?).unwrap_or_default();
        let stream = self.stream();
        let nothing = || TargetError::NothingOfKey { stream: self.stream(), key: key.to_owned() };
        let last = observe::last_under(&self.reached.connection, &stream, &filter).await?;
        let last = last.ok_or_else(nothing)?;
        let Some(lane) = self.lane_of(key) else { return Ok(None) };
        if self.floor(lane) >= last {
            return Err(nothing());
        }
        Ok(Some(target(lane, key.to_owned(), None, Some(last))))
    }
}
