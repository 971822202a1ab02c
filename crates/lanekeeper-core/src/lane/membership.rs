//! Which lane: entering, serving and leaving what the partition's assignment names.
//!
//! The consumer is looked at before the lane is joined, so that a lane whose consumer is gone costs no write.

use std::{sync::Arc, time::Duration};

use super::{ConsumerFacts, Effect, Lane, Note, PullStatus, Stage, UNKNOWN_WAIT, Window};
use crate::record::{Assignment, Excused, Report};

/// How far in we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Membership {
    Outside,
    /// The consumer is looked at.
    Inspecting,
    /// A join is out, or due again at the time given.
    Joining {
        retry: Option<Duration>,
    },
    Member,
    /// A leave is out, or due again at the time given.
    Leaving {
        retry: Option<Duration>,
        /// A process that ends does not try for longer than this.
        give_up: Option<Duration>,
    },
    /// The process may end.
    Exited,
}

/// The consumer is looked at this often, in case somebody changed it.
const INSPECT_EVERY: Duration = Duration::from_secs(15);
/// The same while it cannot be served as it is.
const INSPECT_OFTEN: Duration = Duration::from_secs(2);
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// A process that ends tries this long to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

impl Lane {
    pub(super) fn connected(&mut self, now: Duration) {
        self.connected = true;
        self.pulls.doubt_all();
        self.pulls.ask_at_once();
        // What was asked for is asked for again.
        self.inspecting = None;
        self.inspect_due = now;
        self.replay_connected(now);
        self.window_connected(now);
        let Some(hand) = &mut self.hand else { return };
        match &mut hand.stage {
            Stage::Settling { sent, .. } => *sent = None,
            Stage::Verifying { .. } => self.verify(now),
            Stage::Handling { .. }
            | Stage::Held { .. }
            | Stage::Again { .. }
            | Stage::Refused
            | Stage::Standing { .. } => {
                hand.progress_at_once(now);
            }
            Stage::PuttingAway { .. } => {
                hand.progress_at_once(now);
                self.follow_policy(now);
            }
            Stage::Consulting { .. } => {
                hand.progress_at_once(now);
                self.consult(now);
            }
        }
    }

    pub(super) fn assigned(&mut self, assignment: Arc<Assignment>) {
        // A replica that lags may answer with what was true before.
        if self.assignment.as_ref().is_some_and(|known| known.incarnation > assignment.incarnation) {
            return;
        }
        self.barred = None;
        if self.incarnation() == Some(assignment.incarnation) {
            // Retiring is irrevocable, whatever is read afterwards.
            self.retiring |= assignment.retiring;
            self.current = Some(Arc::clone(&assignment));
            self.resize();
        }
        self.assignment = Some(assignment);
    }

    /// A lane that runs goes on: nobody said that it retires.
    pub(super) fn unassigned(&mut self) {
        if self.membership == Membership::Outside {
            self.assignment = None;
        }
    }

    pub(super) fn joined(&mut self, incarnation: u64, retiring: bool, excused: Option<Excused>) {
        if self.incarnation() != Some(incarnation) || !matches!(self.membership, Membership::Joining { .. }) {
            return;
        }
        self.membership = Membership::Member;
        self.retiring |= retiring;
        self.excused = excused;
        self.waiting = None;
        self.pin = None;
        self.forget_given_back();
        self.parked = None;
        self.pulls.doubt_all();
        self.pulls.ask_at_once();
        if self.has_orders() {
            // Is the lane past them?
            self.inspect_due = Duration::ZERO;
        }
        if self.served != Some(incarnation) {
            self.served = Some(incarnation);
            self.completed.clear();
            self.unsettled = None;
        }
        self.suspicion.joined();
        self.note(Note::Joined);
        self.report = Report::new(incarnation);
        self.emit(Effect::Report(self.report.clone()));
        self.contend();
    }

    pub(super) fn join_refused(&mut self, incarnation: u64) {
        if self.incarnation() == Some(incarnation) && matches!(self.membership, Membership::Joining { .. }) {
            self.barred = Some(incarnation);
            self.outside();
        }
    }

    /// The join may have been applied all the same, so it is repeated until that is known: the operator
    /// would wait for a holder that knows nothing of it.
    pub(super) fn join_failed(&mut self, now: Duration, incarnation: u64) {
        if self.incarnation() == Some(incarnation)
            && let Membership::Joining { retry } = &mut self.membership
        {
            *retry = Some(now + RETRY);
        }
    }

    pub(super) fn left(&mut self, incarnation: u64) {
        if self.incarnation() == Some(incarnation) && matches!(self.membership, Membership::Leaving { .. }) {
            self.note(Note::Left);
            if self.gone {
                self.barred = Some(incarnation);
            }
            self.outside();
        }
    }

    pub(super) fn leave_failed(&mut self, now: Duration, incarnation: u64) {
        if self.incarnation() == Some(incarnation)
            && let Membership::Leaving { retry, .. } = &mut self.membership
        {
            *retry = Some(now + RETRY);
        }
    }

