//! Names of everything that a set has in NATS and Kubernetes; deterministic, and distinct for distinct sets.
//!
//! `_` cannot occur in Kubernetes names, so it separates; the `.` that a set's name may have is written `=`,
//! which consumer names and KV keys accept and Kubernetes names do not. This module must not know servers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The KV bucket of an account, unless another is configured.
pub const DEFAULT_BUCKET: &str = "lanekeeper";

/// What the subjects of dead letters begin with.
pub const DEAD_LETTERS: &str = "lanekeeper.dlq";

/// What the subjects of parked messages begin with.
pub const PARKED: &str = "lanekeeper.park";

/// Longest name of a set in bytes, so that the names of its children fit Kubernetes' 63.
pub const MAX_SET_NAME_BYTES: usize = 40;

/// A set, by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetName {
    /// The Kubernetes namespace.
    pub namespace: String,
    /// The name of the `OrderedPartitionSet`.
    pub name: String,
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl SetName {
    /// A set's full name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The durable consumer of one lane; never used again by another incarnation.
    pub fn consumer(&self, partition: u32, incarnation: u64) -> String {
        format!("{}{partition}_{incarnation}", self.consumer_prefix())
    }

    /// What the names of all consumers of the set begin with.
    pub fn consumer_prefix(&self) -> String {
        format!("lk_{}_{}_", self.namespace, escaped(&self.name))
    }

    /// Partition and incarnation of a consumer of this set; `None` for any other name.
    pub fn parse_consumer(&self, consumer: &str) -> Option<(u32, u64)> {
        let (partition, incarnation) = consumer.strip_prefix(&self.consumer_prefix())?.split_once('_')?;
        let parsed = (partition.parse().ok()?, incarnation.parse().ok()?);
        // "01" or "+1" parse as well, but are not names that we give.
        (self.consumer(parsed.0, parsed.1) == consumer).then_some(parsed)
    }

    /// The Deployment (and disruption budget) of one partition.
    pub fn deployment(&self, partition: u32) -> String {
        format!("{}-{partition}", self.name)
    }

    /// The stream that the operator makes for the set's dead letters.
    pub fn dead_letter_stream(&self) -> String {
        format!("lk_{}_{}_dlq", self.namespace, escaped(&self.name))
    }

    /// The subject under which the set's dead letters are published.
    pub fn dead_letter_subject(&self) -> String {
        format!("{DEAD_LETTERS}.{}.{}", self.namespace, escaped(&self.name))
    }

    /// The stream that the operator makes for the set's parked messages.
    pub fn park_stream(&self) -> String {
        format!("lk_{}_{}_park", self.namespace, escaped(&self.name))
    }

    /// What the subjects of the set's parked messages begin with.
    pub fn park_prefix(&self) -> String {
        format!("{PARKED}.{}.{}", self.namespace, escaped(&self.name))
    }

    /// What all KV keys of the set begin with.
    pub fn key_prefix(&self) -> String {
        format!("set.{}.{}.", self.namespace, escaped(&self.name))
    }

    /// The KV key of the set's record.
    pub fn record_key(&self) -> String {
        format!("{}record", self.key_prefix())
    }

    /// The KV key of one incarnation of a lane.
    pub fn lane_key(&self, incarnation: u64) -> String {
        format!("{}lane.{incarnation}", self.key_prefix())
    }

    /// The KV key of the lease of one incarnation, where there is one.
    pub fn lease_key(&self, incarnation: u64) -> String {
        format!("{}.lease", self.lane_key(incarnation))
    }

    /// The KV key of a partition's assignment.
    pub fn assignment_key(&self, partition: u32) -> String {
        format!("{}assignment.{partition}", self.key_prefix())
    }

    /// The KV key of what one pod reports of its partition.
    pub fn report_key(&self, partition: u32, pod: &str) -> String {
        format!("{}report.{partition}.{}", self.key_prefix(), escaped(pod))
    }

    /// What a KV key of this set is; `None` for keys of others and keys that are not known.
    pub fn parse_key(&self, key: &str) -> Option<SetKey> {
        let rest = key.strip_prefix(&self.key_prefix())?;
        if rest == "record" {
            return Some(SetKey::Record);
        }
        let (kind, rest) = rest.split_once('.')?;
        match kind {
            "lane" => match rest.split_once('.') {
                Some((incarnation, "lease")) => incarnation.parse().ok().map(SetKey::Lease),
                Some(_) => None,
                None => rest.parse().ok().map(SetKey::Lane),
            },
            "assignment" => rest.parse().ok().map(SetKey::Assignment),
            "report" => {
                let (partition, pod) = rest.split_once('.')?;
                Some(SetKey::Report { partition: partition.parse().ok()?, pod: pod.replace('=', ".") })
            }
            _ => None,
        }
    }
}

