//! The names of what a lane must never do.

use std::fmt;

/// A named rule of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneInvariant {
    /// A pull is sent only by a holder of the lane.
    PullOnlyWhenJoined,
    /// Where a lease decides who has the lane's messages, only its holder asks for them and handles them.
    OnlyWithLease,
    /// No pull is sent while a message is in hand, except on its ack, unless the lane is pipelined.
    PullOnlyWhenFree,
    /// No two handlers run at once.
    OneHandler,
    /// A message is handled only after the ack of the one handled before it was confirmed, or that one was
    /// given back or given up, unless the lane is pipelined.
    SettledBeforeNext,
    /// A message is handled only when no earlier one is on hand that was not completed.
    InStreamOrder,
    /// Nothing is sent for a message after its deadline.
    NothingAfterDeadline,
    /// Nothing is handled after its deadline.
    HandledInTime,
    /// Only what was completed or put away, here or by a predecessor, is acknowledged.
    CompletedBeforeAck,
    /// Only what has no attempt left is put away, and only as the set's policy says.
    PutAwayByPolicy,
    /// A message is skipped only as a person ordered, not while its handler runs, and stored first where the policy has
    /// dead letters.
    SkippedByOrder,
    /// No more is put away than the breaker allows, and nothing while it is open.
    BreakerHolds,
    /// A message of a parked key is not handled, and none before it is known which keys are parked.
    ParkedKeysWait,
    /// Parked messages are handled and deleted only by the worker with the claim, while the lane is known to be as it was.
    ReleasedByClaim,
    /// Only keys of the lane's share are handled.
    OnlyOwnKeys,
    /// What this process completed is not handled again.
    NotCompletedTwice,
    /// A lane is left only with nothing in hand.
    NothingInHandWhenLeaving,
}

impl LaneInvariant {
    /// Every invariant.
    pub const ALL: [Self; 17] = [
        Self::PullOnlyWhenJoined,
        Self::OnlyWithLease,
        Self::PullOnlyWhenFree,
        Self::OneHandler,
        Self::SettledBeforeNext,
        Self::InStreamOrder,
        Self::NothingAfterDeadline,
        Self::HandledInTime,
        Self::CompletedBeforeAck,
        Self::PutAwayByPolicy,
        Self::SkippedByOrder,
        Self::BreakerHolds,
        Self::ParkedKeysWait,
        Self::ReleasedByClaim,
        Self::OnlyOwnKeys,
        Self::NotCompletedTwice,
        Self::NothingInHandWhenLeaving,
    ];

    /// As metrics and logs name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PullOnlyWhenJoined => "pull-only-when-joined",
            Self::OnlyWithLease => "only-with-lease",
            Self::PullOnlyWhenFree => "pull-only-when-free",
            Self::OneHandler => "one-handler",
            Self::SettledBeforeNext => "settled-before-next",
            Self::InStreamOrder => "in-stream-order",
            Self::NothingAfterDeadline => "nothing-after-deadline",
            Self::HandledInTime => "handled-in-time",
            Self::CompletedBeforeAck => "completed-before-ack",
            Self::PutAwayByPolicy => "put-away-by-policy",
            Self::SkippedByOrder => "skipped-by-order",
            Self::BreakerHolds => "breaker-holds",
            Self::ParkedKeysWait => "parked-keys-wait",
            Self::ReleasedByClaim => "released-by-claim",
            Self::OnlyOwnKeys => "only-own-keys",
            Self::NotCompletedTwice => "not-completed-twice",
            Self::NothingInHandWhenLeaving => "nothing-in-hand-when-leaving",
        }
    }
}

impl fmt::Display for LaneInvariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
