//! Whether a process that joined a lane is over, on the kubelet's word.
//!
//! Only a terminal phase together with a terminated lane container is such a word: the kubelet writes both after the
//! last process has ended, and starts none afterwards. What is no proof: a Pod object that is gone (force delete), a
//! container that waits to be restarted (the status may be older than the process that runs by now), a phase that the
//! garbage collector of pods wrote for a lost node. A container that was restarted proves the end of its former
//! process to its successor only, and that one takes over the place in the lane itself.
//!
//! Pods end and disappear between two looks, so ends that were seen are remembered; after a restart of the operator
//! that knowledge is gone, and holders without a Pod object are treated as unreachable: the lane's consumer is deleted
//! and one `AckWait` passes, after which each of them has passed its own deadline.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use lanekeeper_api::validate::LANE;

/// How long an end is remembered: a lane whose holders wait longer is fenced.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What is known of a process that joined a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It may be at work.
    Alive,
    /// It has ended, and none follows it under its name.
    Terminated,
    /// Nobody can say: its node does not answer, or its Pod object is gone without a word.
    Unreachable,
}

/// What is known of a holder whose pod was looked up by name. `node` is the pod's node, when it was found.
pub fn fate(pod: Option<&Pod>, node: Option<&Node>, remembered: bool) -> Fate {
    match pod {
        None if remembered => Fate::Terminated,
        None => Fate::Unreachable,
        Some(pod) if has_ended(pod) => Fate::Terminated,
        Some(pod) => {
            let placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            if placed && node.is_none_or(is_unreachable) { Fate::Unreachable } else { Fate::Alive }
        }
    }
}

/// Whether every process of the pod's lane is over for good.
pub fn has_ended(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return false;
    }
    let collected = status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "DisruptionTarget" && condition.reason.as_deref() == Some("DeletionByPodGC")
    });
    let lane = status.container_statuses.iter().flatten().find(|container| container.name == LANE);
    let state = lane.and_then(|lane| lane.state.as_ref()).and_then(|state| state.terminated.as_ref());
    // "ContainerStatusUnknown" is what a kubelet writes when it lost track of the container.
    !collected && state.is_some_and(|ended| ended.reason.as_deref() != Some("ContainerStatusUnknown"))
}

fn is_unreachable(node: &Node) -> bool {
    let ready = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let not_ready = ready.into_iter().any(|one| one.type_ == "Ready" && one.status != "True");
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    not_ready || taints.into_iter().any(|taint| taint.key == "node.kubernetes.io/unreachable")
}

/// Pods whose end was seen.
#[derive(Debug, Default)]
pub struct Ends {
    seen: Mutex<HashMap<(String, String), Instant>>,
}

impl Ends {
    /// Notes the end of a pod, if it is one. Called for every state of a worker's pod, the last one included.
    pub fn note(&self, pod: &Pod, now: Instant) {
        let (Some(namespace), Some(name)) = (&pod.metadata.namespace, &pod.metadata.name) else { return };
        if has_ended(pod) {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.retain(|_, since| now.saturating_duration_since(*since) < REMEMBERED);
            seen.insert((namespace.clone(), name.clone()), now);
        }
    }

    /// Whether the end of a pod was seen.
    pub fn knows(&self, namespace: &str, pod: &str) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.contains_key(&(namespace.to_owned(), pod.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "p"}, "spec": {"nodeName": "one", "containers": []}, "status": status,
        }))
        .unwrap()
    }

    fn node(ready: &str) -> Node {
        serde_json::from_value(
            json!({"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
        )
        .unwrap()
    }

    fn lane(state: &Value) -> Value {
        let common = json!({"name": "lane", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        json!([common])
    }

    #[test]
    fn only_the_kubelets_word_is_an_end() {
        let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let collected = json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]);
        let lost = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}});
        for (status, expected) in [
            (json!({"phase": "Succeeded", "containerStatuses": lane(&ended)}), true),
            (json!({"phase": "Failed", "containerStatuses": lane(&ended)}), true),
            (json!({"phase": "Running", "containerStatuses": lane(&ended)}), false),
            (json!({"phase": "Failed", "containerStatuses": lane(&json!({"running": {}}))}), false),
            (json!({"phase": "Failed", "containerStatuses": lane(&lost)}), false),
            (json!({"phase": "Failed", "containerStatuses": lane(&ended), "conditions": collected}), false),
            (json!({"phase": "Failed"}), false),
            (json!({}), false),
        ] {
            assert_eq!(has_ended(&pod(&status)), expected, "{status}");
        }
    }

    #[test]
    fn a_pod_that_is_gone_is_terminated_only_when_its_end_was_seen() {
        let ends = Ends::default();
        let now = Instant::now();
        ends.note(&pod(&json!({"phase": "Running"})), now);
        assert!(!ends.knows("n", "p"));
        assert_eq!(fate(None, None, ends.knows("n", "p")), Fate::Unreachable);
        let ended = lane(&json!({"terminated": {"exitCode": 1}}));
        ends.note(&pod(&json!({"phase": "Failed", "containerStatuses": ended})), now);
        assert_eq!(fate(None, None, ends.knows("n", "p")), Fate::Terminated);
    }

    #[test]
    fn a_running_pod_is_alive_unless_its_node_does_not_answer() {
        let running = pod(&json!({"phase": "Running"}));
        assert_eq!(fate(Some(&running), Some(&node("True")), false), Fate::Alive);
        assert_eq!(fate(Some(&running), Some(&node("Unknown")), false), Fate::Unreachable);
        assert_eq!(fate(Some(&running), None, false), Fate::Unreachable, "its node is gone");
    }
}
