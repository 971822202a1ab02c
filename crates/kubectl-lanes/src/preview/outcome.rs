//! What a change would come to: the operator's own plan, carried out on a copy of what was observed.
//!
//! Pure. Nothing is decided here: floors and successors are those of [`lanekeeper_core::plan`]. What cannot be foreseen
//! (messages settled meanwhile, nodes that go) is left as it was observed.

use std::collections::BTreeMap;

use lanekeeper_core::{
    consumer::{ConsumerFound, ConsumerSpec},
    plan::{Note, Observed, Plan, Refusal, Revisioned, Step, Wait, Wanted, plan},
    record::LaneRecord,
};

/// More looks than the longest change takes: each stage is one look, and groups settle one after another.
const LOOKS: usize = 4096;

/// Where a change ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// What would be observed then, as far as it can be foreseen.
    pub(super) observed: Observed,
    /// What was waited for on the way.
    pub(super) waits: Vec<Wait>,
    /// What was found not to be as it must.
    pub(super) notes: Vec<Note>,
}

impl Outcome {
    /// Every lane that there will be.
    pub(super) fn lanes(&self) -> &[LaneRecord] {
        self.observed.record.as_ref().map(|record| record.value.lanes.as_slice()).unwrap_or_default()
    }
}

/// Why there is no outcome.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutcomeError {
    #[error(
        "the record in NATS belongs to set {0} of another cluster or name, so the operator changes nothing"
    )]
    OwnedElsewhere(String),
    #[error("the record in NATS is about stream {0}, so the operator changes nothing")]
    OfAnotherStream(String),
    #[error("the plan does not come to an end: this is a defect, please report it")]
    Endless,
}

/// Carries the plan out. Holders are taken to leave, and deadlines to pass.
pub(super) fn outcome(wanted: &Wanted, mut observed: Observed) -> Result<Outcome, OutcomeError> {
    let (mut all_waits, mut all_notes) = (Vec::new(), Vec::new());
    for _ in 0..LOOKS {
        let Plan { steps, waits, notes, refusal, .. } = plan(wanted, &observed);
        all_notes.extend(notes);
        match refusal {
            None => {}
            Some(Refusal::OwnedElsewhere(owner)) => {
                return Err(OutcomeError::OwnedElsewhere(format!("{}/{}", owner.namespace, owner.name)));
            }
            Some(Refusal::OfAnotherStream(stream)) => return Err(OutcomeError::OfAnotherStream(stream)),
        }
        if steps.is_empty() && waits.is_empty() {
            all_waits.sort();
            all_waits.dedup();
            return Ok(Outcome { observed, waits: all_waits, notes: all_notes });
        }
        if steps.is_empty() {
            for wait in &waits {
                pass(wait, &mut observed);
            }
            all_waits.extend(waits);
        }
        for step in steps {
            carry_out(step, &mut observed);
        }
    }
    Err(OutcomeError::Endless)
}

/// What is waited for comes.
fn pass(wait: &Wait, observed: &mut Observed) {
    match wait {
        Wait::Holders { incarnation, .. } => {
            if let Some(key) = observed.lane_keys.get_mut(incarnation) {
                key.value.holders.clear();
            }
        }
        Wait::Fence { incarnation, .. } => {
            observed.fence_elapsed.insert(*incarnation);
        }
        // The whole set.
        Wait::RecordLost => {
            observed.fence_elapsed.insert(0);
        }
    }
}

pub(super) fn carry_out(step: Step, observed: &mut Observed) {
    fn put<K: Ord, V>(map: &mut BTreeMap<K, Revisioned<V>>, key: K, value: V) {
        let revision = map.get(&key).map_or(1, |before| before.revision + 1);
        map.insert(key, Revisioned { revision, value });
    }
    match step {
        Step::PutRecord { record, .. } => {
            let revision = observed.record.as_ref().map_or(1, |before| before.revision + 1);
            observed.record = Some(Revisioned { revision, value: record });
        }
        Step::PutLaneKey { incarnation, key, .. } => put(&mut observed.lane_keys, incarnation, key),
        Step::PutAssignment { partition, assignment, .. } => {
            put(&mut observed.assignments, partition, *assignment);
        }
        Step::CreateConsumer(spec) => {
            let incarnation = incarnation(&spec, observed);
            observed.consumers.extend(incarnation.map(|one| (one, fresh(&spec))));
        }
        Step::RepairConsumer { spec, .. } => {
            let incarnation = incarnation(&spec, observed);
            if let Some(before) = incarnation.and_then(|one| observed.consumers.get_mut(&one)) {
                let (floor, delivered) = (before.floor, before.delivered);
                let (ack_pending, pending) = (before.ack_pending, before.pending);
                *before = ConsumerFound { floor, delivered, ack_pending, pending, ..fresh(&spec) };
            }
        }
        Step::DeleteConsumer { incarnation, .. } => {
            observed.consumers.remove(&incarnation);
        }
        Step::DeleteLaneKey { incarnation, .. } => {
            observed.lane_keys.remove(&incarnation);
        }
        Step::DeleteLease { incarnation, .. } => {
            observed.leases.remove(&incarnation);
        }
        Step::DeleteAssignment { partition, .. } => {
            observed.assignments.remove(&partition);
        }
    }
}

/// A consumer's name ends in the number of its lane's incarnation.
fn incarnation(spec: &ConsumerSpec, observed: &Observed) -> Option<u64> {
    let named = spec.name.rsplit('_').next()?.parse().ok()?;
    let record = &observed.record.as_ref()?.value;
    record.lanes.iter().any(|lane| lane.incarnation == named).then_some(named)
}

/// A consumer as a server states it after it was made as asked.
fn fresh(spec: &ConsumerSpec) -> ConsumerFound {
    let floor = spec.start.map_or(0, |start| start - 1);
    ConsumerFound {
        name: spec.name.clone(),
        filters: vec![spec.filter.clone()],
        deliver_policy: if spec.start.is_some() { "by_start_sequence" } else { "all" }.to_owned(),
        start: spec.start,
        ack_policy: "explicit".to_owned(),
        push: false,
        max_ack_pending: i64::from(spec.delivery.most_out()),
        max_deliver: -1,
        ack_wait_milliseconds: spec.ack_wait_milliseconds,
        backoff_milliseconds: Vec::new(),
        inactive_threshold_milliseconds: 0,
        headers_only: false,
        replay_policy: "instant".to_owned(),
        set: spec.pin(),
        paused: false,
        replicas: spec.replicas.unwrap_or(0),
        metadata: spec.metadata.clone(),
        floor,
        delivered: floor,
        ack_pending: 0,
        pending: 0,
    }
}
