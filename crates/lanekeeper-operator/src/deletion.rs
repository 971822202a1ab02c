//! The end of a set: workers first, then, if it was asked for, what it has in NATS. I/O.
//!
//! `Retain` needs no NATS. `Delete` waits for it, says so, and is let go by changing the policy. When the credentials
//! are gone too (a whole namespace goes), the set is released, and what stays behind is named in the log.

mod cleanup;

use std::time::Duration;

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::controller::Action,
};
use lanekeeper_api::{OrderedPartitionSet, reason::Reason, spec::DeletionPolicy};
use serde_json::{Value, json};

use crate::{
    children::{Children, Kind},
    context::{Guarded, Scope},
    failure::{About, Failure, words},
    labels,
    metrics::{KubernetesWrite, PassResult},
    reconcile::Pass,
};

/// How soon to look whether the workers are gone.
const SOON: Duration = Duration::from_secs(1);

/// Makes sure that the set's deletion waits for the operator.
pub async fn hold(scope: &Scope, set: &OrderedPartitionSet) -> Result<(), Failure> {
    if set.finalizers().iter().any(|one| one == labels::FINALIZER) {
        return Ok(());
    }
    let all: Vec<&str> = set.finalizers().iter().map(String::as_str).chain([labels::FINALIZER]).collect();
    write_finalizers(scope, set.meta(), &all)
        .await
        .map_err(|error| Failure::kubernetes(About::Spec, "the finalizer could not be set", &error))
}

/// Lets the set go.
async fn release(scope: &Scope, meta: &kube::api::ObjectMeta) -> Result<(), kube::Error> {
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let rest: Vec<&str> =
        finalizers.iter().map(String::as_str).filter(|one| *one != labels::FINALIZER).collect();
    write_finalizers(scope, meta, &rest).await
}

async fn write_finalizers(
    scope: &Scope,
    meta: &kube::api::ObjectMeta,
    finalizers: &[&str],
) -> Result<(), kube::Error> {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let sets: Api<OrderedPartitionSet> = Api::namespaced(scope.context.client.clone(), namespace);
    // With the version that was read: somebody else's finalizer of the same moment is not lost.
    let patch = json!({"metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers,
    }});
    scope.context.metrics.write(KubernetesWrite::Finalizer);
    let name = meta.name.as_deref().unwrap_or_default();
    let patched = sets.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    match patched {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

/// A pass over a set that is being deleted.
pub async fn pass(scope: &Scope, set: &OrderedPartitionSet) -> (PassResult, Action) {
    if !set.finalizers().iter().any(|one| one == labels::FINALIZER) {
        return (PassResult::Deleting, Action::await_change());
    }
    let mut pass = Pass::new(scope, set);
    let failure = match end(&mut pass).await {
        Ok(true) => match release(scope, set.meta()).await {
            Ok(()) => {
                pass.publish().await;
                return (PassResult::Deleting, Action::await_change());
            }
            Err(error) => Failure::kubernetes(About::Spec, "the finalizer could not be removed", &error),
        },
        Ok(false) => {
            let names = pass.workers_left().join(", ");
            let message = format!("deletion waits for workers to end before their consumers go: {names}");
            pass.findings.failures.push(Failure::new(About::Workers, Reason::Deleting, message));
            pass.write_status().await;
            return (PassResult::Deleting, Action::requeue(SOON));
        }
        Err(failure) => failure,
    };
    pass.findings.failures.push(failure);
    pass.finish().await
}

/// Whether the set may go.
async fn end(pass: &mut Pass<'_>) -> Result<bool, Failure> {
    let (scope, set) = (pass.scope, pass.set);
    let namespace = set.namespace().unwrap_or_default();
    let uid = pass.uid.clone();
    for kind in [Kind::Deployment, Kind::DisruptionBudget] {
        Children::new(scope, kind, (&namespace, &uid)).delete_all_but(|_| false, &mut pass.news).await?;
    }
    tell_of_parked(pass);
    match set.spec.deletion_policy {
        DeletionPolicy::Retain => Ok(true),
        DeletionPolicy::Delete if !pass.workers_left().is_empty() => Ok(false),
        DeletionPolicy::Delete => cleanup::nats(pass).await,
    }
}

/// Parked messages outlive the set. Needs no NATS: the status says which keys are parked.
fn tell_of_parked(pass: &mut Pass<'_>) {
    let attention = pass.set.status.iter().flat_map(|status| &status.attention);
    let keys = attention.filter(|one| one.reason == Reason::KeyParked.as_str()).count();
    if keys > 0 {
        let message = "keys of the set are parked; their messages stay in the park stream, and lock them for a set of the same name";
        pass.news.warn(Reason::ParkedMessagesRemain, message);
    }
}

/// A set that this version cannot read: a person is told, and its deletion is not held up.
pub async fn unreadable(scope: &Scope, guarded: &Guarded, error: &str) -> (PassResult, Action) {
    let meta = guarded.meta();
    let name = format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), guarded.name_any());
    tracing::error!(set = name, error, "a set cannot be read by this version");
    scope.context.metrics.failure(Reason::InvalidSpec);
    if meta.deletion_timestamp.is_some() {
        tracing::warn!(set = name, "the set is let go; its consumers and records stay in NATS");
        if let Err(error) = release(scope, meta).await {
            tracing::warn!(set = name, error = words(&error), "the finalizer could not be removed");
            return (PassResult::Failed, Action::requeue(scope.context.settings.resync));
        }
        return (PassResult::Deleting, Action::await_change());
    }
    let conditions = json!([{
        "type": "Ready", "status": "False", "reason": Reason::InvalidSpec.as_str(),
        "message": format!("the set cannot be read by this version of the operator: {error}"),
        "observedGeneration": meta.generation,
        "lastTransitionTime": meta.creation_timestamp,
    }]);
    let namespace = meta.namespace.clone().unwrap_or_default();
    let api: Api<kube::core::DynamicObject> = Api::namespaced_with(
        scope.context.client.clone(),
        &namespace,
        &kube::api::ApiResource::erase::<OrderedPartitionSet>(&()),
    );
    let patch: Value = json!({
        "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "OrderedPartitionSet",
        "metadata": {"name": guarded.name_any()}, "status": {"conditions": conditions},
    });
    let parameters = PatchParams::apply(labels::FIELD_MANAGER).force();
    scope.context.metrics.write(KubernetesWrite::Status);
    if let Err(error) = api.patch_status(&guarded.name_any(), &parameters, &Patch::Apply(&patch)).await {
        tracing::warn!(set = name, error = words(&error), "a status could not be written");
    }
    // Nothing changes by itself.
    (PassResult::Failed, Action::await_change())
}
