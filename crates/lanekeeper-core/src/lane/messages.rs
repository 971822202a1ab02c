//! One message: arriving, being handled, settled or given back.

use std::time::Duration;

use super::{
    Delivered, Effect, GivenBack, Hand, Lane, Next, Note, Outcome, Stage, State, Waiting,
    verdict::{Verdict, verdict},
};
use crate::{record::Excused, retry};

/// A handler that is not there is asked again after this, doubled up to the longest. A handler that asks for less
/// gets this, so that nothing becomes a hot loop.
pub(super) const FIRST_HOLD: Duration = Duration::from_millis(100);
pub(super) const LONGEST_HOLD: Duration = Duration::from_secs(5);
/// A handler that asks to be left alone is asked again after this at the latest.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// A reason is shortened to this many characters where it is kept.
const REASON: usize = 256;

impl Lane {
    pub(super) fn delivered(&mut self, now: Duration, delivered: Delivered<'_>) {
        if self.window.is_some() {
            return self.arrived(now, &delivered);
        }
        let Some(pulled) = self.pulls.consume(now, delivered.pull) else {
            return self.drop_stale(&delivered);
        };
        if now >= pulled + self.wait {
            // The pin that it came with has lapsed as well: to note it would be to say that another's is ours.
            return self.drop_stale(&delivered);
        }
        self.pinned(delivered.pin);
        self.reached();
        let served = self.current.is_some()
            && self.membership == super::Membership::Member
            && !self.ending()
            && self.may_own();
        if !served || self.replay.is_some() {
            return self.drop_stale(&delivered);
        }
        let Some(hand) = &mut self.hand else {
            return self.admit(now, &delivered, pulled, delivered.pin.is_some());
        };
        if hand.sequence == delivered.sequence {
            let before = hand.message;
            let pinned = delivered.pin.is_some();
            hand.delivered_again(delivered.message, delivered.deliveries, pulled, pinned, self.wait);
            if let Stage::Settling { .. } = hand.stage {
                self.note(Note::Duplicate(delivered.sequence));
                self.send_ack(now);
            }
            self.emit(Effect::Forget { message: before });
            return;
        }
        match hand.stage {
            // The request for it and the ack were one message, so the ack was taken. (A leader that lags may
            // ignore an ack, but then what it delivers next is the same message again.)
            Stage::Settling { carried, .. }
                if carried == Some(delivered.pull) && delivered.sequence > hand.sequence =>
            {
                self.settled();
                self.admit(now, &delivered, pulled, delivered.pin.is_some());
            }
            Stage::Settling { .. } if self.next.is_none() => {
                self.next = Some(Next {
                    message: delivered.message,
                    sequence: delivered.sequence,
                    deliveries: delivered.deliveries,
                    subject: delivered.subject.to_owned(),
                    pinned: delivered.pin.is_some(),
                    pulled,
                });
                self.send_ack(now);
            }
            _ => {
                let earlier = hand.sequence.min(delivered.sequence);
                self.note(Note::Overtaken(delivered.sequence));
                self.emit(Effect::Forget { message: delivered.message });
                self.unsettled = Some(self.unsettled.map_or(earlier, |known| known.min(earlier)));
                self.inspect(now);
            }
        }
    }

    pub(super) fn drop_stale(&mut self, delivered: &Delivered<'_>) {
        self.note(Note::Stale(delivered.sequence));
        self.emit(Effect::Forget { message: delivered.message });
    }

    /// The message that waited for the ack of the one before it.
    pub(super) fn admit_next(&mut self, now: Duration) {
        let Some(next) = self.next.take() else { return };
        let delivered = Delivered {
            message: next.message,
            pull: 0,
            sequence: next.sequence,
            consumer_sequence: 0,
            deliveries: next.deliveries,
            subject: &next.subject,
            pin: None,
        };
        if now >= next.pulled + self.wait || self.ending() || !self.may_own() {
            return self.drop_stale(&delivered);
        }
        self.admit(now, &delivered, next.pulled, next.pinned);
    }

