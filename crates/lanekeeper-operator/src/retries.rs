//! When a set is looked at again after a failure: exponential, with jitter, for each set on its own.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(500);
/// Refusals by NATS heal by the hand of a person: asking often helps nobody.
const FIRST_SLOW: Duration = Duration::from_secs(5);

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It may be over in a moment.
    Transient,
    /// A server said no.
    Slow,
}

/// Failures in a row, for all sets.
#[derive(Debug, Default)]
pub struct Retries {
    failures: Mutex<HashMap<String, u32>>,
    random: RandomState,
}

impl Retries {
    /// One more failure of a set: after how long to try again. Never longer than `longest` and a quarter.
    pub fn failed(&self, uid: &str, pace: Pace, longest: Duration) -> Duration {
        let count = {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            let count = failures.entry(uid.to_owned()).or_default();
            *count = count.saturating_add(1);
            *count
        };
        let first = match pace {
            Pace::Transient => FIRST,
            Pace::Slow => FIRST_SLOW,
        };
        let doubled = first.saturating_mul(1 << (count - 1).min(16)).min(longest);
        // From three quarters to five quarters, so that sets that failed together do not come back together.
        let random = self.random.hash_one((uid, count)) % 1000;
        doubled.mul_f64(0.75 + 0.5 * f64::from(u32::try_from(random).unwrap_or_default()) / 1000.0)
    }

    /// It went well, or the set is gone.
    pub fn forget(&self, uid: &str) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(30);

    #[test]
    fn delays_grow_up_to_the_longest_and_start_again_after_success() {
        let retries = Retries::default();
        let delays: Vec<Duration> = (0..12).map(|_| retries.failed("u", Pace::Transient, LONGEST)).collect();
        assert!(delays[0] <= FIRST.mul_f64(1.25));
        assert!(delays[4] >= FIRST.mul_f64(8.0 * 0.75), "{delays:?}");
        assert!(delays.iter().all(|delay| *delay <= LONGEST.mul_f64(1.25)));
        assert!(delays[11] >= LONGEST.mul_f64(0.75));
        retries.forget("u");
        assert!(retries.failed("u", Pace::Transient, LONGEST) <= FIRST.mul_f64(1.25));
    }

    #[test]
    fn one_set_does_not_slow_another() {
        let retries = Retries::default();
        for _ in 0..10 {
            retries.failed("broken", Pace::Slow, LONGEST);
        }
        assert!(retries.failed("fine", Pace::Transient, LONGEST) < Duration::from_secs(1));
    }
}
