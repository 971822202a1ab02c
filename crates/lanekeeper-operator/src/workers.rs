//! How the workers of a set are, from its Deployments and pods: pure.
//!
//! Words here must not change while nothing changes: no pod names of a crash loop, no counters.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{ResourceExt, core::DynamicObject};
use lanekeeper_api::reason::Reason;
use lanekeeper_core::names::SetName;
use serde_json::Value;

use crate::labels;

/// The worker of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// The partition.
    pub partition: u32,
    /// Whether a pod of it is ready.
    pub ready: bool,
    /// Why not.
    pub trouble: Option<Trouble>,
}

/// Why a worker is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one word.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

impl Trouble {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// The workers of the partitions from 0 to `partitions - 1`.
pub fn workers(
    set: &SetName,
    uid: &str,
    partitions: u32,
    deployments: &[DynamicObject],
    pods: &[Pod],
) -> Vec<Worker> {
    (0..partitions)
        .map(|partition| {
            let name = set.deployment(partition);
            let deployment =
                deployments.iter().find(|one| one.name_any() == name && is_controlled_by(one, uid));
            let number = partition.to_string();
            let pods: Vec<&Pod> =
                pods.iter().filter(|pod| pod.labels().get(labels::PARTITION) == Some(&number)).collect();
            let ready = deployment.is_some_and(|one| available(one) > 0);
            let trouble = (!ready).then(|| trouble(&name, deployment, &pods));
            Worker { partition, ready, trouble }
        })
        .collect()
}

/// Whether an object's controller is the set with this uid.
pub fn is_controlled_by(object: &DynamicObject, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

fn available(deployment: &DynamicObject) -> i64 {
    deployment.data.pointer("/status/availableReplicas").and_then(Value::as_i64).unwrap_or_default()
}

fn trouble(name: &str, deployment: Option<&DynamicObject>, pods: &[&Pod]) -> Trouble {
    let Some(deployment) = deployment else {
        return Trouble::new(Reason::WorkersStarting, format!("Deployment {name} is being made"));
    };
    if deployment.data.pointer("/spec/replicas") == Some(&Value::from(0)) {
        return Trouble::new(Reason::WorkerNotReady, format!("Deployment {name} is scaled to 0"));
    }
    if let Some(refused) = replica_failure(deployment) {
        let quota = refused.contains("exceeded quota") || refused.contains("failed quota");
        let reason = if quota { Reason::QuotaExceeded } else { Reason::WorkerNotReady };
        return Trouble::new(reason, format!("Deployment {name}: {}", without_pod_name(&refused)));
    }
    pods.iter().filter_map(|pod| pod_trouble(name, pod)).min_by_key(|trouble| trouble.reason).unwrap_or_else(
        || Trouble::new(Reason::WorkersStarting, format!("Deployment {name} has no ready pod yet")),
    )
}

fn replica_failure(deployment: &DynamicObject) -> Option<String> {
    let conditions = deployment.data.pointer("/status/conditions")?.as_array()?;
    let failing = conditions.iter().find(|one| one["type"] == "ReplicaFailure" && one["status"] == "True")?;
    Some(failing["message"].as_str().unwrap_or("pods are refused").to_owned())
}

/// `pods "orders-3-7c9-x2x4v" is forbidden: …`: the random name changes with each try, the reason does not.
fn without_pod_name(message: &str) -> String {
    match message.split_once("\" is forbidden: ") {
        Some((_, rest)) => format!("a pod is forbidden: {rest}"),
        None => message.to_owned(),
    }
}

fn pod_trouble(name: &str, pod: &Pod) -> Option<Trouble> {
    let status = pod.status.as_ref()?;
    let unschedulable = status
        .conditions
        .iter()
        .flatten()
        .find(|one| one.type_ == "PodScheduled" && one.reason.as_deref() == Some("Unschedulable"));
    if let Some(condition) = unschedulable {
        let why = condition.message.as_deref().unwrap_or("no node fits");
        return Some(Trouble::new(Reason::Unschedulable, format!("{name}: {why}")));
    }
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
        .find_map(|container| container_trouble(name, container))
}

fn container_trouble(name: &str, container: &ContainerStatus) -> Option<Trouble> {
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    let of = &container.name;
    match reason {
        "ImagePullBackOff" | "ErrImagePull" | "ErrImageNeverPull" | "InvalidImageName" => {
            let message = format!("{name}: the image {} of container {of} cannot be pulled", container.image);
            Some(Trouble::new(Reason::ImagePullFailed, message))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            let why = waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or(reason);
            Some(Trouble::new(Reason::WorkerNotReady, format!("{name}: container {of} cannot start: {why}")))
        }
        // Between two crashes it runs for a while; saying so each time would be news without end.
        _ if container.restart_count > 0 && !container.ready => {
            Some(Trouble::new(Reason::CrashLooping, format!("{name}: container {of} ends again and again")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> SetName {
        SetName::new("shop", "orders")
    }

    fn deployment(partition: u32, extra: Value) -> DynamicObject {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": set().deployment(partition), "namespace": "shop",
                "ownerReferences": [{"apiVersion": "a", "kind": "k", "name": "orders", "uid": "u", "controller": true}],
            },
            "spec": {"replicas": 1},
        });
        object["status"] = extra;
        serde_json::from_value(object).unwrap()
    }

    fn one(status: Value, pods: &[Pod]) -> Worker {
        workers(&set(), "u", 1, &[deployment(0, status)], pods).remove(0)
    }

    fn reason(worker: &Worker) -> Reason {
        worker.trouble.as_ref().unwrap().reason
    }

    #[test]
    fn a_worker_with_an_available_pod_is_ready() {
        let worker = one(json!({"availableReplicas": 1}), &[]);
        assert_eq!(worker, Worker { partition: 0, ready: true, trouble: None });
    }

    #[test]
    fn a_quota_that_refuses_pods_is_said_without_their_random_names() {
        let condition = |pod: &str| {
            let message =
                format!("pods \"{pod}\" is forbidden: exceeded quota: three, used: pods=3, limited: pods=3");
            json!({"conditions": [{"type": "ReplicaFailure", "status": "True", "message": message}]})
        };
        let (first, second) = (one(condition("orders-0-a-b"), &[]), one(condition("orders-0-a-c"), &[]));
        assert_eq!(reason(&first), Reason::QuotaExceeded);
        assert_eq!(first, second);
        assert!(first.trouble.unwrap().message.contains("exceeded quota: three"));
    }

    #[test]
    fn a_crash_loop_says_the_same_while_it_waits_and_while_it_runs() {
        let pod = |state: Value| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"labels": {(labels::PARTITION): "0"}},
                "status": {"containerStatuses": [{
                    "name": "lane", "image": "i", "imageID": "", "ready": false, "restartCount": 4, "state": state,
                }]},
            }))
            .unwrap()
        };
        let waiting = one(json!({}), &[pod(json!({"waiting": {"reason": "CrashLoopBackOff"}}))]);
        let running = one(json!({}), &[pod(json!({"running": {}}))]);
        assert_eq!(reason(&waiting), Reason::CrashLooping);
        assert_eq!(waiting, running);
    }

    #[test]
    fn a_deployment_of_somebody_else_is_no_worker_of_the_set() {
        let worker =
            workers(&set(), "other", 1, &[deployment(0, json!({"availableReplicas": 1}))], &[]).remove(0);
        assert!(!worker.ready);
    }
}
