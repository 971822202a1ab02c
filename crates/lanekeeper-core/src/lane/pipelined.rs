//! A lane with several messages on hand: arriving, going on to the next, acknowledging, giving up, leaving.
//!
//! The message in hand is a serial lane's: the same stages, except that nothing is ever given back to be tried again.
//! A message that was given back with a delay would be overtaken by those behind it, so it is tried again in its place,
//! with everything on hand kept alive; attempts are counted here, in memory. What is behind it, and why it is safe to go
//! on to it, is [`super::window`].

use std::{sync::Arc, time::Duration};

use super::{
    Delivered, Effect, Hand, Lane, Membership, Note, PullStatus, Stage, Window,
    batch::Batches,
    messages::shortened,
    verdict::{Verdict, verdict},
    window::{Item, Kind, Phase},
};
use crate::record::Delivery;

impl Lane {
    /// What the lane that is entered needs.
    pub(super) fn prepare(&mut self) {
        self.window = self.wanted_window().map(|(size, batches)| Window::new(size, batches));
    }

    /// The settings of the lane may have changed.
    pub(super) fn resize(&mut self) {
        if let (Some((size, batches)), Some(window)) = (self.wanted_window(), &mut self.window) {
            window.size = size;
            window.batches.change(&batches);
        }
    }

    fn wanted_window(&self) -> Option<(u32, Batches)> {
        match self.current.as_ref()?.settings.delivery {
            Delivery::Serial => None,
            Delivery::Batch { window, most, wait_milliseconds } if self.options.batches => {
                Some((window, Batches::new(most, Duration::from_millis(wait_milliseconds))))
            }
            Delivery::Pipelined { window } | Delivery::Batch { window, .. } => {
                Some((window, Batches::new(1, Duration::ZERO)))
            }
        }
    }

    /// Nothing is on hand, and nothing is out.
    pub(super) fn is_worked_off(&self) -> bool {
        self.window
            .as_ref()
            .is_none_or(|window| window.len() == 0 && window.is_acknowledged() && window.phase == Phase::Sure)
    }

    /// Until when what is in hand is ours, as far as we know.
    pub(super) fn ours_until(&self) -> Duration {
        let hand = self.hand.as_ref().map(Hand::deadline);
        let pin = self.window.as_ref().and_then(Window::pin_deadline);
        [hand, pin, self.lease].into_iter().flatten().min().unwrap_or_default()
    }

    /// Messages behind the one in hand.
    pub fn behind(&self) -> usize {
        self.window.as_ref().map_or(0, Window::len)
    }

    pub(super) fn arrived(&mut self, now: Duration, delivered: &Delivered<'_>) {
        let Some(pulled) = self.pulls.consume(now, delivered.pull) else {
            return self.drop_stale(delivered);
        };
        if self.pin.as_ref().is_some_and(|pin| !pin.is(delivered.pin)) {
            // Between the two pins another worker may have had what is on hand.
            self.lose_all(now);
            self.doubt(now);
        }
        self.pinned(delivered.pin);
        self.reached();
        let (Some(window), Some(lane)) = (&mut self.window, &self.current) else {
            return self.drop_stale(delivered);
        };
        match delivered.pin {
            Some(_) => window.pin_kept(pulled, self.wait),
            None => window.unpinned(),
        }
        let served = self.membership == Membership::Member
            && !self.ending()
            && self.may_own()
            && self.replay.is_none();
        let (Some(window), false, true) = (&mut self.window, now >= pulled + self.wait, served) else {
            return self.drop_stale(delivered);
        };
        let sequence = delivered.sequence;
        let is_known = window.expected.is_some();
        let continues = window.continues(delivered.consumer_sequence);
        let gap = is_known && !continues;
        let is_sure = window.phase == Phase::Sure;
        let in_hand = self.hand.as_ref().map_or(0, |hand| hand.with);
        let last_in_hand =
            self.hand.as_ref().map(|hand| Batches::last(hand.sequence, &window.sure, hand.with));
        if is_sure && continues && sequence > window.last {
            let item = item(lane, delivered, (now, pulled), self.wait);
            return window.push(item);
        }
        if let Some(hand) = self.hand.as_mut().filter(|hand| hand.sequence == sequence) {
            hand.proven(pulled, self.wait);
            self.emit(Effect::Forget { message: delivered.message });
        } else if let Some(known) = window.find(sequence) {
            known.proven(pulled, self.wait);
            self.emit(Effect::Forget { message: delivered.message });
        } else if window.is_done(sequence) {
            // Its acknowledgement is on its way, or was lost.
            self.note(Note::Duplicate(sequence));
            self.emit(Effect::Forget { message: delivered.message });
            self.send_acks(now, true);
        } else {
            let item = item(lane, delivered, (now, pulled), self.wait);
            if sequence <= window.last {
                // Somebody set the consumer back: what is on hand is behind this one.
                window.reconsider(in_hand);
            }
            let elsewhere = window.phase == Phase::Elsewhere;
            if last_in_hand.is_some_and(|last| sequence < last) && !self.completed.contains(sequence) {
                self.lose_all(now);
            }
            if let Some(window) = &mut self.window {
                window.stash(item);
            }
            if is_sure || elsewhere {
                self.doubt(now);
            }
        }
        if gap {
            self.doubt(now);
        }
    }

