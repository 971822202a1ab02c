//! One lane as it is shown: pure, from what NATS holds.

use lanekeeper_core::{
    record::{Blocked, LaneState, Stalled},
    share::Share,
};
use serde::Serialize;

use crate::look::Seen;

/// A lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lane {
    pub(crate) partition: u32,
    #[serde(flatten)]
    pub(crate) share: Share,
    pub(crate) incarnation: u64,
    pub(crate) state: LaneState,
    /// Whether a worker was ever told of it.
    pub(crate) opened: bool,
    /// What its consumer says; `None` while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) position: Option<Position>,
    /// Pods that joined it and did not leave.
    pub(crate) holders: Vec<String>,
    /// The message that it stands at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked: Option<Blocked>,
    /// What keeps the messages that wait from its workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stalled: Option<Stalled>,
}

/// How far a lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Position {
    /// Everything of the lane up to this sequence is settled.
    pub(crate) floor: u64,
    /// Messages that were not delivered yet.
    pub(crate) waiting: u64,
    /// Messages that are out.
    pub(crate) in_hand: u64,
}

impl Position {
    /// Everything that is not settled.
    pub(crate) fn unsettled(self) -> u64 {
        self.waiting + self.in_hand
    }
}

/// All lanes that the record names, by partition, the older one first.
pub(crate) fn lanes(seen: &Seen) -> Vec<Lane> {
    let recorded = seen.record.iter().flat_map(|record| &record.value.lanes);
    let mut lanes: Vec<Lane> = recorded
        .map(|lane| {
            let (partition, incarnation) = (lane.share.partition(), lane.incarnation);
            let position = seen.consumers.get(&incarnation).map(|found| Position {
                floor: found.floor.max(lane.start.saturating_sub(1)),
                waiting: found.pending,
                in_hand: found.ack_pending,
            });
            let holders = seen.lane_keys.get(&incarnation).map(|key| &key.value.holders);
            let mut holders: Vec<String> =
                holders.into_iter().flatten().map(|holder| holder.pod.clone()).collect();
            holders.sort();
            holders.dedup();
            let mut about = seen.reports.iter().filter(|one| one.report.incarnation == incarnation);
            let stalled = about.clone().filter_map(|one| one.report.stalled);
            let stalled = stalled.min_by_key(|stalled| (stalled.since_seconds, stalled.kind));
            let blocked = about.find_map(|one| one.report.blocked.as_ref().or(one.report.refused.as_ref()));
            Lane {
                partition,
                share: lane.share,
                incarnation,
                state: lane.state,
                opened: lane.opened,
                position,
                holders,
                blocked: blocked.cloned(),
                stalled,
            }
        })
        .collect();
    lanes.sort_by_key(|lane| (lane.partition, lane.incarnation));
    lanes
}

/// A lane's state in one word.
pub(crate) fn state(lane: &Lane) -> &'static str {
    match lane.state {
        LaneState::Created => "created",
        LaneState::Open if lane.blocked.is_some() => "blocked",
        LaneState::Open if lane.stalled.is_some() => "stalled",
        LaneState::Open => "open",
        LaneState::Retiring => "retiring",
        LaneState::Settled => "settled",
    }
}
