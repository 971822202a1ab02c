//! What all passes share: clients, caches, and the little that is remembered between passes.
//!
//! Nothing here decides anything, and everything can be lost at any time: it is found again by looking.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client,
    core::{DeserializeGuard, DynamicObject},
    runtime::reflector::Store,
};
use lanekeeper_api::OrderedPartitionSet;

use crate::{
    aside::GivenUp,
    children::{Kind, Settled},
    connections::Connections,
    events::Events,
    fences::Fences,
    holders::Ends,
    metrics::Metrics,
    retries::Retries,
    settings::Settings,
    watches::Watches,
};

/// How long one request to NATS may take.
const NATS_TIMEOUT: Duration = Duration::from_secs(5);

/// A set, or why it cannot be read: one such object must not stop the watch of all.
pub type Guarded = DeserializeGuard<OrderedPartitionSet>;

/// Shared by all passes.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// Flags.
    pub settings: Settings,
    /// The uid of `kube-system`.
    pub cluster: String,
    /// NATS.
    pub connections: Connections,
    /// What workers write to NATS.
    pub watches: Watches,
    /// Consumers that are gone.
    pub fences: Fences,
    /// Pods whose end was seen.
    pub ends: Ends,
    /// Messages that were dropped or skipped.
    pub given_up: GivenUp,
    /// When floors were recorded.
    pub checkpoints: Checkpoints,
    /// Failures in a row.
    pub retries: Retries,
    /// How Deployments and disruption budgets look after they were applied.
    pub settled: Settled,
    /// Events.
    pub events: Events,
    /// Counts.
    pub metrics: Arc<Metrics>,
}

impl Context {
    /// For one cluster.
    pub fn new(client: Client, settings: Settings, cluster: String, metrics: Arc<Metrics>) -> Self {
        Self {
            connections: Connections::new(NATS_TIMEOUT, settings.resync * 4 + Duration::from_secs(60)),
            events: Events::new(client.clone(), settings.pod_name.clone()),
            client,
            settings,
            cluster,
            watches: Watches::default(),
            fences: Fences::default(),
            ends: Ends::default(),
            given_up: GivenUp::default(),
            checkpoints: Checkpoints::default(),
            retries: Retries::default(),
            settled: Settled::default(),
            metrics,
        }
    }

    /// A set that is gone leaves nothing behind.
    pub fn forget(&self, uid: &str) {
        self.watches.forget(uid);
        self.fences.forget(uid);
        self.retries.forget(uid);
        self.checkpoints.forget(uid);
        self.given_up.forget(uid);
        self.connections.forget(uid);
        self.metrics.ready(uid, None);
    }
}

/// When the floors of each set were recorded last.
#[derive(Debug, Default)]
pub struct Checkpoints {
    last: Mutex<HashMap<String, Instant>>,
}

impl Checkpoints {
    /// Whether it is time again; asking counts as doing it.
    pub fn is_due(&self, uid: &str, every: Duration) -> bool {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.get(uid).is_none_or(|last| now.saturating_duration_since(*last) >= every.mul_f64(0.5));
        if due {
            last.insert(uid.to_owned(), now);
        }
        due
    }

    fn forget(&self, uid: &str) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

/// The caches of one watched namespace, or of all.
#[derive(Clone)]
pub struct Caches {
    /// The sets.
    pub sets: Store<Guarded>,
    /// Deployments that the operator made, raw.
    pub deployments: Store<DynamicObject>,
    /// Disruption budgets that the operator made, raw.
    pub budgets: Store<DynamicObject>,
    /// Pods of workers, without what is not looked at.
    pub pods: Store<Pod>,
}

impl Caches {
    /// Those of one kind.
    pub fn children(&self, kind: Kind) -> &Store<DynamicObject> {
        match kind {
            Kind::Deployment => &self.deployments,
            Kind::DisruptionBudget => &self.budgets,
        }
    }
}

/// A [`Context`] with the caches of where a set was found.
#[derive(Clone)]
pub struct Scope {
    /// Shared by all scopes.
    pub context: Arc<Context>,
    /// Of this one.
    pub caches: Caches,
}
