//! Retiring: which lanes end, and the marks by which their workers learn it.

use super::{Context, Note, Plan, Revisioned, Step, shape::consumer_spec};
use crate::{
    consumer::drift,
    record::{Assignment, Holder, LaneKey, LaneRecord, LaneState},
};

/// Lanes that are not wanted any more, or that cannot go on, retire: the record first, then key and assignment.
pub(super) fn retire(context: &Context<'_>) -> Plan {
    let mut notes = Vec::new();
    let mut another_number = false;
    let mut lanes = context.lanes().to_vec();
    for lane in &mut lanes {
        let (partition, incarnation) = (lane.share.partition(), lane.incarnation);
        if lane.opened
            && !lane.fenced
            && lane.state != LaneState::Settled
            && !context.observed.lane_keys.contains_key(&incarnation)
        {
            // Who held the lane is not known any more.
            lane.fenced = true;
            lane.state = LaneState::Retiring;
            notes.push(Note::LaneKeyLost { partition, incarnation });
        }
        if !matches!(lane.state, LaneState::Created | LaneState::Open) {
            continue;
        }
        if let Some(found) = lost(context, lane) {
            lane.state = LaneState::Retiring;
            notes.push(Note::ConsumerLost { partition, incarnation, found });
        } else if !context.shares.contains(&lane.share) {
            lane.state = LaneState::Retiring;
            another_number = true;
        }
    }
    if lanes == context.lanes() {
        return Plan::default();
    }
    let retired = lanes
        .iter()
        .filter(|lane| lane.state == LaneState::Retiring && lane.opened)
        .flat_map(|lane| marks(context, lane))
        .collect::<Vec<_>>();
    let mut steps = vec![context.put_record(|record| {
        record.lanes = lanes;
        if another_number {
            record.changed_seconds = Some(context.wanted.now_seconds);
        }
    })];
    steps.extend(retired);
    Plan { notes, ..Plan::steps(steps) }
}

/// Why the consumer of a lane in use is not the one that was created for it. It is never created again under living
/// holders: the lane retires and is succeeded.
fn lost(context: &Context<'_>, lane: &LaneRecord) -> Option<String> {
    match context.observed.consumers.get(&lane.incarnation) {
        None if lane.state == LaneState::Open => Some("no consumer".to_owned()),
        None => None,
        Some(found) => {
            let wanted = consumer_spec(context, lane, &[]);
            // Somebody deleted it and made another of the same name: its position is not the lane's.
            if found.start != wanted.start {
                let text =
                    |start: Option<u64>| start.map_or("the first message".to_owned(), |s| s.to_string());
                return Some(format!("a consumer that starts at {}", text(found.start)));
            }
            drift(&wanted, found).into_iter().find(|one| !one.repairable).map(|one| one.to_string())
        }
    }
}

/// The marks of a retiring lane that workers see: key, then assignment.
fn marks(context: &Context<'_>, lane: &LaneRecord) -> Vec<Step> {
    let mut steps = Vec::new();
    if let Some(key) = context.observed.lane_keys.get(&lane.incarnation)
        && !key.value.retiring
    {
        let changed = LaneKey { retiring: true, ..key.value.clone() };
        steps.push(put_key(lane.incarnation, key, changed));
    }
    let partition = lane.share.partition();
    if let Some(assignment) = context.observed.assignments.get(&partition)
        && assignment.value.incarnation == lane.incarnation
        && !assignment.value.retiring
    {
        let changed = Assignment { retiring: true, ..assignment.value.clone() };
        let assignment = Box::new(changed);
        let expected = Some(context.observed.assignments[&partition].revision);
        steps.push(Step::PutAssignment { partition, expected, assignment });
    }
    steps
}

fn put_key(incarnation: u64, before: &Revisioned<LaneKey>, key: LaneKey) -> Step {
    Step::PutLaneKey { incarnation, expected: Some(before.revision), key }
}

/// Repeats the marks until they are seen, and takes out holders whose container has terminated.
pub(super) fn mark_retiring(context: &Context<'_>) -> Plan {
    let retiring = |lane: &&LaneRecord| lane.state == LaneState::Retiring && lane.opened;
    let mut steps: Vec<Step> =
        context.lanes().iter().filter(retiring).flat_map(|lane| marks(context, lane)).collect();
    if steps.is_empty() {
        for (incarnation, key) in &context.observed.lane_keys {
            let left: Vec<Holder> = key
                .value
                .holders
                .iter()
                .filter(|holder| !context.observed.terminated.contains(holder))
                .cloned()
                .collect();
            if left.len() < key.value.holders.len() {
                steps.push(put_key(*incarnation, key, LaneKey { holders: left, ..key.value.clone() }));
            }
        }
    }
    Plan::steps(steps)
}
