//! The fate of those who joined a lane, by their pods. I/O.
//!
//! At rest the cache answers. Only a holder that a change waits for, or one whose pod the cache does not know, is looked
//! up at the API server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, runtime::reflector::ObjectRef};
use lanekeeper_core::{
    plan::{Observed, Wanted},
    record::Holder,
};

use crate::{
    context::Scope,
    failure::words,
    holders::{Fate, fate},
};

/// Sorts holders into terminated and unreachable ones; the others may be alive. A question that the API server does
/// not answer leaves a holder among the living.
pub(super) async fn judge(scope: &Scope, wanted: &Wanted, observed: &mut Observed) {
    // What a change waits for is looked up itself, wherever else the same pod holds something.
    let waited_for: BTreeSet<&str> = observed
        .lane_keys
        .values()
        .filter(|key| key.value.retiring)
        .flat_map(|key| key.value.holders.iter().map(|holder| holder.pod.as_str()))
        .collect();
    let mut fates: BTreeMap<&str, Fate> = BTreeMap::new();
    let holders: Vec<&Holder> = observed.lane_keys.values().flat_map(|key| &key.value.holders).collect();
    for pod in holders.iter().map(|holder| holder.pod.as_str()) {
        if !fates.contains_key(pod) {
            fates.insert(pod, look(scope, &wanted.set.namespace, pod, waited_for.contains(pod)).await);
        }
    }
    let with = |fate: Fate| -> BTreeSet<Holder> {
        let of = |holder: &&&Holder| fates.get(holder.pod.as_str()) == Some(&fate);
        holders.iter().filter(of).map(|holder| Holder::clone(holder)).collect()
    };
    let (terminated, unreachable) = (with(Fate::Terminated), with(Fate::Unreachable));
    observed.terminated = terminated;
    observed.unreachable = unreachable;
}

async fn look(scope: &Scope, namespace: &str, pod: &str, waited_for: bool) -> Fate {
    let context = &scope.context;
    let remembered = context.ends.knows(namespace, pod);
    let cached = scope.caches.pods.get(&ObjectRef::new(pod).within(namespace));
    if let Some(cached) = &cached
        && !waited_for
    {
        // Where it runs matters only to those who wait for it.
        return if crate::holders::has_ended(cached) { Fate::Terminated } else { Fate::Alive };
    }
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let found = match pods.get_opt(pod).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(namespace, pod, error = words(&error), "a pod could not be looked at");
            return Fate::Alive;
        }
    };
    let node_name = found.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
    let node = match node_name {
        None => None,
        Some(name) => match Api::<Node>::all(context.client.clone()).get_opt(&name).await {
            Ok(node) => node,
            Err(error) => {
                tracing::warn!(node = name, error = words(&error), "a node could not be looked at");
                return Fate::Alive;
            }
        },
    };
    fate(found.as_ref(), node.as_ref(), remembered)
}
