//! How a lane gets its messages.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::rule;

/// How a lane gets its messages: one at a time, or several at once for more of them per second. The order is the same.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rule(
    "!has(self.window) || self.mode != 'Serial'",
    "spec.delivery.window: must be absent if spec.delivery.mode is Serial"
))]
#[x_kube(validation = rule(
    "!has(self.maxBatch) || self.mode == 'Batch'",
    "spec.delivery.maxBatch: must be absent unless spec.delivery.mode is Batch"
))]
#[x_kube(validation = rule(
    "!has(self.maxWaitMilliseconds) || self.mode == 'Batch'",
    "spec.delivery.maxWaitMilliseconds: must be absent unless spec.delivery.mode is Batch"
))]
#[x_kube(validation = rule(
    "!has(self.maxBatch) || self.maxBatch <= (has(self.window) ? self.window : 64)",
    "spec.delivery.maxBatch: must not exceed spec.delivery.window, which is 64 when absent"
))]
pub struct Delivery {
    /// The way. Another one hands every lane over to a successor, like a change of the number of partitions.
    #[serde(default)]
    pub mode: DeliveryMode,

    /// `Pipelined` and `Batch`: how many messages of a lane may be on their way or in its hands; 64 when absent. So many may be
    /// handled again after a crash. Can be changed at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 1024))]
    pub window: Option<i32>,

    /// `Batch` only: how many messages the handler is given at once, at most; the window when absent, and never more than the
    /// window. Can be changed at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_batch: Option<i32>,

    /// `Batch` only: how long a batch that is not full waits for more messages, from the arrival of its first; 0 when absent:
    /// then a batch is what has come while the one before was handled. Can be changed at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 60_000))]
    pub max_wait_milliseconds: Option<i64>,
}

/// How a lane gets its messages.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeliveryMode {
    /// One at a time, each acknowledgement confirmed before the next: at most the message in hand is repeated.
    #[default]
    Serial,
    /// Several are on hand, handled one after another in order, their acknowledgements confirmed together: several times as
    /// fast for quick handlers, and up to a whole window is repeated after a crash.
    Pipelined,
    /// As Pipelined, but the handler is given up to `maxBatch` at once, in order; they succeed or fail together.
    Batch,
}

/// Of `window`.
pub const DEFAULT_WINDOW: i32 = 64;
