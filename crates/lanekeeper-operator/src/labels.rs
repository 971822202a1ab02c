//! Names and labels that the operator puts on what it makes in Kubernetes.
//!
//! Selectors of Deployments cannot be changed later, so what is in [`selector`] is frozen.

use lanekeeper_core::names::SetName;
use serde_json::{Map, Value, json};

/// Whose fields these are, for server-side apply.
pub const FIELD_MANAGER: &str = "lanekeeper";
/// Holds back the deletion of a set until its lanes are cleared away.
pub const FINALIZER: &str = "lanekeeper.dev/cleanup";
/// The name of a set.
pub const SET: &str = "lanekeeper.dev/set";
/// The number of a partition.
pub const PARTITION: &str = "lanekeeper.dev/partition";
/// The hash of what was last applied to an object.
pub const APPLIED: &str = "lanekeeper.dev/applied";
/// On a set: the creation time of a stream that a person accepts in the place of the one in the record.
pub const ACCEPT_STREAM: &str = "lanekeeper.dev/accept-stream";
/// Who manages an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub const MANAGER: &str = "lanekeeper";
/// What an object is.
pub const NAME: &str = "app.kubernetes.io/name";
/// The value of [`NAME`].
pub const WORKER: &str = "lanekeeper-worker";

/// All labels of the Deployment, the disruption budget and the pods of one partition.
pub fn labels(set: &SetName, partition: u32) -> Map<String, Value> {
    let mut labels = selector(set, partition);
    labels.insert(NAME.into(), json!(WORKER));
    labels.insert(MANAGED_BY.into(), json!(MANAGER));
    labels
}

/// What a Deployment selects its pods by. Frozen.
pub fn selector(set: &SetName, partition: u32) -> Map<String, Value> {
    Map::from_iter([(SET.into(), json!(set.name)), (PARTITION.into(), json!(partition.to_string()))])
}

/// What matches the pods of a whole set, in its namespace: `status.selector`.
pub fn set_selector(set: &SetName) -> String {
    format!("{MANAGED_BY}={MANAGER},{SET}={}", set.name)
}

/// What matches everything that the operator made.
pub fn everything() -> String {
    format!("{MANAGED_BY}={MANAGER},{NAME}={WORKER}")
}
