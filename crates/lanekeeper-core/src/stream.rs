//! What the stream of a set must look like, and how a found one differs.
//!
//! The comparison is pure. A stream is never deleted, and fields that nobody asked for are left alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{consumer::Drift, mapping::Mapping, record::Owner};

/// Metadata keys that a stream of ours carries.
pub mod metadata {
    /// `cluster/namespace/name` of the set that repairs it.
    pub const OWNER: &str = "lanekeeper.dev/owner";
    /// uid of that set.
    pub const OWNER_UID: &str = "lanekeeper.dev/owner-uid";
    /// The mapping's source subject.
    pub const SUBJECT: &str = "lanekeeper.dev/subject";
    /// The mapping's key tokens, separated by commas.
    pub const KEY_TOKENS: &str = "lanekeeper.dev/key-tokens";
    /// The mapping's maximum.
    pub const MAX_PARTITIONS: &str = "lanekeeper.dev/max-partitions";
}

/// Which messages a stream keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Retention {
    /// All, within its limits.
    Limits,
    /// Until every consumer has acknowledged them.
    Interest,
    /// Until one consumer has acknowledged them; filters must not overlap.
    WorkQueue,
}

/// Where a stream keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Storage {
    /// On disk.
    File,
    /// In memory: gone with the server.
    Memory,
}

impl Retention {
    /// As on the wire.
    pub fn wire(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Interest => "interest",
            Self::WorkQueue => "workqueue",
        }
    }
}

impl Storage {
    /// As on the wire.
    pub fn wire(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Memory => "memory",
        }
    }
}

/// The stream that a set with `management: Create` asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamSpec {
    /// Its name is the mapping's stream.
    pub mapping: Mapping,
    /// Subjects it takes.
    pub subjects: Vec<String>,
    /// Copies.
    pub replicas: u32,
    /// Immutable.
    pub storage: Storage,
    /// Immutable.
    pub retention: Retention,
    /// Oldest message kept; `None` no limit.
    pub max_age_seconds: Option<u64>,
    /// Bytes kept; `None` no limit.
    pub max_bytes: Option<i64>,
    /// Messages kept; `None` no limit.
    pub max_messages: Option<i64>,
    /// Window in which a message id is not stored twice; `None` leaves the server's default.
    pub duplicate_window_seconds: Option<u64>,
}

/// A stream as the server states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamFound {
    /// Its name.
    pub name: String,
    /// Creation time, as the server writes it.
    pub created: String,
    /// Subjects it takes.
    pub subjects: Vec<String>,
    /// Source and destination of its transform.
    pub transform: Option<(String, String)>,
    /// Copies.
    pub replicas: u32,
    /// As on the wire: `file` or `memory`.
    pub storage: String,
    /// As on the wire: `limits`, `interest` or `workqueue`.
    pub retention: String,
    /// 0 is no limit.
    pub max_age_seconds: u64,
    /// -1 is no limit.
    pub max_bytes: i64,
    /// -1 is no limit.
    pub max_messages: i64,
    /// The duplicate window.
    pub duplicate_window_seconds: u64,
    /// -1 is no limit.
    pub max_messages_per_subject: i64,
    /// Whether publishers get no acknowledgement.
    pub no_ack: bool,
    /// Whether it takes no messages any more, for ever.
    pub sealed: bool,
    /// Limits and defaults of its consumers, as on the wire; empty when there are none.
    pub consumer_limits: String,
    /// Whether it is a mirror or has sources: not ours to change then.
    pub sourced: bool,
    /// All metadata.
    pub metadata: BTreeMap<String, String>,
    /// First sequence it has.
    pub first_sequence: u64,
    /// Last sequence it gave.
    pub last_sequence: u64,
    /// Messages it has.
    pub messages: u64,
}

/// The set that repairs a stream, as the stream's metadata names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamOwner {
    /// `cluster/namespace/name`.
    pub id: String,
    /// uid of the set.
    pub uid: String,
}

impl StreamOwner {
    /// The owner that the metadata names, if any.
    pub fn of(found: &StreamFound) -> Option<Self> {
        let id = found.metadata.get(metadata::OWNER)?.clone();
        Some(Self { id, uid: found.metadata.get(metadata::OWNER_UID).cloned().unwrap_or_default() })
    }
}

impl From<&Owner> for StreamOwner {
    fn from(owner: &Owner) -> Self {
        Self { id: format!("{}/{}/{}", owner.cluster, owner.namespace, owner.name), uid: owner.uid.clone() }
    }
}

/// What a stream that was found is to a set that asks for one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// It is this set's, and has drifted in these fields (none: nothing to do).
    Ours(Vec<Drift>),
    /// It is another set's and as this one asks: both use it, its owner repairs it.
    Joined(StreamOwner),
    /// It differs in what cannot be changed, or is not this set's to change.
    Conflict(Vec<Drift>),
    /// No set made it.
    NotOwned,
    /// It is another set's work queue, and a work queue has no second one.
    WorkQueueTaken(StreamOwner),
}

