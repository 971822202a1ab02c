//! The handover, stage by stage; each stage is decided from the record and what was observed, on its own.

use std::collections::BTreeMap;

use super::{Context, Note, Plan, Revisioned, Step, Wait};
use crate::{
    consumer::{ConsumerSpec, drift, metadata},
    record::{Assignment, Floor, Holder, LaneKey, LaneRecord, LaneState, VERSION},
    share::{Share, covers},
    stream::Retention,
};

/// Lanes that are not wanted any more, or that cannot go on, retire: the record first, then key and assignment.
pub(super) fn retire(context: &Context<'_>) -> Plan {
    let mut notes = Vec::new();
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
    let mut steps = vec![context.put_record(|record| record.lanes = lanes)];
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

/// How a retiring lane is settled.
enum Settling {
    /// Nobody holds it.
    Clean,
    /// Its holders cannot be asked: delete, then wait one `AckWait`.
    Fenced,
    /// Not yet.
    Waits(Wait),
}

fn settling(context: &Context<'_>, lane: &LaneRecord) -> Settling {
    if !lane.opened {
        return Settling::Clean; // no worker was ever told of it
    }
    if lane.fenced {
        return Settling::Fenced;
    }
    let (partition, incarnation) = (lane.share.partition(), lane.incarnation);
    let waits = |holders| Settling::Waits(Wait::Holders { partition, incarnation, holders });
    let Some(key) = context.observed.lane_keys.get(&lane.incarnation).map(|key| &key.value) else {
        return waits(Vec::new()); // `retire` turns this into fencing
    };
    if !key.retiring {
        return waits(key.holders.clone());
    }
    if key.holders.is_empty() {
        Settling::Clean
    } else if key.holders.iter().all(|holder| context.observed.unreachable.contains(holder)) {
        Settling::Fenced
    } else {
        waits(key.holders.clone())
    }
}

/// For each group of overlapping lanes that is settled: read the floors, record the successors.
pub(super) fn settle_and_allocate(context: &Context<'_>) -> Plan {
    let mut waits = Vec::new();
    let lacking = context.lacking();
    let retiring: Vec<&LaneRecord> =
        context.lanes().iter().filter(|lane| lane.state == LaneState::Retiring).collect();
    let mut grouped: Vec<u64> = Vec::new();
    for lane in &retiring {
        if grouped.contains(&lane.incarnation) {
            continue;
        }
        let group = Group::around(lane, &retiring, &lacking);
        grouped.extend(group.lanes.iter().map(|lane| lane.incarnation));
        let mut fenced = Vec::new();
        let mut ready = true;
        for lane in &group.lanes {
            match settling(context, lane) {
                Settling::Clean => {}
                Settling::Fenced => fenced.push(lane.incarnation),
                Settling::Waits(wait) => {
                    ready = false;
                    waits.push(wait);
                }
            }
        }
        if ready {
            let mut plan = allocate(context, &group, &fenced);
            plan.waits = waits;
            return plan;
        }
    }
    // Shares that nothing ever covered: a set whose lanes were all lost.
    let uncovered: Vec<Share> = lacking
        .into_iter()
        .filter(|share| {
            !context.lanes().iter().any(|lane| {
                lane.share.overlaps(*share)
                    && (lane.state != LaneState::Settled || context.exists(lane.incarnation))
            })
        })
        .collect();
    if uncovered.is_empty() {
        return Plan { waits, ..Plan::default() };
    }
    let step = context.put_record(|record| {
        for share in uncovered {
            record.counter += 1;
            record.lanes.push(created(record.counter, share, 1, Vec::new()));
        }
    });
    Plan { waits, ..Plan::steps(vec![step]) }
}

/// Retiring lanes and lacking shares that hang together by overlapping.
struct Group<'a> {
    lanes: Vec<&'a LaneRecord>,
    adds: Vec<Share>,
}

impl<'a> Group<'a> {
    fn around(first: &'a LaneRecord, retiring: &[&'a LaneRecord], lacking: &[Share]) -> Self {
        let mut group = Self { lanes: vec![first], adds: Vec::new() };
        loop {
            let size = group.lanes.len() + group.adds.len();
            for share in lacking {
                if !group.adds.contains(share) && group.overlaps(*share) {
                    group.adds.push(*share);
                }
            }
            for lane in retiring {
                if !group.lanes.iter().any(|one| one.incarnation == lane.incarnation)
                    && group.overlaps(lane.share)
                {
                    group.lanes.push(lane);
                }
            }
            if group.lanes.len() + group.adds.len() == size {
                return group;
            }
        }
    }

    fn overlaps(&self, share: Share) -> bool {
        self.lanes.iter().any(|lane| lane.share.overlaps(share))
            || self.adds.iter().any(|add| add.overlaps(share))
    }
}

