//! The stream of a set.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{bounded_strings, rule};

/// The stream of a set. The first set that names it makes it and repairs it; others with the same `stream` and
/// `mapping` use it too.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rule(
    "!has(self.maxAgeSeconds) || !has(self.duplicateWindowSeconds) || self.duplicateWindowSeconds <= self.maxAgeSeconds",
    "spec.stream.duplicateWindowSeconds: must be at most spec.stream.maxAgeSeconds"
))]
pub struct Stream {
    /// The stream's name. Immutable.
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^.*>/\\\s]+$"))]
    pub name: String,

    /// Whose the stream is.
    #[serde(default)]
    pub management: Management,

    /// Subjects that the stream takes.
    #[schemars(schema_with = "bounded_strings")]
    #[x_kube(
        validation = rule(
            "self.all(s, s.matches('^[^.\\\\s]+([.][^.\\\\s]+)*$'))",
            "spec.stream.subjects: must each be tokens joined by dots, without white space or empty tokens"
        ),
        validation = rule(
            "self.all(s, !s.matches('[^.][*>]|[*>][^.]|>[.]'))",
            "spec.stream.subjects: must have '*' and '>' only as whole tokens, and '>' only as the last"
        ),
        validation = rule(
            "self.all(s, s != '>' && !s.startsWith('lanes.') && !s.startsWith('$'))",
            "spec.stream.subjects: must not be '>' and must not begin with 'lanes.' or '$', which are reserved"
        )
    )]
    pub subjects: Vec<String>,

    /// Copies of the stream on different servers.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: i32,

    /// Where messages are kept. Immutable.
    #[serde(default)]
    #[x_kube(validation = rule("self == oldSelf", "spec.stream.storage: is immutable"))]
    pub storage: Storage,

    /// Which messages are kept. Immutable.
    #[serde(default)]
    #[x_kube(validation = rule("self == oldSelf", "spec.stream.retention: is immutable"))]
    pub retention: Retention,

    /// Messages older than this are discarded, handled or not; no limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_153_600_000_i64))]
    pub max_age_seconds: Option<i64>,

    /// The oldest messages are discarded above this size, handled or not; no limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_125_899_906_842_624_i64))]
    pub max_bytes: Option<i64>,

    /// The oldest messages are discarded above this number, handled or not; no limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_i64))]
    pub max_messages: Option<i64>,

    /// How long a message with a `Nats-Msg-Id` already stored is not stored again; the server's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_153_600_000_i64))]
    pub duplicate_window_seconds: Option<i64>,
}

/// Whose a stream is.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Management {
    /// The operator creates it and keeps it as specified; a stream that it did not create is refused.
    #[default]
    Create,
}

/// Where a stream keeps its messages.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// On disk.
    #[default]
    File,
    /// In memory: gone with the server.
    Memory,
}

/// Which messages a stream keeps.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retention {
    /// All, within the stream's limits.
    #[default]
    Limits,
    /// Until every consumer has acknowledged them.
    Interest,
    /// Until they are acknowledged; one set per stream.
    WorkQueue,
}

fn one() -> i32 {
    1
}