/// Decides what a found stream is to a set. Once its owner is gone, the next set takes the stream over by asking for
/// [`drift`], which then includes the owner.
pub fn judge(wanted: &StreamSpec, us: &StreamOwner, found: &StreamFound) -> Judgement {
    let Some(owner) = StreamOwner::of(found) else { return Judgement::NotOwned };
    let drift = drift(wanted, us, found);
    // The same name with another uid was deleted and made again: still this set.
    let ours = owner.id == us.id;
    let matters = |one: &Drift| if ours { !one.repairable } else { !is_owner(one) };
    let conflicts: Vec<Drift> = drift.iter().filter(|one| matters(one)).cloned().collect();
    if !conflicts.is_empty() {
        return Judgement::Conflict(conflicts);
    }
    if ours {
        Judgement::Ours(drift)
    } else if wanted.retention == Retention::WorkQueue {
        Judgement::WorkQueueTaken(owner)
    } else {
        Judgement::Joined(owner)
    }
}

/// Our metadata of a stream: whose it is, and its mapping.
pub fn metadata_of(wanted: &StreamSpec, owner: &StreamOwner) -> BTreeMap<String, String> {
    let mapping = &wanted.mapping;
    let tokens: Vec<String> = mapping.key_tokens.iter().map(u32::to_string).collect();
    BTreeMap::from([
        (metadata::OWNER.to_owned(), owner.id.clone()),
        (metadata::OWNER_UID.to_owned(), owner.uid.clone()),
        (metadata::SUBJECT.to_owned(), mapping.source.to_string()),
        (metadata::KEY_TOKENS.to_owned(), tokens.join(",")),
        (metadata::MAX_PARTITIONS.to_owned(), mapping.max_partitions.to_string()),
    ])
}

/// Every field in which a found stream differs from what its owner asks for. Not repairable are those that servers
/// cannot change, and a mapping that another set recorded: changing it would change which lane a key has.
pub fn drift(wanted: &StreamSpec, owner: &StreamOwner, found: &StreamFound) -> Vec<Drift> {
    let mut differences = Vec::new();
    let mut check = |field, repairable, wanted: String, found: String| {
        if wanted != found {
            differences.push(Drift { field, wanted, found, repairable });
        }
    };
    check("storage", false, wanted.storage.wire().into(), found.storage.clone());
    check("retention", false, wanted.retention.wire().into(), found.retention.clone());
    check("sources", false, String::new(), if found.sourced { "set" } else { "" }.into());
    check("sealed", false, "false".into(), found.sealed.to_string());
    let transform = (wanted.mapping.source.to_string(), wanted.mapping.destination());
    let arrow = |(source, destination): &(String, String)| format!("{source} -> {destination}");
    let has = found.transform.as_ref().map(arrow).unwrap_or_default();
    check("subject_transform", true, arrow(&transform), has);
    check("subjects", true, sorted(&wanted.subjects), sorted(&found.subjects));
    check("num_replicas", true, wanted.replicas.to_string(), found.replicas.to_string());
    let limit = |value: Option<i64>| value.unwrap_or(-1).to_string();
    check("max_age", true, seconds(wanted.max_age_seconds.unwrap_or(0)), seconds(found.max_age_seconds));
    check("max_bytes", true, limit(wanted.max_bytes), found.max_bytes.to_string());
    check("max_msgs", true, limit(wanted.max_messages), found.max_messages.to_string());
    // A limit per subject discards what is not handled yet; without acknowledgements publishers learn of no loss;
    // limits on consumers change those of the lanes.
    check("max_msgs_per_subject", true, "-1".into(), found.max_messages_per_subject.to_string());
    check("no_ack", true, "false".into(), found.no_ack.to_string());
    check("consumer_limits", true, String::new(), found.consumer_limits.clone());
    if let Some(window) = wanted.duplicate_window_seconds {
        check("duplicate_window", true, seconds(window), seconds(found.duplicate_window_seconds));
    }
    for (key, value) in metadata_of(wanted, owner) {
        let has = found.metadata.get(&key);
        if has != Some(&value) {
            let owned = key == metadata::OWNER || key == metadata::OWNER_UID;
            differences.push(Drift {
                field: "metadata",
                wanted: format!("{key}={value}"),
                found: has.map(|has| format!("{key}={has}")).unwrap_or_default(),
                repairable: owned || has.is_none(),
            });
        }
    }
    differences
}

/// Whether a difference is only about which set cares for the stream.
pub fn is_owner(one: &Drift) -> bool {
    one.field == "metadata" && one.wanted.starts_with(metadata::OWNER)
}

fn sorted(subjects: &[String]) -> String {
    let mut subjects = subjects.to_vec();
    subjects.sort();
    subjects.join(", ")
}

fn seconds(value: u64) -> String {
    format!("{value} s")
}

#[cfg(test)]
mod tests;
