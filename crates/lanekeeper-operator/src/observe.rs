//! What a plan is decided from: everything that NATS and the kubelet say about one set. I/O.
//!
//! The order matters: the record and the keys of lanes are read before the consumers, so that an orphan is only what
//! the record could already have named, and a floor is read after its lane was seen to be settled. Pods are looked at
//! last: a holder that was read joined before.

mod holders;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use lanekeeper_core::{
    names::SetKey,
    plan::{Observed, Revisioned, Wanted},
    record::{LaneState, Record, Report},
    stream::StreamFound,
};
use lanekeeper_nats::{ApiError, Bucket, KvError, observe};

use crate::{
    context::Scope,
    failure::{About, Failure},
    fences::{Fences, WHOLE_SET},
    provision,
};

/// Why the lanes of a set could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The bucket.
    #[error(transparent)]
    Bucket(#[from] KvError),
    /// The consumers.
    #[error("{0}")]
    Consumers(#[source] ApiError),
}

impl From<ObserveError> for Failure {
    fn from(error: ObserveError) -> Self {
        let cause = match &error {
            ObserveError::Bucket(error) => error.cause(),
            ObserveError::Consumers(error) => error.cause(),
        };
        provision::failure(About::Lanes, cause, error.to_string())
    }
}

/// A report with what is needed to forget it.
#[derive(Debug, Clone)]
pub struct Reported {
    /// Its key.
    pub key: String,
    /// The revision that was read.
    pub revision: u64,
    /// The partition.
    pub partition: u32,
    /// Whose it is.
    pub pod: String,
    /// What it says.
    pub report: Report,
}

/// What was seen of one set's lanes.
#[derive(Debug, Clone)]
pub struct Seen {
    /// For the plan.
    pub observed: Observed,
    /// Of workers.
    pub reports: Vec<Reported>,
}

/// Looks at the lanes of a set. `known_before` is what Kubernetes says of earlier lanes.
pub async fn lanes(
    scope: &Scope,
    bucket: &Bucket,
    wanted: &Wanted,
    stream: &StreamFound,
    known_before: bool,
) -> Result<Seen, ObserveError> {
    let mut seen = in_nats(bucket, wanted, stream, known_before).await?;
    measure_fences(&scope.context.fences, wanted, &mut seen.observed);
    holders::judge(scope, wanted, &mut seen.observed).await;
    Ok(seen)
}

/// What NATS says: nothing is known yet of the fate of holders and of fences.
pub async fn in_nats(
    bucket: &Bucket,
    wanted: &Wanted,
    stream: &StreamFound,
    known_before: bool,
) -> Result<Seen, ObserveError> {
    let mut seen = Seen {
        observed: Observed {
            stream_created: stream.created.clone(),
            stream_last_sequence: stream.last_sequence,
            record: None,
            known_before,
            lane_keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            assignments: BTreeMap::new(),
            consumers: BTreeMap::new(),
            terminated: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            fence_elapsed: BTreeSet::new(),
        },
        reports: Vec::new(),
    };
    read_keys(bucket, wanted, &mut seen).await?;
    let consumers = observe::consumers(bucket.connection(), &wanted.mapping.stream).await;
    for found in consumers.map_err(ObserveError::Consumers)? {
        if let Some((_, incarnation)) = wanted.set.parse_consumer(&found.name) {
            seen.observed.consumers.insert(incarnation, found);
        }
    }
    Ok(seen)
}

async fn read_keys(bucket: &Bucket, wanted: &Wanted, seen: &mut Seen) -> Result<(), KvError> {
    let observed = &mut seen.observed;
    // A lane's key is written before the record says that the lane is open: one that is missing was lost.
    for entry in bucket.load_named(&wanted.set.key_prefix(), &wanted.set.record_key()).await? {
        match wanted.set.parse_key(&entry.key) {
            Some(SetKey::Record) => observed.record = bucket.parse::<Record>(&entry)?,
            Some(SetKey::Lane(incarnation)) => {
                observed.lane_keys.extend(bucket.parse(&entry)?.map(|key| (incarnation, key)));
            }
            Some(SetKey::Lease(incarnation)) => {
                observed.leases.insert(incarnation, entry.revision);
            }
            Some(SetKey::Assignment(partition)) => {
                observed.assignments.extend(bucket.parse(&entry)?.map(|one| (partition, one)));
            }
            // A report is a worker's word to people: one that cannot be read must not stop the lanes.
            Some(SetKey::Report { partition, pod }) => match bucket.parse::<Report>(&entry) {
                Ok(Some(Revisioned { revision, value: report })) => {
                    seen.reports.push(Reported { key: entry.key, revision, partition, pod, report });
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a report cannot be read"),
            },
            None => {}
        }
    }
    Ok(())
}

/// Which consumers have been gone for one `AckWait`.
pub fn measure_fences(fences: &Fences, wanted: &Wanted, observed: &mut Observed) {
    let uid = &wanted.owner.uid;
    let seen = observed
        .consumers
        .iter()
        .map(|(incarnation, found)| (*incarnation, Duration::from_millis(found.ack_wait_milliseconds)));
    fences.seen(uid, seen);
    let wanted_now = Duration::from_millis(wanted.settings.ack_wait_milliseconds);
    let gone: BTreeMap<u64, Duration> = match &observed.record {
        // Whatever is left of a set whose record is gone may still have holders.
        None if observed.known_before || observed.has_traces() => BTreeMap::from([(WHOLE_SET, wanted_now)]),
        None => BTreeMap::new(),
        Some(record) => record
            .value
            .lanes
            .iter()
            .filter(|lane| lane.fenced && lane.state == LaneState::Settled)
            .filter(|lane| !observed.consumers.contains_key(&lane.incarnation))
            .map(|lane| (lane.incarnation, wanted_now.max(Duration::from_millis(lane.fence_milliseconds))))
            .collect(),
    };
    observed.fence_elapsed = fences.elapsed(uid, &gone, Instant::now());
}
