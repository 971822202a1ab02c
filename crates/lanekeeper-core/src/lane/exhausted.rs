//! A message without attempts left: standing at it, putting it away, and the breaker.

use std::{collections::VecDeque, time::Duration};

use super::{Effect, Lane, Note, Number, Stage, messages::shortened};
use crate::{
    record::{Blocked, BlockedBy, Breaker, ExhaustedPolicy},
    retry,
};

/// Whoever publishes a dead letter says within this time what came of it.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(15);
/// What is said of a message that comes again after its last attempt.
const USED_UP: &str = "all attempts were used up, and the last one had no answer that is known here";

impl Lane {
    /// The handler will not be asked again before the policy: no attempt is left, or none will ever work.
    pub(super) fn exhausted(&mut self, now: Duration, attempts: u64, reason: &str) {
        let Some(lane) = self.current.clone() else { return };
        let Some(hand) = &mut self.hand else { return };
        let sequence = hand.sequence;
        hand.reason = shortened(reason);
        hand.attempts = attempts;
        let Some(breaker) = lane.settings.on_exhausted.breaker() else { return self.follow_policy(now) };
        let permit = self.fuse.put_away(now, breaker, lane.incarnation, sequence);
        if permit == Permit::Given {
            return self.follow_policy(now);
        }
        if permit == Permit::JustOpened {
            self.emit(Effect::Breaker { incarnation: lane.incarnation, sequence });
            self.note(Note::BreakerOpen(sequence));
        }
        let Breaker { max_exhausted, window_seconds } = breaker;
        let words = format!(
            "the breaker is open, because more than {max_exhausted} messages were exhausted within {window_seconds} s: {reason}"
        );
        self.stand(now, BlockedBy::Breaker, &words);
    }

    /// What the policy says now: it may have been changed since the message was exhausted.
    pub(super) fn follow_policy(&mut self, now: Duration) {
        let Some(lane) = self.current.clone() else { return };
        let Some(hand) = &self.hand else { return };
        if hand.skipping.is_some() {
            return self.skip_on(now);
        }
        if hand.behind {
            return self.send_to_park(now);
        }
        let parks = lane.settings.park.is_some() && hand.key.is_some();
        let (sequence, attempts, reason) = (hand.sequence, hand.attempts, hand.reason.clone());
        match &lane.settings.on_exhausted {
            // Without a park, or a key, the policy is news that came after the message: its next attempt has both.
            ExhaustedPolicy::Block => self.stand(now, BlockedBy::Policy, &reason),
            ExhaustedPolicy::ParkKey { .. } if parks => self.send_to_park(now),
            ExhaustedPolicy::ParkKey { .. } => self.stand(now, BlockedBy::Policy, &reason),
            ExhaustedPolicy::DeadLetter { stream, subject, .. } => {
                self.send_dead_letter(now, stream, subject);
            }
            ExhaustedPolicy::Drop { .. } => {
                self.order_failed(sequence, &reason);
                self.note(Note::Dropped { sequence, attempts, reason: reason.clone() });
                self.say(|report| report.dropped = Some(Blocked::new(sequence, reason)));
                self.put_away(now, sequence);
            }
        }
    }

    /// Whether a delivery comes after the last attempt: the process that made it died before it could put it away.
    pub(super) fn is_used_up(&self, sequence: u64, attempt: u64) -> bool {
        self.current.as_ref().is_some_and(|lane| {
            lane.settings.on_exhausted.breaker().is_some()
                && retry::exhausted(&lane.settings.retry, attempt.saturating_sub(1))
                && !self.fuse.is_open(lane.incarnation, sequence)
        })
    }

    pub(super) fn used_up(&mut self, now: Duration, attempt: u64) {
        let Some(sequence) = self.hand.as_ref().map(|hand| hand.sequence) else { return };
        // The lane may have stood at it under another policy: then its handler's words are known.
        let stood = |blocked: &&Blocked| blocked.sequence == sequence && blocked.by == BlockedBy::Policy;
        let known = self.report.blocked.as_ref().filter(stood).map(|blocked| blocked.reason.clone());
        self.exhausted(now, attempt.saturating_sub(1), known.as_deref().unwrap_or(USED_UP));
    }

    /// Kept in hand, so that nothing overtakes and it can go on at once when it may.
    fn stand(&mut self, now: Duration, by: BlockedBy, reason: &str) {
        let Some(retry) = self.current.as_ref().map(|lane| lane.settings.retry) else { return };
        self.blocked(by, reason);
        self.set_stage(Stage::Standing { until: now + retry::slow(&retry) });
    }

    /// Says where the lane stands and why; the same place for the same reason is no news, whatever the words.
    pub(super) fn blocked(&mut self, by: BlockedBy, reason: &str) {
        let Some(sequence) = self.hand.as_ref().map(|hand| hand.sequence) else { return };
        let known = self.report.blocked.as_ref();
        let known = known.is_some_and(|blocked| blocked.sequence == sequence && blocked.by == by);
        if !known || matches!(by, BlockedBy::DeadLetter | BlockedBy::Park) {
            let reason = shortened(reason);
            self.say(|report| report.blocked = Some(Blocked { sequence, reason, by }));
        }
    }

