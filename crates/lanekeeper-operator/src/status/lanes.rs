//! Numbers and lists of lanes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use lanekeeper_api::{
    reason::Reason,
    status::{LaneAttention, LaneCounts, MAX_ATTENTION},
};
use lanekeeper_core::{
    plan::Wait,
    record::{Blocked, BlockedBy, LaneRecord, LaneState, Record, Report, StallKind, Stalled},
    share,
};

use crate::workers::Worker;

/// Names of pods in one message.
const MAX_NAMES: usize = 5;

/// The number of partitions in force: the wanted one as soon as all its lanes are open, else the one before.
pub(super) fn in_force(record: &Record, wanted: Option<u32>, before: i32) -> i32 {
    let open: BTreeSet<_> =
        record.lanes.iter().filter(|lane| lane.state == LaneState::Open).map(|lane| lane.share).collect();
    let complete = |partitions: u32| share::shares(partitions).iter().all(|share| open.contains(share));
    if let Some(wanted) = wanted.filter(|wanted| complete(*wanted)) {
        return number(wanted);
    }
    if before > 0 {
        return before;
    }
    let partitions: BTreeSet<u32> = record
        .lanes
        .iter()
        .filter(|lane| lane.opened && lane.state != LaneState::Settled)
        .map(|lane| lane.share.partition())
        .collect();
    number(partitions.len())
}

/// The reports about a lane.
fn about<'a>(lane: &LaneRecord, reports: &'a [(u32, Report)]) -> impl Iterator<Item = &'a Report> {
    let (partition, incarnation) = (lane.share.partition(), lane.incarnation);
    reports
        .iter()
        .filter(move |(of, report)| *of == partition && report.incarnation == incarnation)
        .map(|(_, report)| report)
}

/// Whether a lane waits for a person.
pub(super) fn is_blocked(lane: &LaneRecord, reports: &[(u32, Report)]) -> bool {
    let needs =
        |report: &Report| report.blocked.is_some() || report.refused.is_some() || report.stalled.is_some();
    about(lane, reports).any(needs)
}

/// What keeps a lane's messages from all its workers; of several who say so, what was seen first.
pub(super) fn stalled(lane: &LaneRecord, reports: &[(u32, Report)]) -> Option<Stalled> {
    about(lane, reports)
        .filter_map(|report| report.stalled)
        .min_by_key(|stalled| (stalled.since_seconds, stalled.kind))
}

/// For people, without a full stop.
pub(super) fn words(stalled: &Stalled) -> &'static str {
    match stalled.kind {
        StallKind::SlotHeldElsewhere => "a client that is no worker of the set holds its message or its pin",
        StallKind::ConsumerPaused => "somebody paused its consumer",
        StallKind::NothingMoves => "the server delivers nothing, although it is asked",
    }
}

pub(super) fn moment(seconds: u64) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

/// Each lane once.
pub(super) fn counts(record: &Record, reports: &[(u32, Report)], workers: &[Worker]) -> LaneCounts {
    let mut counts = LaneCounts::default();
    for lane in &record.lanes {
        let has_worker = workers.iter().any(|one| one.partition == lane.share.partition() && one.ready);
        match lane.state {
            LaneState::Settled => {}
            LaneState::Created | LaneState::Retiring => counts.handing_over += 1,
            LaneState::Open if is_blocked(lane, reports) => counts.blocked += 1,
            LaneState::Open if !has_worker => counts.without_worker += 1,
            LaneState::Open => counts.open += 1,
        }
    }
    counts
}

