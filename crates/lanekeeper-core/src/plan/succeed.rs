//! Successors: their consumers are created, those of their predecessors deleted, then they open.

use super::{
    Context, Plan, Step, Wait,
    shape::{consumer_spec, put_assignment},
};
use crate::{
    order::Order,
    record::{LaneKey, LaneRecord, LaneState},
    share::{Share, covers},
    stream::Retention,
};

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
        .map(|lane| context.delete(lane.incarnation))
        .collect();
    Plan::steps(steps)
}

/// What persons ordered of a lane's keys and its predecessors did not carry out. Nobody works for those any more, and nobody
/// gives them orders.
fn inherited(context: &Context<'_>, lane: &LaneRecord) -> Vec<Order> {
    let predecessors = context
        .lanes()
        .iter()
        .filter(|other| other.state == LaneState::Settled && other.share.overlaps(lane.share));
    let keys = predecessors.filter_map(|other| context.observed.lane_keys.get(&other.incarnation));
    let orders = keys.flat_map(|key| &key.value.orders);
    orders.filter(|order| lane.share.contains_hash(order.hash())).cloned().collect()
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
        .map(|lane| {
            let key = LaneKey { orders: inherited(context, lane), ..LaneKey::new() };
            Step::PutLaneKey { incarnation: lane.incarnation, expected: None, key }
        })
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
