//! Which keys take a lane's time: a sketch of bounded size.
//!
//! Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, ICDT
//! 2005), weighted by handling time: as many counters as there is room for; a key without one takes over the smallest, and
//! what that had counted stays as its possible error. So no key is ever shown with less than its time, none with more than a
//! [`COUNTERS`]th of all time too much, and every key that took more than that is there.
//!
//! Everything is halved every [`HALVED_EVERY`], so that what was hot yesterday does not hide what is hot now.
//!
//! Must not do: know messages, or look at a clock.

use std::{collections::HashMap, time::Duration};

use serde::{Deserialize, Serialize};

/// Keys that are counted at the same time.
pub const COUNTERS: usize = 128;
/// After this time what was counted before counts half.
pub const HALVED_EVERY: Duration = Duration::from_secs(300);
/// A longer key is shortened to this many bytes (at a character): it is for people, and memory stays bounded.
pub const LONGEST_KEY: usize = 256;

/// One key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HotKey {
    /// The key; cut off after [`LONGEST_KEY`] bytes.
    pub key: String,
    /// Its handling time, never less than it was.
    pub microseconds: u64,
    /// By how much that may be too much.
    pub error_microseconds: u64,
    /// Handlings since it has a counter.
    pub handlings: u64,
}

/// What a worker says of its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HotKeys {
    /// Always 1.
    pub v: u32,
    /// The partition.
    pub partition: u32,
    /// Handling time of all keys.
    pub microseconds: u64,
    /// Handlings of all keys.
    pub handlings: u64,
    /// The keys with a counter, the one that took most first.
    pub keys: Vec<HotKey>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counter {
    time: u64,
    error: u64,
    handlings: u64,
}

/// The counters.
#[derive(Debug, Clone, Default)]
pub struct Sketch {
    counters: HashMap<String, Counter>,
    time: u64,
    handlings: u64,
    halved: Duration,
}

impl Sketch {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handling of a key ended at `now` (time since some start) after `took`.
    pub fn add(&mut self, now: Duration, key: &str, took: Duration) {
        self.age(now);
        // Whatever is handled takes some time: nothing that is counted is nothing.
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let key = shortened(key);
        self.time = self.time.saturating_add(took);
        self.handlings += 1;
        if let Some(counter) = self.counters.get_mut(key) {
            counter.time = counter.time.saturating_add(took);
            counter.handlings += 1;
            return;
        }
        let error = if self.counters.len() < COUNTERS { 0 } else { self.take_smallest() };
        let counter = Counter { time: error.saturating_add(took), error, handlings: 1 };
        self.counters.insert(key.to_owned(), counter);
    }

    /// Makes room; what the smallest had counted.
    fn take_smallest(&mut self) -> u64 {
        let smallest = self.counters.iter().min_by_key(|(_, counter)| counter.time);
        let Some((key, time)) = smallest.map(|(key, counter)| (key.clone(), counter.time)) else { return 0 };
        self.counters.remove(&key);
        time
    }

    /// Halves everything as often as is due.
    fn age(&mut self, now: Duration) {
        let periods = now.saturating_sub(self.halved).as_secs() / HALVED_EVERY.as_secs();
        let Some(halvings) = u32::try_from(periods).ok().filter(|periods| *periods > 0) else { return };
        self.halved += HALVED_EVERY * halvings;
        let half = |value: u64| value.checked_shr(halvings).unwrap_or(0);
        self.time = half(self.time);
        self.handlings = half(self.handlings);
        for counter in self.counters.values_mut() {
            *counter = Counter {
                time: half(counter.time),
                error: half(counter.error),
                handlings: half(counter.handlings),
            };
        }
        self.counters.retain(|_, counter| counter.time > 0);
    }

    /// What was counted, as of `now`.
    pub fn report(&mut self, now: Duration, partition: u32) -> HotKeys {
        self.age(now);
        let mut keys: Vec<HotKey> = self
            .counters
            .iter()
            .map(|(key, counter)| HotKey {
                key: key.clone(),
                microseconds: counter.time,
                error_microseconds: counter.error,
                handlings: counter.handlings,
            })
            .collect();
        keys.sort_by(|one, other| {
            other.microseconds.cmp(&one.microseconds).then_with(|| one.key.cmp(&other.key))
        });
        HotKeys { v: 1, partition, microseconds: self.time, handlings: self.handlings, keys }
    }
}

