//! How long a consumer has been gone, by this process's own monotonic clock.
//!
//! Since when is not stored: after a restart of the operator the wait begins anew, which only makes it longer. For how long
//! is: a fenced lane's record says what its workers may go by.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Beside one `AckWait`: clocks of different machines may run at slightly different speeds.
pub const MARGIN: Duration = Duration::from_millis(500);

/// Stands for a set as a whole, when its record is missing.
pub const WHOLE_SET: u64 = 0;

/// Since when consumers are gone, for all sets.
#[derive(Debug, Default)]
pub struct Fences {
    sets: Mutex<HashMap<String, BTreeMap<u64, Lane>>>,
}

#[derive(Debug, Clone, Copy)]
struct Lane {
    ack_wait: Duration,
    gone_since: Option<Instant>,
}

impl Fences {
    /// Notes the deadline that the consumers in use have. The longest one ever seen counts: a holder may still go by it.
    pub fn seen(&self, uid: &str, ack_waits: impl IntoIterator<Item = (u64, Duration)>) {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let lanes = sets.entry(uid.to_owned()).or_default();
        for (incarnation, ack_wait) in ack_waits {
            let lane = lanes.entry(incarnation).or_insert(Lane { ack_wait, gone_since: None });
            lane.ack_wait = lane.ack_wait.max(ack_wait);
            lane.gone_since = None;
        }
    }

    /// Which of these have been gone for one `AckWait`, which is at least what stands beside each. Those that are not among them are forgotten, unless they were
    /// [`Fences::seen`] and may still go.
    pub fn elapsed(&self, uid: &str, gone: &BTreeMap<u64, Duration>, now: Instant) -> BTreeSet<u64> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let lanes = sets.entry(uid.to_owned()).or_default();
        // Who holds what is not known of a set without a record: the longest of all counts.
        let longest = lanes.values().map(|lane| lane.ack_wait).max();
        lanes.retain(|incarnation, lane| lane.gone_since.is_none() || gone.contains_key(incarnation));
        let mut elapsed = BTreeSet::new();
        for (incarnation, ack_wait) in gone {
            let of_all = longest.filter(|_| *incarnation == WHOLE_SET).unwrap_or_default();
            let ack_wait = of_all.max(*ack_wait);
            let lane = lanes.entry(*incarnation).or_insert(Lane { ack_wait, gone_since: None });
            lane.ack_wait = lane.ack_wait.max(ack_wait);
            let since = *lane.gone_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= lane.ack_wait + MARGIN {
                elapsed.insert(*incarnation);
            }
        }
        elapsed
    }

    /// The shortest time after which one more will have elapsed.
    pub fn next(&self, uid: &str, now: Instant) -> Option<Duration> {
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = sets.get(uid)?.values().filter_map(|lane| {
            let end = lane.gone_since? + lane.ack_wait + MARGIN;
            (end > now).then(|| end.saturating_duration_since(now))
        });
        waiting.min()
    }

    /// A set that is gone.
    pub fn forget(&self, uid: &str) {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK_WAIT: Duration = Duration::from_secs(10);

    fn keys(gone: &BTreeMap<u64, Duration>) -> BTreeSet<u64> {
        gone.keys().copied().collect()
    }

    #[test]
    fn a_consumer_is_fenced_one_ack_wait_after_it_was_first_missed() {
        let (fences, start) = (Fences::default(), Instant::now());
        let gone = BTreeMap::from([(3, ACK_WAIT)]);
        let at = |seconds| fences.elapsed("u", &gone, start + Duration::from_secs(seconds));
        assert!(at(0).is_empty());
        assert!(at(10).is_empty(), "the margin is not over yet");
        assert_eq!(at(11), keys(&gone));
        assert_eq!(fences.next("u", start), Some(ACK_WAIT + MARGIN));
    }

    #[test]
    fn the_longest_deadline_that_a_consumer_ever_had_counts() {
        let (fences, start) = (Fences::default(), Instant::now());
        fences.seen("u", [(3, Duration::from_secs(60))]);
        fences.seen("u", [(3, ACK_WAIT)]);
        let gone = BTreeMap::from([(3, ACK_WAIT)]);
        fences.elapsed("u", &gone, start);
        assert!(fences.elapsed("u", &gone, start + Duration::from_secs(59)).is_empty());
        assert_eq!(fences.elapsed("u", &gone, start + Duration::from_secs(61)), keys(&gone));
    }

    #[test]
    fn a_fence_that_another_operator_began_goes_by_what_the_record_says() {
        let (fences, start) = (Fences::default(), Instant::now());
        let gone = BTreeMap::from([(3, Duration::from_secs(60))]);
        fences.elapsed("u", &gone, start);
        assert!(fences.elapsed("u", &gone, start + Duration::from_secs(59)).is_empty());
        assert_eq!(fences.elapsed("u", &gone, start + Duration::from_secs(61)), keys(&gone));
    }

    #[test]
    fn a_set_without_a_record_waits_for_the_longest_of_its_lanes() {
        let (fences, start) = (Fences::default(), Instant::now());
        fences.seen("u", [(3, Duration::from_secs(60)), (4, ACK_WAIT)]);
        let all = BTreeMap::from([(WHOLE_SET, ACK_WAIT)]);
        fences.elapsed("u", &all, start);
        assert!(fences.elapsed("u", &all, start + Duration::from_secs(59)).is_empty());
        assert_eq!(fences.elapsed("u", &all, start + Duration::from_secs(61)), keys(&all));
        // Also for a lane whose own fence had begun.
        let (fences, one) = (Fences::default(), BTreeMap::from([(3, ACK_WAIT)]));
        fences.seen("u", [(3, Duration::from_secs(60))]);
        fences.elapsed("u", &one, start);
        fences.elapsed("u", &all, start);
        assert!(fences.elapsed("u", &all, start + Duration::from_secs(59)).is_empty());
    }

    #[test]
    fn a_consumer_that_came_back_starts_the_wait_anew() {
        let (fences, start) = (Fences::default(), Instant::now());
        let gone = BTreeMap::from([(3, ACK_WAIT)]);
        fences.elapsed("u", &gone, start);
        fences.seen("u", [(3, ACK_WAIT)]);
        assert!(fences.elapsed("u", &gone, start + Duration::from_secs(11)).is_empty());
    }
}