    fn outside(&mut self) {
        self.membership = Membership::Outside;
        self.current = None;
        self.retiring = false;
        self.gone = false;
        self.fit = false;
        self.window = None;
        self.wait = UNKNOWN_WAIT;
        self.inspecting = None;
        self.waiting = None;
        self.forget_given_back();
        self.pin = None;
        self.lease = None;
        self.elsewhere = false;
        self.parked = None;
        self.park_orders.clear();
        self.replay = None;
        // What still answers a pull of this lane is not the next one's: another may have settled it there.
        self.pulls.forget_all();
    }

    /// Whether there is a lane that we may serve and do not.
    pub(super) fn may_enter(&self) -> bool {
        self.shutdown.is_none()
            && self.assignment.as_ref().is_some_and(|assignment| {
                !assignment.retiring
                    && !assignment.settings.paused
                    && self.barred != Some(assignment.incarnation)
            })
    }

    /// No pull begins any more.
    pub(super) fn stopping(&self) -> bool {
        self.ending()
            || self.shutdown.is_some()
            || self.current.as_ref().is_some_and(|lane| lane.settings.paused)
    }

    /// The incarnation comes to its end, so nothing of it needs to be given back.
    pub(super) fn ending(&self) -> bool {
        let served = self.incarnation();
        self.retiring
            || self.gone
            || self.assignment.as_ref().is_some_and(|assignment| Some(assignment.incarnation) > served)
    }

    pub(super) fn inspect(&mut self, now: Duration) {
        if self.hand.as_ref().is_some_and(|hand| matches!(hand.stage, Stage::Verifying { .. })) {
            // The same question, with a message waiting for the answer.
            if self.inspecting.is_none() {
                self.verify(now);
            }
            return;
        }
        if self.inspecting.is_none() && self.current.is_some() && !self.gone {
            let token = self.token();
            self.inspecting = Some(token);
            self.inspect_due = now + INSPECT_EVERY;
            self.emit(Effect::Inspect { token });
        }
    }

    pub(super) fn inspected(&mut self, now: Duration, token: u64, facts: &ConsumerFacts) {
        if self.looked(now, token, facts) {
            return;
        }
        let verified = self.hand.as_ref().is_some_and(|hand| hand.stage == Stage::Verifying { token });
        let asked = self.is_asking(token);
        if self.inspecting != Some(token) && !verified && !asked {
            return;
        }
        if self.inspecting == Some(token) {
            self.inspecting = None;
        }
        self.pin_seen(facts.pin.as_deref());
        self.floor_seen(facts.floor);
        self.wait = facts.shortest_wait;
        if let Some(hand) = &mut self.hand {
            hand.limit(self.wait);
        }
        if let Some(window) = &mut self.window {
            window.limit(now, self.wait);
        }
        self.judge(now, facts);
        let fit = self.fit;
        if self.membership == Membership::Inspecting {
            self.membership = Membership::Joining { retry: Some(now) };
        }
        if verified {
            self.verified(now, fit && facts.ack_pending <= 1);
        }
        if asked {
            self.told_what_is_out(now, facts);
        } else {
            self.consumer_seen(now);
        }
    }

    /// Whether the consumer can be served as it is.
    fn judge(&mut self, now: Duration, facts: &ConsumerFacts) {
        let limit = facts.max_ack_pending;
        // However many a pipelined lane is given, it handles them in order.
        let pipelined = self.window.is_some();
        let fit = pipelined || limit == 1;
        self.inspect_due = now + if fit { INSPECT_EVERY } else { INSPECT_OFTEN };
        if !fit && (self.fit || self.report.refused.is_none()) {
            self.note(Note::Unserial(limit));
        }
        if !fit && self.membership == Membership::Member {
            self.refuse(0, format!("max_ack_pending of the consumer is {limit}, it must be 1"));
        } else if fit && !self.fit {
            self.say(|report| report.refused = report.refused.take().filter(|refused| refused.sequence != 0));
        }
        self.fit = fit;
    }

    pub(super) fn consumer_gone(&mut self, now: Duration, token: u64) {
        if self.not_looked(now, token, true) {
            return;
        }
        if self.inspecting != Some(token) {
            return;
        }
        self.inspecting = None;
        match self.membership {
            Membership::Inspecting => {
                self.note(Note::ConsumerGone);
                self.barred = self.incarnation();
                self.outside();
            }
            Membership::Member => {
                self.note(Note::ConsumerGone);
                self.gone = true;
            }
            _ => {}
        }
    }

    pub(super) fn inspect_failed(&mut self, now: Duration, token: u64) {
        if self.not_looked(now, token, false) {
            return;
        }
        self.not_told(now, token);
        if self.inspecting == Some(token) {
            self.inspecting = None;
            // Also where a message waits for it: a refusal comes at once, and must not become a hot loop.
            self.inspect_due = now + RETRY;
        }
    }

