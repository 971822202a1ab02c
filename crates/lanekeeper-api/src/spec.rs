//! The resource itself and its specification.
//!
//! Every field is acted on by this version: what later versions will know is left out rather than accepted and
//! ignored. Integers are signed because API servers warn about unsigned formats. Rules that compare fields
//! are CEL rules beside the fields; [`crate::validate`] repeats all of them.

// `KubeSchema` makes a public helper type inside a function.
#![allow(unreachable_pub)]

pub mod consumer;
pub mod delivery;
pub mod mapping;
pub mod nats;
pub mod rescale;
pub mod stream;
pub mod worker;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    consumer::{Breaker, Consumer, DeadLetter, ExhaustedPolicy, OnExhausted, Ownership, Park, Retry, Start},
    delivery::{DEFAULT_WINDOW, Delivery, DeliveryMode},
    mapping::Mapping,
    nats::{ClientSecretRef, Nats, SecretKeyRef, Tls},
    rescale::Rescale,
    stream::{Management, Retention, Storage, Stream},
    worker::{Embedded, Exec, Handler, Http, Journal, Resources, Worker},
};
use crate::{crd::rule, status::OrderedPartitionSetStatus};

/// An ordered, partitioned consumer of one NATS JetStream stream: messages of one key are handled one after
/// another, messages of different partitions at the same time.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "lanekeeper.dev",
    version = "v1alpha1",
    kind = "OrderedPartitionSet",
    plural = "orderedpartitionsets",
    shortname = "ops",
    category = "lanekeeper",
    namespaced,
    status = "OrderedPartitionSetStatus",
    derive = "PartialEq",
    doc = "An ordered, partitioned consumer of one NATS JetStream stream.",
    scale(
        spec_replicas_path = ".spec.partitions",
        status_replicas_path = ".status.partitions",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Partitions", type_ = "integer", json_path = ".spec.partitions"),
    printcolumn(name = "Ready Lanes", type_ = "integer", json_path = ".status.lanes.open"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Rescaling",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Rescaling\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = rule(
        "self.metadata.name.size() <= 40",
        "metadata.name: must have at most 40 characters, so that the names of the set's Deployments fit"
    )
)]
#[x_kube(
    validation = rule(
        "self.partitions <= self.mapping.maxPartitions",
        "spec.partitions: must be at most spec.mapping.maxPartitions"
    ),
    validation = rule(
        "self.consumer.ownership != 'Lease' || self.delivery.mode == 'Serial'",
        "spec.delivery.mode: must be Serial where spec.consumer.ownership is Lease: the other modes need a pin"
    ),
    validation = rule(
        "self.stream.name == oldSelf.stream.name",
        "spec.stream.name: is immutable; make another set for another stream"
    ),
    validation = rule(
        // Necessary, cheap and never wrong: the same text up to the first wildcard, as many tokens, and a rest only
        // under a rest. What is left to the checks in Rust are literals behind a wildcard. (The whole relation as
        // a regular expression made from the subject is twelve times over the cost that API servers allow.)
        "self.stream.subjects.exists(s, self.mapping.subject.startsWith(s.split('*')[0].split('>')[0]) && (s.endsWith('>') || (!self.mapping.subject.endsWith('>') && s.split('.').size() == self.mapping.subject.split('.').size())))",
        "spec.mapping.subject: must be covered by one of spec.stream.subjects"
    ),
    validation = rule(
        // Necessary and cheap; wildcards of the stream's subjects are left to the checks in Rust.
        "!has(self.worker.journal) || !self.stream.subjects.exists(s, s == self.worker.journal.subject + '.*' || (s.endsWith('.>') && !s.contains('*') && (self.worker.journal.subject + '.').startsWith(s.split('>')[0])))",
        "spec.worker.journal.subject: must not be below a subject of spec.stream.subjects; the stream would keep its own journal"
    ),
    validation = rule(
        "!has(self.onExhausted.deadLetter) || !has(self.onExhausted.deadLetter.streamName) || self.onExhausted.deadLetter.streamName != self.stream.name",
        "spec.onExhausted.deadLetter.streamName: must be another stream than spec.stream.name"
    ),
    validation = rule(
        "!has(self.onExhausted.park) || !has(self.onExhausted.park.streamName) || self.onExhausted.park.streamName != self.stream.name",
        "spec.onExhausted.park.streamName: must be another stream than spec.stream.name"
    ),
    validation = rule(
        "!has(self.consumer.replicas) || (self.stream.retention == 'Limits' ? self.consumer.replicas <= self.stream.replicas : self.consumer.replicas == self.stream.replicas)",
        "spec.consumer.replicas: must be at most spec.stream.replicas, and equal to it unless spec.stream.retention is Limits"
    ),
    validation = rule(
        "self.stream.retention != 'WorkQueue' || self.consumer.start == 'All'",
        "spec.consumer.start: must be All when spec.stream.retention is WorkQueue; such a stream has only what is left to do"
    ),
)]
pub struct OrderedPartitionSetSpec {
    /// How many lanes work at the same time. A key always belongs to exactly one of them.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1024))]
    pub partitions: i32,

    /// How the number of partitions is changed.
    #[serde(default)]
    pub rescale: Rescale,

    /// Lanes stop after the message in hand; nothing is lost, and the stream keeps what comes.
    #[serde(default)]
    pub paused: bool,

    /// How to reach NATS.
    pub nats: Nats,

    /// The stream whose messages are handled.
    pub stream: Stream,

    /// Which part of a subject is the key, and how many partitions there can ever be. Immutable.
    #[x_kube(validation = rule(
        "self == oldSelf",
        "spec.mapping: is immutable; messages already stored were partitioned by it"
    ))]
    pub mapping: Mapping,

    /// The consumers of the lanes.
    #[serde(default)]
    pub consumer: Consumer,

    /// How a lane gets its messages.
    #[serde(default)]
    pub delivery: Delivery,

    /// Retrying a message that failed.
    #[serde(default)]
    pub retry: Retry,

    /// What happens to a message whose attempts are used up.
    #[serde(default)]
    pub on_exhausted: OnExhausted,

    /// What handles the messages.
    pub worker: Worker,

    /// What becomes of consumers and their positions when the set is deleted. The stream is never deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What becomes of consumers and their positions when the set is deleted.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionPolicy {
    /// They stay: a set of the same name goes on where this one stopped. Needs no NATS.
    #[default]
    Retain,
    /// They are deleted; deletion waits until NATS can be reached.
    Delete,
}

fn one() -> i32 {
    1
}
