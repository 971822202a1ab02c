//! What the set's own stream says must have been handled.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use lanekeeper_api::validate::Validated;
use lanekeeper_core::{consumer::ConsumerFound, fence::Fence, record::Record};
use lanekeeper_nats::{
    Connection,
    observe::{self, From},
};

use super::{AuditError, Reader};

/// A journal is switched on in one worker after another: what was published this soon after its first entry may have
/// been handled by one that did not know of it yet.
const SWITCHED_ON: SignedDuration = SignedDuration::from_secs(60);

/// A message of the set's stream.
pub(super) struct Stored {
    pub(super) key: String,
    pub(super) hash: u32,
    /// When it was stored.
    pub(super) time: Option<Timestamp>,
}

/// The set's stream and how far its lanes are.
pub(super) struct Expected {
    pub(super) record: Record,
    /// Up to it everything of the lane is settled, by incarnation.
    pub(super) floors: BTreeMap<u64, u64>,
    /// By sequence.
    pub(super) stored: BTreeMap<u64, Stored>,
}

impl Expected {
    /// Reads the set's stream.
    pub(super) async fn read(
        connection: &Connection,
        set: &Validated,
        record: Record,
        consumers: &BTreeMap<u64, ConsumerFound>,
    ) -> Result<Self, AuditError> {
        let mapping = &set.stream.mapping;
        let stream = mapping.stream.as_str();
        let keeping = observe::keeping(connection, stream).await?;
        let keeping = keeping.ok_or_else(|| AuditError::Missing(stream.to_owned()))?;
        if keeping.retention != "limits" {
            let (stream, retention) = (stream.to_owned(), keeping.retention);
            return Err(AuditError::NotKept { stream, retention });
        }
        let floors = consumers.iter().map(|(incarnation, found)| (*incarnation, found.floor)).collect();
        let mut stored = BTreeMap::new();
        observe::messages(connection, stream, &mapping.all_lanes(), From::Sequence(1), |message| {
            let original = mapping.original_subject(&message.subject);
            let Some(original) = original else { return };
            if let (Some(key), Some(hash)) = (mapping.key_of(original), mapping.key_hash(original)) {
                let time = message.time.parse().ok();
                stored.insert(message.sequence, Stored { key: key.join("."), hash, time });
            }
        })
        .await?;
        Ok(Self { record, floors, stored })
    }

    /// Whether a lane's floor is past the message.
    fn is_settled(&self, hash: u32, sequence: u64) -> bool {
        self.record.lanes.iter().any(|lane| {
            let own = self.floors.get(&lane.incarnation).copied().unwrap_or_default().max(lane.checkpoint);
            let inherited = lane.floors.iter().filter(|floor| floor.share.contains_hash(hash));
            let inherited = inherited.map(|floor| floor.sequence).max().unwrap_or_default();
            lane.share.contains_hash(hash) && sequence <= own.max(inherited)
        })
    }

    /// Tells the checker what to expect. `last` is the last sequence of the stream after the journal was read.
    pub(super) fn tell(&self, reader: &mut Reader, last: u64) {
        let begun = reader.begun.and_then(|begun| begun.checked_add(SWITCHED_ON).ok());
        let stream_incarnation = self.record.stream_incarnation;
        for (&sequence, stored) in &self.stored {
            let recorded = begun.zip(stored.time).is_some_and(|(begun, time)| time >= begun);
            let settled = self.is_settled(stored.hash, sequence);
            reader.checker.expect(&stored.key, Fence { stream_incarnation, sequence }, settled, recorded);
        }
        for (fence, key) in reader.seen.take().unwrap_or_default() {
            // What is not in the stream any more cannot be held against anything but the journal itself.
            let gone = fence.stream_incarnation < stream_incarnation
                || fence.stream_incarnation == stream_incarnation
                    && fence.sequence <= last
                    && !self.stored.contains_key(&fence.sequence);
            if gone {
                reader.checker.expect(&key, fence, false, false);
            }
        }
    }
}
