//! One moment: the world, the consumers' queues, the pods, and what is on its way.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lanekeeper_core::{
    lane::{Event, Number, State as Doing},
    plan::Step,
    record::{Assignment, LaneState},
    share::shares,
};

use super::{
    pod::{Late, Pod, View},
    run::{Failure, Run},
    server::Serving,
};
use crate::world::{Message, Violation, World};

/// What a lane's clock says at rest: long enough after its start for everything that lies behind.
pub(crate) const NOW: Duration = Duration::from_secs(1000);
/// The consumers' deadline.
pub(crate) const WAIT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) world: World,
    pub(crate) serving: BTreeMap<u64, Serving>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) wanted: usize,
    /// Steps that each operator still has to carry out, the next one last.
    pub(crate) operators: [Vec<Step>; 2],
    pub(crate) late_steps: Vec<Step>,
    /// Of processes that ended: what they asked is applied all the same.
    pub(crate) late_of_the_dead: Vec<Late>,
    /// The assignment of each partition before the present one.
    pub(crate) before: BTreeMap<u32, Arc<Assignment>>,
    /// Since when the consumers of fenced lanes are gone; 0: the record.
    pub(crate) gone: BTreeMap<u64, Duration>,
    pub(crate) budget: Vec<u8>,
    /// [`NOW`], but while time passes.
    pub(crate) now: Duration,
    pub(crate) violation: Option<Violation>,
    /// A lane did something that an idle one does not, since this was last cleared.
    pub(crate) notable: bool,
}

impl State {
    /// The run's first number of partitions is in force, every pod is in its lane, nothing was published yet.
    pub(crate) fn first(run: &Run) -> Self {
        let mut state = Self {
            world: World::new(&run.world()),
            serving: BTreeMap::new(),
            pods: run.pods.iter().map(|_| Pod::new(run.options())).collect(),
            wanted: 0,
            operators: [Vec::new(), Vec::new()],
            late_steps: Vec::new(),
            late_of_the_dead: Vec::new(),
            before: BTreeMap::new(),
            gone: BTreeMap::new(),
            budget: run.failures.iter().map(|(_, times)| *times).collect(),
            now: NOW,
            violation: None,
            notable: false,
        };
        for pod in 0..state.pods.len() {
            state.connect(run, pod);
        }
        // What comes by itself, as long as anything does.
        while let Some(action) = state.usual(run).into_iter().find(|action| !action.begins_something()) {
            let Some(next) = state.after(run, action) else { break };
            state = next;
        }
        assert!(state.violation.is_none(), "{:?}", state.violation);
        state
    }

    pub(crate) fn partitions(&self, run: &Run) -> u32 {
        run.partitions[self.wanted]
    }

    pub(crate) fn may(&self, run: &Run, failure: Failure) -> bool {
        run.failures.iter().zip(&self.budget).any(|((one, _), left)| *one == failure && *left > 0)
    }

    pub(crate) fn spend(&mut self, run: &Run, failure: Failure) {
        if let Some(index) = run.failures.iter().position(|(one, _)| *one == failure) {
            self.budget[index] -= 1;
        }
    }

    pub(crate) fn is_cut(&self, pod: usize) -> bool {
        self.world.workers[pod].cut
    }

    /// Whether the servers and the pod hear each other.
    pub(crate) fn is_reached(&self, pod: usize) -> bool {
        !self.is_cut(pod) && self.pods[pod].connected
    }

    /// What the pod would read now.
    pub(crate) fn view(&self, pod: usize) -> View {
        let Some(assignment) = self.world.assignments.get(&self.world.workers[pod].partition) else {
            return (None, None);
        };
        let key = self.world.lane_keys.get(&assignment.incarnation);
        (Some(Arc::clone(assignment)), key.map(|key| (key.retiring, key.excused)))
    }

