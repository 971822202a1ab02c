//! What the consumer of a lane must look like, and how a found one differs.
//!
//! The comparison is pure: reading and writing consumers is the `nats` crate's. Foreign metadata and a
//! description are a person's own and no drift.

use std::{collections::BTreeMap, fmt};

use crate::{mapping::Mapping, record::Delivery, subject::SubjectPattern};

/// Metadata keys that a lane's consumer carries, so that a lost record can be rebuilt from consumers.
pub mod metadata {
    /// What all of our keys begin with.
    pub const PREFIX: &str = "lanekeeper.dev/";
    /// `namespace/name` of the set.
    pub const SET: &str = "lanekeeper.dev/set";
    /// uid of the set.
    pub const UID: &str = "lanekeeper.dev/uid";
    /// Partition number.
    pub const PARTITION: &str = "lanekeeper.dev/partition";
    /// Modulus of the share.
    pub const MODULUS: &str = "lanekeeper.dev/modulus";
    /// Incarnation of the lane.
    pub const INCARNATION: &str = "lanekeeper.dev/incarnation";
    /// First sequence served.
    pub const START: &str = "lanekeeper.dev/start";
    /// Incarnations that it succeeds, separated by commas.
    pub const PREDECESSORS: &str = "lanekeeper.dev/predecessors";
    /// Floors of predecessors, as `modulus:residue:sequence` separated by commas.
    pub const FLOORS: &str = "lanekeeper.dev/floors";
}

/// Fields that the consumer of a lane must not have, by their name on the wire. Limits on pulls make the server refuse
/// the lane's.
pub const OFF: [&str; 4] = ["max_batch", "max_expires", "max_bytes", "rate_limit_bps"];

/// Fields by which the server gives all messages of a lane to one worker, by their name on the wire.
pub const PIN: [&str; 3] = ["priority_groups", "priority_policy", "priority_timeout"];

/// The one priority group of a lane's consumer; every pull names it.
pub const GROUP: &str = "lane";

/// What [`PIN`] must be, as JSON on the wire. The pin lapses as late as a message does: a worker that is cut off keeps
/// both for as long, so a pin that lapsed sooner would give a lane away for an outage that costs nothing otherwise, and
/// one that lapsed later would make every crash cost more.
pub fn pin(ack_wait_milliseconds: u64) -> BTreeMap<&'static str, String> {
    let timeout = ack_wait_milliseconds.saturating_mul(1_000_000);
    let [groups, policy, time_out] = PIN;
    BTreeMap::from([
        (groups, format!("[\"{GROUP}\"]")),
        (policy, "pinned_client".to_owned()),
        (time_out, timeout.to_string()),
    ])
}

/// The consumer that a lane needs. Everything that is not named here must be off: no delivery limit, no
/// backoff list, no inactivity limit, not paused, explicit acks, pull; as many messages out as the delivery says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConsumerSpec {
    /// Durable name.
    pub name: String,
    /// The one literal filter.
    pub filter: String,
    /// First stream sequence; `None` delivers all that the stream has.
    pub start: Option<u64>,
    /// How it gives messages out.
    pub delivery: Delivery,
    /// The server's deadline.
    pub ack_wait_milliseconds: u64,
    /// Whether the server pins it to one worker.
    pub pinned: bool,
    /// `None` inherits the stream's.
    pub replicas: Option<u32>,
    /// Our metadata.
    pub metadata: BTreeMap<String, String>,
}

impl ConsumerSpec {
    /// What of [`PIN`] it must have.
    pub fn pin(&self) -> BTreeMap<&'static str, String> {
        if self.pinned { pin(self.ack_wait_milliseconds) } else { BTreeMap::new() }
    }
}

/// A consumer as the server states it. `-1` for limits means none, as the server writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConsumerFound {
    /// Durable name.
    pub name: String,
    /// All filters, whether given as one or as a list.
    pub filters: Vec<String>,
    /// `all`, `by_start_sequence`, … as on the wire.
    pub deliver_policy: String,
    /// Of `by_start_sequence`.
    pub start: Option<u64>,
    /// `explicit`, `all` or `none`.
    pub ack_policy: String,
    /// Whether it pushes (has a deliver subject).
    pub push: bool,
    /// Messages out at once.
    pub max_ack_pending: i64,
    /// Deliveries after which the server skips a message.
    pub max_deliver: i64,
    /// The server's deadline.
    pub ack_wait_milliseconds: u64,
    /// Deadlines of single deliveries, which override the above.
    pub backoff_milliseconds: Vec<u64>,
    /// After which the server deletes the consumer by itself; 0 never.
    pub inactive_threshold_milliseconds: u64,
    /// Whether only headers are delivered.
    pub headers_only: bool,
    /// `instant` or `original`.
    pub replay_policy: String,
    /// Those of [`OFF`] and [`PIN`] that are set, each with its value as on the wire.
    pub set: BTreeMap<&'static str, String>,
    /// Paused by somebody.
    pub paused: bool,
    /// `0` inherits the stream's.
    pub replicas: u32,
    /// All metadata, also that of others.
    pub metadata: BTreeMap<String, String>,
    /// The ack floor: everything up to this stream sequence is settled.
    pub floor: u64,
    /// Stream sequence of the last delivery.
    pub delivered: u64,
    /// Messages out now.
    pub ack_pending: u64,
    /// Messages not delivered yet.
    pub pending: u64,
}

