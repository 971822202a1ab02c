//! What a change of the number of partitions would do: pure, from what the API server and NATS hold.
//!
//! Two steps: [`preview`] finds the groups of lanes and says what must be counted; [`Preview::answer`] takes the counts.
//! Nothing is guessed: what is not known is not shown, and a bound is called one.

mod groups;
mod notes;
mod outcome;
mod render;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use lanekeeper_api::{invalid::Invalid, spec::Start, validate::Validated};
use lanekeeper_core::{
    plan::{self, Observed, Revisioned, Wait, Wanted},
    record::{LaneRecord, LaneState, Record},
    share::{Share, shares},
    stream::Retention,
};
use serde::Serialize;

use crate::{
    lane::{self, Lane, Position},
    look::Seen,
};
pub(crate) use groups::{After, Count, Group, Kind, Range};
pub(crate) use notes::list;
use outcome::Outcome;
pub(crate) use outcome::OutcomeError;
pub(crate) use render::render;

/// What a preview is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) set: &'a Validated,
    /// `status.partitions`.
    pub(crate) in_force: u32,
    pub(crate) conditions: &'a [Condition],
    /// `None` when NATS was not asked.
    pub(crate) seen: Option<&'a Seen>,
    /// How many more consumers the account allows; `None` when there is no limit, or none is known.
    pub(crate) room: Option<u64>,
    pub(crate) now: Timestamp,
}

/// Why there is no preview.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PreviewError {
    #[error(transparent)]
    Number(#[from] Invalid),
    #[error("set {0} has no lanes yet: nothing would be handed over")]
    NoLanes(String),
    #[error(transparent)]
    Outcome(#[from] OutcomeError),
}

/// What a change would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preview {
    pub(crate) set: String,
    pub(crate) stream: String,
    #[serde(skip)]
    pub(crate) retention: Retention,
    pub(crate) partitions: Numbers,
    /// Whether NATS was asked; without it only shares are known.
    pub(crate) asked_nats: bool,
    /// Lanes that hang together by their keys; each group is handed over on its own.
    pub(crate) groups: Vec<Group>,
    /// Lanes that do not notice.
    pub(crate) untouched: Vec<Lane>,
    /// Messages that wait and will be in another partition than now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) moved: Option<Count>,
    /// Messages that were handled and will be acknowledged once more, without the handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<Count>,
    pub(crate) waits_for: Vec<Waits>,
    pub(crate) times: Times,
    /// In words: what else a person should know.
    pub(crate) notes: Vec<String>,
}

/// Numbers of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Numbers {
    /// `status.partitions`.
    pub(crate) in_force: u32,
    /// `spec.partitions`.
    pub(crate) wanted: u32,
    /// What was asked about.
    pub(crate) planned: u32,
    /// `spec.mapping.maxPartitions`.
    pub(crate) max: u32,
}

/// A lane whose workers must leave first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Waits {
    pub(crate) partition: u32,
    pub(crate) pods: Vec<String>,
    /// Messages that they have in hand now.
    pub(crate) in_hand: u64,
}

/// What bounds a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Times {
    /// The longest that one handling may take.
    pub(crate) handler_timeout_milliseconds: u64,
    /// What is added when a worker cannot be asked.
    pub(crate) ack_wait_milliseconds: u64,
}

/// A number that was given, checked.
pub(crate) fn number(given: i64, set: &Validated) -> Result<u32, Invalid> {
    let max = set.stream.mapping.max_partitions;
    let number = u32::try_from(given).ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| {
        let allowed = format!("must be from 1 to spec.mapping.maxPartitions, which is {max}");
        Invalid::value("--partitions", given, allowed)
    })
}

/// What would happen. Counts are still to be filled in.
pub(crate) fn preview(facts: Facts<'_>, partitions: u32) -> Result<Preview, PreviewError> {
    let set = facts.set;
    let before = before(facts);
    if before.is_empty() {
        return Err(PreviewError::NoLanes(set.name.to_string()));
    }
    let end = match facts.seen.and_then(|seen| Some((seen, seen.record.as_ref()?))) {
        Some((seen, record)) => {
            Some(outcome::outcome(&wanted(set, record, partitions), observed(seen, record))?)
        }
        None => None,
    };
    let lanes = end.as_ref().map(Outcome::lanes).unwrap_or_default();
    let waits = end.as_ref().map(|end| end.waits.as_slice()).unwrap_or_default();
    let survives = |lane: &Lane| match &end {
        Some(_) => lanes.iter().any(|one| one.incarnation == lane.incarnation),
        None => shares(partitions).contains(&lane.share),
    };
    let (untouched, touched): (Vec<Lane>, Vec<Lane>) = before.into_iter().partition(survives);
    let added: Vec<Added> = shares(partitions)
        .into_iter()
        .filter(|share| untouched.iter().all(|lane| lane.share != *share))
        .map(|share| Added { share, lane: lanes.iter().find(|lane| lane.share == share).cloned() })
        .collect();
    let groups = groups::groups(touched, added, set.stream.retention);
    let numbers = Numbers {
        in_force: facts.in_force,
        wanted: set.partitions,
        planned: partitions,
        max: set.stream.mapping.max_partitions,
    };
    let mut preview = Preview {
        set: set.name.to_string(),
        stream: set.stream.mapping.stream.clone(),
        retention: set.stream.retention,
        partitions: numbers,
        asked_nats: facts.seen.is_some(),
        waits_for: waits_for(waits, &groups),
        groups,
        untouched,
        moved: None,
        skipped: None,
        times: Times {
            handler_timeout_milliseconds: set.settings.handler_timeout_milliseconds,
            ack_wait_milliseconds: set.settings.ack_wait_milliseconds,
        },
        notes: Vec::new(),
    };
    preview.notes =
        notes::notes(facts, &preview, end.as_ref().map(|end| end.notes.as_slice()).unwrap_or_default());
    Ok(preview)
}

