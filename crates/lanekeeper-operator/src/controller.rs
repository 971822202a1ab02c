//! Which set is looked at, and when: watches, triggers, bounded concurrency.
//!
//! A set is looked at when its specification, its Deployments, their disruption budgets or its workers change in a way that matters, when a worker
//! wrote to NATS, when a pass asked for it, and at the resync. Its own status writes wake nobody.

mod changes;

use std::{
    convert::Infallible,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    core::DynamicObject,
    runtime::{
        WatchStreamExt,
        controller::{self, Action, ReconcileReason, ReconcileRequest},
        reflector::{self, ObjectRef, store::Writer},
        watcher::{self, watcher},
    },
};
use lanekeeper_core::names::SetName;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    children::Kind,
    context::{Caches, Context, Guarded, Scope},
    labels, reconcile,
};
use changes::Changes;

/// Changes within this time are one pass.
const DEBOUNCE: Duration = Duration::from_millis(30);

type Requests = BoxStream<'static, ReconcileRequest<Guarded>>;

/// Runs until `end`, then lets the passes that run come to their end. `namespace` limits what is looked at.
pub async fn run(
    context: Arc<Context>,
    namespace: Option<String>,
    end: impl Future<Output = ()> + Send + 'static,
) {
    let (sets, sets_writer) = reflector::store();
    let deployments_writer = Writer::new(Kind::Deployment.resource());
    let budgets_writer = Writer::new(Kind::DisruptionBudget.resource());
    let (pods, pods_writer) = reflector::store();
    let (deployments, budgets) = (deployments_writer.as_reader(), budgets_writer.as_reader());
    let caches = Caches { sets: sets.clone(), deployments, budgets, pods };
    let client = &context.client;
    let triggers: Vec<Requests> = vec![
        sets_changed(client, namespace.as_deref(), sets_writer, Arc::clone(&context)),
        children_changed(Kind::Deployment, client, namespace.as_deref(), deployments_writer),
        children_changed(Kind::DisruptionBudget, client, namespace.as_deref(), budgets_writer),
        pods_changed(client, namespace.as_deref(), pods_writer, Arc::clone(&context)),
        keys_written(namespace.clone(), context.watches.subscribe()),
    ];
    let queue = stream::select_all(triggers).take_until(Box::pin(end)).map(Ok::<_, Infallible>);
    let config = controller::Config::default().debounce(DEBOUNCE).concurrency(context.settings.concurrency);
    let scope = Arc::new(Scope { context, caches: caches.clone() });
    let passes = controller::applier(
        |set, scope: Arc<Scope>| Box::pin(pass(set, scope)),
        |_, never: &Infallible, _| match *never {},
        scope,
        sets,
        queue,
        config,
    );
    passes
        .for_each(|result| async {
            if let Err(error) = result {
                // A set that was deleted while it waited in the queue.
                tracing::debug!(%error, "a pass did not begin");
            }
        })
        .await;
}

/// One pass in a task of its own: a defect that it meets there ends this pass and no other.
async fn pass(set: Arc<Guarded>, scope: Arc<Scope>) -> Result<Action, Infallible> {
    // Caches that are not filled yet would show a set without Deployments. Disruption budgets decide nothing: each that
    // the cache does not know is asked for, and an operator without the right to list them does the rest all the same.
    let ready = async {
        let deployments = scope.caches.deployments.wait_until_ready().await;
        deployments.and(scope.caches.pods.wait_until_ready().await)
    };
    if ready.await.is_err() {
        return Ok(Action::await_change());
    }
    let retry = scope.context.settings.resync;
    let task = tokio::spawn(async move { reconcile::reconcile(&set, &scope).await });
    Ok(task.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a pass ended in a defect");
        Action::requeue(retry)
    }))
}

fn sets_changed(
    client: &Client,
    namespace: Option<&str>,
    writer: Writer<Guarded>,
    context: Arc<Context>,
) -> Requests {
    let api: Api<Guarded> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut changes = Changes::default();
    let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    requests("sets", events, move |event| {
        let (set, gone) = object(event)?;
        if gone {
            changes.forget(set.uid().as_deref());
            context.forget(set.uid().as_deref().unwrap_or_default());
            return None;
        }
        changes.is_news(set.uid(), &changes::of_set(&set)).then(|| ReconcileRequest {
            obj_ref: ObjectRef::from_obj(&set),
            reason: ReconcileReason::ObjectUpdated,
        })
    })
}

