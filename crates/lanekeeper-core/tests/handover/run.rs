//! What a run is about: messages, numbers of partitions, pods, failures.

use lanekeeper_core::{plan::LANES_AT_ONCE, stream::Retention};

/// A way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Failure {
    /// A worker's container ends and starts again; the kubelet says so.
    WorkerCrash,
    /// A worker is frozen past its message's deadline.
    WorkerStall,
    /// An acknowledgement arrives any time later.
    LateAck,
    /// A request of the operator times out, and is applied any time later.
    LateStep,
    /// The operator ends between two effects.
    OperatorCrash,
    /// Another operator that does not know it was replaced.
    SecondOperator,
    /// The server counts a message as delivered that nobody received.
    DeliveredToNobody,
    /// Somebody deletes a consumer.
    ConsumerDeleted,
    /// A message expires or is purged, whoever handles it.
    MessageVanishes,
    /// A node does not answer any more.
    NodeUnreachable,
    /// The record is deleted.
    RecordLost,
    /// The key of a lane is deleted.
    LaneKeyLost,
    /// A worker acts on an old assignment.
    StaleAssignment,
}

/// A safety rule broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mutant {
    /// A worker pulls without being among the holders.
    PullsWithoutJoining,
    /// A worker joins a lane whose key says that it retires.
    JoinsRetiring,
    /// A worker leaves while it still handles a message.
    LeavesBeforeSettling,
    /// A worker takes a floor for one higher than it is.
    TrustsFloorsTooMuch,
    /// A worker handles what floors cover.
    IgnoresFloors,
    /// The operator does not wait for holders.
    IgnoresHolders,
    /// The operator opens without the `AckWait` after deleting under unreachable holders.
    DoesNotFence,
    /// A lane that retires comes back when it is wanted again.
    RetiringRevoked,
    /// Floors of predecessors' predecessors are forgotten.
    FloorsNotInherited,
    /// Floors are read when a lane retires, not when it is settled.
    FloorsReadEarly,
    /// A consumer deleted by somebody is created again under its name.
    NameReused,
    /// Consumers that no record names stay.
    OrphansKept,
}

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) name: &'static str,
    pub(crate) retention: Retention,
    /// The hash of each message, which stands for its key.
    pub(crate) messages: Vec<u32>,
    /// The wanted numbers of partitions, one after another; each may follow at any moment.
    pub(crate) partitions: Vec<u32>,
    /// The partition of each pod.
    pub(crate) pods: Vec<u32>,
    /// How often each failure happens at most.
    pub(crate) failures: Vec<(Failure, u8)>,
    /// Whether the consumer stays with one pod until that leaves, crashes or is lost (pinning).
    pub(crate) pinned: bool,
    /// How many lanes are under way at once.
    pub(crate) lanes_at_once: usize,
    pub(crate) mutant: Option<Mutant>,
}

impl Run {
    pub(crate) fn new(name: &'static str, retention: Retention, partitions: &[u32]) -> Self {
        Self {
            name,
            retention,
            messages: vec![0, 1, 0],
            partitions: partitions.to_vec(),
            pods: (0..partitions.iter().copied().max().unwrap_or(1)).collect(),
            failures: Vec::new(),
            pinned: true,
            lanes_at_once: LANES_AT_ONCE,
            mutant: None,
        }
    }

    pub(crate) fn messages(self, messages: &[u32]) -> Self {
        Self { messages: messages.to_vec(), ..self }
    }

    pub(crate) fn pods(self, pods: &[u32]) -> Self {
        Self { pods: pods.to_vec(), ..self }
    }

    /// Groups of lanes go one after another.
    pub(crate) fn one_by_one(self) -> Self {
        Self { lanes_at_once: 1, ..self }
    }

    pub(crate) fn failing(mut self, failure: Failure, times: u8) -> Self {
        self.failures.push((failure, times));
        self.failures.sort_unstable();
        self
    }

    pub(crate) fn mutant(self, mutant: Mutant) -> Self {
        Self { mutant: Some(mutant), ..self }
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether a repeat would be a fault: nothing in this run excuses one.
    pub(crate) fn forbids_repeats(&self) -> bool {
        self.failures.is_empty()
    }
}
