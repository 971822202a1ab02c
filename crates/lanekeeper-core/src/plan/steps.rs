//! What a plan can say.

use crate::{
    consumer::{ConsumerSpec, Drift},
    record::{Assignment, Holder, LaneKey, Owner, Record},
};

/// One effect on NATS. All writes to the KV bucket are conditional: `expected` is the revision that must still be
/// there, `None` that the key must not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Write the record.
    PutRecord {
        /// Revision.
        expected: Option<u64>,
        /// Value.
        record: Record,
    },
    /// Write the key of an incarnation.
    PutLaneKey {
        /// Which.
        incarnation: u64,
        /// Revision.
        expected: Option<u64>,
        /// Value.
        key: LaneKey,
    },
    /// Write the assignment of a partition.
    PutAssignment {
        /// Which.
        partition: u32,
        /// Revision.
        expected: Option<u64>,
        /// Value.
        assignment: Box<Assignment>,
    },
    /// Create a consumer that must not exist (the same with the same configuration is fine).
    CreateConsumer(ConsumerSpec),
    /// Give a consumer back the fields that somebody changed.
    RepairConsumer {
        /// What it must be.
        spec: ConsumerSpec,
        /// What differs.
        drift: Vec<Drift>,
    },
    /// Delete a consumer of this set; missing is fine.
    DeleteConsumer {
        /// Its incarnation.
        incarnation: u64,
        /// Its name.
        name: String,
    },
    /// Forget the key of an incarnation that no record names.
    DeleteLaneKey {
        /// Which.
        incarnation: u64,
        /// Revision.
        expected: u64,
    },
    /// Forget the lease of an incarnation whose key is gone.
    DeleteLease {
        /// Which.
        incarnation: u64,
        /// Revision.
        expected: u64,
    },
    /// Forget the assignment of a partition that is not wanted any more.
    DeleteAssignment {
        /// Which.
        partition: u32,
        /// Revision.
        expected: u64,
    },
}

/// What a change waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// Workers that joined a retiring lane and did not leave it yet.
    Holders {
        /// The lane's partition.
        partition: u32,
        /// The lane.
        incarnation: u64,
        /// Who.
        holders: Vec<Holder>,
    },
    /// One `AckWait` after the lane's consumer was deleted, because its holders are unreachable or unknown.
    Fence {
        /// The lane's partition.
        partition: u32,
        /// The lane.
        incarnation: u64,
    },
    /// The longest `AckWait` of the set, because its record was lost and nobody knows who holds a message.
    RecordLost,
}

/// Something a person should read in an Event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Note {
    /// Another stream of the same name took the place of the one in the record; positions do not apply to it.
    StreamReplaced {
        /// Creation time in the record.
        before: String,
        /// Creation time now.
        now: String,
    },
    /// Somebody deleted, or made again, the consumer of a lane; it is succeeded after its last known floor.
    ConsumerLost {
        /// The lane's partition.
        partition: u32,
        /// The lane.
        incarnation: u64,
        /// What was found instead.
        found: String,
    },
    /// The record was lost and is rebuilt from consumers.
    RecordRebuilt {
        /// How many lanes were found.
        lanes: usize,
    },
    /// The lane's KV key was deleted by somebody; its holders are unknown.
    LaneKeyLost {
        /// The lane's partition.
        partition: u32,
        /// The lane.
        incarnation: u64,
    },
}

/// Why nothing can be planned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The record belongs to a set of another cluster or name.
    OwnedElsewhere(Owner),
    /// The record is about another stream, whose positions were retained.
    OfAnotherStream(String),
}

/// The next steps of a set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    /// To be carried out in order, up to the first that fails.
    pub steps: Vec<Step>,
    /// What is waited for; may be there beside steps.
    pub waits: Vec<Wait>,
    /// For Events.
    pub notes: Vec<Note>,
    /// Nothing may be done at all.
    pub refusal: Option<Refusal>,
    /// With no steps left: the record with newer checkpoints. Worth writing at the resync, not worth another call.
    pub checkpoint: Option<Step>,
}

impl Plan {
    pub(super) fn steps(steps: Vec<Step>) -> Self {
        Self { steps, ..Self::default() }
    }

    pub(super) fn refused(refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..Self::default() }
    }

    /// Whether everything is as wanted.
    pub fn is_settled(&self) -> bool {
        self.steps.is_empty() && self.waits.is_empty() && self.refusal.is_none()
    }
}
