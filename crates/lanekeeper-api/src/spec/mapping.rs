//! Which part of a subject is the key.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{key_tokens, rule};

/// How subjects become partitions. It belongs to the stream, is written once and never changes.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rule(
        "self.keyTokens.all(t, t <= self.subject.split('.').filter(x, x == '*').size())",
        "spec.mapping.keyTokens: must each be the number of a '*' of spec.mapping.subject, counted from 1"
    ),
)]
pub struct Mapping {
    /// The subjects that are partitioned, with a `*` for each token that may become part of the key. `>` is
    /// allowed as the last token.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(
        validation = rule(
            "self.matches('^[^.\\\\s]+([.][^.\\\\s]+)*$')",
            "spec.mapping.subject: must be tokens joined by dots, without white space or empty tokens"
        ),
        validation = rule(
            "!self.matches('[^.][*>]|[*>][^.]|>[.]')",
            "spec.mapping.subject: must have '*' and '>' only as whole tokens, and '>' only as the last"
        ),
        validation = rule(
            "self.split('.').exists(t, t == '*')",
            "spec.mapping.subject: must have at least one '*', from which the key is taken (instead of 'orders.>' write 'orders.*' or 'orders.*.>')"
        ),
        validation = rule(
            "!self.startsWith('lanes.') && !self.startsWith('$')",
            "spec.mapping.subject: must not begin with 'lanes.' or '$', which are reserved"
        )
    )]
    pub subject: String,

    /// Which `*` make the key: their numbers, counted from 1, in the order in which they are hashed.
    #[schemars(schema_with = "key_tokens")]
    #[x_kube(validation = rule(
        "self.all(t, self.filter(u, u == t).size() == 1)",
        "spec.mapping.keyTokens: must be distinct"
    ))]
    pub key_tokens: Vec<i32>,

    /// The most partitions there can ever be: a power of two.
    #[serde(default = "default_max_partitions")]
    #[schemars(range(min = 1, max = 1024))]
    #[x_kube(validation = rule(
        "self in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]",
        "spec.mapping.maxPartitions: must be a power of two from 1 to 1024"
    ))]
    pub max_partitions: i32,
}

fn default_max_partitions() -> i32 {
    256
}
