//! The handlings of one key, one after another. Counts and examples go into the report.

use std::collections::BTreeMap;

use super::{Entry, Report};

/// Judges one key: `numbers` as published, `entries` as handled.
pub(super) fn judge(key: &str, numbers: &[u64], mut entries: Vec<&Entry>, report: &mut Report) {
    entries.sort_by_key(|entry| (entry.start, entry.end, &entry.fence));
    let completed = first_completions(&entries);
    let mut seen = Seen::default();
    for &entry in &entries {
        if let Some(running) = seen.running(entry) {
            report.overlaps.add(|| format!("{} while {}", tell(entry), tell(running)));
        }
        match numbers.binary_search(&entry.number) {
            Err(_) => report.unknown.add(|| tell(entry)),
            Ok(place) => {
                if seen.numbers.contains_key(&entry.number) {
                    report.repeats += 1;
                } else {
                    report.handled += 1;
                }
                let previous = place.checked_sub(1).map(|before| numbers[before]);
                if let Some(fault) = seen.fault(entry, previous, &completed) {
                    report.out_of_order.add(|| format!("{}: {fault}", tell(entry)));
                }
                seen.remember(entry);
            }
        }
        seen.run(entry);
    }
    for number in numbers.iter().filter(|number| !seen.numbers.contains_key(number)) {
        report.lost.add(|| format!("number {number} of {key}"));
    }
}

/// When each number was done for the first time.
fn first_completions(entries: &[&Entry]) -> BTreeMap<u64, i64> {
    let mut completed = BTreeMap::new();
    for entry in entries {
        let end = completed.entry(entry.number).or_insert(entry.end);
        *end = entry.end.min(*end);
    }
    completed
}

/// What came before, in the order of starting.
#[derive(Default)]
struct Seen<'a> {
    /// Each published number that was handled, with its first handling.
    numbers: BTreeMap<u64, &'a Entry>,
    /// Each fence with the number that had it.
    fences: BTreeMap<&'a str, u64>,
    /// The handling that ends last of those that started.
    latest: Option<&'a Entry>,
}

impl<'a> Seen<'a> {
    /// The earlier handling that still runs when this one starts.
    fn running(&self, entry: &Entry) -> Option<&'a Entry> {
        self.latest.filter(|latest| entry.start < latest.end)
    }

    /// What is wrong with the order of a published message's handling; one reason is enough.
    fn fault(&self, entry: &Entry, previous: Option<u64>, completed: &BTreeMap<u64, i64>) -> Option<String> {
        let done = |number: &u64| completed.get(number).is_some_and(|&end| end <= entry.start);
        let repeats_a_completed_one = self.numbers.contains_key(&entry.number) && done(&entry.number);
        if !repeats_a_completed_one {
            if let Some(previous) = previous.filter(|previous| !done(previous)) {
                return Some(match completed.get(&previous) {
                    Some(end) => format!("started before number {previous} was done at {end}"),
                    None => format!("started although number {previous} was never done"),
                });
            }
            if let Some((ahead, _)) =
                self.numbers.last_key_value().filter(|(ahead, _)| **ahead > entry.number)
            {
                return Some(format!("started after number {ahead}, and is no repeat"));
            }
        }
        self.fence_fault(entry)
    }

    /// A fence is that of the same message again, or higher than all before it.
    fn fence_fault(&self, entry: &Entry) -> Option<String> {
        if self.fences.get(entry.fence.as_str()) == Some(&entry.number) {
            return None;
        }
        let (highest, number) = self.fences.last_key_value()?;
        (entry.fence.as_str() <= *highest)
            .then(|| format!("its fence is not above {highest} of number {number}"))
    }

    fn remember(&mut self, entry: &'a Entry) {
        self.numbers.entry(entry.number).or_insert(entry);
        self.fences.entry(&entry.fence).or_insert(entry.number);
    }

    fn run(&mut self, entry: &'a Entry) {
        if self.latest.is_none_or(|latest| latest.end < entry.end) {
            self.latest = Some(entry);
        }
    }
}

fn tell(entry: &Entry) -> String {
    let Entry { key, number, fence, partition, attempt, start, end, pod } = entry;
    format!(
        "number {number} of {key} from {start} to {end} in {pod} (partition {partition}, attempt {attempt}, fence {fence})"
    )
}