    /// Sends the dead letter, now or as soon as there is a connection.
    pub(super) fn send_dead_letter(&mut self, now: Duration, stream: &str, subject: &str) {
        let connected = self.connected;
        let token = self.token();
        let until = self.ours_until();
        let Some(hand) = &mut self.hand else { return };
        hand.parking = false;
        if !connected {
            hand.stage = Stage::PuttingAway { token, answered: true, due: now };
            return;
        }
        hand.stage = Stage::PuttingAway { token, answered: false, due: now + LONGEST_ANSWER };
        let effect = Effect::DeadLetter {
            message: hand.message,
            token,
            stream: stream.to_owned(),
            subject: subject.to_owned(),
            attempts: hand.attempts,
            reason: hand.reason.clone(),
            until,
        };
        self.emit(effect);
    }

    /// It is in the other stream, so it may leave this one.
    pub(super) fn stored(&mut self, now: Duration, answered: u64) {
        let Some(hand) = &self.hand else { return };
        if !matches!(hand.stage, Stage::PuttingAway { token, .. } if token == answered) {
            return;
        }
        if hand.skipping.is_some() {
            return self.skipped(now);
        }
        if hand.parking {
            return self.is_parked(now);
        }
        let (sequence, attempts, reason) = (hand.sequence, hand.attempts, hand.reason.clone());
        self.order_failed(sequence, &reason);
        self.note(Note::DeadLettered { sequence, attempts, reason });
        self.put_away(now, sequence);
    }

    pub(super) fn not_stored(&mut self, now: Duration, of: u64, reason: &str) {
        let Some(retry) = self.current.as_ref().map(|lane| lane.settings.retry) else { return };
        let Some(hand) = &mut self.hand else { return };
        let Stage::PuttingAway { token, answered: false, .. } = hand.stage else { return };
        if token != of {
            return;
        }
        hand.refusals += 1;
        let delay = retry::delay(&retry, hand.refusals);
        hand.stage = Stage::PuttingAway { token, answered: true, due: now + delay };
        let sequence = hand.sequence;
        if hand.parking {
            self.note(Note::NotParked { sequence, delay, reason: reason.to_owned() });
            self.blocked(BlockedBy::Park, &format!("the message is not parked: {reason}"));
            return self.apply_orders(now);
        }
        self.note(Note::NotStored { sequence, delay, reason: reason.to_owned() });
        self.blocked(BlockedBy::DeadLetter, &format!("the dead letter is not stored: {reason}"));
        self.apply_orders(now);
    }

    /// What time does to a message on its way to another stream.
    pub(super) fn storing_due(&mut self, now: Duration, token: u64, answered: bool) {
        if !answered {
            let reason = format!("nothing was heard of it for {} s", LONGEST_ANSWER.as_secs());
            self.not_stored(now, token, &reason);
        } else if self.connected && !self.stopping() {
            self.follow_policy(now);
        }
    }

    pub(super) fn put_away(&mut self, now: Duration, sequence: u64) {
        // One that comes again goes no second way.
        self.completed.insert(sequence);
        self.settle(now);
    }

    /// The lane's key says that the breaker is open.
    pub(super) fn breaker_open(&mut self, incarnation: u64, sequence: u64) {
        self.fuse.told(incarnation, sequence);
    }
}

/// Whether a message may be put away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permit {
    Given,
    JustOpened,
    Open,
}

/// The breaker: what was put away lately, and where it opened.
///
/// It stays open at one message. What comes after that one shows that the lane is past it, and everything begins anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Fuse {
    put_away: VecDeque<Duration>,
    /// Incarnation and sequence.
    open: Option<(u64, u64)>,
    /// The latest that was ever heard of: keys are read again and again.
    heard: Option<(u64, u64)>,
}

impl Fuse {
    /// See [`super::Lane::numbers`].
    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(Number<'_>)) {
        self.put_away.iter_mut().for_each(|time| visit(Number::Since(time)));
    }

    fn told(&mut self, incarnation: u64, sequence: u64) {
        let at = Some((incarnation, sequence));
        if at > self.heard {
            self.heard = at;
            self.open = at;
        }
    }

    fn is_open(&self, incarnation: u64, sequence: u64) -> bool {
        self.open.is_some_and(|(of, at)| of == incarnation && sequence <= at)
    }

    fn put_away(&mut self, now: Duration, breaker: Breaker, incarnation: u64, sequence: u64) -> Permit {
        if self.is_open(incarnation, sequence) {
            return Permit::Open;
        }
        if self.open.take().is_some_and(|(of, _)| of == incarnation) {
            self.put_away.clear();
        }
        let window = Duration::from_secs(breaker.window_seconds);
        while self.put_away.front().is_some_and(|earlier| *earlier + window <= now) {
            self.put_away.pop_front();
        }
        if self.put_away.len() >= breaker.max_exhausted as usize {
            self.told(incarnation, sequence);
            return Permit::JustOpened;
        }
        self.put_away.push_back(now);
        Permit::Given
    }
}