    pub(super) fn pull_ended(&mut self, now: Duration, pull: u64, status: PullStatus) {
        if status == PullStatus::WrongPin {
            self.pin_refused(now, pull);
        }
        self.window_pull_ended(pull, status);
        if !self.replay_renewed(now, pull, status) && !self.renewal_ended(pull, status) {
            self.pulls.ended(now, pull, status);
        }
        if matches!(status, PullStatus::ConsumerDeleted | PullStatus::NoResponders) {
            self.inspect(now);
        }
    }

    /// Whatever is due now that follows from the state alone.
    pub(super) fn advance(&mut self, now: Duration) {
        self.pass_time(now);
        while self.step(now) {}
        self.look_again(now);
        self.replay_if_due(now);
        self.proceed(now);
        self.pull_if_due(now);
    }

    /// One step in, on or out; whether there may be another.
    fn step(&mut self, now: Duration) -> bool {
        match self.membership {
            Membership::Exited => false,
            Membership::Outside if self.shutdown.is_some() => {
                self.membership = Membership::Exited;
                self.emit(Effect::Exit);
                false
            }
            Membership::Outside => self.begin_entering(now),
            Membership::Inspecting if !self.may_enter() => {
                self.outside();
                true
            }
            // It may have been applied, so it is undone; leaving what was not joined does no harm.
            Membership::Joining { .. } if self.shutdown.is_some() => {
                self.membership = Membership::Leaving { retry: None, give_up: Some(now + LEAVE_LIMIT) };
                self.leave();
                false
            }
            Membership::Joining { retry: Some(retry) } if now >= retry => {
                if let Some(incarnation) = self.incarnation() {
                    self.membership = Membership::Joining { retry: None };
                    self.emit(Effect::Join { incarnation });
                }
                false
            }
            Membership::Member if self.stopping() => self.begin_leaving(now),
            Membership::Leaving { give_up: Some(limit), .. } if now >= limit && self.shutdown.is_some() => {
                self.outside();
                true
            }
            Membership::Leaving { retry: Some(retry), give_up } if now >= retry => {
                self.membership = Membership::Leaving { retry: None, give_up };
                self.leave();
                false
            }
            Membership::Leaving { retry, give_up: None } if self.shutdown.is_some() => {
                self.membership = Membership::Leaving { retry, give_up: Some(now + LEAVE_LIMIT) };
                false
            }
            Membership::Inspecting
            | Membership::Joining { .. }
            | Membership::Member
            | Membership::Leaving { .. } => false,
        }
    }

    fn begin_entering(&mut self, now: Duration) -> bool {
        if !self.connected || !self.may_enter() {
            return false;
        }
        self.current = self.assignment.clone();
        self.membership = Membership::Inspecting;
        self.prepare();
        self.inspect(now);
        false
    }

    fn begin_leaving(&mut self, now: Duration) -> bool {
        if self.window.is_some() {
            if !self.release_window(now) {
                return false;
            }
        } else {
            self.release(now);
        }
        if self.replay_holds(now) {
            return false;
        }
        self.forget_given_back();
        let ending = self.ending();
        if ending && let Some(next) = self.next.take() {
            self.emit(Effect::Forget { message: next.message });
        }
        let brings_more = !ending && self.pulls.may_be_answered(now);
        if self.next.is_some() || brings_more {
            return false;
        }
        if self.window.is_some() {
            self.give_all_back();
        }
        if self.hand.is_some() {
            return false;
        }
        self.pulls.doubt_all();
        self.unsuspect();
        self.unpin();
        self.lease = None;
        let give_up = self.shutdown.map(|_| now + LEAVE_LIMIT);
        self.membership = Membership::Leaving { retry: None, give_up };
        self.leave();
        false
    }

    fn leave(&mut self) {
        if let Some(incarnation) = self.incarnation() {
            self.emit(Effect::Leave { incarnation, excused: self.excused });
        }
    }

    fn look_again(&mut self, now: Duration) {
        let due = match self.membership {
            Membership::Inspecting | Membership::Member => now >= self.inspect_due,
            _ => false,
        };
        if due && self.connected {
            self.inspect(now);
        }
    }

    /// Whether a pull may be sent: alone when nothing is in hand, or riding on an ack.
    pub(super) fn may_pull(&self, now: Duration) -> bool {
        self.membership == Membership::Member
            && self.connected
            && self.fit
            && !self.window.as_ref().is_some_and(Window::overflows)
            && !self.stopping()
            && self.may_own()
            && self.next.is_none()
            && !self.replaying(now)
            && !self.pulls.standing()
            && self.pulls.may_ask(now)
    }

    fn pull_if_due(&mut self, now: Duration) {
        if (self.hand.is_none() || self.window.is_some()) && self.may_pull(now) {
            let request = self.issue(now);
            self.emit(Effect::Pull(request));
        }
    }

    /// When this part next needs time.
    pub(super) fn membership_wake(&self) -> [Option<Duration>; 3] {
        let (retry, give_up) = match self.membership {
            Membership::Joining { retry } => (retry, None),
            Membership::Leaving { retry, give_up } => (retry, give_up),
            _ => (None, None),
        };
        let inspects =
            self.connected && matches!(self.membership, Membership::Inspecting | Membership::Member);
        [retry, give_up, inspects.then_some(self.inspect_due)]
    }
}
