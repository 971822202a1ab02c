//! Random walks through runs that are too large to look at every state.

use lanekeeper_core::stream::Retention;

use crate::{
    actions::{Action, State},
    calm::comes_to_an_end,
    run::{Failure, Run},
    world::MAX_PARTITIONS,
};

const STEPS: usize = 220;

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
    &[Failure::StaleAssignment],
    &[Failure::LateStep, Failure::SecondOperator, Failure::OperatorCrash],
    &[Failure::WorkerCrash, Failure::WorkerStall, Failure::LateAck, Failure::OperatorCrash],
    &[Failure::ConsumerDeleted, Failure::WorkerStall, Failure::OperatorCrash],
    &[Failure::NodeUnreachable, Failure::WorkerCrash, Failure::OperatorCrash],
    &[Failure::DeliveredToNobody, Failure::WorkerStall, Failure::SecondOperator],
];

/// splitmix64, after <https://prng.di.unimi.it/splitmix64.c> (public domain).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}

fn random_run(random: &mut Random, retention: Retention, failures: &[Failure]) -> Run {
    let max = MAX_PARTITIONS as usize;
    let partitions: Vec<u32> =
        (0..2 + random.below(5)).map(|_| u32::try_from(1 + random.below(max)).unwrap()).collect();
    let messages: Vec<u32> =
        (0..6 + random.below(8)).map(|_| u32::try_from(random.below(max)).unwrap()).collect();
    let pods: Vec<u32> = (0..MAX_PARTITIONS).flat_map(|partition| [partition, partition]).collect();
    let run = Run::new("walk", retention, &partitions).messages(&messages).pods(&pods);
    let run = if random.below(2) == 0 { run.one_by_one() } else { run };
    failures.iter().fold(run, |run, failure| run.failing(*failure, 2))
}

fn walk(seed: u64, retention: Retention, failures: &[Failure]) -> Result<(), String> {
    let mut random = Random(seed);
    let run = random_run(&mut random, retention, failures);
    let mut state = State::first(&run);
    let mut story: Vec<String> = vec![format!("{run:?}")];
    for _ in 0..STEPS {
        let all = state.actions(&run);
        let rare = |action: &Action| {
            action.failure().is_some()
                || matches!(action, Action::NextNumber | Action::Publish | Action::Operate(1))
        };
        let (rare, usual): (Vec<Action>, Vec<Action>) = all.into_iter().partition(rare);
        let choices =
            if !rare.is_empty() && (usual.is_empty() || random.below(8) == 0) { rare } else { usual };
        let Some(action) = choices.get(random.below(choices.len().max(1))) else { break };
        // One of the two pods of a partition stays reachable.
        if matches!(action, Action::CutOff(pod) if pod % 2 == 1) {
            continue;
        }
        story.push(format!("{action:?}"));
        state = state.after(&run, *action);
        if let Some(violation) = &state.violation {
            return Err(format!("{}\n{violation}", story.join("\n")));
        }
    }
    comes_to_an_end(&run, &state).map_err(|end| format!("{}\n{end}", story.join("\n")))
}

/// Seeds are fixed, so that a run is the same everywhere; `LANEKEEPER_WALKS` walks more of them.
fn walks(retention: Retention) {
    let seeds = std::env::var("LANEKEEPER_WALKS").map_or(25, |walks| walks.parse().unwrap());
    for seed in 0..seeds {
        for failures in RUNS {
            let lost_by_rule = [Failure::ConsumerDeleted, Failure::RecordLost];
            if retention == Retention::Interest && failures.iter().any(|one| lost_by_rule.contains(one)) {
                continue;
            }
            if let Err(story) = walk(seed, retention, failures) {
                panic!("{retention:?}, {failures:?}, seed {seed}:\n{story}");
            }
        }
    }
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
