//! The server's error codes that make a difference here.
//!
//! From the server's list (`server/errors.json` of <https://github.com/nats-io/nats-server>). A code that is not
//! listed is still told to the user; it only has no meaning of its own.

use crate::cause::Cause;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal => $cause:ident,)+) => {
        /// A code that we know.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// The code with this number.
            pub fn of(number: u64) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// What it means for conditions.
            pub fn cause(self) -> Cause {
                match self { $(Self::$name => Cause::$cause,)+ }
            }
        }
    };
}

codes! {
    /// Resource limits of the account exceeded.
    AccountResources = 10002 => InsufficientResources,
    /// No suitable peers for placement.
    NoPeers = 10005 => InsufficientResources,
    /// `JetStream` system temporarily unavailable.
    ClusterUnavailable = 10008 => JetStreamUnavailable,
    /// Consumer name already in use.
    ConsumerNameInUse = 10013 => ConsumerConflict,
    /// Consumer not found.
    ConsumerMissing = 10014 => ConsumerMissing,
    /// Insufficient resources.
    Resources = 10023 => InsufficientResources,
    /// Maximum number of consumers reached.
    MaximumConsumers = 10026 => InsufficientResources,
    /// Maximum number of streams reached.
    MaximumStreams = 10027 => InsufficientResources,
    /// Memory resources exceeded.
    Memory = 10028 => InsufficientResources,
    /// The stream has no such message.
    MessageMissing = 10037 => Raced,
    /// `JetStream` not enabled for the account.
    NotEnabledForAccount = 10039 => JetStreamUnavailable,
    /// Storage resources exceeded.
    Storage = 10047 => InsufficientResources,
    /// Stream name already in use with a different configuration.
    StreamNameInUse = 10058 => StreamConfigConflict,
    /// Stream not found.
    StreamMissing = 10059 => StreamMissing,
    /// Subjects overlap with an existing stream.
    SubjectsOverlap = 10065 => SubjectsOverlap,
    /// Wrong last sequence.
    WrongLastSequence = 10071 => Raced,
    /// More than one replica without a cluster.
    ReplicasNotSupported = 10074 => InsufficientResources,
    /// `JetStream` not enabled.
    NotEnabled = 10076 => JetStreamUnavailable,
    /// Multiple unfiltered consumers on a work queue.
    WorkQueueUnfiltered = 10099 => ConsumersOverlap,
    /// Filtered consumer not unique on a work queue.
    WorkQueueOverlap = 10100 => ConsumersOverlap,
    /// Consumer already exists.
    ConsumerExists = 10148 => ConsumerConflict,
    /// Consumer does not exist (update of one).
    ConsumerDoesNotExist = 10149 => ConsumerMissing,
    /// Expected last sequence cannot be checked at the moment (several writes in flight).
    SequenceNotReady = 10163 => Raced,
    /// Wrong last sequence, as newer servers say it.
    WrongLastSequenceNow = 10164 => Raced,
    /// Too many requests.
    TooManyRequests = 10167 => InsufficientResources,
}
