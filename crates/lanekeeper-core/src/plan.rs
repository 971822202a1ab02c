//! What to do next for one set: the whole protocol of lanes and handovers as a pure function.
//!
//! [`plan`] looks at what is wanted and what was observed and returns the next steps, in order. Whoever carries
//! them out stops at the first that fails, observes again and calls again: a crash, a lost answer, a new number of
//! partitions in the middle, or a second operator just means another call. Nothing is remembered between calls.
//!
//! The life of a lane: allocated in the record ([`LaneState::Created`]), its consumer created, opened (record, then
//! the assignment that workers follow), retired (record, then the lane's key, then the assignment), settled (its key
//! is retiring and has no holders), succeeded after its floor, its consumer deleted. Rules that keep order:
//! - nothing is created that the record does not name, and a name is never used twice;
//! - retiring is irrevocable; a floor is read only after settling; a successor opens only when every overlapping
//!   predecessor is settled and its consumer gone;
//! - holders leave by themselves or by proof of their end, never by absence of news. When only unreachable
//!   holders are left, the consumer is deleted and one `AckWait` passes before a successor opens.
//!
//! This module must not do I/O, read clocks, or know how its steps are carried out.

mod observed;
mod rebuild;
mod repair;
mod retire;
mod settle;
mod shape;
mod steps;
mod succeed;

pub use observed::{LANES_AT_ONCE, Observed, Revisioned, Start, Wanted};
pub use steps::{Note, Plan, Refusal, Step, Wait};

use crate::{
    record::{LaneRecord, LaneState, Record},
    share::{self, Share},
};

/// The next steps; none when what is observed is what is wanted (or when something must be waited for).
pub fn plan(wanted: &Wanted, observed: &Observed) -> Plan {
    let Some(record) = &observed.record else {
        return rebuild::begin(wanted, observed);
    };
    if let Some(refusal) = refused(wanted, &record.value) {
        return Plan::refused(refusal);
    }
    let context = Context { wanted, observed, record, shares: share::shares(wanted.partitions) };
    let stages: [fn(&Context<'_>) -> Plan; 8] = [
        rebuild::replaced_stream,
        retire::retire,
        retire::mark_retiring,
        settle::settle_and_allocate,
        // A creation that is refused for long (limits, too few servers) must not hold up groups that are ready.
        succeed::delete_settled,
        succeed::open,
        succeed::create,
        repair::repair,
    ];
    let mut waits = Vec::new();
    for stage in stages {
        let mut plan = stage(&context);
        waits.append(&mut plan.waits);
        if !plan.steps.is_empty() {
            plan.waits = waits;
            return plan;
        }
    }
    Plan { waits, checkpoint: repair::checkpoint(&context), ..Plan::default() }
}

/// A record may be adopted when the set of the same name in the same cluster was deleted and made again, for the same
/// stream: positions mean nothing in another one.
fn refused(wanted: &Wanted, record: &Record) -> Option<Refusal> {
    let (ours, theirs) = (&wanted.owner, &record.owner);
    if (&ours.cluster, &ours.namespace, &ours.name) != (&theirs.cluster, &theirs.namespace, &theirs.name) {
        return Some(Refusal::OwnedElsewhere(theirs.clone()));
    }
    (record.stream != wanted.mapping.stream).then(|| Refusal::OfAnotherStream(record.stream.clone()))
}

/// What every stage needs.
struct Context<'a> {
    wanted: &'a Wanted,
    observed: &'a Observed,
    record: &'a Revisioned<Record>,
    /// The shares of the wanted number of partitions.
    shares: Vec<Share>,
}

impl Context<'_> {
    fn lanes(&self) -> &[LaneRecord] {
        &self.record.value.lanes
    }

    fn exists(&self, incarnation: u64) -> bool {
        self.observed.consumers.contains_key(&incarnation)
    }

    /// Lanes that are, or will be, in use.
    fn active(&self) -> impl Iterator<Item = &LaneRecord> {
        self.lanes().iter().filter(|lane| matches!(lane.state, LaneState::Created | LaneState::Open))
    }

    /// Wanted shares without an active lane.
    fn lacking(&self) -> Vec<Share> {
        self.shares.iter().copied().filter(|share| self.active().all(|lane| lane.share != *share)).collect()
    }

    /// The longest `AckWait` that workers of a lane may go by: their assignment never names a shorter one than before, and
    /// the consumer may have got a longer one already, or by hand.
    fn longest_ack_wait(&self, lane: &LaneRecord) -> u64 {
        let consumer =
            self.observed.consumers.get(&lane.incarnation).map(|found| found.ack_wait_milliseconds);
        let assignment = self.observed.assignments.get(&lane.share.partition());
        let assigned = assignment
            .filter(|assignment| assignment.value.incarnation == lane.incarnation)
            .map(|assignment| assignment.value.settings.ack_wait_milliseconds);
        [Some(lane.fence_milliseconds), consumer, assigned, Some(self.wanted.settings.ack_wait_milliseconds)]
            .into_iter()
            .flatten()
            .max()
            .unwrap_or_default()
    }

    fn delete(&self, incarnation: u64) -> Step {
        Step::DeleteConsumer { incarnation, name: self.observed.consumers[&incarnation].name.clone() }
    }

    fn put_record(&self, change: impl FnOnce(&mut Record)) -> Step {
        let mut record = self.record.value.clone();
        record.owner = self.wanted.owner.clone();
        change(&mut record);
        record.lanes.sort_by_key(|lane| lane.incarnation);
        Step::PutRecord { expected: Some(self.record.revision), record }
    }
}
