//! The closed list of reasons: the words that conditions and Events use, each with what it means.
//!
//! Dashboards and scripts match on these words, so one is never renamed; the reference page is generated from
//! this list. Words only: which error leads to which reason is decided where the error is known.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a condition is what it is, or what an Event says.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// All of them, in the order of the reference.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word itself.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// What it means and what to do.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

reasons! {
    // Whole set.
    /// Everything that the specification asks for is in force.
    AsSpecified,
    /// Not looked at yet.
    Pending,
    /// Being brought about; nothing to do.
    Progressing,
    /// `spec.paused` is true: the lanes stopped after the message in hand.
    Paused,
    /// The specification cannot be carried out; the message names each field, its value and what is allowed. Nothing was changed.
    InvalidSpec,
    /// The set is being deleted.
    Deleting,
    /// Deletion with `deletionPolicy: Delete` waits until NATS can be reached; set `Retain` to let the set go without it.
    WaitingForNats,
    /// A defect of the operator or something it never saw; the message has the words of the error.
    InternalError,
    /// The Kubernetes API server refused a request of the operator; the message has its words.
    KubernetesApiError,

    // The way to NATS.
    /// A Secret that `spec.nats` names does not exist, or lacks the key that it names.
    CredentialsMissing,
    /// A Secret of `spec.nats` exists but what it holds cannot be used.
    CredentialsInvalid,
    /// NATS refused the credentials.
    AuthorizationFailed,
    /// No server of `spec.nats.servers` could be reached.
    NatsUnreachable,
    /// The servers, the account or the domain have no JetStream.
    JetStreamUnavailable,
    /// The server is older than 2.11, the oldest that is supported.
    ServerTooOld,
    /// NATS denied an operation; the message names the subject that the user needs a permission for.
    PermissionDenied,
    /// NATS refused a request; the message has its code and words.
    NatsRefused,
    /// The bucket of the records cannot be read or written, so nothing was created.
    KvForbidden,
    /// The record in NATS belongs to a set of another cluster, or to another set that still exists.
    OwnedElsewhere,
    /// The record in NATS cannot be read by this version.
    RecordUnreadable,

    // Stream.
    /// The stream exists with other settings; the message names the field, and both values.
    StreamConfigConflict,
    /// A stream of this name exists that no set made; the operator takes over none.
    StreamNotOwned,
    /// Another stream already takes these subjects.
    SubjectsOverlap,
    /// A work-queue stream allows one set, and another one has it.
    WorkQueueTaken,
    /// The stream is missing and this set is not the one that makes it.
    StreamMissing,
    /// The stream is another one than the record says, right after `spec.nats` changed; a person must confirm.
    StreamChanged,
    /// The servers cannot place the stream or its consumers: not enough servers, or no storage left.
    InsufficientResources,
    /// The stream may discard messages before they are handled, because of its limits.
    RetentionMayDiscard,
    /// The stream has messages whose subject the mapping does not match: no lane sees them.
    UnmappedMessages,

    // Lanes.
    /// A consumer of a lane's name exists that differs in a field which servers cannot change.
    ConsumerConflict,
    /// Other consumers overlap with the lanes on a stream that allows none.
    ConsumersOverlap,
    /// Lanes are being handed over to their successors.
    HandingOver,
    /// The number of partitions in force is the wanted one.
    Settled,
    /// The last change of the number of partitions is younger than `spec.rescale.minimumIntervalSeconds`; the message says until when the old number stays in force.
    RescaleDelayed,
    /// This version cannot change the number of partitions of a running set; the old number stays in force.
    RescaleNotSupported,
    /// The handler failed on a message as often as `spec.retry.maxAttempts` allows; the lane stands there and tries again slowly.
    AttemptsExhausted,
    /// More messages were exhausted within `spec.onExhausted.breaker` than it allows; the lane stands at the next one and tries it slowly. Mend what the handler needs: the breaker closes when the message succeeds.
    BreakerOpen,
    /// A worker cannot store a dead letter, so its lane stands at the message and sends it again; the message says why.
    DeadLetterNotStored,
    /// The stream of the dead letters cannot take them; the message says what to do. Lanes stop at messages without attempts left.
    DeadLettersUnavailable,
    /// A key is parked: a message of it has no attempt left, and every later one waits behind it. The other keys go on. Look with `kubectl lanes parked list`, mend the handler, then release or drop it.
    KeyParked,
    /// A worker cannot store a message in the park stream, or cannot know which keys are parked, so its lane stands there and tries again; the message says why.
    ParkedNotStored,
    /// The park stream cannot take messages; the message says what to do. Lanes stop at messages that would be parked.
    ParkUnavailable,
    /// The set was deleted while keys were parked; their messages stay in the park stream.
    ParkedMessagesRemain,
    /// A message was dropped because of `spec.onExhausted.policy`; an Event for each partition's last one.
    MessageDropped,
    /// Messages of a lane wait and no worker of the set gets them: another client holds the lane's message or its pin, somebody paused the consumer, or the server delivers nothing. `status.attention` says which, at which sequence and since when. It clears itself.
    LaneStalled,
    /// A message was skipped by order of a person, who is named with the reason; an Event for each partition's last one.
    MessageSkipped,
    /// A worker got a message that does not belong to its lane, and refused it.
    MessageRefused,
    /// A worker lost its message's deadline and waits for it to be delivered again.
    DeadlineLost,
    /// A worker that may still hold a message cannot be asked.
    HolderUnreachable,
    /// No lane needs a person.
    NoneBlocked,

    // Workers.
    /// Pods are being started.
    WorkersStarting,
    /// A lane has no ready worker.
    WorkerNotReady,
    /// A container of a worker ends again and again.
    CrashLooping,
    /// An image of a worker cannot be pulled.
    ImagePullFailed,
    /// No node has room for a worker.
    Unschedulable,
    /// A quota of the namespace refuses pods.
    QuotaExceeded,
    /// A Deployment of the name that the set needs belongs to someone else.
    DeploymentConflict,
    /// The API server refused a Deployment of the set; the message has its words, usually about `spec.worker.podTemplate`.
    DeploymentRefused,
    /// A `PodDisruptionBudget` of the name that the set needs for a lane with standbys belongs to someone else. Lanes and workers go on without it.
    DisruptionBudgetConflict,
    /// The API server refused a `PodDisruptionBudget` of the set; the message has its words. Lanes and workers go on without it.
    DisruptionBudgetRefused,

    // Events only.
    /// The stream was created.
    StreamCreated,
    /// The stream was changed back; the message names the fields.
    StreamRepaired,
    /// The stream was missing and was created again; positions start anew.
    StreamRecreated,
    /// The stream was replaced by another of the same name; positions start anew.
    StreamReplaced,
    /// The stream's former owner is gone, and this set took over its care.
    StreamAdopted,
    /// A lane was opened.
    LaneOpened,
    /// A lane was closed.
    LaneClosed,
    /// A consumer was changed back; the message names the fields.
    ConsumerRepaired,
    /// A consumer that belongs to no record was deleted.
    OrphanDeleted,
    /// A Deployment was created.
    DeploymentCreated,
    /// A Deployment was changed back; the message names the fields.
    DeploymentRepaired,
    /// A Deployment without a partition was deleted.
    DeploymentDeleted,
    /// The disruption budget of a lane with standbys was created.
    DisruptionBudgetCreated,
    /// A disruption budget was changed back; the message names the fields.
    DisruptionBudgetRepaired,
    /// A disruption budget was deleted: its lane has no standbys any more, or is gone.
    DisruptionBudgetDeleted,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_a_legal_word_with_a_meaning_and_stands_once() {
        let mut words: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        for reason in Reason::ALL {
            assert!(reason.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric()), "{reason}");
            assert!(reason.meaning().ends_with('.'), "{reason}: {}", reason.meaning());
        }
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
