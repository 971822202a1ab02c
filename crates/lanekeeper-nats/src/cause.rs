//! The closed list of what can be wrong between Lanekeeper and NATS.
//!
//! Each error of this crate has exactly one cause; its words are those that conditions, Events and metrics use.

/// Why something failed, coarse enough for a metric and a condition's reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// No server could be reached.
    NatsUnreachable,
    /// The server refused the credentials.
    AuthorizationFailed,
    /// The credentials or certificates that were given cannot be used.
    CredentialsInvalid,
    /// There is no JetStream where it was asked for.
    JetStreamUnavailable,
    /// The server denied an operation to this user.
    PermissionDenied,
    /// Older than what is supported.
    ServerTooOld,
    /// Servers or the account have no room, or too few servers are up.
    InsufficientResources,
    /// Another stream takes the subjects.
    SubjectsOverlap,
    /// Another consumer of a work queue takes the same messages.
    ConsumersOverlap,
    /// The stream is not there.
    StreamMissing,
    /// The stream is there with another configuration.
    StreamConfigConflict,
    /// The consumer is not there.
    ConsumerMissing,
    /// The consumer is there with another configuration, or differs in what cannot be changed.
    ConsumerConflict,
    /// The bucket of the records is denied to this user.
    KvForbidden,
    /// A value in the bucket is not what it should be.
    RecordUnreadable,
    /// Somebody else wrote first; the next look decides.
    Raced,
    /// The request may or may not have been carried out; the next look decides.
    OutcomeUnknown,
    /// The server refused the request for another reason, which it gave.
    NatsRefused,
    /// An answer that makes no sense, or a failure inside the client.
    InternalError,
}

impl Cause {
    /// The word for it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NatsUnreachable => "NatsUnreachable",
            Self::AuthorizationFailed => "AuthorizationFailed",
            Self::CredentialsInvalid => "CredentialsInvalid",
            Self::JetStreamUnavailable => "JetStreamUnavailable",
            Self::PermissionDenied => "PermissionDenied",
            Self::ServerTooOld => "ServerTooOld",
            Self::InsufficientResources => "InsufficientResources",
            Self::SubjectsOverlap => "SubjectsOverlap",
            Self::ConsumersOverlap => "ConsumersOverlap",
            Self::StreamMissing => "StreamMissing",
            Self::StreamConfigConflict => "StreamConfigConflict",
            Self::ConsumerMissing => "ConsumerMissing",
            Self::ConsumerConflict => "ConsumerConflict",
            Self::KvForbidden => "KvForbidden",
            Self::RecordUnreadable => "RecordUnreadable",
            Self::Raced => "Raced",
            Self::OutcomeUnknown => "OutcomeUnknown",
            Self::NatsRefused => "NatsRefused",
            Self::InternalError => "InternalError",
        }
    }

    /// Whether looking again soon is worth it without anybody changing anything.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::NatsUnreachable
                | Self::Raced
                | Self::OutcomeUnknown
                | Self::InsufficientResources
                | Self::InternalError
        )
    }
}