/// A lane that the change would make. The record says where it begins, when NATS was asked.
pub(crate) struct Added {
    pub(crate) share: Share,
    pub(crate) lane: Option<LaneRecord>,
}

impl Preview {
    /// What must be counted.
    pub(crate) fn questions(&self) -> Vec<Range> {
        let mut all: Vec<Range> =
            self.groups.iter().flat_map(|group| &group.after).flat_map(After::questions).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Takes what was counted; of what was not, bounds are left.
    pub(crate) fn answer(&mut self, counted: &BTreeMap<Range, Count>) {
        for after in self.groups.iter_mut().flat_map(|group| &mut group.after) {
            after.answer(counted);
        }
        let sum = |part: fn(&After) -> Option<Count>| {
            let all = self.groups.iter().flat_map(|group| &group.after);
            all.map(part).try_fold(Count::NONE, |sum, one| Some(sum + one?))
        };
        // Several bounds are together no more than all that there is.
        let before = self.groups.iter().flat_map(|group| &group.before);
        let all: u64 = before.filter_map(|one| one.lane.position).map(Position::unsettled).sum();
        self.moved = sum(|after| after.arriving)
            .map(|moved| if moved.exact { moved } else { Count::at_most(moved.messages.min(all)) });
        self.skipped = sum(|after| after.skipped);
    }
}

/// The lanes that have the keys now.
fn before(facts: Facts<'_>) -> Vec<Lane> {
    let Some(seen) = facts.seen else {
        return shares(facts.in_force.min(1024)).into_iter().map(unseen).collect();
    };
    let all = lane::lanes(seen);
    let retiring: Vec<Share> =
        all.iter().filter(|lane| lane.state == LaneState::Retiring).map(|lane| lane.share).collect();
    // A successor that is not open yet has nothing while its predecessor holds on.
    let has_keys = |lane: &Lane| match lane.state {
        LaneState::Settled => false,
        LaneState::Created => retiring.iter().all(|share| !share.overlaps(lane.share)),
        LaneState::Open | LaneState::Retiring => true,
    };
    all.into_iter().filter(has_keys).collect()
}

/// A lane of which NATS was not asked.
fn unseen(share: Share) -> Lane {
    Lane {
        partition: share.partition(),
        share,
        incarnation: 0,
        state: LaneState::Open,
        opened: true,
        position: None,
        holders: Vec::new(),
        blocked: None,
        stalled: None,
    }
}

/// What the operator would want.
fn wanted(set: &Validated, record: &Revisioned<Record>, partitions: u32) -> Wanted {
    Wanted {
        owner: record.value.owner.clone(),
        set: set.name.clone(),
        mapping: set.stream.mapping.clone(),
        partitions,
        retention: set.stream.retention,
        start: match set.start {
            Start::All => plan::Start::All,
            Start::New => plan::Start::New,
        },
        consumer_replicas: set.consumer_replicas,
        settings: set.settings.clone(),
        // Noted in the record; nothing is decided by it here.
        lanes_at_once: lanekeeper_core::plan::LANES_AT_ONCE,
        now_seconds: 0,
    }
}

/// What it would observe. Nodes are not looked at: every worker is taken to be alive.
fn observed(seen: &Seen, record: &Revisioned<Record>) -> Observed {
    let stream = seen.stream.as_ref();
    Observed {
        stream_created: stream.map_or(&record.value.stream_created, |stream| &stream.created).clone(),
        stream_last_sequence: stream.map_or(0, |stream| stream.last_sequence),
        record: Some(record.clone()),
        known_before: true,
        lane_keys: seen.lane_keys.clone(),
        // Leftovers, of which nothing is shown.
        leases: BTreeMap::new(),
        assignments: seen.assignments.clone(),
        consumers: seen.consumers.clone(),
        terminated: BTreeSet::new(),
        unreachable: BTreeSet::new(),
        fence_elapsed: BTreeSet::new(),
    }
}

fn waits_for(waits: &[Wait], groups: &[Group]) -> Vec<Waits> {
    let lanes: Vec<&Lane> =
        groups.iter().flat_map(|group| &group.before).map(|before| &before.lane).collect();
    let holders = waits.iter().filter_map(|wait| match wait {
        Wait::Holders { partition, incarnation, holders } => Some((*partition, *incarnation, holders)),
        Wait::Fence { .. } | Wait::RecordLost => None,
    });
    holders
        .map(|(partition, incarnation, holders)| {
            let mut pods: Vec<String> = holders.iter().map(|holder| holder.pod.clone()).collect();
            pods.sort();
            pods.dedup();
            let lane = lanes.iter().find(|lane| lane.incarnation == incarnation);
            let in_hand = lane.and_then(|lane| lane.position).map_or(0, |position| position.in_hand);
            Waits { partition, pods, in_hand }
        })
        .collect()
}

#[cfg(test)]
mod tests;
