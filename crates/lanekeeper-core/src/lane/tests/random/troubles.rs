//! What goes wrong, drawn by chance.

use proptest::prelude::*;

use super::{KEYS, MESSAGES};
use crate::{
    lane::{Outcome, tests::rig::seconds},
    order::Verb,
    record::{Breaker, ExhaustedPolicy},
};

#[derive(Debug, Clone)]
pub(super) enum Trouble {
    /// Time passes.
    Pass(u64),
    /// The handler of a worker ends.
    Handled(usize, Outcome),
    Disconnect(usize),
    Connect(usize),
    /// The process is stopped for a while.
    Freeze(usize, u64),
    /// Packets of a worker take this long.
    Slow(usize, u64),
    /// The process is killed and a new one starts.
    Kill(usize),
    /// The same, and somebody releases what it had; each look and request takes its time.
    Release(usize, [u64; 4]),
    /// The process is asked to end; a new one starts when it did.
    Shutdown(usize),
    Pause(bool),
    DeleteInHand,
    /// Somebody takes the pin away, or the consumer's leader changes.
    Unpin,
    /// The other streams take nothing, or take it again.
    Full(bool),
    /// Somebody orders that a message be tried or skipped, or all up to one.
    Order {
        verb: Verb,
        sequence: u64,
        whole_key: bool,
    },
    /// What workers write of orders is lost, or not any more.
    Forgetful(bool),
    /// A person wants what is parked of a key released, or dropped.
    ParkOrder(u64, bool),
}

pub(super) fn trouble() -> impl Strategy<Value = Trouble> {
    let worker = 0usize..2;
    let outcome = prop_oneof![
        6 => Just(Outcome::Done),
        1 => Just(Outcome::Retry { reason: "no".into(), after: None }),
        1 => Just(Outcome::Permanent { reason: "400".into() }),
        1 => Just(Outcome::Wait { reason: "503".into(), after: seconds(2) }),
        1 => Just(Outcome::Unreachable { reason: "refused".into() }),
    ];
    prop_oneof![
        8 => prop_oneof![1u64..100, 100u64..3_000, 3_000u64..20_000].prop_map(Trouble::Pass),
        10 => (worker.clone(), outcome).prop_map(|(worker, outcome)| Trouble::Handled(worker, outcome)),
        1 => worker.clone().prop_map(Trouble::Disconnect),
        2 => worker.clone().prop_map(Trouble::Connect),
        1 => (worker.clone(), 1_000u64..40_000).prop_map(|(worker, time)| Trouble::Freeze(worker, time)),
        1 => (worker.clone(), prop_oneof![Just(1u64), 1u64..20_000]).prop_map(|(w, time)| Trouble::Slow(w, time)),
        1 => worker.clone().prop_map(Trouble::Kill),
        1 => worker.prop_map(Trouble::Shutdown),
        1 => any::<bool>().prop_map(Trouble::Pause),
        1 => Just(Trouble::DeleteInHand),
        1 => Just(Trouble::Unpin),
        1 => any::<bool>().prop_map(Trouble::Full),
        2 => order(),
        1 => any::<bool>().prop_map(Trouble::Forgetful),
        2 => (0..KEYS, prop::bool::weighted(0.2)).prop_map(|(of, drop)| Trouble::ParkOrder(of, drop)),
    ]
}

/// What is usual, or is over by itself before anybody must hear of it.
pub(super) fn usual() -> impl Strategy<Value = Trouble> {
    let worker = 0usize..2;
    let outcome = prop_oneof![
        3 => Just(Outcome::Done),
        2 => Just(Outcome::Retry { reason: "no".into(), after: None }),
        1 => Just(Outcome::Retry { reason: "later".into(), after: Some(seconds(20)) }),
        1 => Just(Outcome::Permanent { reason: "400".into() }),
        1 => Just(Outcome::Wait { reason: "503".into(), after: seconds(60) }),
    ];
    prop_oneof![
        8 => prop_oneof![1u64..3_000, 3_000u64..60_000].prop_map(Trouble::Pass),
        4 => (worker.clone(), outcome).prop_map(|(worker, outcome)| Trouble::Handled(worker, outcome)),
        2 => (worker, 1_000u64..60_000).prop_map(|(worker, time)| Trouble::Freeze(worker, time)),
        2 => Just(Trouble::Unpin),
        1 => Just(Trouble::DeleteInHand),
        1 => any::<bool>().prop_map(Trouble::Pause),
    ]
}

fn order() -> impl Strategy<Value = Trouble> {
    let what = prop_oneof![
        Just((Verb::Retry, false)),
        Just((Verb::Skip, false)),
        Just((Verb::Skip, true)),
        Just((Verb::Other("praise".into()), false)),
    ];
    (what, 1..=MESSAGES).prop_map(|((verb, whole_key), sequence)| Trouble::Order {
        verb,
        sequence,
        whole_key,
    })
}

/// Milliseconds that a step of a release may take without being late.
pub(super) const PROMPT: u64 = 50;

/// What happens to workers, without anything that breaks one of the two locks by itself.
pub(super) fn death() -> impl Strategy<Value = Trouble> {
    let worker = 0usize..3;
    let time = || prop_oneof![3 => 1u64..50, 1 => 1u64..40_000];
    let outcome = prop_oneof![
        6 => Just(Outcome::Done),
        1 => Just(Outcome::Retry { reason: "no".into(), after: None }),
        1 => Just(Outcome::Wait { reason: "503".into(), after: seconds(2) }),
    ];
    prop_oneof![
        8 => prop_oneof![1u64..100, 100u64..3_000, 3_000u64..20_000].prop_map(Trouble::Pass),
        6 => (worker.clone(), outcome).prop_map(|(worker, outcome)| Trouble::Handled(worker, outcome)),
        3 => (worker.clone(), [time(), time(), time(), time()])
            .prop_map(|(worker, times)| Trouble::Release(worker, times)),
        1 => worker.clone().prop_map(Trouble::Kill),
        1 => (worker, 1_000u64..40_000).prop_map(|(worker, time)| Trouble::Freeze(worker, time)),
    ]
}

pub(super) fn policy() -> impl Strategy<Value = ExhaustedPolicy> {
    let breaker = (1u32..6, prop_oneof![Just(5u64), Just(600)])
        .prop_map(|(max_exhausted, window_seconds)| Breaker { max_exhausted, window_seconds });
    let dead_letter = |breaker| {
        let (stream, subject) = ("DEAD".to_owned(), "dead".to_owned());
        ExhaustedPolicy::DeadLetter { stream, subject, breaker }
    };
    prop_oneof![
        1 => Just(ExhaustedPolicy::Block),
        2 => breaker.clone().prop_map(dead_letter),
        3 => breaker.clone().prop_map(|breaker| ExhaustedPolicy::ParkKey { breaker }),
        1 => breaker.prop_map(|breaker| ExhaustedPolicy::Drop { breaker }),
    ]
}
