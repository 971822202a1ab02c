//! Everything that can happen next, and what comes of it.

use lanekeeper_core::{
    plan::{Step, Wanted, plan},
    record::{Floor, LaneState},
    share::shares,
};

use crate::{
    mutants,
    run::{Failure, Mutant, Run},
    world::{InHand, Message, Violation, World, covered},
};

/// One moment of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) world: World,
    /// Which of the run's numbers of partitions is wanted.
    pub(crate) wanted: usize,
    /// Steps that each operator still has to carry out, the next one last.
    pub(crate) operators: [Vec<Step>; 2],
    /// Requests that timed out and will be applied some time.
    pub(crate) late_steps: Vec<Step>,
    pub(crate) late_acks: Vec<(u64, u64)>,
    /// What is left of each failure of the run.
    pub(crate) budget: Vec<u8>,
    /// Floors as they were when lanes retired; for a mutant only.
    pub(crate) early_floors: Vec<(u64, u64)>,
    pub(crate) violation: Option<Violation>,
}

/// Something that can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// An operator looks and plans, or carries out its next step.
    Operate(usize),
    OperatorEnds(usize),
    StepIsLate(usize),
    LateStepArrives(usize),
    LateAckArrives(usize),
    Publish,
    NextNumber,
    /// A consumer gives what is next to a worker.
    Deliver(u64, usize),
    DeliverToNobody(u64),
    Complete(usize),
    Acknowledge(usize),
    AcknowledgeLate(usize),
    Join(usize),
    JoinStale(usize, u64),
    Leave(usize),
    Crash(usize),
    Stall(usize),
    /// Its deadline passes: nothing answers it any more.
    Deadline(usize),
    LostCompletes(usize),
    LostGivesUp(usize),
    DeleteConsumer(u64),
    Vanish(u64),
    CutOff(usize),
    LoseRecord,
    LoseLaneKey(u64),
    /// One `AckWait` has passed since the consumer was gone (0: since the record was lost).
    FenceElapses(u64),
}

impl Action {
    /// The failure that it is; calm has none.
    pub(crate) fn failure(self) -> Option<Failure> {
        Some(match self {
            Self::OperatorEnds(_) => Failure::OperatorCrash,
            Self::StepIsLate(_) => Failure::LateStep,
            Self::DeliverToNobody(_) => Failure::DeliveredToNobody,
            Self::AcknowledgeLate(_) => Failure::LateAck,
            Self::JoinStale(..) => Failure::StaleAssignment,
            Self::Crash(_) => Failure::WorkerCrash,
            Self::Stall(_) => Failure::WorkerStall,
            Self::DeleteConsumer(_) => Failure::ConsumerDeleted,
            Self::Vanish(_) => Failure::MessageVanishes,
            Self::CutOff(_) => Failure::NodeUnreachable,
            Self::LoseRecord => Failure::RecordLost,
            Self::LoseLaneKey(_) => Failure::LaneKeyLost,
            _ => return None,
        })
    }
}

impl State {
    /// The run's first number of partitions is in force, nothing was published yet.
    pub(crate) fn first(run: &Run) -> Self {
        let mut state = Self {
            world: World::new(run),
            wanted: 0,
            operators: [Vec::new(), Vec::new()],
            late_steps: Vec::new(),
            late_acks: Vec::new(),
            budget: run.failures.iter().map(|(_, times)| *times).collect(),
            early_floors: Vec::new(),
            violation: None,
        };
        for _ in 0..60 {
            state = state.after(run, Action::Operate(0));
        }
        assert!(state.violation.is_none(), "{:?}", state.violation);
        state
    }

    pub(crate) fn partitions(&self, run: &Run) -> u32 {
        run.partitions[self.wanted]
    }

    fn may(&self, run: &Run, failure: Failure) -> bool {
        run.failures.iter().zip(&self.budget).any(|((one, _), left)| *one == failure && *left > 0)
    }

