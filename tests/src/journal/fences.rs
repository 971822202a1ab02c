//! The fences that the lane gave, against the numbers that the publisher gave.

use std::collections::BTreeMap;

use lanekeeper_core::journal::Findings;

use super::{Entry, Published, report::EXAMPLES};

/// Handlings whose fence is neither that of the same message again nor higher than all before it of its key.
pub(super) fn judge(published: &Published, entries: &[Entry]) -> Findings {
    let mut findings = Findings::default();
    let mut sorted: Vec<&Entry> = entries
        .iter()
        .filter(|entry| {
            published
                .numbers
                .get(&entry.key)
                .is_some_and(|numbers| numbers.binary_search(&entry.number).is_ok())
        })
        .collect();
    sorted.sort_by_key(|entry| (&entry.key, entry.start, entry.end, &entry.fence));
    for of_key in sorted.chunk_by(|one, other| one.key == other.key) {
        // Each fence with the number that had it.
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in of_key {
            if seen.get(entry.fence.as_str()) == Some(&entry.number) {
                continue;
            }
            if let Some((highest, number)) = seen.last_key_value()
                && entry.fence.as_str() <= *highest
            {
                let Entry { key, number: own, fence, pod, .. } = entry;
                findings.add(EXAMPLES, || {
                    format!(
                        "{fence} of number {own} of {key} in {pod} is not above {highest} of number {number}"
                    )
                });
            }
            seen.entry(&entry.fence).or_insert(entry.number);
        }
    }
    findings
}
