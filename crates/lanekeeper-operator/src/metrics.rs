//! What the operator counts: every label has a closed list of values, so that nothing grows with users' names.
//!
//! Documented in docs/metrics.md, section operator; names are stable.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use lanekeeper_api::{condition::Status, reason::Reason};
use lanekeeper_core::plan::Step;
use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

type Labels = [(&'static str, &'static str); 1];

/// How a pass over a set ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassResult {
    /// Everything is as wanted.
    Settled,
    /// Something is waited for.
    Waiting,
    /// A part of it failed.
    Failed,
    /// The set is being deleted, or was.
    Deleting,
}

impl PassResult {
    /// The label's value.
    pub fn metric_label(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
        }
    }
}

/// A write to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubernetesWrite {
    /// A Deployment was applied.
    ApplyDeployment,
    /// A Deployment was deleted.
    DeleteDeployment,
    /// A disruption budget was applied.
    ApplyDisruptionBudget,
    /// A disruption budget was deleted.
    DeleteDisruptionBudget,
    /// A status was written.
    Status,
    /// A finalizer was added or removed.
    Finalizer,
}

impl KubernetesWrite {
    /// The label's value.
    pub fn metric_label(self) -> &'static str {
        match self {
            Self::ApplyDeployment => "apply_deployment",
            Self::DeleteDeployment => "delete_deployment",
            Self::ApplyDisruptionBudget => "apply_disruption_budget",
            Self::DeleteDisruptionBudget => "delete_disruption_budget",
            Self::Status => "status",
            Self::Finalizer => "finalizer",
        }
    }
}

/// The label's value of a step of the plan.
fn step_label(step: &Step) -> &'static str {
    match step {
        Step::PutRecord { .. } => "put_record",
        Step::PutLaneKey { .. } => "put_lane_key",
        Step::PutAssignment { .. } => "put_assignment",
        Step::CreateConsumer(_) => "create_consumer",
        Step::RepairConsumer { .. } => "repair_consumer",
        Step::DeleteConsumer { .. } => "delete_consumer",
        Step::DeleteLaneKey { .. } => "delete_lane_key",
        Step::DeleteLease { .. } => "delete_lease",
        Step::DeleteAssignment { .. } => "delete_assignment",
    }
}

/// All of them.
pub struct Metrics {
    registry: Registry,
    passes: Family<Labels, Counter>,
    pass_duration: Histogram,
    steps: Family<Labels, Counter>,
    writes: Family<Labels, Counter>,
    events: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    sets: Family<Labels, Gauge>,
    connections: Gauge,
    ready: Mutex<HashMap<String, &'static str>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("lanekeeper_operator"),
            passes: Family::default(),
            pass_duration: Histogram::new(exponential_buckets(0.001, 3.0, 10)),
            steps: Family::default(),
            writes: Family::default(),
            events: Family::default(),
            failures: Family::default(),
            sets: Family::default(),
            connections: Gauge::default(),
            ready: Mutex::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("reconciles", "Passes over a set, by how they ended", metrics.passes.clone());
        registry.register(
            "reconcile_duration_seconds",
            "How long a pass took",
            metrics.pass_duration.clone(),
        );
        registry.register("steps", "Steps carried out on NATS, by kind", metrics.steps.clone());
        registry.register("kubernetes_writes", "Writes to the API server, by kind", metrics.writes.clone());
        registry.register("events", "Events, by reason", metrics.events.clone());
        registry.register("failures", "Failed passes or parts of them, by reason", metrics.failures.clone());
        registry.register("sets", "Sets, by their condition Ready", metrics.sets.clone());
        registry.register("nats_connections", "Open connections to NATS", metrics.connections.clone());
        metrics
    }
}

impl Metrics {
    /// A pass ended.
    pub fn pass(&self, result: PassResult, duration: Duration) {
        self.passes.get_or_create(&[("result", result.metric_label())]).inc();
        self.pass_duration.observe(duration.as_secs_f64());
    }

    /// A step was carried out.
    pub fn step(&self, step: &Step) {
        self.steps.get_or_create(&[("step", step_label(step))]).inc();
    }

    /// Something was written to the API server.
    pub fn write(&self, write: KubernetesWrite) {
        self.writes.get_or_create(&[("write", write.metric_label())]).inc();
    }

    /// An Event was written.
    pub fn event(&self, reason: Reason) {
        self.events.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// Something failed.
    pub fn failure(&self, reason: Reason) {
        self.failures.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// The condition Ready of a set; `None` when the set is gone.
    pub fn ready(&self, uid: &str, status: Option<Status>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        match status {
            Some(status) => ready.insert(uid.to_owned(), status.as_str()),
            None => ready.remove(uid),
        };
        for status in [Status::True, Status::False, Status::Unknown].map(Status::as_str) {
            let count = ready.values().filter(|one| **one == status).count();
            self.sets.get_or_create(&[("ready", status)]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Open connections.
    pub fn connections(&self, count: usize) {
        self.connections.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The text that is scraped.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a text cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_counted_is_in_the_text() {
        let metrics = Metrics::default();
        metrics.pass(PassResult::Settled, Duration::from_millis(5));
        metrics.write(KubernetesWrite::Status);
        metrics.event(Reason::LaneOpened);
        metrics.failure(Reason::NatsUnreachable);
        metrics.ready("u", Some(Status::True));
        metrics.ready("v", Some(Status::False));
        metrics.ready("v", None);
        let text = metrics.text();
        for line in [
            "lanekeeper_operator_reconciles_total{result=\"settled\"} 1",
            "lanekeeper_operator_kubernetes_writes_total{write=\"status\"} 1",
            "lanekeeper_operator_events_total{reason=\"LaneOpened\"} 1",
            "lanekeeper_operator_failures_total{reason=\"NatsUnreachable\"} 1",
            "lanekeeper_operator_sets{ready=\"True\"} 1",
            "lanekeeper_operator_sets{ready=\"False\"} 0",
            "lanekeeper_operator_reconcile_duration_seconds_count 1",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
