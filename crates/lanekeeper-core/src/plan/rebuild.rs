//! The first record of a set, a record that was lost, and a stream that was replaced.

use super::{Context, Note, Observed, Plan, Start, Step, Wait, Wanted};
use crate::{
    consumer::{ConsumerFound, PIN, metadata},
    record::{Floor, LaneRecord, LaneState, Mode, Ownership, Record, VERSION},
    share::{Share, covers, shares},
};

/// No record: either the set is new, or the record was lost.
pub(super) fn begin(wanted: &Wanted, observed: &Observed) -> Plan {
    if !observed.has_traces() && !observed.known_before {
        return Plan::steps(vec![first(wanted, observed)]);
    }
    if !observed.fence_elapsed.contains(&0) {
        // Also when consumers are left. They may be successors that were not open yet, with a shorter deadline than their
        // predecessor, whose consumer was gone and whose fence was still pending: only the lost record named that one.
        return Plan { waits: vec![Wait::RecordLost], ..Plan::default() };
    }
    let lanes = found_lanes(observed);
    let notes = vec![Note::RecordRebuilt { lanes: lanes.len() }];
    // The counter must be above every number ever used, also of consumers that are gone.
    let highest = [
        observed.consumers.keys().max().copied(),
        observed.lane_keys.keys().max().copied(),
        observed.assignments.values().map(|assignment| assignment.value.incarnation).max(),
    ];
    let counter = highest.into_iter().flatten().max().unwrap_or(0);
    let mut record = empty(wanted, observed);
    record.counter = counter;
    record.lanes = lanes;
    Plan { notes, ..Plan::steps(vec![Step::PutRecord { expected: None, record }]) }
}

fn empty(wanted: &Wanted, observed: &Observed) -> Record {
    Record {
        v: VERSION,
        owner: wanted.owner.clone(),
        stream: wanted.mapping.stream.clone(),
        stream_created: observed.stream_created.clone(),
        stream_incarnation: 1,
        partitions: None,
        changed_seconds: None,
        counter: 0,
        lanes: Vec::new(),
    }
}

fn first(wanted: &Wanted, observed: &Observed) -> Step {
    let start = match wanted.start {
        Start::All => 1,
        Start::New => observed.stream_last_sequence + 1,
    };
    let mut record = empty(wanted, observed);
    for share in shares(wanted.partitions) {
        record.counter += 1;
        record.lanes.push(LaneRecord {
            incarnation: record.counter,
            share,
            state: LaneState::Created,
            ownership: wanted.settings.ownership,
            mode: wanted.settings.delivery.mode(),
            start,
            floors: Vec::new(),
            opened: false,
            fenced: false,
            fence_milliseconds: 0,
            checkpoint: start - 1,
        });
    }
    Step::PutRecord { expected: None, record }
}

/// Lanes as their consumers tell them. Their holders are unknown, so each retires by fencing; those that others already
/// succeed entirely are settled.
fn found_lanes(observed: &Observed) -> Vec<LaneRecord> {
    let found: Vec<(u64, Share, &ConsumerFound)> = observed
        .consumers
        .iter()
        .filter_map(|(incarnation, consumer)| Some((*incarnation, share_of(consumer)?, consumer)))
        .collect();
    found
        .iter()
        .map(|(incarnation, share, consumer)| {
            let successors: Vec<Share> = found
                .iter()
                .filter(|(_, _, other)| predecessors(other).contains(incarnation))
                .map(|(_, share, _)| *share)
                .collect();
            let state = if covers(&successors, *share) { LaneState::Settled } else { LaneState::Retiring };
            let start = number(consumer, metadata::START).or(consumer.start).unwrap_or(1);
            LaneRecord {
                incarnation: *incarnation,
                share: *share,
                state,
                ownership: ownership(consumer),
                mode: mode(consumer),
                start,
                floors: floors(consumer),
                opened: true,
                fenced: true,
                fence_milliseconds: consumer.ack_wait_milliseconds,
                checkpoint: consumer.floor,
            }
        })
        .collect()
}

fn ownership(consumer: &ConsumerFound) -> Ownership {
    if PIN.iter().any(|field| consumer.set.contains_key(field)) { Ownership::Pin } else { Ownership::Lease }
}

fn mode(consumer: &ConsumerFound) -> Mode {
    if consumer.max_ack_pending == 1 { Mode::Serial } else { Mode::Pipelined }
}

fn number(consumer: &ConsumerFound, key: &str) -> Option<u64> {
    consumer.metadata.get(key)?.parse().ok()
}

fn share_of(consumer: &ConsumerFound) -> Option<Share> {
    let small = |key| number(consumer, key).and_then(|value| u32::try_from(value).ok());
    let (residue, modulus) = (small(metadata::PARTITION)?, small(metadata::MODULUS)?);
    Share::new(modulus, residue)
}

fn predecessors(consumer: &ConsumerFound) -> Vec<u64> {
    let text = consumer.metadata.get(metadata::PREDECESSORS).map_or("", String::as_str);
    text.split(',').filter_map(|one| one.parse().ok()).collect()
}

fn floors(consumer: &ConsumerFound) -> Vec<Floor> {
    let text = consumer.metadata.get(metadata::FLOORS).map_or("", String::as_str);
    text.split(',')
        .filter_map(|one| {
            let mut parts = one.split(':');
            let (modulus, residue) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            Some(Floor { share: Share::new(modulus, residue)?, sequence: parts.next()?.parse().ok()? })
        })
        .collect()
}

/// The stream is another one than the record knows: its sequences start again, so no position applies. The lanes retire
/// like any other (workers may still handle messages of the old stream) and are succeeded from the beginning.
pub(super) fn replaced_stream(context: &Context<'_>) -> Plan {
    let record = &context.record.value;
    let now = &context.observed.stream_created;
    if record.stream_created == *now {
        return Plan::default();
    }
    let step = context.put_record(|record| {
        record.stream_created.clone_from(now);
        record.stream_incarnation += 1;
        for lane in &mut record.lanes {
            lane.state = if lane.state == LaneState::Settled { lane.state } else { LaneState::Retiring };
            lane.start = 1;
            lane.checkpoint = 0;
            lane.floors.clear();
        }
    });
    let note = Note::StreamReplaced { before: record.stream_created.clone(), now: now.clone() };
    Plan { notes: vec![note], ..Plan::steps(vec![step]) }
}
