//! The messages of an order: listed, fetched, handled or dropped, and deleted, one after another.

use std::{sync::Arc, time::Duration};

use super::{AGAIN, PATIENCE, Step};
use crate::{
    lane::{
        Effect, Lane, Note, Outcome,
        exhausted::LONGEST_ANSWER,
        messages::{FIRST_HOLD, LONGEST_HOLD, LONGEST_WAIT, shortened},
    },
    park::{ParkedMessage, in_order},
    retry,
};

impl Lane {
    /// Sends the request of a step, or has it sent when there is a connection.
    pub(super) fn ask(&mut self, now: Duration, step: Step) {
        let connected = self.connected;
        let token = self.token();
        let wait = self.wait;
        let lease = self.lease.unwrap_or(Duration::MAX);
        let Some(replay) = &mut self.replay else { return };
        replay.step = step;
        replay.token = if connected { token } else { 0 };
        replay.due = if connected { now + LONGEST_ANSWER } else { now + AGAIN };
        let front = replay.list.front();
        let effect = match (step, front, replay.deadline(wait)) {
            (Step::Listing, ..) => Effect::ListParked { token, key: Arc::clone(&replay.order.key) },
            (Step::Fetching, Some(front), _) => {
                Effect::FetchParked { token, stored: front.stored.first().copied().unwrap_or_default() }
            }
            (Step::Deleting, Some(front), Some(deadline)) => {
                let until = deadline.min(lease);
                Effect::DeleteParked { token, stored: front.stored.clone(), until }
            }
            _ => return,
        };
        if connected {
            self.emit(effect);
        }
    }

    fn awaits(&self, token: u64) -> bool {
        token != 0 && self.replay.as_ref().is_some_and(|replay| replay.token == token)
    }

    /// A request of a step failed: it is repeated after a while.
    pub(in crate::lane) fn replay_refused(&mut self, now: Duration, token: u64, reason: &str) {
        if !self.awaits(token) {
            return;
        }
        let Some(retry) = self.current.as_ref().map(|lane| lane.settings.retry) else { return };
        let Some(replay) = &mut self.replay else { return };
        replay.token = 0;
        replay.refusals += 1;
        let delay = retry::delay(&retry, replay.refusals);
        replay.due = now + delay;
        let sequence = replay.head().unwrap_or_default();
        let given_up = replay.refusals >= PATIENCE;
        if given_up {
            replay.outcome.failure = Some((sequence, shortened(reason)));
        }
        self.note(Note::NotParked { sequence, delay, reason: reason.to_owned() });
        if given_up {
            self.order_done(now);
        }
    }

    pub(in crate::lane) fn parked_listed(&mut self, now: Duration, token: u64, messages: Vec<ParkedMessage>) {
        if !self.awaits(token) {
            return;
        }
        let Some(replay) = &mut self.replay else { return };
        replay.refusals = 0;
        let only = replay.order.sequence;
        let meant = |message: &ParkedMessage| only.is_none_or(|only| only == message.fence.sequence);
        replay.list = in_order(messages.into_iter().filter(meant));
        if replay.list.is_empty() {
            return self.order_done(now);
        }
        self.ask(now, Step::Fetching);
    }

    pub(in crate::lane) fn parked_fetched(&mut self, now: Duration, token: u64, message: Option<u64>) {
        if !self.awaits(token) {
            // Of a replay that was given up.
            if let Some(message) = message {
                self.emit(Effect::Forget { message });
            }
            return;
        }
        let Some(replay) = &mut self.replay else { return };
        replay.token = 0;
        replay.refusals = 0;
        replay.attempts = 0;
        match message {
            // Somebody deleted this copy; there may be others.
            None => {
                if let Some(front) = replay.list.front_mut() {
                    front.stored.remove(0);
                    if front.stored.is_empty() {
                        replay.list.pop_front();
                    }
                }
                self.go_on(now);
            }
            Some(message) if replay.order.drop => {
                let sequence = replay.head().unwrap_or_default();
                self.note(Note::ParkedDropped { sequence, message });
                self.is_dealt_with();
                self.emit(Effect::Forget { message });
                self.ask(now, Step::Deleting);
            }
            Some(message) => self.handle_parked(now, message),
        }
    }