fn children_changed(
    kind: Kind,
    client: &Client,
    namespace: Option<&str>,
    writer: Writer<DynamicObject>,
) -> Requests {
    let resource = kind.resource();
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut changes = Changes::default();
    let events = watcher(api, of_workers())
        .default_backoff()
        .modify(|child| child.managed_fields_mut().clear())
        .reflect(writer);
    let (what, state): (_, fn(&DynamicObject) -> _) = match kind {
        Kind::Deployment => ("Deployments", changes::of_deployment),
        Kind::DisruptionBudget => ("disruption budgets", changes::of_budget),
    };
    requests(what, events, move |event| {
        let (child, gone) = object(event)?;
        if gone {
            changes.forget(child.uid().as_deref());
        } else if !changes.is_news(child.uid(), &state(&child)) {
            return None;
        }
        related(child.namespace(), child.labels().get(labels::SET))
    })
}

fn pods_changed(
    client: &Client,
    namespace: Option<&str>,
    writer: Writer<Pod>,
    context: Arc<Context>,
) -> Requests {
    let api: Api<Pod> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut changes = Changes::default();
    let events = watcher(api, of_workers())
        .default_backoff()
        .modify(|pod| {
            // Only where it runs and how it is doing is looked at.
            pod.managed_fields_mut().clear();
            pod.annotations_mut().clear();
            if let Some(spec) = &mut pod.spec {
                let node_name = spec.node_name.take();
                *spec = k8s_openapi::api::core::v1::PodSpec { node_name, ..Default::default() };
            }
        })
        .reflect(writer);
    requests("pods", events, move |event| {
        let (pod, gone) = object(event)?;
        context.ends.note(&pod, Instant::now());
        if gone {
            changes.forget(pod.uid().as_deref());
        } else if !changes.is_news(pod.uid(), &changes::of_pod(&pod)) {
            return None;
        }
        related(pod.namespace(), pod.labels().get(labels::SET))
    })
}

fn of_workers() -> watcher::Config {
    watcher::Config::default().labels(&labels::everything())
}

/// Workers of sets in this namespace (of any, without one) wrote to NATS.
fn keys_written(namespace: Option<String>, news: broadcast::Receiver<SetName>) -> Requests {
    let requests = stream::unfold(news, |mut news| async {
        loop {
            match news.recv().await {
                Ok(set) => return Some((set, news)),
                // The resync makes up for it.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let ours = move |set: &SetName| namespace.as_ref().is_none_or(|namespace| *namespace == set.namespace);
    requests
        .filter_map(move |set| {
            let request = ours(&set).then(|| worker_changed(&set.namespace, &set.name));
            futures::future::ready(request)
        })
        .boxed()
}

/// The set that a Deployment or pod names by its label.
fn related(namespace: Option<String>, set: Option<&String>) -> Option<ReconcileRequest<Guarded>> {
    Some(worker_changed(&namespace?, set?))
}

fn worker_changed(namespace: &str, set: &str) -> ReconcileRequest<Guarded> {
    ReconcileRequest {
        obj_ref: ObjectRef::new(set).within(namespace),
        reason: ReconcileReason::Custom { reason: "a worker changed".to_owned() },
    }
}

/// The object of an event, and whether it is gone.
fn object<K>(event: watcher::Event<K>) -> Option<(K, bool)> {
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => Some((object, false)),
        watcher::Event::Delete(object) => Some((object, true)),
        watcher::Event::Init | watcher::Event::InitDone => None,
    }
}

/// Turns a watch into requests. A watch that fails begins again by itself, with a backoff.
fn requests<K: Send + 'static>(
    what: &'static str,
    events: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static,
    mut request: impl FnMut(watcher::Event<K>) -> Option<ReconcileRequest<Guarded>> + Send + 'static,
) -> Requests {
    let requests = events.filter_map(move |event| {
        let found = match event {
            Ok(event) => request(event),
            Err(error) => {
                tracing::warn!(what, %error, "a watch failed and begins again");
                None
            }
        };
        futures::future::ready(found)
    });
    requests.boxed()
}
