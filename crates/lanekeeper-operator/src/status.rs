//! The status of a set from what one pass found: pure.
//!
//! Called once per pass. Nothing in a status moves on its own, so that a status which is equal is not written.

mod conditions;
mod lanes;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lanekeeper_api::status::OrderedPartitionSetStatus;
use lanekeeper_core::{
    plan::Wait,
    record::{Record, Report},
};

use crate::{
    failure::Failure,
    workers::{Trouble, Worker},
};

/// What one pass found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// `metadata.generation` of the set that was looked at.
    pub generation: Option<i64>,
    /// The wanted number of partitions; `None` when the specification is wrong.
    pub wanted: Option<u32>,
    /// Whether a person paused the set.
    pub paused: bool,
    /// `status.selector`.
    pub selector: String,
    /// The stream's name, once it is as specified.
    pub stream: Option<String>,
    /// The record as it was read last.
    pub record: Option<Record>,
    /// Reports of workers that live, by partition; empty when NATS was not reached.
    pub reports: Vec<(u32, Report)>,
    /// Keys that are parked, with the hash of each.
    pub parked: BTreeMap<String, u32>,
    /// What the lanes wait for.
    pub waits: Vec<Wait>,
    /// How a change of the number of partitions is doing.
    pub rescale: Rescale,
    /// The workers, by partition.
    pub workers: Vec<Worker>,
    /// What takes away from what is promised.
    pub degraded: Vec<Trouble>,
    /// What ended the pass early, or part of it.
    pub failures: Vec<Failure>,
}

/// How a change of the number of partitions is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rescale {
    /// Not known.
    #[default]
    Unknown,
    /// The number in force is the wanted one.
    Settled,
    /// Lanes are being handed over.
    HandingOver,
    /// Workers of new partitions are being started first.
    Starting,
    /// It is switched off; this number stays in force.
    Refused(u32),
    /// The change before it is too young.
    Delayed {
        /// The number that stays in force.
        in_force: u32,
        /// Until when, in seconds since the Unix epoch.
        until: u64,
    },
    /// The account does not allow the consumers that it needs.
    NoRoom {
        /// The number that stays in force.
        in_force: u32,
        /// How many more consumers it needs.
        needed: u64,
        /// How many more the account allows.
        room: u64,
    },
}

impl Rescale {
    /// The number that stays in force although another is wanted, and workers are not made for that one either.
    pub fn kept(self) -> Option<u32> {
        match self {
            Self::Refused(in_force) | Self::Delayed { in_force, .. } | Self::NoRoom { in_force, .. } => {
                Some(in_force)
            }
            Self::Unknown | Self::Settled | Self::HandingOver | Self::Starting => None,
        }
    }
}

/// The status to write.
pub fn status(
    previous: Option<&OrderedPartitionSetStatus>,
    found: &Findings,
    now: &Time,
) -> OrderedPartitionSetStatus {
    let mut status = previous.cloned().unwrap_or_default();
    status.observed_generation = found.generation;
    status.selector.clone_from(&found.selector);
    if let Some(record) = &found.record {
        status.partitions = lanes::in_force(record, found.wanted, status.partitions);
        status.lanes = lanes::counts(record, &found.reports, &found.workers);
        status.attention = lanes::attention(record, &found.reports, &found.parked, &found.waits);
    }
    conditions::set(&mut status.conditions, found, now);
    status
}

#[cfg(test)]
mod tests;
