//! Everything that can happen next.

use lanekeeper_core::plan::{Step, plan};

use super::{
    run::{Failure, Run},
    state::State,
};

/// Something that can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// An operator looks and plans, or carries out its next step.
    Operate(usize),
    SecondOperates,
    OperatorEnds(usize),
    StepIsLate(usize),
    LateStepArrives(usize),
    Publish,
    NextNumber,
    Deliver(u64),
    DeliverLate(u64),
    DeliverToNobody(u64),
    /// A pod reads its assignment and the key of its lane.
    Read(usize),
    ReadStale(usize),
    Complete(usize),
    Fails(usize),
    IsAway(usize),
    /// The oldest request under way to the bucket (`true`) or to a consumer is applied and answered.
    Reaches(usize, bool),
    IsLost(usize, bool),
    IsLate(usize, bool),
    AnswerIsLost(usize, bool),
    AnswerIsLate(usize),
    LateArrives(usize, usize),
    LateOfTheDeadArrives(usize),
    Crash(usize),
    Stop(usize),
    /// A process that ended is started anew.
    Start(usize),
    Freeze(usize),
    Thaw(usize),
    Disconnect(usize),
    Connect(usize),
    CutOff(usize),
    DeleteConsumer(u64),
    TakePin(u64),
    Vanish(u64),
    LoseRecord,
    LoseLaneKey(u64),
    /// Nothing else is left to do: time passes until it matters to somebody.
    Pass,
    /// The same while a handler runs.
    PassLong,
}

impl Action {
    /// The failure that it is; calm has none.
    pub(crate) fn failure(self) -> Option<Failure> {
        Some(match self {
            Self::SecondOperates => Failure::SecondOperator,
            Self::OperatorEnds(_) => Failure::OperatorCrash,
            Self::StepIsLate(_) => Failure::LateStep,
            Self::DeliverLate(_) => Failure::MessageLate,
            Self::DeliverToNobody(_) => Failure::DeliveredToNobody,
            Self::ReadStale(_) => Failure::StaleAssignment,
            Self::Fails(_) => Failure::HandlerFails,
            Self::IsAway(_) => Failure::HandlerAway,
            Self::IsLost(..) => Failure::RequestLost,
            Self::IsLate(..) => Failure::RequestLate,
            Self::AnswerIsLost(..) => Failure::AnswerLost,
            Self::AnswerIsLate(_) => Failure::AnswerLate,
            Self::Crash(_) => Failure::PodCrash,
            Self::Stop(_) => Failure::PodStops,
            Self::Freeze(_) => Failure::Stall,
            Self::Disconnect(_) => Failure::ConnectionLost,
            Self::CutOff(_) => Failure::NodeUnreachable,
            Self::DeleteConsumer(_) => Failure::ConsumerDeleted,
            Self::TakePin(_) => Failure::PinTaken,
            Self::Vanish(_) => Failure::MessageVanishes,
            Self::LoseRecord => Failure::RecordLost,
            Self::LoseLaneKey(_) => Failure::LaneKeyLost,
            Self::PassLong => Failure::LongHandling,
            _ => return None,
        })
    }

    /// Whether it is somebody's decision, which may come any time.
    pub(crate) fn begins_something(self) -> bool {
        matches!(self, Self::Publish | Self::NextNumber)
    }
}

impl State {
    /// What an operator would do now.
    pub(crate) fn plan(&self, run: &Run) -> Vec<Step> {
        plan(&self.world.wanted(self.partitions(run)), &self.world.observe()).steps
    }

