//! Installs the operator and the example, and waits until the set works with the programs of now.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Teller;
use crate::{
    flights::{NAMESPACE, SET, manifests::Manifests},
    helm::Helm,
    images::Images,
    kubectl::{Kubectl, condition, is_ready, pod_is_ready},
};

/// From the set's manifest to lanes that run; images are local, so minutes mean that something is wrong.
const READY_DEADLINE: Duration = Duration::from_secs(180);
/// How often the set is asked.
const PAUSE: Duration = Duration::from_millis(300);

/// All of it; the label selector of the set's pods.
pub(super) async fn install(
    teller: &Teller,
    kubectl: &Kubectl,
    helm: &Helm,
    images: &Images,
) -> Result<String> {
    let manifests = Manifests::of_example(images)?;
    kubectl.apply(std::slice::from_ref(&manifests.namespace))?;
    kubectl.apply(&manifests.nats)?;
    teller.say("operator", "helm upgrade --install lanekeeper charts/lanekeeper");
    helm.install(images, &[])?;
    kubectl.run(&["-n", NAMESPACE, "rollout", "status", "statefulset/nats", "--timeout=120s"])?;
    teller.say("operator", "runs, and so does NATS");
    kubectl.apply(&[manifests.set])?;
    teller.say("set", "applied examples/flights/orderedpartitionset.yaml");
    let waited = tokio::time::timeout(READY_DEADLINE, wait(teller, kubectl, images)).await;
    waited.unwrap_or_else(|_| {
        println!("{}", kubectl.diagnosis(NAMESPACE));
        bail!("the set was not ready within {} s; its state is above", READY_DEADLINE.as_secs())
    })
}

async fn wait(teller: &Teller, kubectl: &Kubectl, images: &Images) -> Result<String> {
    let mut told = String::new();
    loop {
        let set = kubectl.set(NAMESPACE, SET).await?.context("the set is gone")?;
        let state = match state(kubectl, &set, &images.worker.image).await? {
            Ok(selector) => return Ok(selector),
            Err(waiting_for) => waiting_for,
        };
        if state != told {
            teller.say("set", &state);
            told = state;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The selector of a set that works, or what it still waits for.
async fn state(kubectl: &Kubectl, set: &Value, worker_image: &str) -> Result<Result<String, String>> {
    if !is_ready(set) {
        return Ok(Err(unready(set)));
    }
    let selector = set["status"]["selector"].as_str().context("a ready set has no status.selector")?;
    let wanted = set["spec"]["partitions"].as_u64().unwrap_or(1);
    let pods = kubectl.pods(NAMESPACE, selector).await?;
    let current = pods.iter().filter(|pod| pod_is_ready(pod) && runs(pod, worker_image)).count() as u64;
    // After an upgrade the set stays ready while its pods are replaced one by one.
    if current < wanted || pods.len() as u64 > wanted {
        return Ok(Err(format!("{current} of {wanted} workers run this version")));
    }
    Ok(Ok(selector.to_owned()))
}

/// What a set that is not ready says about it.
fn unready(set: &Value) -> String {
    let (status, reason, message) = condition(set, "Ready");
    // Conditions of an older specification say nothing about this one.
    let looked_at = set["status"]["observedGeneration"] == set["metadata"]["generation"];
    if !looked_at || status == "?" {
        return "the operator has not looked at it yet".to_owned();
    }
    format!("Ready={status} {reason}: {message}")
}

fn runs(pod: &Value, image: &str) -> bool {
    pod["spec"]["containers"].as_array().is_some_and(|all| all.iter().any(|one| one["image"] == image))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_without_conditions_or_with_old_ones_was_not_looked_at_yet() {
        let ready = |status: &str| json!([{"type": "Ready", "status": status, "reason": "WorkersStarting", "message": "1 of 4"}]);
        let set = |observed: i64, conditions: Value| json!({"metadata": {"generation": 2}, "status": {"observedGeneration": observed, "conditions": conditions}});
        let unseen = "the operator has not looked at it yet";
        assert_eq!(unready(&json!({"metadata": {"generation": 1}})), unseen);
        assert_eq!(unready(&set(2, json!([]))), unseen);
        assert_eq!(unready(&set(1, ready("True"))), unseen);
        assert_eq!(unready(&set(2, ready("False"))), "Ready=False WorkersStarting: 1 of 4");
    }
}
