//! Consumers, retrying, and what comes after the last attempt.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::rule;

/// The consumers of the lanes.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Consumer {
    /// After how long without a sign from its worker a message is delivered again. Kept alive while the handler
    /// runs, so this is not a limit on the handler but the time that a crashed worker costs.
    #[serde(default = "default_ack_wait_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub ack_wait_seconds: i32,

    /// How it is decided which of a lane's workers gets its messages. A change hands every lane over to a successor.
    #[serde(default)]
    pub ownership: Ownership,

    /// Where new consumers begin. Immutable.
    #[serde(default)]
    #[x_kube(validation = rule("self == oldSelf", "spec.consumer.start: is immutable"))]
    pub start: Start,

    /// Copies of the consumers' state; the stream's number when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,
}

impl Default for Consumer {
    fn default() -> Self {
        Self {
            ack_wait_seconds: default_ack_wait_seconds(),
            ownership: Ownership::default(),
            start: Start::default(),
            replicas: None,
        }
    }
}

/// How it is decided which of a lane's workers gets its messages.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ownership {
    /// By the server: a consumer is pinned to one worker, the others stand by.
    #[default]
    Pin,
    /// By a lease in the bucket of the records, given for `ackWaitSeconds` at a time: for servers whose pinning is not to be
    /// trusted. Each lane writes it three times in that time, also at rest.
    Lease,
}

/// Where a set begins in a stream that it meets for the first time.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// With the oldest message that the stream has.
    #[default]
    All,
    /// With the first message stored after the set.
    New,
}

/// Retrying a failed message: in place, so that nothing overtakes it.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rule(
    "self.initialBackoffMilliseconds <= self.maxBackoffSeconds * 1000",
    "spec.retry.initialBackoffMilliseconds: must be at most spec.retry.maxBackoffSeconds"
))]
pub struct Retry {
    /// Delay after the first failure; doubles with each further one.
    #[serde(default = "default_initial_backoff_milliseconds")]
    #[schemars(range(min = 1, max = 3_600_000))]
    pub initial_backoff_milliseconds: i32,

    /// The delay never exceeds this. A blocked lane tries again at this interval.
    #[serde(default = "default_max_backoff_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub max_backoff_seconds: i32,

    /// Attempts after which a message counts as exhausted.
    #[serde(default = "default_max_attempts")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_attempts: i32,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            initial_backoff_milliseconds: default_initial_backoff_milliseconds(),
            max_backoff_seconds: default_max_backoff_seconds(),
            max_attempts: default_max_attempts(),
        }
    }
}

/// What happens to a message whose attempts are used up.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rule(
        "!has(self.deadLetter) || self.policy == 'DeadLetter'",
        "spec.onExhausted.deadLetter: must be absent unless spec.onExhausted.policy is DeadLetter"
    ),
    validation = rule(
        "!has(self.park) || self.policy == 'ParkKey'",
        "spec.onExhausted.park: must be absent unless spec.onExhausted.policy is ParkKey"
    ),
    validation = rule(
        "!has(self.breaker) || self.policy != 'Block'",
        "spec.onExhausted.breaker: must be absent when spec.onExhausted.policy is Block"
    )
)]
pub struct OnExhausted {
    /// What happens to it.
    #[serde(default)]
    pub policy: ExhaustedPolicy,

    /// Where dead letters go; a stream that the operator makes when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<DeadLetter>,

    /// Where parked messages go; a stream that the operator makes when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub park: Option<Park>,

    /// When a lane stops instead: too many at once are no fault of the messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
}

/// Where dead letters go.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// A stream of yours that takes `lanekeeper.dlq.<namespace>.<name>`. When absent, the operator makes the stream
    /// `lk_<namespace>_<name>_dlq`. (A `.` in the name is written `=`.)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^.*>/\\\s]+$"))]
    pub stream_name: Option<String>,
}

/// Where parked messages go.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Park {
    /// A stream of yours that takes `lanekeeper.park.<namespace>.<name>.>` and has no limits. When absent, the operator makes
    /// the stream `lk_<namespace>_<name>_park`. (A `.` in the name is written `=`.) Once lanes may have parked in one stream,
    /// another one is not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^.*>/\\\s]+$"))]
    pub stream_name: Option<String>,
}

/// How many messages of one lane are put away in how long before it stops at the next one.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// As many are put away within the window.
    #[serde(default = "default_max_exhausted")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_exhausted: i32,

    /// The window.
    #[serde(default = "default_window_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub window_seconds: i32,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { max_exhausted: default_max_exhausted(), window_seconds: default_window_seconds() }
    }
}

/// What happens to a message whose attempts are used up.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExhaustedPolicy {
    /// The lane stops at the message, says so, and tries again at the longest backoff.
    #[default]
    Block,
    /// It is published to another stream, and the lane goes on once it is stored there.
    DeadLetter,
    /// It is given up, with a record of it, and the lane goes on.
    Drop,
    /// It and every later message of its key go to another stream, in order, until a person releases or drops them; the
    /// other keys go on.
    ParkKey,
}

fn default_ack_wait_seconds() -> i32 {
    15
}

fn default_initial_backoff_milliseconds() -> i32 {
    1000
}

fn default_max_backoff_seconds() -> i32 {
    60
}

fn default_max_attempts() -> i32 {
    5
}

fn default_max_exhausted() -> i32 {
    10
}

fn default_window_seconds() -> i32 {
    600
}