/// A KV key of a set, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetKey {
    /// The record.
    Record,
    /// The key of one incarnation.
    Lane(u64),
    /// The lease of one incarnation.
    Lease(u64),
    /// The assignment of one partition.
    Assignment(u32),
    /// The report of a pod.
    Report {
        /// Its partition.
        partition: u32,
        /// The pod's name.
        pod: String,
    },
}

fn escaped(name: &str) -> String {
    name.replace('.', "=")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_look_alike_stay_different() {
        let names = [
            SetName::new("a", "orders.v2"),
            SetName::new("a", "orders-v2"),
            SetName::new("a-b", "orders"),
            SetName::new("a", "b-orders"),
        ];
        let mut consumers: Vec<String> = names.iter().map(|name| name.consumer(1, 2)).collect();
        consumers.sort();
        consumers.dedup();
        assert_eq!(consumers.len(), names.len());
        assert_eq!(names[0].consumer(1, 2), "lk_a_orders=v2_1_2");
    }

    #[test]
    fn a_consumer_of_another_set_is_not_ours() {
        let name = SetName::new("a", "orders");
        for other in ["lk_a_orders_1", "lk_a_orders_1_x", "lk_a_orders_01_1", "lk_b_orders_1_1", "legacy"] {
            assert_eq!(name.parse_consumer(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn names_are_legal_and_read_back(
            namespace in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
            name in "[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?",
            partition in 0u32..1024, incarnation: u64
        ) {
            let set = SetName::new(namespace, name);
            let consumer = set.consumer(partition, incarnation);
            prop_assert!(consumer.len() <= 255);
            prop_assert!(!consumer.contains(['.', '*', '>', ' ', '/', '\\']));
            prop_assert_eq!(set.parse_consumer(&consumer), Some((partition, incarnation)));
            prop_assert!(set.dead_letter_stream().len() <= 255);
            prop_assert!(!set.dead_letter_stream().contains(['.', '*', '>', ' ', '/', '\\']));
            prop_assert_eq!(set.dead_letter_subject().split('.').count(), 4);
            prop_assert!(set.park_stream().len() <= 255);
            prop_assert_eq!(set.park_prefix().split('.').count(), 4);
            prop_assert!(set.deployment(partition).len() <= 63);
            prop_assert_eq!(set.parse_key(&set.record_key()), Some(SetKey::Record));
            prop_assert_eq!(set.parse_key(&set.lane_key(incarnation)), Some(SetKey::Lane(incarnation)));
            prop_assert_eq!(set.parse_key(&set.lease_key(incarnation)), Some(SetKey::Lease(incarnation)));
            prop_assert_eq!(set.parse_key(&format!("{}.other", set.lane_key(incarnation))), None);
            prop_assert_eq!(set.parse_key(&set.assignment_key(partition)), Some(SetKey::Assignment(partition)));
            prop_assert_eq!(
                set.parse_key(&set.report_key(partition, "a.b-1")),
                Some(SetKey::Report { partition, pod: "a.b-1".into() })
            );
        }
    }
}