    /// What follows from the state alone: a takeover goes on, the next message begins, what is completed is acknowledged.
    pub(super) fn proceed(&mut self, now: Duration) {
        if self.window.is_none() || self.membership != Membership::Member {
            return;
        }
        self.take_over(now);
        while self.hand.is_none() && !self.stopping() && self.may_begin(now) {
            let Some(item) = self.window.as_mut().and_then(|window| window.sure.pop_front()) else { break };
            self.begin(now, item);
        }
        let in_doubt = self.window.as_ref().is_some_and(|window| window.phase != Phase::Sure);
        let rest = self.hand.is_none() && self.window.as_ref().is_some_and(|window| window.sure.is_empty());
        self.send_acks(now, self.stopping() || in_doubt && rest);
    }

    /// The first of what is sure.
    fn begin(&mut self, now: Duration, item: Item) {
        let sequence = item.sequence;
        let known = self.completed.contains(sequence);
        match &item.kind {
            _ if known => {
                self.note(Note::Duplicate(sequence));
                self.complete(now, item.message, sequence, item.deadline());
            }
            Kind::Covered => {
                self.note(Note::Covered(sequence));
                self.complete(now, item.message, sequence, item.deadline());
            }
            Kind::Refused(reason) => {
                let reason = reason.clone();
                self.note(Note::Refused { sequence, reason: reason.clone() });
                self.refuse(sequence, shortened(&reason));
                self.refuse_orders(sequence);
                self.hand = Some(Hand::of(item, Stage::Refused));
            }
            Kind::Ours => {
                let key = self.parked_key(&item.subject);
                let mut hand = Hand::of(item, Stage::Held { until: now });
                hand.key = key;
                self.hand = Some(hand);
                self.begin_handling(now);
            }
        }
    }

    /// The message in hand is done with; the next one may begin.
    pub(super) fn pass_on(&mut self, now: Duration) {
        let Some(hand) = self.hand.take() else { return };
        self.complete(now, hand.message, hand.sequence, hand.deadline());
        self.tried = None;
        let report = &self.report;
        if report.blocked.is_some() || report.refused.is_some() || report.lost.is_some() {
            self.say(|report| {
                report.blocked = None;
                report.refused = report.refused.take().filter(|refused| refused.sequence == 0);
                report.lost = None;
            });
        }
    }

    pub(super) fn complete(&mut self, now: Duration, message: u64, sequence: u64, deadline: Duration) {
        if let Some(window) = &mut self.window {
            window.complete(now, message, sequence, deadline);
        }
    }

