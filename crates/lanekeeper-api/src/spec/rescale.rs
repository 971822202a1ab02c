//! Changing the number of partitions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Changing the number of partitions.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Rescale {
    /// The shortest time from the beginning of one change of `spec.partitions` to the beginning of the next: what an
    /// autoscaler asks for in between waits, and only its last wish is carried out. 0: none waits.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86_400))]
    pub minimum_interval_seconds: i32,
}
