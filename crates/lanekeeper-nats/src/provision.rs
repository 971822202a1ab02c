//! Creating and repairing streams and consumers.
//!
//! Strict: what the server states afterwards is compared with what was asked for, because servers fill in, round and
//! (older ones) ignore fields without a word. Repairs change the configuration that the server has and send it
//! back, so fields that are not known here, descriptions and foreign metadata stay. No stream is ever deleted.
//!
//! Only fields that every supported server knows are sent, so nothing here depends on the API level.

mod aside;
mod consumer;
mod stream;

use lanekeeper_core::consumer::Drift;
use serde_json::Value;

use crate::{
    api::{ApiError, Code},
    cause::Cause,
    observe::Object,
};
pub use aside::{create_aside, repair_aside};
pub use consumer::{create_consumer, delete_consumer, repair_consumer};
pub use stream::{Created, create_stream, repair_stream};

/// Why something could not be created or repaired.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProvisionError {
    /// The request failed.
    #[error("{object}: {error}")]
    Api {
        /// `stream X` or `consumer X of stream Y`.
        object: String,
        /// Why.
        #[source]
        error: ApiError,
    },
    /// Another stream takes the subjects.
    #[error("{object}: {error}; the subjects belong to {}", .others.join(", "))]
    SubjectsTaken {
        /// The stream that was asked for.
        object: String,
        /// Whose they are.
        others: Vec<String>,
        /// The server's refusal.
        #[source]
        error: ApiError,
    },
    /// It is not there any more.
    #[error("{object} does not exist")]
    Missing {
        /// `stream X` or `consumer X of stream Y`.
        object: String,
    },
    /// It differs in fields that servers cannot change. Nothing was changed.
    #[error("{object} cannot be repaired: {}", words(.differences))]
    Unrepairable {
        /// `stream X` or `consumer X of stream Y`.
        object: String,
        /// All of them.
        differences: Vec<Drift>,
    },
    /// The server accepted it, but made something else of it.
    #[error("{object} is not what was asked for: {}", words(.differences))]
    NotAsAsked {
        /// `stream X` or `consumer X of stream Y`.
        object: String,
        /// What differs.
        differences: Vec<Drift>,
    },
}

impl ProvisionError {
    /// The cause, of the closed list.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Api { error, .. } if error.is_outcome_unknown() => Cause::OutcomeUnknown,
            Self::Api { error, .. } => error.cause(),
            Self::SubjectsTaken { .. } => Cause::SubjectsOverlap,
            Self::Missing { object } if object.starts_with("stream") => Cause::StreamMissing,
            Self::Missing { .. } => Cause::ConsumerMissing,
            Self::Unrepairable { object, .. } | Self::NotAsAsked { object, .. }
                if object.starts_with("stream") =>
            {
                Cause::StreamConfigConflict
            }
            Self::Unrepairable { .. } | Self::NotAsAsked { .. } => Cause::ConsumerConflict,
        }
    }

    /// The word for the cause.
    pub fn reason(&self) -> &'static str {
        self.cause().reason()
    }

    /// The server's own code, when it refused.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Api { error, .. } | Self::SubjectsTaken { error, .. } => error.code(),
            Self::Missing { .. } | Self::Unrepairable { .. } | Self::NotAsAsked { .. } => None,
        }
    }
}

fn words(differences: &[Drift]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Puts our metadata among what is there; what is the server's own is left out, it writes it itself.
fn merge_metadata<'a>(config: &mut Object, ours: impl IntoIterator<Item = (&'a String, &'a String)>) {
    let mut merged = match config.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Object::new(),
    };
    merged.retain(|key, _| !key.starts_with("_nats."));
    merged.extend(ours.into_iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))));
    config.insert("metadata".into(), Value::Object(merged));
}
