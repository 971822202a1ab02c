//! Random walks through runs that are too large to look at every state.

use lanekeeper_core::stream::Retention;

use super::{
    actions::Action,
    calm::Ends,
    run::{Failure, Run},
    state::State,
};
use crate::{walks::Random, world::MAX_PARTITIONS};

const STEPS: usize = 250;

fn random_run(random: &mut Random, retention: Retention, failures: &[Failure]) -> Run {
    let max = MAX_PARTITIONS as usize;
    let mut below = |bound: usize| u32::try_from(random.below(bound)).unwrap();
    let partitions: Vec<u32> = (0..2 + below(3)).map(|_| 1 + below(max)).collect();
    let messages: Vec<u32> = (0..5 + below(5)).map(|_| below(max)).collect();
    let pods: Vec<u32> = (0..MAX_PARTITIONS).collect();
    let run = Run::new(&partitions, &messages, &pods).retention(retention);
    let run = if below(2) == 0 { run.under_way() } else { run };
    failures.iter().fold(run, |run, failure| run.failing(*failure, 2))
}

fn walk(seed: u64, retention: Retention, failures: &[Failure]) -> Result<(), String> {
    let mut random = Random(seed);
    let run = random_run(&mut random, retention, failures);
    let mut state = State::first(&run);
    let mut story: Vec<String> = vec![format!("{run:?}")];
    for _ in 0..STEPS {
        let all = state.actions(&run);
        let rare = |action: &Action| action.failure().is_some() || action.begins_something();
        let (rare, usual): (Vec<Action>, Vec<Action>) = all.into_iter().partition(rare);
        let choices =
            if !rare.is_empty() && (usual.is_empty() || random.below(8) == 0) { rare } else { usual };
        let Some(action) = choices.get(random.below(choices.len().max(1))) else { break };
        let Some(next) = state.after(&run, *action) else { continue };
        story.push(format!("{action:?}"));
        state = next;
        if let Some(violation) = &state.violation {
            return Err(format!("{}\n{violation}", story.join("\n")));
        }
    }
    Ends::default().reached(&run, &state).map_err(|end| format!("{}\n{end}", story.join("\n")))
}

/// Each failure alone, and some together. `LANEKEEPER_WALKS` walks more of them: lanes take longer than abstract workers,
/// so an eighth of what these walk.
fn walks(retention: Retention) {
    const TOGETHER: &[&[Failure]] = &[
        &[],
        &[Failure::PodCrash, Failure::Stall, Failure::OperatorCrash],
        &[Failure::ConnectionLost, Failure::RequestLost, Failure::AnswerLost],
        &[Failure::HandlerFails, Failure::HandlerAway, Failure::PodStops],
        &[Failure::MessageLate, Failure::Stall, Failure::SecondOperator],
    ];
    let seeds = std::env::var("LANEKEEPER_WALKS").map_or(80, |walks| walks.parse().unwrap()) / 8;
    let alone = Failure::ALL.map(|failure| [failure]);
    let runs: Vec<&[Failure]> =
        TOGETHER.iter().copied().chain(alone.iter().map(<[Failure; 1]>::as_slice)).collect();
    for seed in 0..seeds {
        for failures in &runs {
            let lost_by_rule = [Failure::ConsumerDeleted, Failure::RecordLost];
            if retention == Retention::Interest && failures.iter().any(|one| lost_by_rule.contains(one))
                // Every partition has one pod here.
                || failures.contains(&Failure::NodeUnreachable)
            {
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
