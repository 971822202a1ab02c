//! Drift of what is in use, and leftovers that no record names.

use super::{
    Context, Plan, Step,
    shape::{assignment, consumer_spec, put_assignment},
};
use crate::{
    consumer::drift,
    record::{LaneRecord, LaneState},
};

/// Everything in use as it should be; then what is in no record is removed.
pub(super) fn repair(context: &Context<'_>) -> Plan {
    let open: Vec<&LaneRecord> =
        context.lanes().iter().filter(|lane| lane.state == LaneState::Open).collect();
    let stale = open.iter().filter(|lane| {
        let seen = context.observed.assignments.get(&lane.share.partition());
        seen.is_none_or(|seen| seen.value != assignment(context, lane))
    });
    // Assignments first: a consumer that cannot be repaired for a while must not keep a pause from the others.
    let mut steps: Vec<Step> = stale.map(|lane| put_assignment(context, lane)).collect();
    steps.extend(open.iter().filter_map(|lane| repair_consumer(context, lane)));
    if context.record.value.owner != context.wanted.owner {
        steps.push(context.put_record(|_| {})); // adopted: the set was deleted and made again
    }
    if steps.is_empty() {
        steps = leftovers(context);
    }
    Plan::steps(steps)
}

fn repair_consumer(context: &Context<'_>, lane: &LaneRecord) -> Option<Step> {
    let found = context.observed.consumers.get(&lane.incarnation)?;
    let spec = consumer_spec(context, lane, &[]);
    let drift = drift(&spec, found);
    (!drift.is_empty()).then_some(Step::RepairConsumer { spec, drift })
}

/// Orphans of requests that were applied late. Only what the record that was read could have named: a consumer with a
/// higher number belongs to an operator that knows more.
fn leftovers(context: &Context<'_>) -> Vec<Step> {
    let counter = context.record.value.counter;
    let named = |incarnation: u64| context.lanes().iter().any(|lane| lane.incarnation == incarnation);
    let orphan = |incarnation: u64| incarnation <= counter && !named(incarnation);
    let observed = context.observed;
    let consumers = observed.consumers.iter().filter(|(incarnation, _)| orphan(**incarnation)).map(
        |(incarnation, found)| Step::DeleteConsumer { incarnation: *incarnation, name: found.name.clone() },
    );
    let keys = observed
        .lane_keys
        .iter()
        .filter(|(incarnation, key)| orphan(**incarnation) && key.value.holders.is_empty())
        .map(|(incarnation, key)| Step::DeleteLaneKey { incarnation: *incarnation, expected: key.revision });
    let leases = observed
        .leases
        .iter()
        .filter(|(incarnation, _)| orphan(**incarnation) && !observed.lane_keys.contains_key(incarnation))
        .map(|(incarnation, revision)| Step::DeleteLease { incarnation: *incarnation, expected: *revision });
    let assignments = observed
        .assignments
        .iter()
        .filter(|(partition, seen)| {
            **partition >= context.wanted.partitions && orphan(seen.value.incarnation)
        })
        .map(|(partition, seen)| Step::DeleteAssignment { partition: *partition, expected: seen.revision });
    consumers.chain(keys).chain(leases).chain(assignments).collect()
}

/// The record with the floors seen now, for the case that somebody deletes a consumer.
pub(super) fn checkpoint(context: &Context<'_>) -> Option<Step> {
    let newer = |lane: &LaneRecord| {
        let found = context.observed.consumers.get(&lane.incarnation)?;
        (lane.state == LaneState::Open && found.floor > lane.checkpoint).then_some(found.floor)
    };
    context.lanes().iter().any(|lane| newer(lane).is_some()).then(|| {
        context.put_record(|record| {
            for lane in &mut record.lanes {
                if let Some(floor) = newer(lane) {
                    lane.checkpoint = floor;
                }
            }
        })
    })
}
