//! What happens once failures stop: whether everything comes to its end.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
};

use super::{run::Run, state::State};

/// Longer than any run needs.
const STEPS: usize = 600;

/// States from which the end is known to be reached. What happens next depends on the state alone, so a way that comes to
/// one of them is done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends(Arc<Mutex<HashSet<u64>>>);

impl Ends {
    /// Whether the goal is reached from here without failures. Nodes that do not answer stay like that; their pods are not
    /// needed when others have their partition.
    pub(crate) fn reached(&self, run: &Run, state: &State) -> Result<(), String> {
        let mut now = state.clone();
        let mut way = Vec::new();
        let mut last = String::new();
        for _ in 0..STEPS {
            let known = fingerprint(&now);
            if now.is_goal(run) || self.0.lock().unwrap().contains(&known) {
                self.0.lock().unwrap().extend(way);
                return Ok(());
            }
            way.push(known);
            let mut usual = now.usual(run).into_iter().filter(|action| action.failure().is_none());
            let next = usual.find_map(|action| now.after(run, action).map(|next| (action, next)));
            let Some((action, next)) = next else { break };
            last = format!("{action:?}");
            now = next;
            if let Some(violation) = now.violation {
                return Err(violation);
            }
        }
        let lanes: Vec<String> = now.world.lanes().iter().map(|lane| format!("{lane:?}")).collect();
        let pods: Vec<String> = now
            .pods
            .iter()
            .map(|pod| format!("{:?} {:?} {:?}", pod.lane.state(), pod.lane.incarnation(), pod.running))
            .collect();
        let keys = &now.world.lane_keys;
        Err(format!(
            "never comes to an end, at last {last}:\n{}\n{}\nkeys {keys:?}",
            lanes.join("\n"),
            pods.join("\n")
        ))
    }
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
