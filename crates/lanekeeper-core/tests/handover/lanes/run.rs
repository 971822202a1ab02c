//! What a run of the production lane is about.

use lanekeeper_core::{lane::Options, stream::Retention};

use crate::run;

/// A way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Failure {
    /// A worker's process ends and starts again; the kubelet says so.
    PodCrash,
    /// A worker is told to end, and a new one starts when it did.
    PodStops,
    /// A worker's process is stopped for a while; its handler may go on.
    Stall,
    /// A handler takes long, but says nothing wrong.
    LongHandling,
    /// An attempt fails.
    HandlerFails,
    /// The handler is not there.
    HandlerAway,
    /// A worker's connection is lost, and made again later.
    ConnectionLost,
    /// A node does not answer any more, for ever.
    NodeUnreachable,
    /// A request of a worker is never applied.
    RequestLost,
    /// A request of a worker is applied any time later.
    RequestLate,
    /// A request of a worker is applied, and never answered.
    AnswerLost,
    /// A request of a worker is applied, and answered any time later.
    AnswerLate,
    /// A message reaches its worker any time later.
    MessageLate,
    /// The server counts a message as delivered that nobody received.
    DeliveredToNobody,
    /// A worker reads an assignment that is no longer in force.
    StaleAssignment,
    /// A request of the operator times out, and is applied any time later.
    LateStep,
    /// The operator ends between two effects.
    OperatorCrash,
    /// Another operator that does not know it was replaced.
    SecondOperator,
    /// Somebody deletes a consumer.
    ConsumerDeleted,
    /// Somebody takes the pin away, or a change of leader forgets it.
    PinTaken,
    /// A message expires or is purged, whoever handles it.
    MessageVanishes,
    /// The record is deleted.
    RecordLost,
    /// The key of a lane is deleted.
    LaneKeyLost,
}

impl Failure {
    /// Every one.
    pub(crate) const ALL: [Self; 23] = [
        Self::PodCrash,
        Self::PodStops,
        Self::Stall,
        Self::LongHandling,
        Self::HandlerFails,
        Self::HandlerAway,
        Self::ConnectionLost,
        Self::NodeUnreachable,
        Self::RequestLost,
        Self::RequestLate,
        Self::AnswerLost,
        Self::AnswerLate,
        Self::MessageLate,
        Self::DeliveredToNobody,
        Self::StaleAssignment,
        Self::LateStep,
        Self::OperatorCrash,
        Self::SecondOperator,
        Self::ConsumerDeleted,
        Self::PinTaken,
        Self::MessageVanishes,
        Self::RecordLost,
        Self::LaneKeyLost,
    ];

    /// Whether a repeat would be a fault all the same.
    fn excuses_no_repeat(self) -> bool {
        matches!(
            self,
            Self::LongHandling
                | Self::PodStops
                | Self::PinTaken
                | Self::StaleAssignment
                | Self::LateStep
                | Self::OperatorCrash
                | Self::SecondOperator
        )
    }

    /// Whether requests of workers are seen under way.
    fn is_about_requests(self) -> bool {
        matches!(self, Self::RequestLost | Self::RequestLate | Self::AnswerLost | Self::AnswerLate)
    }
}

/// A safety rule of the lane broken on purpose, by what stands between the lane and the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mutant {
    /// It pulls without being among the holders.
    PullsWithoutJoining,
    /// It joins a lane whose key says that it retires.
    JoinsRetiring,
    /// It does not hear that its lane retires.
    ServesRetiring,
    /// It leaves while its handler runs.
    LeavesBeforeSettling,
    /// It takes an acknowledgement for confirmed that was only sent.
    TrustsItsAcks,
    /// It takes the pin for kept without hearing from the server.
    TrustsItsRenewals,
    /// Its clock stands still while its process does.
    ClockStops,
    /// It handles what floors cover.
    IgnoresFloors,
    /// It takes a floor for one higher than it is.
    TrustsFloorsTooMuch,
    /// It does not say that it is still at work.
    SaysNothing,
}

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) retention: Retention,
    /// The hash of each message, which stands for its key.
    pub(crate) messages: Vec<u32>,
    /// The wanted numbers of partitions, one after another; each may follow at any moment.
    pub(crate) partitions: Vec<u32>,
    /// The partition of each pod.
    pub(crate) pods: Vec<u32>,
    /// How often each failure happens at most.
    pub(crate) failures: Vec<(Failure, u8)>,
    /// Whether requests of workers are seen under way: everything else may happen before they are applied.
    pub(crate) under_way: bool,
    pub(crate) mutant: Option<Mutant>,
}

impl Run {
    pub(crate) fn new(partitions: &[u32], messages: &[u32], pods: &[u32]) -> Self {
        Self {
            retention: Retention::Limits,
            messages: messages.to_vec(),
            partitions: partitions.to_vec(),
            pods: pods.to_vec(),
            failures: Vec::new(),
            under_way: false,
            mutant: None,
        }
    }

    pub(crate) fn retention(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    pub(crate) fn under_way(self) -> Self {
        Self { under_way: true, ..self }
    }

    pub(crate) fn failing(mut self, failure: Failure, times: u8) -> Self {
        self.failures.push((failure, times));
        self.under_way |= failure.is_about_requests();
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
        self.failures.iter().all(|(failure, _)| failure.excuses_no_repeat())
    }

    pub(crate) fn options(&self) -> Options {
        Options { progress: !self.is(Mutant::SaysNothing), ..Options::default() }
    }

    /// As the world knows it.
    pub(crate) fn world(&self) -> run::Run {
        run::Run::new("lanes", self.retention, &self.partitions).messages(&self.messages).pods(&self.pods)
    }
}
