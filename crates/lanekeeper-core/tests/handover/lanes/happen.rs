//! What comes of what happens.

use std::sync::Arc;

use lanekeeper_core::{
    lane::{Event, Outcome},
    plan::Step,
    record::{Assignment, LaneState},
};

use super::{
    actions::Action,
    drive::unanswered,
    pod::{Late, Request},
    run::Run,
    state::State,
};
use crate::world::{Message, Violation};

impl State {
    /// The state after something happened; none if nothing would come of it.
    pub(crate) fn after(&self, run: &Run, action: Action) -> Option<Self> {
        let mut next = self.clone();
        if let Some(failure) = action.failure() {
            next.spend(run, failure);
        }
        if let Action::Pass | Action::PassLong = action {
            match next.pass(run) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(violation) => next.violation = Some(violation),
            }
        } else if let Err(violation) = next.happen(run, action) {
            next.violation = Some(violation);
        }
        if next.violation.is_none() {
            next.violation = next.servers_follow(run).err();
        }
        next.note_what_is_gone();
        next.count_anew();
        Some(next)
    }

    fn happen(&mut self, run: &Run, action: Action) -> Result<(), Violation> {
        match action {
            Action::Operate(operator) => return self.operate(run, operator),
            Action::SecondOperates => return self.operate(run, 1),
            Action::OperatorEnds(operator) => self.operators[operator].clear(),
            Action::StepIsLate(operator) => {
                let step = self.operators[operator].pop();
                self.late_steps.extend(step);
                self.operators[operator].clear();
            }
            Action::LateStepArrives(index) => {
                let step = self.late_steps.remove(index);
                self.apply(&step)?;
            }
            Action::Publish => {
                let hash = run.messages[self.world.messages.len()];
                self.world.messages.push(Message { hash, completed: false, vanished: false, gone: false });
                self.world.forget_without_interest()?;
            }
            Action::NextNumber => self.wanted += 1,
            Action::Deliver(incarnation) => {
                if let Some((pod, event)) = self.hand_out(incarnation) {
                    self.tell(run, pod, event)?;
                }
            }
            Action::DeliverLate(incarnation) => {
                if let Some((pod, event)) = self.hand_out(incarnation) {
                    self.pods[pod].late.push(Late::Heard(event));
                }
            }
            Action::DeliverToNobody(incarnation) => {
                self.take_message(incarnation);
            }
            Action::DeleteConsumer(incarnation) => {
                self.world.consumers.remove(&incarnation);
            }
            Action::TakePin(incarnation) => self.unpin(incarnation),
            Action::Vanish(sequence) => self.world.vanish(sequence),
            Action::LoseRecord => {
                self.world.record = None;
                self.world.fence_elapsed.remove(&0);
            }
            Action::LoseLaneKey(incarnation) => {
                self.world.lane_keys.remove(&incarnation);
            }
            Action::LateOfTheDeadArrives(index) => match self.late_of_the_dead.remove(index) {
                Late::Asked(request) => {
                    self.receive(run, 0, &request)?;
                }
                write => self.late_arrives(run, 0, write)?,
            },
            _ => return self.pod_does(run, action),
        }
        Ok(())
    }

    fn operate(&mut self, run: &Run, operator: usize) -> Result<(), Violation> {
        let Some(step) = self.operators[operator].pop() else {
            let mut steps = self.plan(run);
            steps.reverse();
            self.operators[operator] = steps;
            return Ok(());
        };
        if !self.apply(&step)? {
            self.operators[operator].clear();
        }
        Ok(())
    }

    fn apply(&mut self, step: &Step) -> Result<bool, Violation> {
        let before = match step {
            Step::PutAssignment { partition, .. } => self.world.assignments.get(partition).cloned(),
            _ => None,
        };
        let applied = self.world.apply(step)?;
        if let (Step::PutAssignment { partition, .. }, Some(before), true) = (step, before, applied) {
            self.before.insert(*partition, Arc::new(Assignment::clone(&before)));
        }
        Ok(applied)
    }

    fn pod_does(&mut self, run: &Run, action: Action) -> Result<(), Violation> {
        match action {
            Action::Read(pod) => self.read(run, pod),
            Action::ReadStale(pod) => {
                let stale = self.before.get(&self.world.workers[pod].partition).cloned();
                let Some(stale) = stale else { return Ok(()) };
                self.pods[pod].read = (Some(Arc::clone(&stale)), None);
                self.tell(run, pod, Event::Assigned(stale))
            }
            Action::Complete(pod) => {
                let frozen = self.pods[pod].frozen.is_some();
                let Some(running) = &mut self.pods[pod].running else { return Ok(()) };
                running.done = true;
                let sequence = running.sequence;
                self.world.message(sequence).completed = true;
                if frozen {
                    return Ok(());
                }
                self.handled(run, pod, Outcome::Done)
            }
            Action::Fails(pod) => {
                self.handled(run, pod, Outcome::Retry { reason: String::new(), after: None })
            }
            Action::IsAway(pod) => self.handled(run, pod, Outcome::Unreachable { reason: String::new() }),
            Action::LateArrives(pod, index) => {
                let late = self.pods[pod].late.remove(index);
                self.late_arrives(run, pod, late)
            }
            Action::Crash(pod) | Action::Start(pod) => {
                self.replace(run, pod);
                Ok(())
            }
            Action::Stop(pod) => {
                self.pods[pod].stopping = true;
                self.tell(run, pod, Event::Shutdown { grace: std::time::Duration::from_secs(10) })
            }
            Action::Freeze(pod) => {
                self.pods[pod].frozen = Some(self.now);
                Ok(())
            }
            Action::Thaw(pod) => self.thaw(run, pod),
            Action::Disconnect(pod) => {
                let lost = self.disconnected(pod);
                self.tell(run, pod, Event::Disconnected)?;
                for request in lost {
                    self.unanswered(run, pod, &request)?;
                }
                Ok(())
            }
            Action::Connect(pod) => {
                self.connect(run, pod);
                Ok(())
            }
            Action::CutOff(pod) => {
                self.world.workers[pod].cut = true;
                self.pods[pod].requests.clear();
                Ok(())
            }
            _ => self.request_fares(run, action),
        }
    }

    fn handled(&mut self, run: &Run, pod: usize, outcome: Outcome) -> Result<(), Violation> {
        self.pods[pod].running = None;
        self.tell(run, pod, Event::Handled(outcome))
    }

    fn request_fares(&mut self, run: &Run, action: Action) -> Result<(), Violation> {
        match action {
            Action::Reaches(pod, is_write) => {
                let request = self.oldest(pod, is_write);
                self.apply_and_answer(run, pod, &request)
            }
            Action::IsLost(pod, is_write) => {
                let request = self.oldest(pod, is_write);
                self.unanswered(run, pod, &request)
            }
            Action::IsLate(pod, is_write) => {
                let request = self.oldest(pod, is_write);
                if !is_write {
                    self.pods[pod].late.push(Late::Asked(request));
                    return Ok(());
                }
                if let (_, Some((incarnation, before, after))) = self.write(run, pod, &request) {
                    self.pods[pod].late.push(Late::Write { incarnation, before, after });
                }
                self.unanswered(run, pod, &request)
            }
            Action::AnswerIsLost(pod, is_write) => {
                let request = self.oldest(pod, is_write);
                self.receive(run, pod, &request)?;
                self.unanswered(run, pod, &request)
            }
            Action::AnswerIsLate(pod) => {
                let request = self.oldest(pod, false);
                let answer = self.receive(run, pod, &request)?;
                self.pods[pod].late.extend(answer.map(Late::Heard));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn oldest(&mut self, pod: usize, is_write: bool) -> Request {
        let requests = &mut self.pods[pod].requests;
        let index = requests.iter().position(|request| request.is_write() == is_write).unwrap();
        requests.remove(index)
    }

    fn apply_and_answer(&mut self, run: &Run, pod: usize, request: &Request) -> Result<(), Violation> {
        match self.receive(run, pod, request)? {
            Some(answer) => self.tell(run, pod, answer),
            None => Ok(()),
        }
    }

    fn unanswered(&mut self, run: &Run, pod: usize, request: &Request) -> Result<(), Violation> {
        match unanswered(request) {
            Some(event) => self.tell(run, pod, event),
            None => Ok(()),
        }
    }

    /// The operator's clock begins to run for a fenced lane when it sees that its consumer is gone.
    fn note_what_is_gone(&mut self) {
        let (now, world) = (self.now, &self.world);
        let fenced = world.lanes().iter().filter(|lane| lane.fenced && lane.state == LaneState::Settled);
        let mut due: Vec<u64> = fenced
            .map(|lane| lane.incarnation)
            .filter(|incarnation| !world.consumers.contains_key(incarnation))
            .collect();
        if world.record.is_none() {
            due.push(0);
        }
        due.retain(|incarnation| !world.fence_elapsed.contains(incarnation));
        self.gone.retain(|incarnation, _| due.contains(incarnation));
        for incarnation in due {
            self.gone.entry(incarnation).or_insert(now);
        }
    }
}