    fn admit(&mut self, now: Duration, delivered: &Delivered<'_>, pulled: Duration, pinned: bool) {
        let Some(lane) = self.current.clone() else { return self.drop_stale(delivered) };
        let sequence = delivered.sequence;
        let (message, deliveries) = (delivered.message, delivered.deliveries);
        self.forget_given_back();
        let subject = delivered.subject.to_owned();
        let mut hand = Hand::new(message, sequence, deliveries, subject, pulled, pinned, self.wait);
        hand.key = self.parked_key(delivered.subject);
        self.hand = Some(hand);
        if self.completed.contains(sequence) {
            self.note(Note::Duplicate(sequence));
            return self.settle(now);
        }
        match verdict(&lane, delivered.subject, sequence) {
            Verdict::Covered => {
                self.note(Note::Covered(sequence));
                self.settle(now);
            }
            Verdict::Refused(reason) => {
                self.note(Note::Refused { sequence, reason: reason.clone() });
                self.refuse(sequence, shortened(&reason));
                self.refuse_orders(sequence);
                self.give_back(now, retry::slow(&lane.settings.retry), Some(State::Refusing));
            }
            Verdict::Ours if !self.fit || self.unsettled.is_some_and(|earlier| earlier < sequence) => {
                self.verify(now);
            }
            Verdict::Ours => self.begin_handling(now),
        }
    }

    /// An earlier message was ours and we do not know what became of it. If the server has nothing out but
    /// this one, the earlier one was settled or deleted. If it has, this one must wait.
    pub(super) fn verify(&mut self, now: Duration) {
        let token = self.token();
        self.set_stage(Stage::Verifying { token });
        self.inspecting = Some(token);
        self.inspect_due = now + super::UNKNOWN_WAIT;
        self.emit(Effect::Inspect { token });
    }

    pub(super) fn verified(&mut self, now: Duration, alone: bool) {
        if alone {
            self.unsettled = None;
            return self.begin_handling(now);
        }
        // Dropped without a word: the server delivers it again after its deadline.
        if let Some(hand) = self.hand.take() {
            self.note(Note::Overtaken(hand.sequence));
            self.emit(Effect::Forget { message: hand.message });
        }
    }

    pub(super) fn begin_handling(&mut self, now: Duration) {
        let Some(hand) = &self.hand else { return };
        let attempt = self.attempts(hand);
        let (message, sequence) = (hand.message, hand.sequence);
        self.pass(sequence);
        if self.skip_if_ordered(now, attempt.saturating_sub(1)) || !self.key_is_free(now) {
            return;
        }
        if !self.begin_order(sequence) && self.is_used_up(sequence, attempt) {
            return self.used_up(now, attempt);
        }
        let with = self.compose(attempt);
        self.set_stage(Stage::Handling { since: now, inspected: false });
        self.waiting = None;
        self.emit(Effect::Handle { message, attempt, with });
    }

    pub(super) fn handled(&mut self, now: Duration, outcome: Outcome) {
        if self.replay_handled(now, &outcome) {
            return;
        }
        let Some(hand) = &mut self.hand else { return };
        if !matches!(hand.stage, Stage::Handling { .. }) {
            return;
        }
        let sequence = hand.sequence;
        match outcome {
            Outcome::Done => {
                let with = self.take_composed();
                self.succeeded(sequence);
                if self.report.lost.is_some() {
                    self.say(|report| report.lost = None);
                }
                self.settle(now);
                for item in with {
                    self.succeeded(item.sequence);
                    self.complete(now, item.message, item.sequence, item.deadline());
                }
            }
            Outcome::Retry { reason, after } => self.failed(now, &reason, after, false),
            Outcome::Permanent { reason } => self.failed(now, &reason, None, true),
            Outcome::Wait { reason, after } => {
                let after = after.clamp(FIRST_HOLD, LONGEST_WAIT);
                hand.stage = Stage::Held { until: now + after };
                self.excuse();
                self.note(Note::Held { sequence, delay: after, reason });
                self.apply_orders(now);
            }
            Outcome::Unreachable { reason } => {
                let delay = FIRST_HOLD.saturating_mul(1 << hand.unreachable.min(10)).min(LONGEST_HOLD);
                hand.unreachable += 1;
                hand.stage = Stage::Held { until: now + delay };
                self.excuse();
                self.note(Note::Held { sequence, delay, reason });
                self.apply_orders(now);
            }
        }
    }

    pub(super) fn succeeded(&mut self, sequence: u64) {
        self.completed.insert(sequence);
        self.order_succeeded(sequence);
        self.note(Note::Completed(sequence));
    }

