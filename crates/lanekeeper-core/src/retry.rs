//! How long a failed message waits before it is tried again.
//!
//! Exponential with a cap and without jitter: a lane retries one message at a time, so there is no herd to
//! spread. This module must not know messages.

use std::time::Duration;

use crate::record::Retry;

/// The delay after the given number of failed attempts: the initial backoff, doubled with each further
/// failure, never above the maximum. Zero attempts count as one.
pub fn delay(retry: &Retry, attempts: u64) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
    let milliseconds = retry.initial_backoff_milliseconds.saturating_mul(factor);
    Duration::from_millis(milliseconds.min(retry.max_backoff_milliseconds))
}

/// The interval at which an exhausted message is tried under `Block`.
pub fn slow(retry: &Retry) -> Duration {
    Duration::from_millis(retry.max_backoff_milliseconds)
}

/// Whether no attempt is left. A maximum of 0 means there is always one.
pub fn exhausted(retry: &Retry, attempts: u64) -> bool {
    retry.max_attempts > 0 && attempts >= retry.max_attempts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RETRY: Retry =
        Retry { initial_backoff_milliseconds: 100, max_backoff_milliseconds: 60_000, max_attempts: 5 };

    #[test]
    fn the_delay_doubles_up_to_the_cap() {
        let delays: Vec<u128> =
            [0, 1, 2, 3, 10, 11, 500].iter().map(|n| delay(&RETRY, *n).as_millis()).collect();
        assert_eq!(delays, [100, 100, 200, 400, 51_200, 60_000, 60_000]);
    }

    #[test]
    fn zero_attempts_mean_for_ever() {
        let forever = Retry { max_attempts: 0, ..RETRY };
        assert!(!exhausted(&forever, u64::MAX));
        assert!(!exhausted(&RETRY, 4));
        assert!(exhausted(&RETRY, 5));
    }

    proptest! {
        #[test]
        fn a_delay_never_shrinks_and_never_exceeds_the_cap(initial in 0u64..100_000, cap in 0u64..10_000_000, n: u64) {
            let retry = Retry { initial_backoff_milliseconds: initial, max_backoff_milliseconds: cap, max_attempts: 0 };
            prop_assert!(delay(&retry, n) <= slow(&retry));
            prop_assert!(delay(&retry, n) <= delay(&retry, n.saturating_add(1)));
        }
    }
}
