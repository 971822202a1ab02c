//! Driving a lane: what it is told, and what becomes of what it wants done. Here the mutants stand between the two.

use std::sync::Arc;

use lanekeeper_core::{
    lane::{Delivered, Effect, Event, Number, Outcome, PullRequest, PullStatus},
    record::Assignment,
};

use super::{
    pod::{Late, Pod, Pull, Request, Running, pin},
    run::{Mutant, Run},
    state::State,
};
use crate::world::Violation;

impl State {
    /// Tells the lane something and does what it wants done.
    pub(crate) fn drive(&mut self, run: &Run, pod: usize, event: Event<'static>) -> Result<(), Violation> {
        let effects = self.pods[pod].lane.on(self.now, distorted(run, event));
        let mut trusted = Vec::new();
        for effect in effects {
            match &effect {
                Effect::Ack { token, .. } if run.is(Mutant::TrustsItsAcks) => {
                    trusted.push(Event::Answered { token: *token });
                }
                Effect::Renew(renewal) if run.is(Mutant::TrustsItsRenewals) => {
                    trusted.push(Event::PullEnded { pull: renewal.id, status: PullStatus::Expired });
                    continue;
                }
                _ => {}
            }
            self.carry_out(run, pod, effect)?;
        }
        for event in trusted {
            self.drive(run, pod, event)?;
        }
        if !run.under_way {
            self.answer_all(run, pod, |_| true)?;
        }
        Ok(())
    }

