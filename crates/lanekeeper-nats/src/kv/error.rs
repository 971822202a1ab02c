//! What can go wrong with a bucket.

use crate::{api::ApiError, cause::Cause};

/// Why a bucket could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KvError {
    /// Somebody else wrote first: nothing was written. Read again and decide again.
    #[error("key '{key}' of bucket '{bucket}' is not at revision {expected} any more")]
    Conflict {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// The revision that was to be replaced; 0 means that the key was not to exist.
        expected: u64,
    },
    /// There is no such bucket (yet).
    #[error("bucket '{bucket}' does not exist")]
    BucketMissing {
        /// The bucket.
        bucket: String,
    },
    /// The bucket exists, but not as it must be.
    #[error("bucket '{bucket}' cannot be used: {why}")]
    BucketUnfit {
        /// The bucket.
        bucket: String,
        /// What is wrong with it.
        why: String,
    },
    /// This user may not do that.
    #[error("no permission for bucket '{bucket}': {violation}")]
    Forbidden {
        /// The bucket.
        bucket: String,
        /// The server's words, with the subject.
        violation: String,
    },
    /// No answer to a write: it may or may not have been carried out. Read again before anything is decided by it.
    #[error("whether key '{key}' of bucket '{bucket}' was written is not known: {error}")]
    Unknown {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// Why there is no answer.
        #[source]
        error: ApiError,
    },
    /// The value is not what it should be.
    #[error("key '{key}' of bucket '{bucket}' at revision {revision} cannot be read: {error}")]
    Unreadable {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// Its revision.
        revision: u64,
        /// What is wrong with it.
        error: String,
    },
    /// The request failed, and nothing was written.
    #[error("bucket '{bucket}': {error}")]
    Api {
        /// The bucket.
        bucket: String,
        /// Why.
        #[source]
        error: ApiError,
    },
}

impl KvError {
    /// The cause, of the closed list.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Conflict { .. } => Cause::Raced,
            Self::BucketMissing { .. } => Cause::StreamMissing,
            Self::BucketUnfit { .. } => Cause::StreamConfigConflict,
            Self::Forbidden { .. } => Cause::KvForbidden,
            Self::Unknown { .. } => Cause::OutcomeUnknown,
            Self::Unreadable { .. } => Cause::RecordUnreadable,
            Self::Api { error, .. } => error.cause(),
        }
    }

    /// The word for the cause.
    pub fn reason(&self) -> &'static str {
        self.cause().reason()
    }

    /// Nothing was written because somebody else wrote first.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}
