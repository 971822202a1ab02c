//! What happens once failures stop: whether everything comes to its end.

use crate::{
    actions::{Action, State},
    run::Run,
};

/// Longer than any run needs.
const ROUNDS: usize = 400;

/// Whether the goal is reached from here without failures, each of those who can do something having its turn. Nodes that
/// do not answer stay like that; their pods are not needed when others have their partition.
pub(crate) fn comes_to_an_end(run: &Run, state: &State) -> Result<(), String> {
    let mut now = state.clone();
    for turn in 0..ROUNDS {
        if now.is_goal(run) {
            return Ok(());
        }
        let actions: Vec<Action> = now
            .actions(run)
            .into_iter()
            .filter(|action| action.failure().is_none() && needed(&now, *action))
            .collect();
        // A different one each time, so that nobody is starved.
        let Some(action) = actions.get(turn % actions.len().max(1)) else { break };
        now = now.after(run, *action);
        if let Some(violation) = now.violation {
            return Err(violation);
        }
    }
    if now.is_goal(run) {
        return Ok(());
    }
    let lanes: Vec<String> = now.world.lanes().iter().map(|lane| format!("{lane:?}")).collect();
    Err(format!(
        "never comes to an end:\n{}\nworkers {:?}\nkeys {:?}",
        lanes.join("\n"),
        now.world.workers,
        now.world.lane_keys
    ))
}

/// A second operator need not begin anything.
fn needed(state: &State, action: Action) -> bool {
    !matches!(action, Action::Operate(1) if state.operators[1].is_empty())
}