    /// Acknowledges what is completed, when that is due.
    pub(super) fn send_acks(&mut self, now: Duration, hasty: bool) {
        let repeat = self.ack_repeat(true);
        let Some(window) = &mut self.window else { return };
        if self.gone {
            // Nobody takes it any more; the successor relies on the floor.
            let messages = window.give_up_done();
            self.forget_all(messages);
            return;
        }
        if !self.connected || window.ack_due(repeat, hasty).is_none_or(|due| now < due) {
            return;
        }
        self.tokens += 1;
        let token = self.tokens;
        let messages = window.ack_sent(now, token);
        self.emit(Effect::Acks { messages, token });
    }

    /// Something that was sent with a token was answered.
    pub(super) fn window_answered(&mut self, token: u64) {
        let wait = self.wait;
        let Some(window) = &mut self.window else { return };
        if let Some((sequence, messages)) = window.acked(token) {
            self.forget_all(messages);
            self.orders_settled(sequence);
            return self.note(Note::Settled(sequence));
        }
        if let Some(hand) = &mut self.hand {
            hand.progress_answered(token, wait);
        }
        window.progress_answered(token, wait);
    }

    /// What time has taken.
    pub(super) fn lapse_window(&mut self, now: Duration) {
        let Some(window) = &mut self.window else { return };
        let in_hand = self.hand.as_ref();
        let pin_over = window.pin_deadline().is_some_and(|deadline| now >= deadline);
        let over = in_hand.is_some_and(|hand| now >= hand.deadline())
            || pin_over && (in_hand.is_some() || window.len() > 0);
        if !over && !window.is_due(now) {
            return;
        }
        if window.has_lapsed_done(now) {
            // It comes again, and is acknowledged then. Nothing behind it may be before that: what is out is always all from
            // some message on, or nobody could tell it from what was acknowledged.
            let messages = window.give_up_done();
            self.forget_all(messages);
            self.lose_all(now);
            return self.doubt(now);
        }
        let first = window.sure.iter().position(|item| now >= item.deadline());
        let in_handler = first.is_some_and(|first| in_hand.is_some_and(|hand| first < hand.with));
        if over || in_handler {
            self.lose_all(now);
            return self.doubt(now);
        }
        let mut lost: Vec<Item> = first.map_or_else(Vec::new, |first| window.sure.drain(first..).collect());
        lost.extend(window.unsure.extract_if(.., |item| now >= item.deadline()));
        self.given_up(now, &lost);
    }

    /// Everything on hand may be another's by now: nothing more is sent for it.
    pub(super) fn lose_all(&mut self, now: Duration) {
        let lost = self.window.as_mut().map(Window::take_all).unwrap_or_default();
        if let Some(hand) = self.hand.take() {
            if matches!(hand.stage, Stage::Handling { .. }) {
                self.emit(Effect::Cancel);
            }
            self.emit(Effect::Forget { message: hand.message });
            self.note(Note::Lost(hand.sequence));
            if !self.gone {
                self.say(|report| report.lost = Some(hand.sequence));
            }
        }
        self.given_up(now, &lost);
    }

    fn given_up(&mut self, now: Duration, lost: &[Item]) {
        let Some(first) = lost.iter().map(|item| item.sequence).min() else { return };
        self.note(Note::LostBehind { first, messages: lost.len() });
        self.forget_all(lost.iter().map(|item| item.message));
        self.doubt(now);
    }

    /// In-progress acks and renewals that are due.
    pub(super) fn keep_window_alive(&mut self, now: Duration) {
        let talks = self.options.progress && self.connected && !self.gone;
        let Some(window) = &mut self.window else { return };
        if !window.is_due(now) {
            return;
        }
        if talks {
            for item in window.sure.iter_mut().chain(&mut window.unsure) {
                if now >= item.progress_due {
                    self.tokens += 1;
                    item.progress = Some((self.tokens, now));
                    item.progress_due = now + item.wait / 3;
                    self.effects.push(Effect::Progress { message: item.message, token: self.tokens });
                }
            }
        }
        window.schedule(talks);
        self.renew(now);
    }

