//! Settling retired lanes, and allocating their successors after the floors that are final by then.

use std::collections::BTreeMap;

use super::{Context, Plan, Step, Wait};
use crate::{
    record::{Floor, LaneRecord, LaneState},
    share::{Share, covers},
    stream::Retention,
};

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

/// For all groups of overlapping lanes that are settled: read the floors, record the successors.
pub(super) fn settle_and_allocate(context: &Context<'_>) -> Plan {
    let mut waits = Vec::new();
    let lacking = context.lacking();
    let retiring: Vec<&LaneRecord> =
        context.lanes().iter().filter(|lane| lane.state == LaneState::Retiring).collect();
    let mut grouped: Vec<u64> = Vec::new();
    let mut settled: Vec<Settled<'_>> = Vec::new();
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
            settled.push(Settled::new(context, group, fenced));
        }
    }
    if !settled.is_empty() {
        return Plan { waits, ..allocate(context, &settled) };
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
            record.lanes.push(created(context, record.counter, share, 1, Vec::new()));
        }
    });
    Plan { waits, ..Plan::steps(vec![step]) }
}

/// Lanes that end and lacking shares that hang together by overlapping.
pub(super) struct Group<'a> {
    pub(super) lanes: Vec<&'a LaneRecord>,
    pub(super) adds: Vec<Share>,
}

impl<'a> Group<'a> {
    /// The group of one lane among those that end.
    pub(super) fn around(first: &'a LaneRecord, ending: &[&'a LaneRecord], lacking: &[Share]) -> Self {
        let mut group = Self { lanes: vec![first], adds: Vec::new() };
        loop {
            let size = group.lanes.len() + group.adds.len();
            for share in lacking {
                if !group.adds.contains(share) && group.overlaps(*share) {
                    group.adds.push(*share);
                }
            }
            for lane in ending {
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

    pub(super) fn has(&self, lane: &LaneRecord) -> bool {
        self.lanes.iter().any(|one| one.incarnation == lane.incarnation)
    }

    fn overlaps(&self, share: Share) -> bool {
        self.lanes.iter().any(|lane| lane.share.overlaps(share))
            || self.adds.iter().any(|add| add.overlaps(share))
    }
}

/// A group whose lanes are all settled.
struct Settled<'a> {
    group: Group<'a>,
    fenced: Vec<u64>,
    /// The lanes whose floors count.
    sources: Vec<&'a LaneRecord>,
}

impl<'a> Settled<'a> {
    fn new(context: &'a Context<'_>, group: Group<'a>, fenced: Vec<u64>) -> Self {
        let sources = context
            .lanes()
            .iter()
            .filter(|lane| {
                group.has(lane)
                    || (lane.state == LaneState::Settled
                        && context.exists(lane.incarnation)
                        && group.overlaps(lane.share))
            })
            .collect();
        Self { group, fenced, sources }
    }

    /// A work queue refuses overlapping filters and holds unsettled messages only: delete first, no floors.
    fn deletes(&self, context: &Context<'_>) -> Vec<Step> {
        if context.wanted.retention != Retention::WorkQueue || self.group.adds.is_empty() {
            return Vec::new();
        }
        let existing = self.sources.iter().filter(|lane| context.exists(lane.incarnation));
        existing.map(|lane| context.delete(lane.incarnation)).collect()
    }

    fn successors(&self, context: &Context<'_>) -> Vec<(Share, u64, Vec<Floor>)> {
        let work_queue = context.wanted.retention == Retention::WorkQueue;
        let successor = |share: &Share| {
            let overlapping: Vec<&LaneRecord> =
                self.sources.iter().copied().filter(|lane| lane.share.overlaps(*share)).collect();
            let cover: Vec<Share> = overlapping.iter().map(|lane| lane.share).collect();
            if work_queue || !covers(&cover, *share) {
                return (*share, 1, Vec::new());
            }
            let start = overlapping.iter().map(|lane| floor(context, lane)).min().unwrap_or(0) + 1;
            let own =
                overlapping.iter().map(|lane| Floor { share: lane.share, sequence: floor(context, lane) });
            let inherited = overlapping.iter().flat_map(|lane| lane.floors.iter().copied());
            let above = own.chain(inherited).filter(|f| f.sequence >= start && f.share.overlaps(*share));
            (*share, start, strongest(above))
        };
        self.group.adds.iter().map(successor).collect()
    }
}

fn floor(context: &Context<'_>, lane: &LaneRecord) -> u64 {
    let known =
        context.observed.consumers.get(&lane.incarnation).map_or(lane.checkpoint, |found| found.floor);
    known.max(lane.start.saturating_sub(1))
}

/// One write for all groups that can be allocated; those with something to delete first follow.
fn allocate(context: &Context<'_>, settled: &[Settled<'_>]) -> Plan {
    let (ready, deleting): (Vec<&Settled<'_>>, Vec<&Settled<'_>>) =
        settled.iter().partition(|one| one.deletes(context).is_empty());
    if ready.is_empty() {
        return Plan::steps(deleting.iter().flat_map(|one| one.deletes(context)).collect());
    }
    let step = context.put_record(|record| {
        for lane in &mut record.lanes {
            if let Some(one) = ready.iter().find(|one| one.group.has(lane)) {
                lane.checkpoint = floor(context, lane);
                if one.fenced.contains(&lane.incarnation) {
                    lane.fenced = true;
                    lane.fence_milliseconds = context.longest_ack_wait(lane);
                }
                lane.state = LaneState::Settled;
            }
        }
        for (share, start, floors) in ready.iter().flat_map(|one| one.successors(context)) {
            record.counter += 1;
            record.lanes.push(created(context, record.counter, share, start, floors));
        }
    });
    Plan::steps(vec![step])
}

fn created(
    context: &Context<'_>,
    incarnation: u64,
    share: Share,
    start: u64,
    floors: Vec<Floor>,
) -> LaneRecord {
    let settings = &context.wanted.settings;
    LaneRecord {
        incarnation,
        share,
        state: LaneState::Created,
        ownership: settings.ownership,
        mode: settings.delivery.mode(),
        start,
        floors,
        opened: false,
        fenced: false,
        fence_milliseconds: 0,
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
