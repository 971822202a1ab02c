//! How far a change is, in one line and in what changes about it. Pure.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use lanekeeper_api::condition::{ConditionType, find};
use lanekeeper_core::{record::LaneState, share::shares};

use crate::{
    age,
    lane::{self, Lane},
    preview::list,
    status::{self, Report},
    wrap::wrap,
};

/// Words for lanes in the order in which they are listed.
const STATES: [&str; 6] = ["open", "blocked", "stalled", "retiring", "created", "settled"];

/// Whether nothing is left to be done: the operator has seen the specification, and its number is in force.
pub(crate) fn is_settled(report: &Report) -> bool {
    let rescaling = find(&report.conditions, ConditionType::Rescaling);
    let said = rescaling.is_some_and(|condition| condition.status == "False");
    said && report.up_to_date && report.in_force == report.wanted && lanes_are_in_place(report)
}

/// What NATS says of that, if it was reached.
fn lanes_are_in_place(report: &Report) -> bool {
    let Some(nats) = report.nats.as_ref().filter(|nats| nats.reached) else { return true };
    let wanted = shares(u32::try_from(report.wanted).unwrap_or(0).min(1024));
    let is_open = |lane: &Lane| lane.state == LaneState::Open;
    nats.lanes.iter().all(is_open)
        && wanted.iter().all(|share| nats.lanes.iter().any(|lane| lane.share == *share))
}

/// `4->8  open 0, 1  retiring 2  created 2, 6`.
pub(crate) fn line(report: &Report) -> String {
    let mut parts = vec![status::numbers(report)];
    match report.nats.as_ref().filter(|nats| nats.reached) {
        Some(nats) => parts.extend(STATES.iter().filter_map(|state| {
            let of_state = nats.lanes.iter().filter(|one| lane::state(one) == *state);
            let partitions: Vec<u32> = of_state.map(|one| one.partition).collect();
            (!partitions.is_empty()).then(|| format!("{state} {}", list(&partitions)))
        })),
        None => parts.push(format!(
            "{} open, {} handing over, {} blocked, {} without worker",
            report.lanes.open, report.lanes.handing_over, report.lanes.blocked, report.lanes.without_worker
        )),
    }
    if !report.up_to_date {
        parts.push("not seen by the operator yet".to_owned());
    }
    parts.join("  ")
}

/// What a change waits for, each in words.
pub(crate) fn waits(report: &Report) -> Vec<String> {
    let mut waits = Vec::new();
    if let Some(rescaling) = find(&report.conditions, ConditionType::Rescaling)
        && rescaling.status == "True"
        && rescaling.reason != "HandingOver"
    {
        waits.push(format!("{}: {}", rescaling.reason, rescaling.message));
    }
    let nats = report.nats.as_ref().filter(|nats| nats.reached);
    let retiring = nats.into_iter().flat_map(|nats| &nats.lanes);
    let retiring = retiring.filter(|lane| lane.state == LaneState::Retiring && !lane.holders.is_empty());
    waits.extend(retiring.map(|lane| {
        let busy = lane.position.is_some_and(|position| position.in_hand > 0);
        let what = if busy { "to settle the message in hand and leave" } else { "to leave" };
        format!("partition {}: {} {what}", lane.partition, lane.holders.join(", "))
    }));
    // What the record says of holders is newer than the status.
    let known = |reason: &str| nats.is_some() && reason == "HandingOver";
    let of_change = report.attention.iter().filter(|one| {
        ["HandingOver", "HolderUnreachable"].contains(&one.reason.as_str()) && !known(&one.reason)
    });
    waits.extend(of_change.map(|one| format!("partition {}: {}", one.partition, one.message)));
    waits
}

/// Since when each wait was seen.
#[derive(Debug, Default)]
pub(crate) struct Since(BTreeMap<String, Timestamp>);

impl Since {
    /// Takes the present waits; those that are over are forgotten. What is there at the first look may be as old as the
    /// change.
    pub(crate) fn update(&mut self, report: &Report, now: Timestamp, is_first: bool) {
        let rescaling = find(&report.conditions, ConditionType::Rescaling);
        let begun = rescaling.filter(|one| one.status == "True").map(|one| one.last_transition_time.0);
        let begun = if is_first { begun.unwrap_or(now) } else { now };
        let before = std::mem::take(&mut self.0);
        for wait in waits(report) {
            let since = before.get(&wait).copied().unwrap_or(begun);
            self.0.insert(wait, since);
        }
    }

    /// Each wait with its time.
    pub(crate) fn words(&self, now: Timestamp) -> Vec<String> {
        self.0.iter().map(|(wait, since)| format!("{wait}, for {}", age::since(*since, now))).collect()
    }
}

/// What stands on a terminal.
pub(crate) fn picture(report: &Report, since: &Since, now: Timestamp) -> String {
    let waits: String = since.words(now).iter().map(|wait| wrap("  waits for ", wait)).collect();
    format!("{}  {}\n{waits}\n{}", clock(now), line(report), status::render_one(report, now))
}

/// Hours, minutes and seconds, in UTC as all times of a cluster.
pub(crate) fn clock(now: Timestamp) -> String {
    let text = now.to_string();
    let time = text.split('T').nth(1).unwrap_or(&text);
    format!("{}Z", time.split(['.', 'Z']).next().unwrap_or(time))
}

#[cfg(test)]
mod tests;