    /// When this part next needs time.
    pub(super) fn window_wake(&self) -> [Option<Duration>; 4] {
        let Some(window) = &self.window else { return [None; 4] };
        let phase = match window.phase {
            Phase::Doubt { not_before } => Some(not_before),
            Phase::Missing { look_due, .. } => Some(look_due),
            _ => None,
        };
        let on_hand = self.hand.is_some() || window.len() > 0;
        let pin = window.pin_deadline().filter(|_| on_hand);
        let ack = window.ack_due(self.ack_repeat(true), false);
        let due = [window.due(), pin].into_iter().flatten().min();
        [phase, due, ack, self.begins_at()]
    }

    /// The server answers again.
    pub(super) fn window_connected(&mut self, now: Duration) {
        let Some(window) = &mut self.window else { return };
        window.forget_acks();
        window.progress_at_once(now);
        if let Phase::Asking { .. } | Phase::Listing { .. } = window.phase {
            window.phase = Phase::Doubt { not_before: now };
        }
    }

    /// A pull that carried the pin came back: the server had taken note of it.
    pub(super) fn window_pull_ended(&mut self, pull: u64, status: PullStatus) {
        let wait = self.wait;
        let Some(window) = &mut self.window else { return };
        if !matches!(status, PullStatus::Expired | PullStatus::TooLarge) {
            return;
        }
        let sent = window.renewal_ended(pull).or_else(|| self.pulls.sent(pull));
        if self.pin.as_ref().is_some_and(|pin| pin.is_carried_by(pull))
            && let Some(sent) = sent
        {
            window.pin_kept(sent, wait);
        }
    }

    /// On the way out: whether nothing is in hand or unacknowledged any more.
    pub(super) fn release_window(&mut self, now: Duration) -> bool {
        if let Some(hand) = &self.hand {
            match hand.stage {
                Stage::Handling { .. } | Stage::PuttingAway { answered: false, .. } => return false,
                _ => {}
            }
        }
        self.send_acks(now, true);
        let Some(window) = &mut self.window else { return true };
        window.is_acknowledged()
    }

    /// Gives back what is on hand, in the order of the stream: the next worker need not wait until it lapses. None of it is in
    /// a handler. On the way out no pull of ours may be out that would bring it back.
    pub(super) fn give_all_back(&mut self) {
        let hand = self.hand.take();
        let rest = self.window.as_mut().map(Window::take_all).unwrap_or_default();
        let messages = hand.map(|hand| hand.message).into_iter().chain(rest.iter().map(|item| item.message));
        for message in messages {
            let token = self.token();
            if self.connected && !self.ending() {
                self.emit(Effect::Nak { message, token, delay: Duration::ZERO });
            }
            self.emit(Effect::Forget { message });
        }
    }

    /// The attempt that begins, or runs.
    pub(super) fn attempt(&self, sequence: u64) -> u64 {
        self.tried.filter(|(of, _)| *of == sequence).map_or(0, |(_, times)| times) + 1
    }

    pub(super) fn attempted(&mut self, sequence: u64) {
        self.tried = Some((sequence, self.attempt(sequence)));
    }
}

fn item(
    lane: &Arc<crate::record::Assignment>,
    delivered: &Delivered<'_>,
    (arrived, pulled): (Duration, Duration),
    wait: Duration,
) -> Item {
    let kind = match verdict(lane, delivered.subject, delivered.sequence) {
        Verdict::Ours => Kind::Ours,
        Verdict::Covered => Kind::Covered,
        Verdict::Refused(reason) => Kind::Refused(reason),
    };
    Item {
        message: delivered.message,
        sequence: delivered.sequence,
        consumer_sequence: delivered.consumer_sequence,
        kind,
        subject: delivered.subject.to_owned(),
        arrived,
        proof: pulled,
        wait,
        progress: None,
        progress_due: pulled + wait / 3,
    }
}
