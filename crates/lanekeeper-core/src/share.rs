//! Linear hashing: which keys a partition has, for every number of partitions.
//!
//! A [`Share`] is the set of keys whose hash has one residue for one power of two. Partition `p` of `N` is
//! always exactly one share, so one trie node of the mapping and one literal consumer filter; `N -> N + 1`
//! splits one share in two and touches no other. After W. Litwin, "Linear Hashing: A New Tool for File
//! and Table Addressing" (VLDB 1980). This module must not know subjects.

use serde::{Deserialize, Serialize};

use crate::mapping::MAX_PARTITIONS;

/// The keys with `hash % modulus == residue`; `modulus` is a power of two and `residue < modulus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Share {
    /// A power of two, from 1 to the mapping's `maxPartitions`.
    pub modulus: u32,
    /// The residue, which is also the number of the partition that has this share.
    pub residue: u32,
}

/// A share as it was written, by whomever.
#[derive(Deserialize)]
struct Written {
    modulus: u32,
    residue: u32,
}

impl TryFrom<Written> for Share {
    type Error = String;

    fn try_from(Written { modulus, residue }: Written) -> Result<Self, Self::Error> {
        Self::new(modulus, residue).ok_or_else(|| {
            format!(
                "modulus {modulus} and residue {residue} are no share: modulus must be a power of two of at most {MAX_PARTITIONS}, residue below it"
            )
        })
    }
}

impl Share {
    /// A share, if there is one like that: records can be edited by anybody who may write the bucket.
    pub fn new(modulus: u32, residue: u32) -> Option<Self> {
        (modulus.is_power_of_two() && modulus <= MAX_PARTITIONS && residue < modulus)
            .then_some(Self { modulus, residue })
    }

    /// The share of partition `partition` when there are `partitions` of them.
    ///
    /// `None` when `partition >= partitions`.
    pub fn of_partition(partition: u32, partitions: u32) -> Option<Self> {
        if partition >= partitions {
            return None;
        }
        let lower = largest_power_of_two(partitions);
        let split = partition < partitions - lower || partition >= lower;
        let modulus = if split { lower * 2 } else { lower };
        Some(Self { modulus, residue: partition })
    }

    /// The partition's number: the residue, whatever the number of partitions is.
    pub fn partition(self) -> u32 {
        self.residue
    }

    /// Whether a key with this hash belongs to the share.
    pub fn contains_hash(self, hash: u32) -> bool {
        hash % self.modulus == self.residue
    }

    /// Whether the two shares have a key in common (then one includes the other).
    pub fn overlaps(self, other: Self) -> bool {
        let modulus = self.modulus.min(other.modulus);
        self.residue % modulus == other.residue % modulus
    }

    /// Whether every key of `other` belongs to this share.
    pub fn includes(self, other: Self) -> bool {
        self.modulus <= other.modulus && other.residue % self.modulus == self.residue
    }
}

/// The shares of all partitions, in order of partition.
pub fn shares(partitions: u32) -> Vec<Share> {
    (0..partitions).filter_map(|partition| Share::of_partition(partition, partitions)).collect()
}

/// The partition of a key with this hash. `partitions` is at least 1.
pub fn partition_of(hash: u32, partitions: u32) -> u32 {
    let lower = largest_power_of_two(partitions);
    let wide = hash % (lower * 2);
    if wide < partitions { wide } else { wide - lower }
}

/// Whether `cover` has every key of `share` (by one of its shares, or by several together).
pub fn covers(cover: &[Share], share: Share) -> bool {
    if cover.iter().any(|one| one.includes(share)) {
        return true;
    }
    // Only descendants are left: both halves must be covered. A share deeper than the deepest of the cover
    // cannot be, which ends the recursion.
    let deepest = cover.iter().map(|one| one.modulus).max().unwrap_or(0);
    share.modulus < deepest
        && [share.residue, share.residue + share.modulus]
            .into_iter()
            .all(|residue| covers(cover, Share { modulus: share.modulus * 2, residue }))
}

fn largest_power_of_two(partitions: u32) -> u32 {
    debug_assert!(partitions >= 1, "a set has at least one partition");
    1 << partitions.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_shares_at_powers_of_two() {
        assert!(shares(8).iter().all(|share| share.modulus == 8));
    }

    #[test]
    fn five_partitions_split_only_the_first_of_four() {
        let moduli: Vec<u32> = shares(5).iter().map(|share| share.modulus).collect();
        assert_eq!(moduli, [8, 4, 4, 4, 8]);
    }

    #[test]
    fn a_partition_beyond_the_number_has_no_share() {
        assert_eq!(Share::of_partition(4, 4), None);
    }

    #[test]
    fn what_is_no_share_cannot_be_read() {
        for (modulus, residue) in [(0, 0), (3, 0), (4, 4), (2048, 1)] {
            let text = format!("{{\"modulus\":{modulus},\"residue\":{residue}}}");
            assert!(serde_json::from_str::<Share>(&text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_hash_belongs_to_exactly_one_partition(hash: u32, partitions in 1u32..=1024) {
            let owners: Vec<u32> =
                shares(partitions).iter().filter(|s| s.contains_hash(hash)).map(|s| s.partition()).collect();
            prop_assert_eq!(owners, vec![partition_of(hash, partitions)]);
        }

        #[test]
        fn one_partition_more_changes_the_share_of_one(partitions in 1u32..1024) {
            let before = shares(partitions);
            let after = shares(partitions + 1);
            let changed: Vec<_> = before.iter().filter(|share| !after.contains(share)).collect();
            prop_assert_eq!(changed.len(), 1);
            let added: Vec<_> = after.iter().filter(|share| !before.contains(share)).copied().collect();
            prop_assert_eq!(added.len(), 2);
            prop_assert!(added.iter().all(|share| changed[0].includes(*share)));
            prop_assert!(covers(&added, *changed[0]));
        }

        #[test]
        fn shares_of_any_number_cover_everything_and_do_not_overlap(partitions in 1u32..=256) {
            let all = shares(partitions);
            let everything = Share { modulus: 1, residue: 0 };
            prop_assert!(covers(&all, everything));
            for (index, one) in all.iter().enumerate() {
                prop_assert!(all[index + 1..].iter().all(|other| !one.overlaps(*other)));
                let mut rest = all.clone();
                rest.remove(index);
                prop_assert!(!covers(&rest, *one));
            }
        }
    }
}