fn allocate(context: &Context<'_>, group: &Group<'_>, fenced: &[u64]) -> Plan {
    let work_queue = context.wanted.retention == Retention::WorkQueue;
    let in_group = |lane: &LaneRecord| group.lanes.iter().any(|one| one.incarnation == lane.incarnation);
    let sources: Vec<&LaneRecord> = context
        .lanes()
        .iter()
        .filter(|lane| {
            in_group(lane)
                || (lane.state == LaneState::Settled
                    && context.exists(lane.incarnation)
                    && group.overlaps(lane.share))
        })
        .collect();
    if work_queue && !group.adds.is_empty() {
        // A work queue refuses overlapping filters and holds unsettled messages only: delete first, no floors.
        let deletes: Vec<Step> = sources
            .iter()
            .filter(|lane| context.exists(lane.incarnation))
            .map(|lane| delete(context, lane.incarnation))
            .collect();
        if !deletes.is_empty() {
            return Plan::steps(deletes);
        }
    }
    let floor = |lane: &LaneRecord| {
        let known =
            context.observed.consumers.get(&lane.incarnation).map_or(lane.checkpoint, |found| found.floor);
        known.max(lane.start - 1)
    };
    let successors: Vec<(Share, u64, Vec<Floor>)> = group
        .adds
        .iter()
        .map(|share| {
            let overlapping: Vec<&LaneRecord> =
                sources.iter().copied().filter(|lane| lane.share.overlaps(*share)).collect();
            let cover: Vec<Share> = overlapping.iter().map(|lane| lane.share).collect();
            if work_queue || !covers(&cover, *share) {
                return (*share, 1, Vec::new());
            }
            let start = overlapping.iter().map(|lane| floor(lane)).min().unwrap_or(0) + 1;
            let own = overlapping.iter().map(|lane| Floor { share: lane.share, sequence: floor(lane) });
            let inherited = overlapping.iter().flat_map(|lane| lane.floors.iter().copied());
            (
                *share,
                start,
                strongest(own.chain(inherited).filter(|f| f.sequence >= start && f.share.overlaps(*share))),
            )
        })
        .collect();
    let step = context.put_record(|record| {
        for lane in &mut record.lanes {
            if in_group(lane) {
                lane.checkpoint = floor(lane);
                lane.fenced |= fenced.contains(&lane.incarnation);
                lane.state = LaneState::Settled;
            }
        }
        for (share, start, floors) in successors {
            record.counter += 1;
            record.lanes.push(created(record.counter, share, start, floors));
        }
    });
    Plan::steps(vec![step])
}

fn created(incarnation: u64, share: Share, start: u64, floors: Vec<Floor>) -> LaneRecord {
    let state = LaneState::Created;
    LaneRecord {
        incarnation,
        share,
        state,
        start,
        floors,
        opened: false,
        fenced: false,
        checkpoint: start - 1,
    }
}

/// The highest floor of each share.
fn strongest(floors: impl Iterator<Item = Floor>) -> Vec<Floor> {
    let mut best: BTreeMap<Share, u64> = BTreeMap::new();
    for floor in floors {
        let known = best.entry(floor.share).or_insert(0);
        *known = (*known).max(floor.sequence);
    }
    best.into_iter().map(|(share, sequence)| Floor { share, sequence }).collect()
}

fn delete(context: &Context<'_>, incarnation: u64) -> Step {
    Step::DeleteConsumer { incarnation, name: context.observed.consumers[&incarnation].name.clone() }
}

/// Consumers of lanes that the record names. Nobody pulls from them before they are open.
pub(super) fn create(context: &Context<'_>) -> Plan {
    let work_queue = context.wanted.retention == Retention::WorkQueue;
    let steps = context
        .lanes()
        .iter()
        .filter(|lane| lane.state == LaneState::Created && !context.exists(lane.incarnation))
        .filter(|lane| {
            !work_queue
                || !context.lanes().iter().any(|other| {
                    other.incarnation != lane.incarnation
                        && context.exists(other.incarnation)
                        && other.share.overlaps(lane.share)
                })
        })
        .map(|lane| {
            let predecessors: Vec<u64> = context
                .lanes()
                .iter()
                .filter(|other| other.state == LaneState::Settled && other.share.overlaps(lane.share))
                .map(|other| other.incarnation)
                .collect();
            Step::CreateConsumer(consumer_spec(context, lane, &predecessors))
        })
        .collect();
    Plan::steps(steps)
}