    /// Whether the wanted lanes are open, everything is handled and nothing is left over.
    pub(crate) fn is_goal(&self, run: &Run) -> bool {
        let wanted = shares(self.partitions(run));
        let lanes = self.world.lanes();
        let named = |incarnation: u64| lanes.iter().any(|lane| lane.incarnation == incarnation);
        // What a lane says of a message that another pod has settled meanwhile, it says until it has another.
        let settled = |pod: &Pod| {
            let stands = pod
                .lane
                .head()
                .is_some_and(|head| !self.world.messages[usize::try_from(head).unwrap() - 1].settled());
            let moves = matches!(pod.lane.state(), Doing::Joining | Doing::Leaving | Doing::Settling);
            pod.running.is_none() && !stands && !moves
        };
        self.wanted + 1 == run.partitions.len()
            && self.world.messages.len() == run.messages.len()
            && lanes.len() == wanted.len()
            && lanes.iter().all(|lane| lane.state == LaneState::Open && wanted.contains(&lane.share))
            && self.world.consumers.keys().all(|one| named(*one))
            && self.world.messages.iter().all(Message::settled)
            && self.late_steps.is_empty()
            && (0..self.pods.len()).all(|pod| self.is_cut(pod) || settled(&self.pods[pod]))
    }

    /// Times relative to now, numbers counted anew, in order: states that differ in nothing else are one.
    pub(crate) fn count_anew(&mut self) {
        let passed = self.now.saturating_sub(NOW);
        let since = |time: &mut Duration| {
            *time = whole(*time).saturating_sub(whole(passed)).max(NOW.saturating_sub(2 * WAIT));
        };
        let due = |time: &mut Duration| *time = whole(*time).saturating_sub(whole(passed)).max(NOW);
        for index in 0..self.pods.len() {
            let (mut tokens, mut pulls) = (Vec::new(), Vec::new());
            self.numbers(index, &mut |number| match number {
                Number::Token(token) => tokens.push(*token),
                Number::Pull(pull) => pulls.push(*pull),
                Number::Since(time) => since(time),
                Number::Due(time) => due(time),
                Number::Failures(failures) => *failures = (*failures).min(10),
            });
            for numbers in [&mut tokens, &mut pulls] {
                numbers.sort_unstable();
                numbers.dedup();
            }
            let rank = |numbers: &[u64], number: &mut u64| {
                *number = numbers.binary_search(number).map_or(0, |rank| rank as u64 + 1);
            };
            self.numbers(index, &mut |number| match number {
                Number::Token(token) => rank(&tokens, token),
                Number::Pull(pull) => rank(&pulls, pull),
                Number::Since(_) | Number::Due(_) | Number::Failures(_) => {}
            });
        }
        for serving in self.serving.values_mut() {
            due(&mut serving.again_at);
            for waiting in &mut serving.waiting {
                due(&mut waiting.until);
            }
            if let Some((_, until)) = &mut serving.pin {
                due(until);
            }
        }
        self.gone.values_mut().for_each(since);
        self.now = NOW;
        self.notable = false;
    }

    fn numbers(&mut self, pod: usize, visit: &mut dyn FnMut(Number<'_>)) {
        self.pods[pod].numbers(visit);
        let waiting = self.serving.values_mut().flat_map(|serving| &mut serving.waiting);
        for waiting in waiting.filter(|waiting| waiting.pod == pod) {
            visit(Number::Pull(&mut waiting.pull.number));
        }
    }

    /// Tells a pod something, now or when its process goes on.
    pub(crate) fn tell(&mut self, run: &Run, pod: usize, event: Event<'static>) -> Result<(), Violation> {
        if self.pods[pod].exited || self.is_cut(pod) && !matches!(event, Event::Tick | Event::Handled(_)) {
            return Ok(());
        }
        if self.pods[pod].frozen.is_some() {
            self.pods[pod].inbox.push(event);
            return Ok(());
        }
        self.drive(run, pod, event)
    }
}

/// What is shorter than a second takes no time: so the moments at which lanes do something do not multiply.
fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}
