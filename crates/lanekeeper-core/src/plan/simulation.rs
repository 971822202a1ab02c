//! The plan against a simulated world that may fail in every way at every step.
//!
//! Random walks over: answers lost and late, operators killed between any two effects or two at once, workers that
//! crash, stall past their deadline or sit on an unreachable node, redelivery, consumers deleted by somebody, messages
//! that vanish, the number of partitions changed at any time. Checked at every step: no handler starts before every
//! earlier message of its key has completed, nothing is acknowledged or skipped that did not, no two handlers of one
//! key inside their deadlines. When failures stop, every walk must reach the wanted lanes with everything handled.

mod walk;
pub(in crate::plan) mod world;

use crate::stream::Retention;
use walk::{Failure, Mutant, walk};

/// Each failure alone, then some together; the combinations that the design lists as open are not among them.
const RUNS: &[&[Failure]] = &[
    &[],
    &[Failure::WorkerCrash],
    &[Failure::WorkerStall],
    &[Failure::LateAck],
    &[Failure::LateStep],
    &[Failure::OperatorCrash],
    &[Failure::SecondOperator],
    &[Failure::DeliveredToNobody],
    &[Failure::ConsumerDeleted],
    &[Failure::MessageVanishes],
    &[Failure::NodeUnreachable],
    &[Failure::RecordLost],
    &[Failure::LaneKeyLost],
    &[Failure::LateStep, Failure::SecondOperator, Failure::OperatorCrash],
    &[Failure::WorkerCrash, Failure::WorkerStall, Failure::LateAck, Failure::OperatorCrash],
    &[Failure::ConsumerDeleted, Failure::WorkerStall, Failure::OperatorCrash],
    &[Failure::NodeUnreachable, Failure::WorkerCrash, Failure::OperatorCrash],
    &[Failure::DeliveredToNobody, Failure::WorkerStall, Failure::SecondOperator],
];

fn every_run(seed: u64, retention: Retention) {
    for failures in RUNS {
        // With interest retention, messages of a consumer that somebody deleted (or that nothing names any more) are
        // gone by the server's own rules.
        let by_rule = |failure: &Failure| matches!(failure, Failure::ConsumerDeleted | Failure::RecordLost);
        if retention == Retention::Interest && failures.iter().any(by_rule) {
            continue;
        }
        if let Err(story) = walk(seed, retention, failures, None) {
            panic!("{retention:?}, {failures:?}, seed {seed}: {}", story.join("\n"));
        }
    }
}

/// Seeds are fixed, so that a run is the same everywhere; `LANEKEEPER_WALKS` walks more of them.
fn walks(retention: Retention) {
    let seeds = std::env::var("LANEKEEPER_WALKS").map_or(60, |walks| walks.parse().unwrap());
    (0..seeds).for_each(|seed| every_run(seed, retention));
}

#[test]
fn keys_stay_in_order_with_limits_retention() {
    walks(Retention::Limits);
}

#[test]
fn keys_stay_in_order_with_interest_retention() {
    walks(Retention::Interest);
}

#[test]
fn keys_stay_in_order_with_work_queue_retention() {
    walks(Retention::WorkQueue);
}

#[test]
fn walks_notice_when_workers_break_a_rule() {
    for mutant in [
        Mutant::PullsWithoutJoining,
        Mutant::JoinsRetiring,
        Mutant::LeavesBeforeSettling,
        Mutant::TrustsFloorsTooMuch,
    ] {
        let noticed = (0..3000).any(|seed| walk(seed, Retention::Limits, &[], Some(mutant)).is_err());
        assert!(noticed, "{mutant:?} breaks order and nothing noticed");
    }
}
