//! What the plan is decided from.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    consumer::ConsumerFound,
    mapping::Mapping,
    names::SetName,
    record::{Assignment, Holder, LaneKey, LaneSettings, Owner, Record},
    stream::Retention,
};

/// Where the first lanes of a set begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Start {
    /// With everything that the stream has.
    All,
    /// With what comes after the set was made.
    New,
}

/// Usual for [`Wanted::lanes_at_once`]: sixteen lanes that are split in two. More make a change of many lanes hardly
/// faster, and each key of it wait for longer.
pub const LANES_AT_ONCE: usize = 48;

/// What a person asked for, checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Whose record it is.
    pub owner: Owner,
    /// The set.
    pub set: SetName,
    /// How subjects become lanes.
    pub mapping: Mapping,
    /// From 1 to the mapping's maximum.
    pub partitions: u32,
    /// Of the stream.
    pub retention: Retention,
    /// Of the first lanes.
    pub start: Start,
    /// Copies of each consumer; `None` as the stream.
    pub consumer_replicas: Option<u32>,
    /// How lanes are run.
    pub settings: LaneSettings,
    /// How many lanes, old and new together, are under way at most when a change goes through many; a group that
    /// overlaps goes together however large it is. See [`LANES_AT_ONCE`].
    pub lanes_at_once: usize,
    /// The caller's clock, in seconds since the Unix epoch: noted when a change begins, never compared by the plan.
    pub now_seconds: u64,
}

/// A value with the revision at which it was read, for compare-and-set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revisioned<T> {
    /// The KV revision (stream sequence of the bucket).
    pub revision: u64,
    /// The value.
    pub value: T,
}

/// What NATS and the kubelet said. The record must be read before the consumers: an orphan is only what the record
/// that was read could already have named.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Observed {
    /// Creation time of the stream.
    pub stream_created: String,
    /// The last sequence the stream gave.
    pub stream_last_sequence: u64,
    /// The set's record.
    pub record: Option<Revisioned<Record>>,
    /// Whether anything outside NATS says that the set had lanes before (its status, its Deployments): then a missing
    /// record was lost, and somebody may still hold a message.
    pub known_before: bool,
    /// The key of each incarnation.
    pub lane_keys: BTreeMap<u64, Revisioned<LaneKey>>,
    /// The leases that were written, by incarnation, each with its revision.
    pub leases: BTreeMap<u64, u64>,
    /// The assignment of each partition.
    pub assignments: BTreeMap<u32, Revisioned<Assignment>>,
    /// The consumers whose names are of this set, by incarnation.
    pub consumers: BTreeMap<u64, ConsumerFound>,
    /// Holders whose container has terminated, on the kubelet's word.
    pub terminated: BTreeSet<Holder>,
    /// Holders on nodes of which there is no news.
    pub unreachable: BTreeSet<Holder>,
    /// Incarnations whose consumer has been gone for one `AckWait`, by the observer's own monotonic clock; 0 stands for
    /// the whole set having been without a record for that long.
    pub fence_elapsed: BTreeSet<u64>,
}

impl Observed {
    /// Whether NATS has anything of the set besides its record.
    pub fn has_traces(&self) -> bool {
        !self.consumers.is_empty() || !self.lane_keys.is_empty() || !self.assignments.is_empty()
    }
}