    /// Whether the wanted lanes are open, everything is handled and nothing is left over.
    pub(crate) fn is_goal(&self, run: &Run) -> bool {
        let wanted = shares(self.partitions(run));
        let lanes = self.world.lanes();
        let named = |incarnation: u64| lanes.iter().any(|lane| lane.incarnation == incarnation);
        self.wanted + 1 == run.partitions.len()
            && self.world.messages.len() == run.messages.len()
            && lanes.len() == wanted.len()
            && lanes.iter().all(|lane| lane.state == LaneState::Open && wanted.contains(&lane.share))
            && self.world.consumers.keys().all(|one| named(*one))
            && self.world.messages.iter().all(Message::settled)
            && self.late_steps.is_empty()
    }

    /// Everything that can happen now.
    pub(crate) fn actions(&self, run: &Run) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.violation.is_some() {
            return actions;
        }
        self.around(run, &mut actions);
        for incarnation in self.world.consumers.keys() {
            self.consumer_actions(run, *incarnation, &mut actions);
        }
        for worker in 0..self.world.workers.len() {
            self.worker_actions(run, worker, &mut actions);
        }
        actions.retain(|action| action.failure().is_none_or(|failure| self.may(run, failure)));
        actions
    }

    fn around(&self, run: &Run, actions: &mut Vec<Action>) {
        for operator in 0..2 {
            let busy = !self.operators[operator].is_empty();
            if busy {
                actions.extend([Action::Operate(operator), Action::OperatorEnds(operator)]);
                let late = matches!(
                    self.operators[operator].last(),
                    Some(Step::CreateConsumer(_) | Step::DeleteConsumer { .. })
                );
                if late {
                    actions.push(Action::StepIsLate(operator));
                }
            } else if (operator == 0 || self.may(run, Failure::SecondOperator)) && !self.plan(run).is_empty()
            {
                actions.push(Action::Operate(operator));
            }
        }
        actions.extend((0..self.late_steps.len()).map(Action::LateStepArrives));
        actions.extend((0..self.late_acks.len()).map(Action::LateAckArrives));
        if self.world.messages.len() < run.messages.len() {
            actions.push(Action::Publish);
        }
        if self.wanted + 1 < run.partitions.len() {
            actions.push(Action::NextNumber);
        }
        for (sequence, message) in self.world.numbered() {
            if !message.gone {
                actions.push(Action::Vanish(sequence));
            }
        }
        if self.world.record.is_some() {
            actions.push(Action::LoseRecord);
        }
        actions.extend(self.world.lane_keys.keys().map(|incarnation| Action::LoseLaneKey(*incarnation)));
        let holds = |which: &dyn Fn(InHand) -> bool| {
            self.world
                .workers
                .iter()
                .filter_map(|worker| worker.in_hand)
                .any(|hand| !hand.lost && which(hand))
        };
        let elapses = |incarnation: u64| !self.world.fence_elapsed.contains(&incarnation);
        for lane in self.world.lanes().iter().filter(|lane| lane.fenced && elapses(lane.incarnation)) {
            let its = |hand: InHand| hand.incarnation == lane.incarnation;
            if !self.world.consumers.contains_key(&lane.incarnation) && !holds(&its) {
                actions.push(Action::FenceElapses(lane.incarnation));
            }
        }
        // Those whose consumer is there may renew their deadlines; each of them is fenced on its own when the record is
        // rebuilt.
        let all_but_served = |hand: InHand| !self.world.consumers.contains_key(&hand.incarnation);
        if self.world.record.is_none() && elapses(0) && !holds(&all_but_served) {
            actions.push(Action::FenceElapses(0));
        }
    }

    fn consumer_actions(&self, run: &Run, incarnation: u64, actions: &mut Vec<Action>) {
        actions.push(Action::DeleteConsumer(incarnation));
        let consumer = &self.world.consumers[&incarnation];
        if self.world.deliverable(incarnation).is_none() {
            return;
        }
        let pinned = consumer.pin.filter(|pod| {
            let worker = &self.world.workers[*pod];
            let alive = worker.in_hand.map_or(!worker.cut, |hand| !hand.lost);
            run.pinned && worker.joined == Some(incarnation) && alive
        });
        for (pod, worker) in self.world.workers.iter().enumerate() {
            let waits = worker.joined == Some(incarnation) && worker.in_hand.is_none() && !worker.cut;
            if waits && pinned.is_none_or(|pinned| pinned == pod) {
                actions.push(Action::Deliver(incarnation, pod));
            }
        }
        if consumer.pending.is_none() {
            actions.push(Action::DeliverToNobody(incarnation));
        }
    }

    fn worker_actions(&self, run: &Run, pod: usize, actions: &mut Vec<Action>) {
        let worker = &self.world.workers[pod];
        if !worker.cut {
            actions.extend([Action::Crash(pod), Action::CutOff(pod)]);
        }
        if let Some(hand) = worker.in_hand {
            if hand.lost {
                return actions.extend([Action::LostCompletes(pod), Action::LostGivesUp(pod)]);
            }
            if worker.cut || !self.world.consumers.contains_key(&hand.incarnation) {
                actions.push(Action::Deadline(pod));
            }
            if run.is(Mutant::LeavesBeforeSettling)
                && worker.joined.is_some()
                && self.must_leave(pod, hand.incarnation)
            {
                actions.push(Action::Leave(pod));
            }
            if !hand.done {
                actions.push(Action::Complete(pod));
            } else if !worker.cut {
                actions.extend([Action::Acknowledge(pod), Action::AcknowledgeLate(pod)]);
            }
            return actions.push(Action::Stall(pod));
        }
        if worker.cut {
            return;
        }
        match worker.joined {
            Some(incarnation) if self.must_leave(pod, incarnation) => actions.push(Action::Leave(pod)),
            Some(_) => {}
            None => {
                let assigned = self.world.assignments.get(&worker.partition);
                if let Some(assigned) = assigned.filter(|one| !one.retiring || run.is(Mutant::JoinsRetiring))
                    && self.joinable(run, assigned.incarnation)
                {
                    actions.push(Action::Join(pod));
                }
                for lane in self.world.lanes() {
                    let older = lane.share.partition() == worker.partition
                        && assigned.is_none_or(|assigned| {
                            lane.incarnation < assigned.incarnation || assigned.retiring
                        });
                    if older && self.joinable(run, lane.incarnation) {
                        actions.push(Action::JoinStale(pod, lane.incarnation));
                    }
                }
            }
        }
    }

    fn joinable(&self, run: &Run, incarnation: u64) -> bool {
        let key = self.world.lane_keys.get(&incarnation);
        key.is_some_and(|key| !key.retiring || run.is(Mutant::JoinsRetiring))
            && self.world.consumers.contains_key(&incarnation)
    }

    fn must_leave(&self, pod: usize, incarnation: u64) -> bool {
        let assigned = self.world.assignments.get(&self.world.workers[pod].partition);
        assigned.is_some_and(|one| one.incarnation != incarnation || one.retiring)
            || self.world.lane_keys.get(&incarnation).is_none_or(|key| key.retiring)
            || !self.world.consumers.contains_key(&incarnation)
    }

    /// What an operator would do now.
    fn plan(&self, run: &Run) -> Vec<Step> {
        let wanted = Wanted { lanes_at_once: run.lanes_at_once, ..self.world.wanted(self.partitions(run)) };
        let observed = self.world.observe();
        match run.mutant {
            None => plan(&wanted, &observed).steps,
            Some(mutant) => mutants::plan(mutant, &wanted, observed, &self.early_floors),
        }
    }

    /// The state after something happened.
    pub(crate) fn after(&self, run: &Run, action: Action) -> Self {
        let mut next = self.clone();
        if let Some(failure) = action.failure()
            && let Some(index) = run.failures.iter().position(|(one, _)| *one == failure)
        {
            next.budget[index] -= 1;
        }
        next.violation = next.happen(run, action).err();
        next
    }

    fn happen(&mut self, run: &Run, action: Action) -> Result<(), Violation> {
        match action {
            Action::Operate(operator) => self.operate(run, operator)?,
            Action::OperatorEnds(operator) => self.operators[operator].clear(),
            Action::StepIsLate(operator) => {
                let step = self.operators[operator].pop();
                self.late_steps.extend(step);
                self.operators[operator].clear();
            }
            Action::LateStepArrives(index) => {
                let step = self.late_steps.remove(index);
                self.world.apply(&step)?;
            }
            Action::LateAckArrives(index) => {
                let (incarnation, sequence) = self.late_acks.remove(index);
                self.world.acknowledge(incarnation, sequence)?;
            }
            Action::Publish => {
                let hash = run.messages[self.world.messages.len()];
                self.world.messages.push(Message { hash, completed: false, vanished: false, gone: false });
                self.world.forget_without_interest()?;
            }
            Action::NextNumber => self.wanted += 1,
            Action::Deliver(incarnation, pod) => self.deliver(run, incarnation, pod)?,
            Action::DeliverToNobody(incarnation) => {
                let sequence = self.world.deliverable(incarnation);
                if let Some(consumer) = self.world.consumers.get_mut(&incarnation) {
                    consumer.pending = sequence;
                }
            }
            Action::Acknowledge(pod) => {
                if let Some(hand) = self.world.workers[pod].in_hand.take() {
                    self.world.acknowledge(hand.incarnation, hand.sequence)?;
                }
            }
            Action::AcknowledgeLate(pod) => {
                let hand = self.world.workers[pod].in_hand;
                self.late_acks.extend(hand.map(|hand| (hand.incarnation, hand.sequence)));
            }
            Action::DeleteConsumer(incarnation) => {
                self.world.consumers.remove(&incarnation);
            }
            Action::Vanish(sequence) => self.world.vanish(sequence),
            Action::LoseRecord => {
                self.world.record = None;
                self.world.fence_elapsed.remove(&0);
            }
            Action::LoseLaneKey(incarnation) => {
                self.world.lane_keys.remove(&incarnation);
            }
            Action::FenceElapses(incarnation) => {
                self.world.fence_elapsed.insert(incarnation);
            }
            _ => self.worker_does(run, action),
        }
        Ok(())
    }

    fn operate(&mut self, run: &Run, operator: usize) -> Result<(), Violation> {
        if self.operators[operator].is_empty() {
            if operator == 1
                && let Some(index) = run.failures.iter().position(|(one, _)| *one == Failure::SecondOperator)
            {
                self.budget[index] -= 1;
            }
            let mut steps = self.plan(run);
            steps.reverse();
            self.operators[operator] = steps;
            return Ok(());
        }
        let Some(step) = self.operators[operator].pop() else { return Ok(()) };
        if run.is(Mutant::FloorsReadEarly)
            && let Step::PutRecord { record, .. } = &step
        {
            for lane in record.lanes.iter().filter(|lane| lane.state == LaneState::Retiring) {
                let known = self.early_floors.iter().any(|(incarnation, _)| *incarnation == lane.incarnation);
                if let Some(consumer) = self.world.consumers.get(&lane.incarnation).filter(|_| !known) {
                    self.early_floors.push((lane.incarnation, consumer.floor));
                }
            }
        }
        if !self.world.apply(&step)? {
            self.operators[operator].clear();
        }
        Ok(())
    }

    fn worker_does(&mut self, run: &Run, action: Action) {
        match action {
            Action::Complete(pod) => {
                if let Some(hand) = &mut self.world.workers[pod].in_hand {
                    hand.done = true;
                    let sequence = hand.sequence;
                    self.world.message(sequence).completed = true;
                }
            }
            Action::Join(pod) => {
                let partition = self.world.workers[pod].partition;
                if let Some(assigned) = self.world.assignments.get(&partition).cloned() {
                    self.join(run, pod, assigned.incarnation, assigned.floors.clone());
                }
            }
            Action::JoinStale(pod, incarnation) => {
                let lane = self.world.lanes().iter().find(|lane| lane.incarnation == incarnation);
                if let Some(floors) = lane.map(|lane| lane.floors.clone()) {
                    self.join(run, pod, incarnation, floors);
                }
            }
            Action::Leave(pod) => {
                let holder = self.world.holder(pod);
                if let Some(incarnation) = self.world.workers[pod].joined.take()
                    && let Some(key) = self.world.lane_keys.get_mut(&incarnation)
                {
                    key.holders.retain(|one| *one != holder);
                }
                self.world.workers[pod].floors.clear();
            }
            Action::Crash(pod) => {
                let holder = self.world.holder(pod);
                self.world.terminated.insert(holder);
                let worker = &mut self.world.workers[pod];
                worker.instance += 1;
                worker.joined = None;
                worker.floors.clear();
                worker.in_hand = None;
            }
            Action::Stall(pod) | Action::Deadline(pod) => {
                if let Some(hand) = &mut self.world.workers[pod].in_hand {
                    hand.lost = true;
                }
            }
            Action::LostCompletes(pod) => {
                if let Some(hand) = self.world.workers[pod].in_hand.take() {
                    self.world.message(hand.sequence).completed = true;
                }
            }
            Action::LostGivesUp(pod) => self.world.workers[pod].in_hand = None,
            Action::CutOff(pod) => self.world.workers[pod].cut = true,
            _ => {}
        }
    }

    fn join(&mut self, run: &Run, pod: usize, incarnation: u64, floors: Vec<Floor>) {
        let holder = self.world.holder(pod);
        if let Some(key) = self.world.lane_keys.get_mut(&incarnation)
            && !run.is(Mutant::PullsWithoutJoining)
        {
            key.holders.push(holder);
        }
        let worker = &mut self.world.workers[pod];
        worker.joined = Some(incarnation);
        worker.floors = floors;
    }

    fn deliver(&mut self, run: &Run, incarnation: u64, pod: usize) -> Result<(), Violation> {
        let Some(sequence) = self.world.deliverable(incarnation) else { return Ok(()) };
        if let Some(consumer) = self.world.consumers.get_mut(&incarnation) {
            consumer.pending = Some(sequence);
            consumer.pin = run.pinned.then_some(pod);
        }
        let message = self.world.message(sequence).clone();
        let trusted = if run.is(Mutant::TrustsFloorsTooMuch) { sequence - 1 } else { sequence };
        let skipped =
            covered(&self.world.workers[pod].floors, message.hash, trusted) && !run.is(Mutant::IgnoresFloors);
        if skipped && !message.settled() {
            return Err(format!("message {sequence} skipped by a floor, never completed"));
        }
        if !skipped {
            self.check_start(run, pod, sequence, &message)?;
        }
        self.world.workers[pod].in_hand = Some(InHand { incarnation, sequence, done: skipped, lost: false });
        Ok(())
    }

    fn check_start(&self, run: &Run, pod: usize, sequence: u64, message: &Message) -> Result<(), Violation> {
        let same_key = |other: &Message| other.hash == message.hash;
        let owed =
            self.world.numbered().find(|(one, other)| *one < sequence && same_key(other) && !other.settled());
        if let Some((earlier, _)) = owed {
            return Err(format!("handler of {sequence} starts before {earlier} of its key has completed"));
        }
        if run.forbids_repeats() && message.completed {
            return Err(format!("message {sequence} is handled again though nothing failed"));
        }
        for (other, worker) in self.world.workers.iter().enumerate() {
            let running = worker.in_hand.filter(|hand| other != pod && !hand.lost && !hand.done);
            if let Some(hand) = running
                && same_key(&self.world.messages[usize::try_from(hand.sequence).unwrap() - 1])
            {
                return Err(format!(
                    "{sequence} starts while {} of its key runs at worker {other}",
                    hand.sequence
                ));
            }
        }
        Ok(())
    }
}