    /// Requests are applied and answered in their order, as long as they are of this kind.
    pub(crate) fn answer_all(
        &mut self,
        run: &Run,
        pod: usize,
        which: fn(&Request) -> bool,
    ) -> Result<(), Violation> {
        while self.pods[pod].requests.first().is_some_and(which) {
            let request = self.pods[pod].requests.remove(0);
            if let Some(answer) = self.receive(run, pod, &request)? {
                self.tell(run, pod, answer)?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, run: &Run, pod: usize, effect: Effect) -> Result<(), Violation> {
        let known =
            |pod: &Pod, message: u64| pod.sequence(message).map(|hand| (hand.incarnation, hand.sequence));
        let this = &mut self.pods[pod];
        let request = match effect {
            Effect::Note(_) | Effect::Report(_) => return Ok(()),
            Effect::Pull(request) => this
                .lane
                .incarnation()
                .map(|incarnation| Request::Pull { incarnation, pull: asked(&request) }),
            Effect::Inspect { token } => {
                this.lane.incarnation().map(|incarnation| Request::Inspect { incarnation, token })
            }
            Effect::Ack { message, token, pull } => known(this, message).map(|(incarnation, sequence)| {
                Request::Ack { incarnation, sequence, token, pull: pull.as_ref().map(asked) }
            }),
            Effect::Nak { message, token, delay } => known(this, message)
                .map(|(incarnation, sequence)| Request::Nak { incarnation, sequence, token, delay }),
            Effect::Progress { message, token } => known(this, message)
                .map(|(incarnation, sequence)| Request::Progress { incarnation, sequence, token }),
            Effect::Join { incarnation } => Some(Request::Join { incarnation }),
            Effect::Leave { incarnation, excused } => Some(Request::Leave { incarnation, excused }),
            Effect::Excuse { incarnation, excused } => Some(Request::Excuse { incarnation, excused }),
            // The note is for those who release what a dead process had, which happens only where there is proof of its end.
            Effect::Own { .. } => return Ok(()),
            Effect::Renew(renewal) => this.lane.incarnation().map(|incarnation| {
                let pull = Pull { number: renewal.id, pin: Some(pin(&renewal.pin)) };
                Request::Renew { incarnation, pull }
            }),
            Effect::Unpin => this.lane.incarnation().map(|incarnation| Request::Unpin { incarnation }),
            Effect::Contend { .. } => return Err("wants a lease where there is none".into()),
            Effect::List { .. } | Effect::Acks { .. } | Effect::AckGone { .. } => {
                return Err("does what only a pipelined lane does".into());
            }
            Effect::Breaker { .. }
            | Effect::DeadLetter { .. }
            | Effect::Park { .. }
            | Effect::LoadParked { .. }
            | Effect::Claim { .. }
            | Effect::Unclaim { .. }
            | Effect::ListParked { .. }
            | Effect::FetchParked { .. }
            | Effect::HandleParked { .. }
            | Effect::DeleteParked { .. }
            | Effect::ParkOrderDone { .. } => {
                return Err("puts away what its policy lets stand".into());
            }
            Effect::OrderBegun { .. } | Effect::OrderEnded { .. } => {
                return Err("carries out what nobody ordered".into());
            }
            Effect::Handle { message, .. } => {
                self.notable = true;
                let Some(hand) = this.sequence(message) else {
                    return Err("handles what nobody gave it".into());
                };
                this.running = Some(Running { sequence: hand.sequence, done: false });
                return self.check_start(run, pod, hand.sequence);
            }
            Effect::Cancel => {
                self.notable = true;
                let Some(cut) = this.running.take() else { return Ok(()) };
                if run.forbids_repeats() {
                    return Err(format!("the handler of {} is cut off though nothing failed", cut.sequence));
                }
                return Ok(());
            }
            Effect::Forget { message } => {
                self.notable = true;
                this.hands.retain(|hand| hand.message != message);
                return Ok(());
            }
            Effect::Exit => {
                self.notable = true;
                this.exited = true;
                return Ok(());
            }
        };
        let Some(request) = request else { return Ok(()) };
        if self.is_cut(pod) {
            return Ok(());
        }
        self.notable |= !request.is_idle();
        if self.pods[pod].connected {
            self.pods[pod].requests.push(request);
            return Ok(());
        }
        match unanswered(&request) {
            Some(event) => self.tell(run, pod, event),
            None => Ok(()),
        }
    }

    fn check_start(&self, run: &Run, pod: usize, sequence: u64) -> Result<(), Violation> {
        let messages = &self.world.messages;
        let of = |sequence: u64| &messages[usize::try_from(sequence).unwrap() - 1];
        let message = of(sequence);
        let owed = self
            .world
            .numbered()
            .find(|(one, other)| *one < sequence && other.hash == message.hash && !other.settled());
        if let Some((earlier, _)) = owed {
            return Err(format!("handler of {sequence} starts before {earlier} of its key has completed"));
        }
        if run.forbids_repeats() && message.completed {
            return Err(format!("message {sequence} is handled again though nothing failed"));
        }
        for (other, one) in self.pods.iter().enumerate().filter(|(other, _)| *other != pod) {
            let inside = one.lane.deadline().is_some_and(|deadline| self.now < deadline);
            if let Some(running) = one.running.filter(|running| !running.done && inside)
                && of(running.sequence).hash == message.hash
            {
                return Err(format!(
                    "{sequence} starts while {} of its key runs at pod {other}",
                    running.sequence
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn connect(&mut self, run: &Run, pod: usize) {
        self.pods[pod].connected = true;
        self.violation = self.violation.take().or(self.tell(run, pod, Event::Connected).err());
    }

    /// What servers know of a connection that is gone; the requests that are lost with it.
    pub(crate) fn disconnected(&mut self, pod: usize) -> Vec<Request> {
        self.pods[pod].connected = false;
        let lost = std::mem::take(&mut self.pods[pod].requests);
        self.pods[pod].late.retain(|late| !matches!(late, Late::Heard(_)));
        for serving in self.serving.values_mut() {
            serving.waiting.retain(|waiting| waiting.pod != pod);
        }
        lost
    }

    /// The process is gone; another begins.
    pub(crate) fn replace(&mut self, run: &Run, pod: usize) {
        self.disconnected(pod);
        let holder = self.world.holder(pod);
        self.world.terminated.insert(holder);
        self.world.workers[pod].instance += 1;
        let before = std::mem::replace(&mut self.pods[pod], Pod::new(run.options()));
        for late in before.late {
            let late = match late {
                Late::Write { .. } => late,
                // Nobody hears the answer, or the message that a pull would bring.
                Late::Asked(Request::Ack { incarnation, sequence, .. }) => {
                    Late::Asked(Request::Ack { incarnation, sequence, token: 0, pull: None })
                }
                Late::Asked(request @ Request::Unpin { .. }) => Late::Asked(request),
                Late::Asked(
                    mut request @ (Request::Nak { .. } | Request::Progress { .. } | Request::Renew { .. }),
                ) => {
                    request.numbers(&mut |number| {
                        if let Number::Token(number) | Number::Pull(number) = number {
                            *number = 0;
                        }
                    });
                    Late::Asked(request)
                }
                Late::Asked(_) | Late::Heard(_) => continue,
            };
            self.late_of_the_dead.push(late);
        }
        self.connect(run, pod);
    }

    /// The process goes on: time first, then what came meanwhile.
    pub(crate) fn thaw(&mut self, run: &Run, pod: usize) -> Result<(), Violation> {
        let this = &mut self.pods[pod];
        let Some(since) = this.frozen.take() else { return Ok(()) };
        if run.is(Mutant::ClockStops) {
            let lost = self.now.saturating_sub(since);
            this.lane.numbers(&mut |number| {
                if let Number::Since(time) | Number::Due(time) = number {
                    *time += lost;
                }
            });
        }
        let inbox = std::mem::take(&mut this.inbox);
        self.tell(run, pod, Event::Tick)?;
        self.handler_ended(run, pod)?;
        for event in inbox {
            self.tell(run, pod, event)?;
        }
        Ok(())
    }

    /// A handler that ended while nobody looked.
    fn handler_ended(&mut self, run: &Run, pod: usize) -> Result<(), Violation> {
        if self.pods[pod].running.take_if(|running| running.done).is_some() {
            return self.tell(run, pod, Event::Handled(Outcome::Done));
        }
        Ok(())
    }

    /// A worker reads what it is to do.
    pub(crate) fn read(&mut self, run: &Run, pod: usize) -> Result<(), Violation> {
        let view = self.view(pod);
        self.pods[pod].read = view.clone();
        let (assignment, key) = view;
        let Some(assignment) = assignment else { return self.tell(run, pod, Event::Unassigned) };
        let incarnation = assignment.incarnation;
        let retires = key.is_none_or(|(retiring, _)| retiring) || assignment.retiring;
        if run.is(Mutant::LeavesBeforeSettling) && retires && self.pods[pod].running.is_some() {
            self.receive(run, pod, &Request::Leave { incarnation, excused: None })?;
        }
        if let Some((retiring, excused)) = key {
            self.tell(run, pod, Event::Key { incarnation, retiring, excused })?;
        }
        self.tell(run, pod, Event::Assigned(assignment))
    }

    /// A message is on its way to a pod.
    pub(crate) fn hand_out(&mut self, incarnation: u64) -> Option<(usize, Event<'static>)> {
        let (pod, event) = self.take_message(incarnation)?;
        if let Event::Delivered(Delivered { message, sequence, .. }) = event
            && !self.is_cut(pod)
        {
            self.pods[pod].hands.push(super::pod::Hand { message, incarnation, sequence });
        }
        Some((pod, event))
    }
}

fn asked(request: &PullRequest) -> Pull {
    Pull { number: request.id, pin: request.pin.as_deref().map(pin) }
}

/// What the driver says of a request that is not answered in time.
pub(crate) fn unanswered(request: &Request) -> Option<Event<'static>> {
    match *request {
        Request::Join { incarnation } => Some(Event::JoinFailed { incarnation }),
        Request::Leave { incarnation, .. } => Some(Event::LeaveFailed { incarnation }),
        Request::Inspect { token, .. } => Some(Event::InspectFailed { token }),
        _ => None,
    }
}

/// What a mutant hears.
fn distorted(run: &Run, mut event: Event<'static>) -> Event<'static> {
    match &mut event {
        Event::Joined { retiring, .. } | Event::Key { retiring, .. } if run.is(Mutant::ServesRetiring) => {
            *retiring = false;
        }
        Event::Assigned(assignment) => {
            let mut changed = Assignment::clone(assignment);
            match run.mutant {
                Some(Mutant::ServesRetiring) => changed.retiring = false,
                Some(Mutant::IgnoresFloors) => changed.floors.clear(),
                Some(Mutant::TrustsFloorsTooMuch) => {
                    for floor in &mut changed.floors {
                        floor.sequence += 1;
                    }
                }
                _ => return event,
            }
            *assignment = Arc::new(changed);
        }
        _ => {}
    }
    event
}
