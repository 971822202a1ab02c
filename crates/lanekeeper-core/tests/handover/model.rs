//! Every state that a small run can reach, by a model checker (stateright).

use std::time::{Duration, Instant};

use lanekeeper_core::stream::Retention;
use stateright::{Checker, Model, Property};

use crate::{
    actions::{Action, State},
    calm::comes_to_an_end,
    run::{Failure, Run},
};

const RETENTIONS: [Retention; 3] = [Retention::Limits, Retention::Interest, Retention::WorkQueue];

impl Model for Run {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.actions(self));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(state.after(self, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("keys stay in order", |_, state: &State| state.violation.is_none()),
            Property::always("it comes to an end", |run: &Run, state: &State| {
                state.violation.is_some() || comes_to_an_end(run, state).is_ok()
            }),
        ]
    }
}

/// What became of a run.
pub(crate) struct Found {
    pub(crate) states: usize,
    /// The shortest story that ends in a violation.
    pub(crate) violation: Option<Vec<String>>,
    /// Whether every state was looked at.
    pub(crate) complete: bool,
}

/// How long one run may take: `LANEKEEPER_MODEL_SECONDS`.
pub(crate) fn limit() -> Duration {
    let seconds = std::env::var("LANEKEEPER_MODEL_SECONDS").map_or(120, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

/// Looks at every state of a run, as far as its time goes.
pub(crate) fn check(run: &Run) -> Found {
    let (limit, began) = (limit(), Instant::now());
    let checker = run.clone().checker().threads(2).timeout(limit).spawn_bfs().join();
    let in_time = began.elapsed() < limit;
    let violation = checker.discoveries().into_values().next().map(|path| {
        let last = path.last_state().clone();
        let mut story: Vec<String> = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
        story.push(last.violation.clone().or_else(|| comes_to_an_end(run, &last).err()).unwrap_or_default());
        story
    });
    Found { states: checker.unique_state_count(), violation, complete: in_time }
}

fn all_hold(runs: Vec<Run>) {
    let mut total = 0;
    for run in runs {
        let found = check(&run);
        println!(
            "{:<24} {:<10} N {:?} {:?}: {} states{}",
            run.name,
            format!("{:?}", run.retention),
            run.partitions,
            run.failures,
            found.states,
            if found.complete { "" } else { " (not all: time is up)" }
        );
        total += found.states;
        if let Some(story) = found.violation {
            panic!("{} {:?} {:?}:\n{}", run.name, run.retention, run.failures, story.join("\n"));
        }
    }
    println!("{total} states in all");
}

/// With interest retention, messages of a consumer that somebody deleted are gone by the server's own rules.
fn by_rule(retention: Retention, failure: Failure) -> bool {
    retention == Retention::Interest && matches!(failure, Failure::ConsumerDeleted | Failure::RecordLost)
}

const EACH: [Failure; 13] = [
    Failure::WorkerCrash,
    Failure::WorkerStall,
    Failure::LateAck,
    Failure::LateStep,
    Failure::OperatorCrash,
    Failure::SecondOperator,
    Failure::DeliveredToNobody,
    Failure::ConsumerDeleted,
    Failure::MessageVanishes,
    Failure::NodeUnreachable,
    Failure::RecordLost,
    Failure::LaneKeyLost,
    Failure::StaleAssignment,
];

/// `make test` looks at what is quick; `make model` (`LANEKEEPER_MODEL=full`) at all of it.
pub(crate) fn full() -> bool {
    std::env::var("LANEKEEPER_MODEL").is_ok_and(|value| value == "full")
}

fn retentions() -> Vec<Retention> {
    if full() { RETENTIONS.to_vec() } else { vec![Retention::Limits] }
}

#[test]
fn order_holds_when_nothing_fails() {
    let run = |retention, partitions: &[u32]| Run::new("nothing fails", retention, partitions);
    let each = |retention| {
        [
            run(retention, &[1, 2]),
            run(retention, &[2, 1]),
            run(retention, &[1, 2, 1]).messages(&[0, 1]),
            run(retention, &[2, 4]).messages(&[0, 1]).one_by_one(),
            run(retention, &[2, 4, 3]).messages(&[0]).one_by_one(),
        ]
    };
    all_hold(RETENTIONS.into_iter().flat_map(each).collect());
}

#[test]
fn order_holds_under_each_single_failure() {
    let mut runs = Vec::new();
    for retention in retentions() {
        for failure in EACH.into_iter().filter(|failure| !by_rule(retention, *failure)) {
            // A pod of each partition must be left when a node does not answer.
            let pods: &[u32] = if failure == Failure::NodeUnreachable { &[0, 0, 1, 1] } else { &[0, 0, 1] };
            let times = if failure == Failure::SecondOperator { 2 } else { 1 };
            let run = Run::new("one failure", retention, &[1, 2]).messages(&[1, 1]);
            runs.push(run.pods(pods).failing(failure, times));
        }
    }
    all_hold(runs);
}

/// Open in the design: two failures together for which no rule is known yet, or that are bounded by deadline and fence.
fn open(one: Failure, other: Failure) -> bool {
    use Failure::{ConsumerDeleted, LateStep, MessageVanishes, NodeUnreachable, RecordLost, SecondOperator};
    [
        (LateStep, ConsumerDeleted),
        (LateStep, RecordLost),
        // A step that the other operator planned before the loss is a late one.
        (SecondOperator, RecordLost),
        (ConsumerDeleted, RecordLost),
        (NodeUnreachable, RecordLost),
        (MessageVanishes, NodeUnreachable),
    ]
    .iter()
    .any(|pair| *pair == (one, other) || *pair == (other, one))
}

#[test]
fn order_holds_under_pairs_of_failures() {
    let pairs =
        EACH.iter().enumerate().flat_map(|(index, one)| EACH[index + 1..].iter().map(|other| (*one, *other)));
    let few = [(Failure::WorkerStall, Failure::LateAck), (Failure::OperatorCrash, Failure::LateStep)];
    let mut runs = Vec::new();
    for (one, other) in pairs.filter(|(one, other)| !open(*one, *other)) {
        if !full() && !few.contains(&(one, other)) && !few.contains(&(other, one)) {
            continue;
        }
        let unreachable = [one, other].contains(&Failure::NodeUnreachable);
        let pods: &[u32] = if unreachable { &[0, 0, 1, 1] } else { &[0, 1] };
        let run = Run::new("two failures", Retention::Limits, &[1, 2]).messages(&[1, 1]).pods(pods);
        runs.push(run.failing(one, 1).failing(other, 1));
    }
    all_hold(runs);
}