/// A field that a person (or an older version) changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Drift {
    /// Its name on the wire.
    pub field: &'static str,
    /// What the lane needs.
    pub wanted: String,
    /// What the server has.
    pub found: String,
    /// Whether the server can change it; if not, the lane must be succeeded by a new one.
    pub repairable: bool,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: &str| if text.is_empty() { "not set".to_owned() } else { text.to_owned() };
        write!(f, "{} is {}, must be {}", self.field, or_none(&self.found), or_none(&self.wanted))
    }
}

/// Whether the consumer gets messages that belong to lanes of the mapping. On a work queue that is a conflict; elsewhere
/// it is somebody else's own position and no matter.
pub fn takes_lanes_of(mapping: &Mapping, found: &ConsumerFound) -> bool {
    let Ok(lanes) = SubjectPattern::parse(&mapping.all_lanes()) else { return false };
    // No filter means everything; a filter that this grammar does not know is better reported than overlooked.
    found.filters.is_empty()
        || found
            .filters
            .iter()
            .any(|filter| SubjectPattern::parse(filter).map_or(true, |one| one.overlaps(&lanes)))
}

/// Every field in which a found consumer differs, the most dangerous first.
pub fn drift(wanted: &ConsumerSpec, found: &ConsumerFound) -> Vec<Drift> {
    let mut differences = Vec::new();
    let mut check = |field, repairable, wanted: String, found: String| {
        if wanted != found {
            differences.push(Drift { field, wanted, found, repairable });
        }
    };
    // First what breaks order at once: several messages out, messages skipped.
    check("max_ack_pending", true, wanted.delivery.most_out().to_string(), found.max_ack_pending.to_string());
    check("max_deliver", true, "-1".into(), found.max_deliver.to_string());
    check("ack_policy", false, "explicit".into(), found.ack_policy.clone());
    check("deliver_subject", false, "none".into(), if found.push { "set" } else { "none" }.into());
    check("filter_subject", true, wanted.filter.clone(), found.filters.join(","));
    check("backoff", true, String::new(), joined(&found.backoff_milliseconds));
    check("ack_wait", true, millis(wanted.ack_wait_milliseconds), millis(found.ack_wait_milliseconds));
    check("inactive_threshold", true, millis(0), millis(found.inactive_threshold_milliseconds));
    check("replay_policy", false, "instant".into(), found.replay_policy.clone());
    let policy = if wanted.start.is_some() { "by_start_sequence" } else { "all" };
    check("deliver_policy", false, policy.into(), found.deliver_policy.clone());
    check("opt_start_seq", false, number(wanted.start), number(found.start));
    let pin = wanted.pin();
    for field in PIN {
        let wanted = pin.get(field).cloned().unwrap_or_default();
        check(field, true, wanted, found.set.get(field).cloned().unwrap_or_default());
    }
    for field in OFF {
        let value = found.set.get(field).cloned().unwrap_or_default();
        check(field, true, String::new(), value);
    }
    check("headers_only", true, "false".into(), found.headers_only.to_string());
    check(
        "pause_until",
        true,
        "not paused".into(),
        if found.paused { "paused" } else { "not paused" }.into(),
    );
    if let Some(replicas) = wanted.replicas {
        check("num_replicas", true, replicas.to_string(), found.replicas.to_string());
    }
    for (key, value) in &wanted.metadata {
        if found.metadata.get(key) != Some(value) {
            let has = found.metadata.get(key).cloned().unwrap_or_else(|| "missing".into());
            differences.push(Drift {
                field: "metadata",
                wanted: format!("{key}={value}"),
                found: has,
                repairable: true,
            });
        }
    }
    differences
}

fn number(value: Option<u64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn millis(value: u64) -> String {
    format!("{value} ms")
}

fn joined(values: &[u64]) -> String {
    values.iter().map(|value| millis(*value)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
