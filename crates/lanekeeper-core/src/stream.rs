//! What the stream of a set must look like, and how a found one differs.
//!
//! The comparison is pure. A stream is never deleted, and fields that nobody asked for are left alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::mapping::Mapping;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// All, within its limits.
    Limits,
    /// Until every consumer has acknowledged them.
    Interest,
    /// Until one consumer has acknowledged them; filters must not overlap.
    WorkQueue,
}

/// Where a stream keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// On disk.
    File,
    /// In memory: gone with the server.
    Memory,
}

/// The stream that a set with `management: Create` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