    pub(super) fn handle_parked(&mut self, now: Duration, message: u64) {
        let Some(replay) = &mut self.replay else { return };
        replay.step = Step::Handling { message, since: now };
        replay.token = 0;
        let attempt = replay.attempts + 1;
        self.emit(Effect::HandleParked { message, attempt });
    }

    /// The handler of a parked message ended; `false` if none ran.
    pub(in crate::lane) fn replay_handled(&mut self, now: Duration, outcome: &Outcome) -> bool {
        let Some(replay) = &mut self.replay else { return false };
        let Step::Handling { message, .. } = replay.step else { return false };
        let sequence = replay.head().unwrap_or_default();
        match outcome {
            Outcome::Done => {
                let attempts = replay.attempts + 1;
                self.is_dealt_with();
                self.note(Note::Released { sequence, attempts });
                self.emit(Effect::Forget { message });
                self.ask(now, Step::Deleting);
            }
            Outcome::Retry { reason, after } => self.parked_failed(now, message, reason, *after, false),
            Outcome::Permanent { reason } => self.parked_failed(now, message, reason, None, true),
            Outcome::Wait { reason, after } => {
                self.wait_with(now, message, (*after).clamp(FIRST_HOLD, LONGEST_WAIT), reason);
            }
            Outcome::Unreachable { reason } => {
                let delay = FIRST_HOLD.saturating_mul(1 << replay.unreachable.min(10)).min(LONGEST_HOLD);
                replay.unreachable += 1;
                self.wait_with(now, message, delay, reason);
            }
        }
        true
    }

    /// Should its delivery come again, because its acknowledgement was lost, it is acknowledged without the handler.
    fn is_dealt_with(&mut self) {
        let life = self.current.as_ref().map(|lane| lane.stream_incarnation);
        let fence = self.replay.as_ref().and_then(|replay| replay.list.front()).map(|message| message.fence);
        // A sequence of an earlier life of the stream may be another message's now.
        if let Some(fence) = fence.filter(|fence| Some(fence.stream_incarnation) == life) {
            self.completed.insert(fence.sequence);
        }
    }

    fn wait_with(&mut self, now: Duration, message: u64, delay: Duration, reason: &str) {
        let Some(replay) = &mut self.replay else { return };
        replay.step = Step::Waiting { message };
        replay.due = now + delay;
        let sequence = replay.head().unwrap_or_default();
        self.note(Note::Held { sequence, delay, reason: reason.to_owned() });
    }

    fn parked_failed(
        &mut self,
        now: Duration,
        message: u64,
        reason: &str,
        after: Option<Duration>,
        permanent: bool,
    ) {
        let Some(retry) = self.current.as_ref().map(|lane| lane.settings.retry) else { return };
        let Some(replay) = &mut self.replay else { return };
        replay.attempts += 1;
        let attempt = replay.attempts;
        let exhausted = permanent || retry::exhausted(&retry, attempt);
        let delay = match after {
            _ if exhausted => Duration::ZERO,
            Some(after) => after.clamp(FIRST_HOLD, LONGEST_WAIT),
            None => retry::delay(&retry, attempt),
        };
        let sequence = replay.head().unwrap_or_default();
        if !exhausted {
            replay.step = Step::Waiting { message };
            replay.due = now + delay;
        }
        self.note(Note::Failed { sequence, attempt, delay, exhausted, reason: reason.to_owned() });
        if exhausted {
            self.emit(Effect::Forget { message });
            // Nothing of its key is released before it.
            if let Some(replay) = &mut self.replay {
                replay.outcome.failure = Some((sequence, shortened(reason)));
            }
            self.order_done(now);
        }
    }

    pub(in crate::lane) fn parked_deleted(&mut self, now: Duration, token: u64) {
        if !self.awaits(token) {
            return;
        }
        let Some(replay) = &mut self.replay else { return };
        replay.refusals = 0;
        replay.outcome.messages += 1;
        replay.list.pop_front();
        self.go_on(now);
    }

    /// The next message; or, after the last, one more look whether there are others by now.
    pub(super) fn go_on(&mut self, now: Duration) {
        let Some(replay) = &self.replay else { return };
        if self.stopping() {
            return self.give_up_replay(now);
        }
        let step = if replay.list.is_empty() { Step::Listing } else { Step::Fetching };
        self.ask(now, step);
    }
}