    fn failed(&mut self, now: Duration, reason: &str, after: Option<Duration>, permanent: bool) {
        let Some(settings) = self.current.as_ref().map(|lane| lane.settings.clone()) else { return };
        self.unexcuse();
        let Some(hand) = &self.hand else { return };
        let (sequence, attempt) = (hand.sequence, self.attempts(hand));
        if self.window.is_some() {
            self.attempted(sequence);
        }
        // What was ordered while the handler ran decides now.
        let (skipped, again) = (self.is_to_be_skipped(), self.is_to_be_retried(sequence));
        let exhausted = !skipped && !again && (permanent || retry::exhausted(&settings.retry, attempt));
        // The policy is for one message.
        if exhausted && self.divide(now, attempt, reason) {
            return;
        }
        let delay = match after {
            _ if exhausted || skipped || again => Duration::ZERO,
            Some(after) => after.clamp(FIRST_HOLD, LONGEST_WAIT),
            None => retry::delay(&settings.retry, attempt),
        };
        self.note(Note::Failed { sequence, attempt, delay, exhausted, reason: reason.to_owned() });
        self.say(|report| report.lost = None);
        self.attempt_failed(sequence, reason);
        if self.skip_if_ordered(now, attempt) {
            return;
        }
        if exhausted {
            self.exhausted(now, attempt, reason);
        } else if self.window.is_some() {
            self.set_stage(Stage::Again { until: now + delay });
        } else {
            self.give_back(now, delay, Some(State::RetryWait));
        }
    }

    /// Lets go of what is in hand; the server keeps its slot and delivers it again after the delay. Sent
    /// once: repeated late it would take the message from whoever has it by then. If it is lost, the
    /// server's deadline does the same.
    pub(super) fn give_back(&mut self, now: Duration, delay: Duration, state: Option<State>) {
        let Some(hand) = self.hand.take() else { return };
        let token = self.token();
        self.suspicion.gave_back(delay);
        let sent = self.connected && !self.ending();
        if sent {
            self.emit(Effect::Nak { message: hand.message, token, delay });
        }
        self.unsettled = Some(self.unsettled.map_or(hand.sequence, |earlier| earlier.min(hand.sequence)));
        self.waiting = state.map(|state| Waiting { sequence: hand.sequence, state });
        if sent && state == Some(State::RetryWait) && !delay.is_zero() {
            self.given_back = Some(GivenBack::new(hand, now, delay));
        } else {
            self.emit(Effect::Forget { message: hand.message });
        }
    }

    /// Gives back, on the way out, what is in hand without being handled.
    pub(super) fn release(&mut self, now: Duration) {
        let Some(hand) = &self.hand else { return };
        match hand.stage {
            Stage::Verifying { .. } | Stage::Consulting { .. } | Stage::Held { .. } => {
                if !self.ending() {
                    self.excuse();
                }
            }
            // The handler was not asked.
            Stage::PuttingAway { answered: true, .. } if hand.behind => {
                if !self.ending() {
                    self.excuse();
                }
            }
            // Its attempt was one, or it is a pipelined lane's.
            Stage::Again { .. }
            | Stage::Refused
            | Stage::Standing { .. }
            | Stage::PuttingAway { answered: true, .. } => {}
            Stage::Handling { .. } | Stage::Settling { .. } | Stage::PuttingAway { .. } => return,
        }
        self.give_back(now, Duration::ZERO, None);
    }

    /// The shutdown cannot wait for the handler: nothing is sent, because the handler may still be at work.
    pub(super) fn cut(&mut self) {
        self.excuse();
        let with = self.take_composed();
        let Some(hand) = self.hand.take() else { return };
        self.emit(Effect::Cancel);
        self.note(Note::Cut(hand.sequence));
        self.emit(Effect::Forget { message: hand.message });
        self.unsettled = Some(hand.sequence);
        for item in with {
            self.emit(Effect::Forget { message: item.message });
        }
    }

    pub(super) fn give_up_settling(&mut self) {
        if let Some(hand) = self.hand.take() {
            self.emit(Effect::Forget { message: hand.message });
            self.unsettled = Some(hand.sequence);
        }
    }

    pub(super) fn settle(&mut self, now: Duration) {
        if self.window.is_some() {
            return self.pass_on(now);
        }
        self.waiting = None;
        self.set_stage(Stage::Settling {
            sent: None,
            carried: None,
            repeated: false,
            since_token: self.tokens + 1,
        });
        self.send_ack(now);
    }