fn shortened(key: &str) -> &str {
    let end = (0..=LONGEST_KEY.min(key.len())).rev().find(|end| key.is_char_boundary(*end));
    &key[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const START: Duration = Duration::ZERO;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn a_few_keys_are_counted_exactly_and_stand_in_order() {
        let mut sketch = Sketch::new();
        for (key, time) in [("a", 5), ("b", 30), ("a", 20), ("c", 25)] {
            sketch.add(START, key, micros(time));
        }
        let report = sketch.report(START, 3);
        let shown: Vec<_> = report
            .keys
            .iter()
            .map(|one| (one.key.as_str(), one.microseconds, one.error_microseconds, one.handlings))
            .collect();
        assert_eq!(shown, [("b", 30, 0, 1), ("a", 25, 0, 2), ("c", 25, 0, 1)]);
        assert_eq!((report.partition, report.microseconds, report.handlings), (3, 80, 4));
    }

    #[test]
    fn one_hot_key_among_many_cold_ones_is_the_first() {
        let mut sketch = Sketch::new();
        for number in 0..10_000_u64 {
            sketch.add(START, &format!("cold-{number}"), micros(10));
            if number % 10 == 0 {
                sketch.add(START, "hot", micros(50));
            }
        }
        let report = sketch.report(START, 0);
        assert_eq!(report.keys.len(), COUNTERS);
        let first = &report.keys[0];
        assert_eq!(first.key, "hot");
        assert!(first.microseconds >= 50_000 && first.microseconds - first.error_microseconds <= 50_000);
    }

    #[test]
    fn what_was_hot_counts_half_after_five_minutes_and_is_forgotten_in_time() {
        let mut sketch = Sketch::new();
        sketch.add(START, "old", micros(1_000));
        sketch.add(Duration::from_secs(299), "old", micros(1_000));
        sketch.add(HALVED_EVERY, "new", micros(1_200));
        let report = sketch.report(HALVED_EVERY, 0);
        let times: Vec<_> = report.keys.iter().map(|one| (one.key.as_str(), one.microseconds)).collect();
        assert_eq!(times, [("new", 1_200), ("old", 1_000)]);
        assert_eq!((report.microseconds, report.handlings), (2_200, 2));
        assert!(sketch.report(HALVED_EVERY * 20, 0).keys.is_empty());
        assert_eq!(sketch.report(HALVED_EVERY * 1_000_000, 0).microseconds, 0);
    }

    #[test]
    fn a_handling_without_measurable_time_counts() {
        let mut sketch = Sketch::new();
        sketch.add(START, "fast", Duration::ZERO);
        assert_eq!(sketch.report(START, 0).keys[0].microseconds, 1);
    }

    #[test]
    fn long_keys_are_cut_at_a_character() {
        assert_eq!(shortened("short"), "short");
        let long = "ü".repeat(200);
        assert_eq!(shortened(&long).len(), LONGEST_KEY);
        assert_eq!(shortened(&format!("x{long}")).len(), LONGEST_KEY - 1);
    }

    proptest! {
        /// The bounds of the paper.
        #[test]
        fn no_key_has_less_than_its_time_nor_a_counters_share_of_all_too_much_and_no_heavy_one_is_missing(
            handlings in prop::collection::vec((0u32..400, 1u64..10_000), 0..3_000)
        ) {
            let mut sketch = Sketch::new();
            let mut exact = BTreeMap::<String, u64>::new();
            for (key, time) in handlings {
                // A few keys are frequent, most are not.
                let key = format!("k{}", key * key / 400);
                sketch.add(START, &key, micros(time));
                *exact.entry(key).or_default() += time;
            }
            let all: u64 = exact.values().sum();
            let report = sketch.report(START, 0);
            prop_assert_eq!(report.microseconds, all);
            prop_assert!(report.keys.len() <= COUNTERS);
            prop_assert!(report.keys.is_sorted_by(|one, other| one.microseconds >= other.microseconds));
            for one in &report.keys {
                let truth = exact[&one.key];
                prop_assert!(one.microseconds >= truth);
                prop_assert!(one.microseconds - one.error_microseconds <= truth);
                prop_assert!(one.error_microseconds <= all / COUNTERS as u64);
            }
            for (key, time) in exact.iter().filter(|(_, time)| **time > all / COUNTERS as u64) {
                prop_assert!(report.keys.iter().any(|one| one.key == *key), "{key} took {time} of {all}");
            }
        }
    }
}