/// Lanes that need a person, parked keys, then lanes that a change waits for.
pub(super) fn attention(
    record: &Record,
    reports: &[(u32, Report)],
    parked: &BTreeMap<String, u32>,
    waits: &[Wait],
) -> Vec<LaneAttention> {
    let open = record.lanes.iter().filter(|lane| lane.state == LaneState::Open);
    let mut all: Vec<LaneAttention> = open
        .flat_map(|lane| {
            let said = about(lane, reports).flat_map(|report| reported(lane, report));
            said.chain(stalled(lane, reports).map(|stalled| kept_from(lane, &stalled)))
        })
        .chain(parked.iter().filter_map(|(key, hash)| is_parked(record, key, *hash)))
        .chain(waits.iter().filter_map(waiting))
        .collect();
    all.dedup();
    all.truncate(MAX_ATTENTION);
    all
}

fn reported(lane: &LaneRecord, report: &Report) -> Vec<LaneAttention> {
    let one = |reason: Reason, sequence: u64, message: String| LaneAttention {
        partition: number(lane.share.partition()),
        reason: reason.as_str().to_owned(),
        sequence: i64::try_from(sequence).ok(),
        since: None,
        message: message.chars().take(1024).collect(),
    };
    let blocked = report.blocked.as_ref();
    let blocked = blocked.map(|at| one(reason_of(at), at.sequence, at.reason.clone()));
    let refused = report.refused.as_ref();
    let refused = refused.map(|at| one(Reason::MessageRefused, at.sequence, at.reason.clone()));
    let lost = report.lost.map(|at| {
        one(
            Reason::DeadlineLost,
            at,
            "the worker lost the message's deadline and waits for it to come again".into(),
        )
    });
    blocked.into_iter().chain(refused).chain(lost).collect()
}

fn kept_from(lane: &LaneRecord, stalled: &Stalled) -> LaneAttention {
    LaneAttention {
        partition: number(lane.share.partition()),
        reason: Reason::LaneStalled.as_str().to_owned(),
        sequence: i64::try_from(stalled.sequence).ok(),
        since: moment(stalled.since_seconds).map(Time),
        message: format!("{}: {}", stalled.kind.name(), words(stalled)),
    }
}

/// Why a lane stands where it stands.
pub(super) fn reason_of(blocked: &Blocked) -> Reason {
    match blocked.by {
        BlockedBy::Policy => Reason::AttemptsExhausted,
        BlockedBy::Breaker => Reason::BreakerOpen,
        BlockedBy::DeadLetter => Reason::DeadLetterNotStored,
        BlockedBy::Park => Reason::ParkedNotStored,
    }
}

/// A parked key, at the lane that has it. How many messages wait changes on its own, so it is not said.
fn is_parked(record: &Record, key: &str, hash: u32) -> Option<LaneAttention> {
    let open = |lane: &&LaneRecord| lane.state == LaneState::Open && lane.share.contains_hash(hash);
    let lane = record.lanes.iter().find(open)?;
    let key: String = key.chars().take(512).collect();
    Some(LaneAttention {
        partition: number(lane.share.partition()),
        reason: Reason::KeyParked.as_str().to_owned(),
        sequence: None,
        since: None,
        message: format!("key {key} is parked until it is released or dropped (kubectl lanes parked)"),
    })
}

fn waiting(wait: &Wait) -> Option<LaneAttention> {
    let one = |partition: u32, reason: Reason, message: String| LaneAttention {
        partition: number(partition),
        reason: reason.as_str().to_owned(),
        sequence: None,
        since: None,
        message,
    };
    match wait {
        Wait::Holders { partition, holders, .. } => {
            let mut names: Vec<&str> = holders.iter().map(|holder| holder.pod.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            let more = names.len().saturating_sub(MAX_NAMES);
            names.truncate(MAX_NAMES);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let message = format!("waits for {}{more} to settle the message in hand", names.join(", "));
            Some(one(*partition, Reason::HandingOver, message))
        }
        Wait::Fence { partition, .. } => Some(one(
            *partition,
            Reason::HolderUnreachable,
            "waits one ackWait, because a worker that may hold a message cannot be asked".to_owned(),
        )),
        Wait::RecordLost => None,
    }
}

fn number<N: TryInto<i32>>(value: N) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}
