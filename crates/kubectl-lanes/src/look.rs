//! What NATS holds of one set's lanes. I/O; only asks.

use std::{collections::BTreeMap, time::Duration};

use lanekeeper_api::validate::Validated;
use lanekeeper_core::{
    consumer::ConsumerFound,
    mapping::Mapping,
    names::SetKey,
    plan::Revisioned,
    record::{Assignment, LaneKey, Record, Report},
    stream::StreamFound,
};
use lanekeeper_nats::{ApiError, KvError, observe};
use tokio::time::timeout;

use crate::{
    arguments::NatsFlags,
    cluster::Cluster,
    preview::{Count, Range},
    reach::{ReachError, Reached, reach},
};

/// How long a look may take where the answer is worth having without it.
const PATIENCE: Duration = Duration::from_secs(12);

/// Why NATS says nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error("{0}; --nats-bucket names another")]
    NoBucket(KvError),
    #[error(transparent)]
    Bucket(KvError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("NATS did not answer within {PATIENCE:?}")]
    TooLate,
}

impl From<KvError> for LookError {
    fn from(error: KvError) -> Self {
        if matches!(error, KvError::BucketMissing { .. }) {
            Self::NoBucket(error)
        } else {
            Self::Bucket(error)
        }
    }
}

/// What a pod reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) partition: u32,
    pub(crate) pod: String,
    pub(crate) report: Report,
}

/// What was seen of one set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) stream: Option<StreamFound>,
    pub(crate) record: Option<Revisioned<Record>>,
    pub(crate) lane_keys: BTreeMap<u64, Revisioned<LaneKey>>,
    pub(crate) assignments: BTreeMap<u32, Revisioned<Assignment>>,
    pub(crate) reports: Vec<Reported>,
    /// By incarnation.
    pub(crate) consumers: BTreeMap<u64, ConsumerFound>,
}

/// Connects and looks, once, and never for long.
pub(crate) async fn once(
    cluster: &Cluster,
    set: &Validated,
    flags: &NatsFlags,
) -> Result<(Reached, Seen), LookError> {
    let looked = timeout(PATIENCE, async {
        let reached = reach(cluster, set, flags).await?;
        let seen = look(&reached, set).await?;
        Ok((reached, seen))
    });
    looked.await.unwrap_or(Err(LookError::TooLate))
}

/// Looks. Keys are read before consumers, as the operator does it: a floor is then never older than what was said of its
/// lane.
pub(crate) async fn look(reached: &Reached, set: &Validated) -> Result<Seen, LookError> {
    let bucket = &reached.bucket;
    let mut seen = Seen::default();
    for entry in bucket.load(&set.name.key_prefix()).await? {
        match set.name.parse_key(&entry.key) {
            Some(SetKey::Record) => seen.record = bucket.parse(&entry)?,
            Some(SetKey::Lane(incarnation)) => {
                seen.lane_keys.extend(bucket.parse(&entry)?.map(|key| (incarnation, key)));
            }
            Some(SetKey::Assignment(partition)) => {
                seen.assignments.extend(bucket.parse(&entry)?.map(|one| (partition, one)));
            }
            Some(SetKey::Report { partition, pod }) => {
                let found: Option<Revisioned<Report>> = bucket.parse(&entry)?;
                seen.reports.extend(found.map(|found| Reported { partition, pod, report: found.value }));
            }
            // Its holder is among those that the lane's key names.
            Some(SetKey::Lease(_)) | None => {}
        }
    }
    let stream = &set.stream.mapping.stream;
    seen.stream = observe::stream(&reached.connection, stream).await?;
    if seen.stream.is_none() {
        return Ok(seen);
    }
    for found in observe::consumers(&reached.connection, stream).await? {
        if let Some((_, incarnation)) = set.name.parse_consumer(&found.name) {
            seen.consumers.insert(incarnation, found);
        }
    }
    Ok(seen)
}

/// How many more consumers the account allows; `None` also for a user that may not know.
pub(crate) async fn room(reached: &Reached) -> Option<u64> {
    let facts = observe::facts(&reached.connection).await.ok()?;
    facts.max_consumers.map(|most| most.saturating_sub(facts.consumers))
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) ranges: BTreeMap<Range, Count>,
    /// Why not all of it.
    pub(crate) why_not: Option<String>,
}

/// Counts stored messages, as far as the stream and the rights of the user allow it.
pub(crate) async fn count(
    reached: &Reached,
    set: &Validated,
    ranges: &[Range],
) -> Result<Counted, LookError> {
    let mut counted = Counted::default();
    for range in ranges {
        match count_one(reached, &set.stream.mapping, *range).await {
            Ok(Some(count)) => {
                counted.ranges.insert(*range, count);
            }
            Ok(None) => {
                let stream = &set.stream.mapping.stream;
                counted.why_not = Some(format!("stream {stream} allows no direct reads (allow_direct)"));
                break;
            }
            // The others would be denied as well.
            Err(error @ ApiError::Denied { .. }) => {
                counted.why_not = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(counted)
}

async fn count_one(reached: &Reached, mapping: &Mapping, range: Range) -> Result<Option<Count>, ApiError> {
    let (connection, stream, filter) = (&reached.connection, &mapping.stream, mapping.filter(range.share));
    let Some(up_to) = range.up_to else {
        return Ok(observe::stored_after(connection, stream, &filter, range.after)
            .await?
            .map(Count::exactly));
    };
    let stored = observe::stored_between(connection, stream, &filter, (range.after, up_to)).await?;
    Ok(stored.map(|stored| {
        let exact = stored.at_least == stored.at_most;
        if exact { Count::exactly(stored.at_most) } else { Count::at_most(stored.at_most) }
    }))
}