    /// What happens by itself when nothing fails; time passes last.
    pub(crate) fn usual(&self, run: &Run) -> Vec<Action> {
        let mut actions = Vec::new();
        // These may come any time, so time need not wait for them.
        actions.extend((0..self.late_steps.len()).map(Action::LateStepArrives));
        actions.extend((0..self.late_of_the_dead.len()).map(Action::LateOfTheDeadArrives));
        for (index, pod) in self.pods.iter().enumerate() {
            actions.extend((0..pod.late.len()).map(|late| Action::LateArrives(index, late)));
            if pod.frozen.is_some() {
                actions.push(Action::Thaw(index));
                actions.extend(pod.running.filter(|running| !running.done).map(|_| Action::Complete(index)));
            } else if !pod.connected && !self.is_cut(index) && !pod.exited {
                actions.push(Action::Connect(index));
            }
        }
        let others = actions.len();
        for operator in 0..2 {
            if !self.operators[operator].is_empty() || (operator == 0 && !self.plan(run).is_empty()) {
                actions.push(Action::Operate(operator));
            }
        }
        let mut handling = false;
        for (index, pod) in self.pods.iter().enumerate() {
            if pod.exited && !self.is_cut(index) {
                actions.push(Action::Start(index));
            }
            // Also what a process sent before it stood still.
            for is_write in [true, false] {
                if pod.requests.iter().any(|request| request.is_write() == is_write) {
                    actions.push(Action::Reaches(index, is_write));
                }
            }
            if pod.frozen.is_some() || pod.exited {
                continue;
            }
            if self.is_reached(index) && self.view(index) != pod.read {
                actions.push(Action::Read(index));
            }
            if pod.running.is_some() {
                handling = true;
                actions.push(Action::Complete(index));
            }
        }
        for incarnation in self.world.consumers.keys() {
            if self.next_message(*incarnation).is_some() {
                actions.push(Action::Deliver(*incarnation));
            }
        }
        let busy = actions.len() > others;
        let only_handlers =
            handling && actions[others..].iter().all(|one| matches!(one, Action::Complete(_)));
        if self.world.messages.len() < run.messages.len() {
            actions.push(Action::Publish);
        }
        if self.wanted + 1 < run.partitions.len() {
            actions.push(Action::NextNumber);
        }
        if !busy {
            actions.push(Action::Pass);
        } else if only_handlers && self.may(run, Failure::LongHandling) {
            actions.push(Action::PassLong);
        }
        actions
    }

    /// Everything that can happen now.
    pub(crate) fn actions(&self, run: &Run) -> Vec<Action> {
        if self.violation.is_some() {
            return Vec::new();
        }
        let mut actions = self.usual(run);
        let failures: Vec<Failure> =
            run.failures.iter().map(|(one, _)| *one).filter(|one| self.may(run, *one)).collect();
        let mut add = |action: Action| {
            if action.failure().is_some_and(|failure| failures.contains(&failure)) {
                actions.push(action);
            }
        };
        for operator in 0..2 {
            if let Some(step) = self.operators[operator].last() {
                add(Action::OperatorEnds(operator));
                if matches!(step, Step::CreateConsumer(_) | Step::DeleteConsumer { .. }) {
                    add(Action::StepIsLate(operator));
                }
            }
        }
        if failures.contains(&Failure::SecondOperator)
            && self.operators[1].is_empty()
            && !self.plan(run).is_empty()
        {
            add(Action::SecondOperates);
        }
        for incarnation in self.world.consumers.keys() {
            add(Action::DeleteConsumer(*incarnation));
            if self.serving.get(incarnation).is_some_and(|serving| serving.pin.is_some()) {
                add(Action::TakePin(*incarnation));
            }
            if self.next_message(*incarnation).is_some() {
                add(Action::DeliverLate(*incarnation));
                add(Action::DeliverToNobody(*incarnation));
            }
        }
        for (sequence, message) in self.world.numbered() {
            if !message.gone {
                add(Action::Vanish(sequence));
            }
        }
        if self.world.record.is_some() {
            add(Action::LoseRecord);
        }
        for incarnation in self.world.lane_keys.keys() {
            add(Action::LoseLaneKey(*incarnation));
        }
        for index in 0..self.pods.len() {
            self.pod_fails(index, &mut add);
        }
        actions
    }

    fn pod_fails(&self, index: usize, add: &mut impl FnMut(Action)) {
        let pod = &self.pods[index];
        if pod.exited || self.is_cut(index) {
            return;
        }
        add(Action::Crash(index));
        add(Action::CutOff(index));
        if pod.frozen.is_some() {
            return;
        }
        add(Action::Freeze(index));
        if pod.running.is_some() {
            add(Action::Fails(index));
            add(Action::IsAway(index));
        }
        if !pod.stopping {
            add(Action::Stop(index));
        }
        if !pod.connected {
            return;
        }
        add(Action::Disconnect(index));
        let partition = self.world.workers[index].partition;
        if self.before.get(&partition).is_some_and(|before| pod.read.0.as_ref() != Some(before)) {
            add(Action::ReadStale(index));
        }
        for is_write in [true, false] {
            if pod.requests.iter().any(|request| request.is_write() == is_write) {
                add(Action::IsLost(index, is_write));
                add(Action::IsLate(index, is_write));
                add(Action::AnswerIsLost(index, is_write));
                if !is_write {
                    add(Action::AnswerIsLate(index));
                }
            }
        }
    }
}
