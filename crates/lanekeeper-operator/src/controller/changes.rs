//! What counts as a change: the parts of an object that a pass looks at, and nothing that moves on its own.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{Resource, ResourceExt, core::DynamicObject};
use serde_json::{Value, json};

use crate::{context::Guarded, labels};

/// The last state of each object, by uid.
#[derive(Debug, Default)]
pub(super) struct Changes {
    seen: HashMap<String, u64>,
}

impl Changes {
    /// Whether an object is not as it was.
    pub(super) fn is_news(&mut self, uid: Option<String>, state: &Value) -> bool {
        let mut hasher = DefaultHasher::new();
        state.to_string().hash(&mut hasher);
        let hash = hasher.finish();
        self.seen.insert(uid.unwrap_or_default(), hash) != Some(hash)
    }

    /// An object is gone.
    pub(super) fn forget(&mut self, uid: Option<&str>) {
        self.seen.remove(uid.unwrap_or_default());
    }
}

/// The generation does not rise with the deletion of an object whose finalizer is there already, nor with annotations.
pub(super) fn of_set(set: &Guarded) -> Value {
    json!([
        set.meta().generation,
        set.meta().deletion_timestamp.is_some(),
        set.annotations().get(labels::ACCEPT_STREAM),
        set.0.is_err(),
    ])
}

/// What was asked for, and how many pods are there.
pub(super) fn of_deployment(deployment: &DynamicObject) -> Value {
    let status = &deployment.data["status"];
    let conditions: Vec<Value> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| json!([one["type"], one["status"], one["reason"]]))
        .collect();
    json!([of_child(deployment), status["availableReplicas"], conditions])
}

/// What was asked for. How many pods may go just now moves on its own.
pub(super) fn of_budget(budget: &DynamicObject) -> Value {
    of_child(budget)
}

fn of_child(child: &DynamicObject) -> Value {
    let metadata = &child.metadata;
    json!([
        metadata.generation,
        metadata.deletion_timestamp.is_some(),
        metadata.labels,
        metadata.annotations.as_ref().and_then(|all| all.get(labels::APPLIED)),
        metadata.owner_references,
    ])
}

/// Where a pod stands on its way from pending to its end.
pub(super) fn of_pod(pod: &Pod) -> Value {
    let Some(status) = &pod.status else { return Value::Null };
    let container = |one: &ContainerStatus| {
        let waiting = one.state.as_ref().and_then(|state| state.waiting.as_ref());
        json!([
            one.name,
            one.ready,
            one.restart_count > 0,
            waiting.and_then(|waiting| waiting.reason.as_deref())
        ])
    };
    let init = status.init_container_statuses.iter().flatten().map(container);
    let containers: Vec<Value> =
        init.chain(status.container_statuses.iter().flatten().map(container)).collect();
    let unschedulable =
        status.conditions.iter().flatten().any(|one| one.reason.as_deref() == Some("Unschedulable"));
    json!([status.phase, pod.metadata.deletion_timestamp.is_some(), unschedulable, containers])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(generation: i64, extra: &Value) -> Guarded {
        let mut object = json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "OrderedPartitionSet",
            "metadata": {"name": "a", "namespace": "b", "uid": "u", "generation": generation},
            "spec": "not even an object",
        });
        object["metadata"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_status_write_is_no_change_and_an_unreadable_set_is_seen() {
        let mut changes = Changes::default();
        let mut news = |set: Guarded| changes.is_news(set.uid(), &of_set(&set));
        assert!(news(set(1, &json!({"resourceVersion": "1"}))));
        assert!(!news(set(1, &json!({"resourceVersion": "2"}))));
        assert!(news(set(2, &json!({}))));
        assert!(news(set(2, &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))));
    }

    #[test]
    fn progress_messages_of_a_deployment_are_no_change_and_an_available_pod_is() {
        let deployment = |available: i64, message: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "uid": "u", "generation": 1},
                "status": {"availableReplicas": available, "conditions": [{"type": "Progressing", "message": message}]},
            }))
            .unwrap()
        };
        let mut changes = Changes::default();
        let mut news = |one: DynamicObject| changes.is_news(one.uid(), &of_deployment(&one));
        assert!(news(deployment(0, "one")));
        assert!(!news(deployment(0, "two")));
        assert!(news(deployment(1, "two")));
    }
}