/// The consumer of a lane. `predecessors` matters only at creation.
pub(super) fn consumer_spec(context: &Context<'_>, lane: &LaneRecord, predecessors: &[u64]) -> ConsumerSpec {
    let wanted = context.wanted;
    let joined = |values: Vec<String>| values.join(",");
    let mut ours = BTreeMap::from([
        (metadata::SET.to_owned(), wanted.set.to_string()),
        (metadata::UID.to_owned(), wanted.owner.uid.clone()),
        (metadata::PARTITION.to_owned(), lane.share.partition().to_string()),
        (metadata::MODULUS.to_owned(), lane.share.modulus.to_string()),
        (metadata::INCARNATION.to_owned(), lane.incarnation.to_string()),
        (metadata::START.to_owned(), lane.start.to_string()),
    ]);
    if !lane.floors.is_empty() {
        let text =
            |floor: &Floor| format!("{}:{}:{}", floor.share.modulus, floor.share.residue, floor.sequence);
        ours.insert(metadata::FLOORS.to_owned(), joined(lane.floors.iter().map(text).collect()));
    }
    if !predecessors.is_empty() {
        ours.insert(
            metadata::PREDECESSORS.to_owned(),
            joined(predecessors.iter().map(u64::to_string).collect()),
        );
    }
    ConsumerSpec {
        name: wanted.set.consumer(lane.share.partition(), lane.incarnation),
        filter: wanted.mapping.filter(lane.share),
        // A work queue holds unsettled messages only and knows no other policy than delivering all.
        start: (lane.start > 1 && wanted.retention != Retention::WorkQueue).then_some(lane.start),
        ack_wait_milliseconds: wanted.settings.ack_wait_milliseconds,
        replicas: wanted.consumer_replicas,
        metadata: ours,
    }
}

/// Settled consumers, once every successor exists (interest retention would lose messages otherwise).
pub(super) fn delete_settled(context: &Context<'_>) -> Plan {
    let work_queue = context.wanted.retention == Retention::WorkQueue;
    let steps = context
        .lanes()
        .iter()
        .filter(|lane| lane.state == LaneState::Settled && context.exists(lane.incarnation))
        .filter(|lane| {
            let successors: Vec<Share> =
                context.active().filter(|one| context.exists(one.incarnation)).map(|one| one.share).collect();
            work_queue || covers(&successors, lane.share)
        })
        .map(|lane| delete(context, lane.incarnation))
        .collect();
    Plan::steps(steps)
}

/// Lanes whose predecessors are settled and gone: the key that workers join by, the record, then the assignments.
pub(super) fn open(context: &Context<'_>) -> Plan {
    let mut waits = Vec::new();
    let mut opening: Vec<&LaneRecord> = Vec::new();
    for lane in context.lanes() {
        if lane.state != LaneState::Created || !context.exists(lane.incarnation) {
            continue;
        }
        let mut others = context
            .lanes()
            .iter()
            .filter(|other| other.incarnation != lane.incarnation && other.share.overlaps(lane.share));
        let free = others.all(|other| match other.state {
            LaneState::Settled if context.exists(other.incarnation) => false,
            LaneState::Settled if other.fenced => {
                let elapsed = context.observed.fence_elapsed.contains(&other.incarnation);
                if !elapsed {
                    waits.push(Wait::Fence {
                        partition: other.share.partition(),
                        incarnation: other.incarnation,
                    });
                }
                elapsed
            }
            LaneState::Settled => true,
            LaneState::Created | LaneState::Open | LaneState::Retiring => false,
        });
        if free {
            opening.push(lane);
        }
    }
    waits.sort();
    waits.dedup();
    if opening.is_empty() {
        return Plan { waits, ..Plan::default() };
    }
    let keys: Vec<Step> = opening
        .iter()
        .filter(|lane| !context.observed.lane_keys.contains_key(&lane.incarnation))
        .map(|lane| Step::PutLaneKey { incarnation: lane.incarnation, expected: None, key: LaneKey::new() })
        .collect();
    let is_opening = |incarnation: u64| opening.iter().any(|lane| lane.incarnation == incarnation);
    let record = context.put_record(|record| {
        for lane in &mut record.lanes {
            if is_opening(lane.incarnation) {
                lane.state = LaneState::Open;
                lane.opened = true;
            }
        }
        // A settled lane is forgotten when nothing that succeeds it waits to be opened.
        let waiting: Vec<Share> = record
            .lanes
            .iter()
            .filter(|lane| lane.state == LaneState::Created)
            .map(|lane| lane.share)
            .collect();
        record.lanes.retain(|lane| {
            lane.state != LaneState::Settled
                || context.exists(lane.incarnation)
                || waiting.iter().any(|share| share.overlaps(lane.share))
        });
    });
    let assignments = opening.iter().map(|lane| put_assignment(context, lane));
    let mut steps = keys;
    steps.push(record);
    steps.extend(assignments);
    Plan { waits, ..Plan::steps(steps) }
}

/// The assignment of an open lane.
pub(super) fn assignment(context: &Context<'_>, lane: &LaneRecord) -> Assignment {
    Assignment {
        v: VERSION,
        consumer: context.wanted.set.consumer(lane.share.partition(), lane.incarnation),
        incarnation: lane.incarnation,
        share: lane.share,
        filter: context.wanted.mapping.filter(lane.share),
        mapping: context.wanted.mapping.clone(),
        stream_incarnation: context.record.value.stream_incarnation,
        floors: lane.floors.clone(),
        retiring: false,
        settings: context.wanted.settings.clone(),
    }
}

pub(super) fn put_assignment(context: &Context<'_>, lane: &LaneRecord) -> Step {
    let partition = lane.share.partition();
    let expected = context.observed.assignments.get(&partition).map(|assignment| assignment.revision);
    Step::PutAssignment { partition, expected, assignment: Box::new(assignment(context, lane)) }
}
