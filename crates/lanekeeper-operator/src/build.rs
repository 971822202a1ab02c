//! Builds the Deployment of one partition, and the disruption budget of its pods, from a checked specification: pure,
//! no I/O, and it cannot fail.
//!
//! The pod template is a person's own JSON and stays JSON: read into types it would lose every misspelt field
//! without a word, while the API server names it. Nothing of the lane itself is in the pod: workers follow their
//! assignment, so that a change of a lane's settings restarts nothing.
//!
//! A lane with standbys has a disruption budget of one pod, so that drains do not take the owner and those who would take
//! over together. A lane of one pod has none, as it could only block drains; and one over several partitions would
//! protect nothing that the partitions share.

mod container;
mod pod;
mod program;

use lanekeeper_api::validate::Validated;
use serde_json::{Value, json};

use crate::{digest::digest, labels};

/// Beside the handler's own time: settling the message in hand and leaving the lane.
pub const GRACE_SECONDS: u64 = 15;

/// What the Deployments and disruption budgets of a set are made of.
#[derive(Debug, Clone, Copy)]
pub struct Blueprint<'a> {
    /// What is asked for.
    pub set: &'a Validated,
    /// The set's uid.
    pub uid: &'a str,
    /// The lane's image, when the specification names none.
    pub worker_image: &'a str,
    /// When that image is pulled.
    pub worker_pull_policy: &'a str,
    /// The KV bucket of the records.
    pub bucket: &'a str,
}

/// The Deployment of one partition, complete with the hash of itself.
pub fn deployment(blueprint: &Blueprint<'_>, partition: u32) -> Value {
    let set = &blueprint.set.name;
    let mut deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(blueprint, partition),
        "spec": {
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": labels::selector(set, partition)},
            // The new pod waits until the old one lets go of the lane.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": pod::template(blueprint, partition),
        },
    });
    // Without standbys the number of replicas is left to its default: whoever scales one Deployment by hand gets that,
    // and an autoscaler that was pointed at one is not fought with. Further pods stand by for the same lane.
    let standbys = blueprint.set.worker.standbys;
    if standbys > 0 {
        deployment["spec"]["replicas"] = json!(1 + standbys);
    }
    with_hash(deployment)
}

/// Whether the lanes of a set have disruption budgets.
pub fn has_disruption_budgets(set: &Validated) -> bool {
    set.worker.standbys > 0
}

/// The disruption budget of one partition's pods, complete with the hash of itself.
pub fn disruption_budget(blueprint: &Blueprint<'_>, partition: u32) -> Value {
    with_hash(json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(blueprint, partition),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": labels::selector(&blueprint.set.name, partition)},
            // A pod that is not ready has no lane to lose: a handler that never starts must not block drains.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }))
}

fn metadata(blueprint: &Blueprint<'_>, partition: u32) -> Value {
    let set = &blueprint.set.name;
    json!({
        "name": set.deployment(partition),
        "namespace": set.namespace,
        "labels": labels::labels(set, partition),
        "ownerReferences": [{
            "apiVersion": "lanekeeper.dev/v1alpha1",
            "kind": "OrderedPartitionSet",
            "name": set.name,
            "uid": blueprint.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}

fn with_hash(mut object: Value) -> Value {
    let hash = digest(&object);
    object["metadata"]["annotations"] = json!({labels::APPLIED: hash});
    object
}

#[cfg(test)]
mod tests;
