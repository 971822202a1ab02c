//! One pass over one set, as a story: observe, validate, plan, build, apply, status.
//!
//! A pass never relies on what an earlier one did: it looks, and does what is left to do. Whatever fails becomes a
//! condition, and the parts that do not need it go on.

mod finish;
mod lanes;
mod nats;
mod rescale;
mod workers;

use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{Resource, ResourceExt, runtime::controller::Action};
use lanekeeper_api::{
    OrderedPartitionSet, invalid, reason::Reason, spec::Start, validate, validate::Validated,
};
use lanekeeper_core::{names::SetName, plan, record::Owner};

use crate::{
    build::Blueprint,
    children::{Children, Kind},
    context::{Guarded, Scope},
    deletion,
    events::News,
    failure::{About, Failure},
    labels,
    metrics::PassResult,
    status::Findings,
};

/// What one pass is about, and what it found so far.
pub(crate) struct Pass<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) set: &'a OrderedPartitionSet,
    pub(crate) reference: ObjectReference,
    pub(crate) uid: String,
    pub(crate) findings: Findings,
    pub(crate) news: News,
    /// Look again after this time, although nothing failed.
    pub(crate) again: Option<Duration>,
}

/// One pass over a set; when to look again.
pub async fn reconcile(guarded: &Guarded, scope: &Scope) -> Action {
    let started = Instant::now();
    let (result, action) = match &guarded.0 {
        Err(invalid) => deletion::unreadable(scope, guarded, &invalid.error).await,
        Ok(set) if set.metadata.deletion_timestamp.is_some() => deletion::pass(scope, set).await,
        Ok(set) => Pass::new(scope, set).run().await,
    };
    scope.context.metrics.pass(result, started.elapsed());
    scope.context.metrics.connections(scope.context.connections.len());
    action
}

impl<'a> Pass<'a> {
    pub(crate) fn new(scope: &'a Scope, set: &'a OrderedPartitionSet) -> Self {
        let name = SetName::new(set.namespace().unwrap_or_default(), set.name_any());
        let findings = Findings {
            generation: set.metadata.generation,
            paused: set.spec.paused,
            selector: labels::set_selector(&name),
            ..Findings::default()
        };
        Self {
            scope,
            set,
            reference: set.object_ref(&()),
            uid: set.uid().unwrap_or_default(),
            findings,
            news: News::default(),
            again: None,
        }
    }

    async fn run(mut self) -> (PassResult, Action) {
        if let Err(failure) = self.story().await {
            self.findings.failures.insert(0, failure);
        }
        self.finish().await
    }

    async fn story(&mut self) -> Result<(), Failure> {
        let validated = validate::validate(self.set)
            .map_err(|wrong| Failure::new(About::Spec, Reason::InvalidSpec, invalid::summary(&wrong)))?;
        self.findings.wanted = Some(validated.partitions);
        deletion::hold(self.scope, self.set).await?;
        let wanted = self.wanted(&validated);
        let namespace = validated.name.namespace.clone();
        let uid = self.uid.clone();
        let context = &self.scope.context;
        let deployments = Children::new(self.scope, Kind::Deployment, (&namespace, &uid));
        let budgets = Children::new(self.scope, Kind::DisruptionBudget, (&namespace, &uid));
        let lanes = self.lanes(&validated, &wanted, &deployments).await;
        if let Err(failure) = &lanes
            && failure.reason == Reason::StreamChanged
        {
            // The Deployments show where the set came from; they stay as they are until a person has decided.
            return lanes;
        }
        let blueprint = Blueprint {
            set: &validated,
            uid: &uid,
            worker_image: &context.settings.worker_image,
            worker_pull_policy: &context.settings.worker_pull_policy,
            bucket: &context.settings.bucket,
        };
        self.workers(&blueprint, &deployments, &budgets, lanes.is_ok()).await;
        lanes
    }

    /// The pods of the set's workers, as the cache knows them.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        let (namespace, name) = (self.set.namespace(), self.set.name_any());
        let all = self.scope.caches.pods.state();
        let ours = |pod: &Pod| pod.namespace() == namespace && pod.labels().get(labels::SET) == Some(&name);
        all.iter().filter(|pod| ours(pod)).map(|pod| Pod::clone(pod)).collect()
    }

    fn wanted(&self, validated: &Validated) -> plan::Wanted {
        plan::Wanted {
            owner: Owner {
                cluster: self.scope.context.cluster.clone(),
                namespace: validated.name.namespace.clone(),
                name: validated.name.name.clone(),
                uid: self.uid.clone(),
            },
            set: validated.name.clone(),
            mapping: validated.stream.mapping.clone(),
            partitions: validated.partitions,
            retention: validated.stream.retention,
            start: match validated.start {
                Start::All => plan::Start::All,
                Start::New => plan::Start::New,
            },
            consumer_replicas: validated.consumer_replicas,
            settings: validated.settings.clone(),
            lanes_at_once: plan::LANES_AT_ONCE,
            now_seconds: now_seconds(),
        }
    }
}

/// By this machine's clock; a clock before 1970 damps nothing.
fn now_seconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}
