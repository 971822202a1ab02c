//! Every state that a small run with production lanes can reach, by a model checker (stateright).

use std::time::{Duration, Instant};

use lanekeeper_core::stream::Retention;
use stateright::{Checker, Model, Property};

use super::{
    actions::Action,
    calm::Ends,
    run::{Failure, Run},
    state::State,
};
use crate::model::{Found, full, limit};

/// There are hundreds of pairs: what is reached in this time (breadth first) has to do.
const PAIR: Duration = Duration::from_secs(1);

/// A run, and what is known of its ends.
#[derive(Clone)]
struct Checked {
    run: Run,
    ends: Ends,
}

impl Model for Checked {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.run)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.actions(&self.run));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        state.after(&self.run, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("keys stay in order", |_, state: &State| state.violation.is_none()),
            Property::always("it comes to an end", |model: &Self, state: &State| {
                state.violation.is_some() || model.ends.reached(&model.run, state).is_ok()
            }),
        ]
    }
}

/// Looks at every state of a run, for as long as `limit` at most.
fn check_for(run: &Run, limit: Duration) -> Found {
    let model = Checked { run: run.clone(), ends: Ends::default() };
    let began = Instant::now();
    let checker = model.checker().threads(2).timeout(limit).spawn_bfs().join();
    let in_time = began.elapsed() < limit;
    let violation = checker.discoveries().into_values().next().map(|path| {
        let last = path.last_state().clone();
        let mut story: Vec<String> = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
        story.push(
            last.violation.clone().or_else(|| Ends::default().reached(run, &last).err()).unwrap_or_default(),
        );
        story
    });
    Found { states: checker.unique_state_count(), violation, complete: in_time }
}

/// Looks at every state of a run.
pub(crate) fn check(run: &Run) -> Found {
    check_for(run, limit())
}

fn all_hold(runs: Vec<Run>) {
    all_hold_for(runs, limit());
}

fn all_hold_for(runs: Vec<Run>, limit: Duration) {
    let mut total = 0;
    let mut broken = Vec::new();
    for run in runs {
        let found = check_for(&run, limit);
        println!(
            "lanes {:<10} N {:?} pods {:?} {:?}: {} states{}",
            format!("{:?}", run.retention),
            run.partitions,
            run.pods,
            run.failures,
            found.states,
            if found.complete { "" } else { " (not all: time is up)" }
        );
        total += found.states;
        if let Some(story) = found.violation {
            broken.push(format!("{run:?}:\n{}", story.join("\n")));
        }
    }
    println!("lanes: {total} states in all");
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}

fn retentions() -> Vec<Retention> {
    let all = vec![Retention::Limits, Retention::Interest, Retention::WorkQueue];
    if full() { all } else { all[..1].to_vec() }
}

#[test]
fn order_holds_when_nothing_fails() {
    let mut runs = Vec::new();
    for retention in retentions() {
        let run = |partitions: &[u32], messages: &[u32], pods: &[u32]| {
            Run::new(partitions, messages, pods).retention(retention)
        };
        runs.push(run(&[1, 2], &[1, 1], &[0, 1]));
        runs.push(run(&[2, 1], &[0, 1], &[0, 1]));
        runs.push(run(&[1, 2], &[1, 1], &[0, 1]).under_way());
        runs.push(run(&[1, 2], &[1, 1], &[0, 0, 1]));
    }
    all_hold(runs);
}

#[test]
fn order_holds_under_each_single_failure() {
    let mut runs = Vec::new();
    for retention in retentions() {
        for failure in Failure::ALL {
            let by_rule = [Failure::ConsumerDeleted, Failure::RecordLost].contains(&failure);
            if retention == Retention::Interest && by_rule {
                continue;
            }
            let pods: &[u32] = if failure == Failure::NodeUnreachable { &[0, 0, 1, 1] } else { &[0, 1] };
            runs.push(Run::new(&[1, 2], &[1, 1], pods).retention(retention).failing(failure, 1));
        }
    }
    all_hold(runs);
}

/// Open with two pods of one lane: the pin is lost in silence, and in the same handling the server takes the message in
/// hand for settled, or for given back. `docs/guarantees.md` says so.
fn open_for_two_pods(failures: &[Failure]) -> bool {
    OPEN_FOR_TWO_PODS.iter().any(|open| open.iter().all(|failure| failures.contains(failure)))
}

const OPEN_FOR_TWO_PODS: [&[Failure]; 1] = [&[Failure::PinTaken, Failure::MessageVanishes]];

fn two_pods(failures: &[Failure]) -> Run {
    failures.iter().fold(Run::new(&[1], &[1, 1], &[0, 0]), |run, failure| run.failing(*failure, 1))
}

#[test]
fn order_holds_with_two_pods_of_a_lane() {
    let alone = Failure::ALL.map(|failure| vec![failure]).into_iter();
    let together = pairs().into_iter().filter(|_| full()).map(|(one, other)| vec![one, other]);
    let failures = alone.chain(together).filter(|failures| !open_for_two_pods(failures));
    all_hold_for(failures.map(|failures| two_pods(&failures)).collect(), PAIR);
}

#[test]
fn what_is_open_for_two_pods_is_open() {
    for failures in OPEN_FOR_TWO_PODS {
        let found = check(&two_pods(failures));
        println!("two pods, {failures:?}: {:?}", found.violation.as_ref().map(|story| story.last()));
        assert!(found.violation.is_some(), "{failures:?} is no longer open: say so in docs/limits.md");
    }
}

/// Two failures together for which no rule is known yet, as with abstract workers.
fn open(one: Failure, other: Failure) -> bool {
    use Failure::{ConsumerDeleted, LateStep, MessageVanishes, NodeUnreachable, RecordLost, SecondOperator};
    [
        (LateStep, ConsumerDeleted),
        (LateStep, RecordLost),
        (SecondOperator, RecordLost),
        (ConsumerDeleted, RecordLost),
        (NodeUnreachable, RecordLost),
        (MessageVanishes, NodeUnreachable),
    ]
    .iter()
    .any(|pair| *pair == (one, other) || *pair == (other, one))
}

fn pairs() -> Vec<(Failure, Failure)> {
    let all = Failure::ALL.into_iter().enumerate();
    let pairs = all.flat_map(|(index, one)| Failure::ALL[index + 1..].iter().map(move |other| (one, *other)));
    pairs.filter(|(one, other)| !open(*one, *other)).collect()
}

#[test]
fn order_holds_under_pairs_of_failures() {
    let mut runs = Vec::new();
    for (one, other) in pairs().into_iter().filter(|_| full()) {
        let unreachable = [one, other].contains(&Failure::NodeUnreachable);
        let pods: &[u32] = if unreachable { &[0, 0, 1, 1] } else { &[0, 1] };
        runs.push(Run::new(&[1, 2], &[1], pods).failing(one, 1).failing(other, 1));
    }
    all_hold_for(runs, PAIR);
}
