//! Retiring: which lanes end, and the marks by which their workers learn it.

use std::collections::BTreeSet;

use super::{Context, Note, Plan, Revisioned, Step, settle::Group, shape::consumer_spec};
use crate::{
    consumer::drift,
    record::{Assignment, Holder, LaneKey, LaneRecord, LaneState},
};

/// Lanes that are not wanted any more, or that cannot go on, retire: the record first, then key and assignment.
pub(super) fn retire(context: &Context<'_>) -> Plan {
    let mut notes = Vec::new();
    let due = due(context);
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
            lane.fence_milliseconds = context.longest_ack_wait(lane);
            lane.state = LaneState::Retiring;
            notes.push(Note::LaneKeyLost { partition, incarnation });
        }
        if !matches!(lane.state, LaneState::Created | LaneState::Open) {
            continue;
        }
        if let Some(found) = lost(context, lane) {
            lane.state = LaneState::Retiring;
            notes.push(Note::ConsumerLost { partition, incarnation, found });
        } else if outdated(context, lane) || due.contains(&incarnation) {
            lane.state = LaneState::Retiring;
        }
    }
    if lanes == context.lanes() {
        return Plan::default();
    }
    // Whatever else ends an unwanted lane, the number changes with it.
    let another_number = lanes.iter().zip(context.lanes()).any(|(now, before)| {
        now.state == LaneState::Retiring
            && before.state != LaneState::Retiring
            && !context.shares.contains(&now.share)
    });
    let retired = lanes
        .iter()
        .filter(|lane| lane.state == LaneState::Retiring && lane.opened)
        .flat_map(|lane| marks(context, lane))
        .collect::<Vec<_>>();
    let mut steps = vec![context.put_record(|record| {
        record.lanes = lanes;
        let partitions = Some(context.wanted.partitions);
        if another_number && record.partitions != partitions {
            record.partitions = partitions;
            record.changed_seconds = Some(context.wanted.now_seconds);
        }
    })];
    steps.extend(retired);
    Plan { notes, ..Plan::steps(steps) }
}

/// The lanes that are not wanted any more and end now.
///
/// The keys of a group of overlapping lanes have no lane from its first lane's end to its last successor's opening, and
/// what is done meanwhile is done for all groups that began. So a change of many lanes goes through them a few groups at a
/// time. A group that has begun is never split: its floors count only together.
fn due(context: &Context<'_>) -> BTreeSet<u64> {
    let is_active = |lane: &&LaneRecord| matches!(lane.state, LaneState::Created | LaneState::Open);
    let unwanted = |lane: &&LaneRecord| is_active(lane) && !context.shares.contains(&lane.share);
    let has_begun = |lane: &LaneRecord| {
        lane.state != LaneState::Open || lost(context, lane).is_some() || outdated(context, lane)
    };
    let ending: Vec<&LaneRecord> =
        context.lanes().iter().filter(|lane| lane.state == LaneState::Retiring || unwanted(lane)).collect();
    let lacking = context.lacking();
    let under_way = context
        .lanes()
        .iter()
        .filter(|lane| matches!(lane.state, LaneState::Created | LaneState::Retiring))
        .count();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for lane in &ending {
        if !groups.iter().any(|group| group.has(lane)) {
            groups.push(Group::around(lane, &ending, &lacking));
        }
    }
    let (begun, others): (Vec<Group<'_>>, Vec<Group<'_>>) =
        groups.into_iter().partition(|group| group.lanes.iter().any(|lane| has_begun(lane)));
    // Shares that are not in the record yet will be under way as well.
    let mut size = under_way + begun.iter().map(|group| group.adds.len()).sum::<usize>();
    let mut due: BTreeSet<u64> =
        begun.iter().flat_map(|group| &group.lanes).map(|lane| lane.incarnation).collect();
    for group in others {
        let more = group.lanes.len() + group.adds.len();
        if size > 0 && size + more > context.wanted.lanes_at_once {
            break;
        }
        size += more;
        due.extend(group.lanes.iter().map(|lane| lane.incarnation));
    }
    due
}

/// Whether the lane goes by something that only a successor can change. Where a pin and a lease decide at the same time
/// who has a lane's messages, neither does; and a worker of one mode must never meet a consumer of the other.
fn outdated(context: &Context<'_>, lane: &LaneRecord) -> bool {
    let wanted = &context.wanted.settings;
    lane.ownership != wanted.ownership || lane.mode != wanted.delivery.mode() || shortened(context, lane)
}

/// Whether the lane's workers were given a longer `AckWait` than is wanted now. One that cannot be reached may still go by
/// it, so a shorter one is only for a successor: the lane's own consumer and assignment keep the longer one to their end,
/// and a fence goes by that.
fn shortened(context: &Context<'_>, lane: &LaneRecord) -> bool {
    context.observed.assignments.get(&lane.share.partition()).is_some_and(|assignment| {
        assignment.value.incarnation == lane.incarnation
            && assignment.value.settings.ack_wait_milliseconds > context.wanted.settings.ack_wait_milliseconds
    })
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