    /// Acknowledges what is in hand. The first ack of a busy lane carries the next pull; its repeats ask for
    /// nothing but their own confirmation.
    pub(super) fn send_ack(&mut self, now: Duration) {
        let Some(Hand { message, stage: Stage::Settling { carried, repeated, since_token, .. }, .. }) =
            self.hand
        else {
            return;
        };
        if self.gone {
            // Nobody takes it any more; the successor relies on the floor.
            self.give_up_settling();
            return;
        }
        if !self.connected {
            return;
        }
        let first = carried.is_none() && !repeated;
        let pull = (first && self.may_pull(now)).then(|| self.issue(now));
        let token = self.token();
        self.set_stage(Stage::Settling {
            sent: Some(now),
            carried: pull.as_ref().map(|pull| pull.id).or(carried),
            repeated: pull.is_none(),
            since_token,
        });
        self.emit(Effect::Ack { message, token, pull });
    }

    pub(super) fn answered(&mut self, now: Duration, token: u64) {
        let wait = self.wait;
        if self.window.is_some() {
            return self.window_answered(token);
        }
        let Some(hand) = &mut self.hand else { return };
        match hand.stage {
            Stage::Settling { since_token, .. } if token >= since_token => {
                self.settled();
                self.admit_next(now);
            }
            _ => hand.progress_answered(token, wait),
        }
    }

    /// The server took note of the ack of what is in hand.
    fn settled(&mut self) {
        let Some(hand) = self.hand.take() else { return };
        self.note(Note::Settled(hand.sequence));
        self.orders_settled(hand.sequence);
        self.emit(Effect::Forget { message: hand.message });
        if self.unsettled.is_some_and(|earlier| earlier <= hand.sequence) {
            self.unsettled = None;
        }
        let served = &self.report;
        if served.blocked.is_some() || served.refused.is_some() || served.lost.is_some() {
            self.say(|report| {
                report.blocked = None;
                report.refused = report.refused.take().filter(|refused| refused.sequence == 0);
                report.lost = None;
            });
        }
    }

    /// The key was read: somebody else may have recorded something about the message we have.
    pub(super) fn key_read(&mut self, incarnation: u64, retiring: bool, excused: Option<Excused>) {
        if self.incarnation() != Some(incarnation) || self.membership != super::Membership::Member {
            return;
        }
        self.retiring |= retiring;
        if let Some(excused) = excused
            && self.excused.is_none_or(|known| {
                excused.sequence > known.sequence
                    || excused.sequence == known.sequence && excused.deliveries > known.deliveries
            })
        {
            self.excused = Some(excused);
        }
    }

    /// The present delivery was no attempt.
    fn excuse(&mut self) {
        if self.window.is_some() {
            // Attempts are counted here, not by the server's deliveries.
            return;
        }
        let Some(hand) = self.hand.as_mut().filter(|hand| !hand.excused) else { return };
        hand.excused = true;
        let sequence = hand.sequence;
        let deliveries = of(self.excused, sequence) + 1;
        self.record(Excused { sequence, deliveries });
    }

    /// The present delivery became an attempt after all.
    fn unexcuse(&mut self) {
        let Some(hand) = self.hand.as_mut().filter(|hand| hand.excused) else { return };
        hand.excused = false;
        let sequence = hand.sequence;
        let deliveries = of(self.excused, sequence).saturating_sub(1);
        self.record(Excused { sequence, deliveries });
    }

    /// Deliveries of what is in hand that were attempts, the present one included.
    pub(super) fn attempts_in_hand(&self) -> u64 {
        self.hand.as_ref().map_or(0, |hand| self.attempts(hand))
    }

    fn record(&mut self, excused: Excused) {
        self.excused = Some(excused);
        if let Some(incarnation) = self.incarnation() {
            self.emit(Effect::Excuse { incarnation, excused });
        }
    }

    /// Attempts of what is in hand, the present one included.
    fn attempts(&self, hand: &Hand) -> u64 {
        if self.window.is_some() { self.attempt(hand.sequence) } else { attempts(hand, self.excused) }
    }

    pub(super) fn set_stage(&mut self, stage: Stage) {
        if let Some(hand) = &mut self.hand {
            hand.stage = stage;
        }
    }
}

fn of(excused: Option<Excused>, sequence: u64) -> u64 {
    excused.filter(|excused| excused.sequence == sequence).map_or(0, |excused| excused.deliveries)
}

/// Deliveries that were attempts, the present one included.
fn attempts(hand: &Hand, excused: Option<Excused>) -> u64 {
    let others = of(excused, hand.sequence).saturating_sub(u64::from(hand.excused));
    hand.deliveries.saturating_sub(others).max(1)
}

pub(super) fn shortened(reason: &str) -> String {
    match reason.char_indices().nth(REASON) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
}
