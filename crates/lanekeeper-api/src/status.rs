//! What a set says of itself.
//!
//! Nothing here changes on its own (no lag, no heartbeat times): that is what metrics are for. Status is a cache
//! of what NATS and Kubernetes hold, and can be deleted at any time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd;

/// The most lanes that [`OrderedPartitionSetStatus::attention`] names.
pub const MAX_ATTENTION: usize = 20;

/// What the operator last saw of a set.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct OrderedPartitionSetStatus {
    /// The `metadata.generation` that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The number of partitions in force; differs from `spec.partitions` while it changes.
    #[serde(default)]
    pub partitions: i32,

    /// A label selector of the set's worker pods, for autoscalers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,

    /// How many lanes are in which state.
    #[serde(default)]
    pub lanes: LaneCounts,

    /// Lanes that need a person, or that a change waits for: at most 20 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub attention: Vec<LaneAttention>,

    /// The conditions of the set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
}

/// How many lanes are in which state; each lane is counted once.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct LaneCounts {
    /// Handling messages, or waiting for some.
    #[serde(default)]
    pub open: i32,
    /// Being handed over to their successors.
    #[serde(default)]
    pub handing_over: i32,
    /// Standing at a message that needs a person, or kept from the messages that wait.
    #[serde(default)]
    pub blocked: i32,
    /// Without a ready worker.
    #[serde(default)]
    pub without_worker: i32,
}

/// A lane that needs a person, or that a change waits for.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LaneAttention {
    /// The partition.
    pub partition: i32,
    /// Why, from the closed list of reasons.
    pub reason: String,
    /// The stream sequence that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    /// Since when, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd::moment")]
    pub since: Option<Time>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
}
