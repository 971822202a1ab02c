//! Orders of persons: trying the message at which the lane stands, skipping messages.
//!
//! An order is carried out by whoever has the message, and is over when the lane is past it. Then its result is written
//! into the lane's key in its place. A worker that ends in between leaves the order there: the next one finds that the lane
//! is past it, because an order names its messages by sequence. Must not: cut off a handler.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{Effect, Hand, Lane, Membership, Note, Number, Stage, State, messages::shortened};
use crate::{
    order::{MAX_ORDERS, Order, OrderOutcome, OrderResult, Verb},
    record::{ExhaustedPolicy, Skipped},
};

/// Results that are remembered: the key may be read again before they are written, or a copy of it that lags.
const REMEMBERED: usize = 4 * MAX_ORDERS;
const PAST: &str = "the lane is past it: it was handled or put away before, by this worker or another";
const REFUSED: &str = "the lane refuses the message, because it does not belong to it";

/// An order that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Open {
    order: Order,
    /// Something was done for it: how many messages, and what came of it.
    done: Option<(u64, OrderOutcome, String)>,
}

impl Open {
    fn result(&self) -> OrderResult {
        let nothing = || (0, OrderOutcome::Void, PAST.to_owned());
        let (messages, outcome, reason) = self.done.clone().unwrap_or_else(nothing);
        OrderResult { id: self.order.id.clone(), outcome, messages, reason }
    }

    fn retries(&self, sequence: u64) -> bool {
        self.order.verb == Verb::Retry && self.order.sequence == Some(sequence)
    }

    fn skips(&self, sequence: u64, key: &str) -> bool {
        self.order.verb == Verb::Skip && self.order.covers(sequence, key)
    }
}

/// The orders of one incarnation, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Orders {
    incarnation: u64,
    open: Vec<Open>,
    over: VecDeque<OrderResult>,
}

impl Orders {
    /// Takes note of what the lane's key holds; results that were not written there.
    fn told(&mut self, incarnation: u64, orders: &[Order]) -> Vec<OrderResult> {
        if incarnation < self.incarnation {
            return Vec::new();
        }
        if incarnation > self.incarnation {
            *self = Self { incarnation, ..Self::default() };
        }
        // What is not there any more another worker has carried out, unless this copy of the key lags.
        let there = |one: &Open| orders.iter().any(|order| order.id == one.order.id);
        self.open.retain(|one| one.done.is_some() || one.order.begun || there(one));
        let mut again = Vec::new();
        for order in orders {
            if let Some(result) = self.over.iter().find(|result| result.id == order.id) {
                again.push(result.clone());
            } else if !self.open.iter().any(|one| one.order.id == order.id)
                && matches!(order.verb, Verb::Retry | Verb::Skip)
                && self.open.len() < MAX_ORDERS
            {
                self.open.push(Open { order: order.clone(), done: None });
            }
        }
        again
    }

    /// The order to skip a message.
    fn skip(&self, sequence: u64, key: impl FnOnce() -> String) -> Option<&Order> {
        if self.open.is_empty() {
            return None;
        }
        let key = key();
        self.open.iter().find(|one| one.skips(sequence, &key)).map(|one| &one.order)
    }

    /// Whether there is an order to try a message whose attempt has not begun.
    fn retry(&self, sequence: u64) -> bool {
        self.open.iter().any(|one| one.retries(sequence) && !one.order.begun)
    }

    /// Notes what was done for orders about a message.
    fn done(&mut self, which: impl Fn(&Open) -> bool, outcome: &OrderOutcome, reason: &str) {
        for one in self.open.iter_mut().filter(|one| which(one)) {
            let before = one.done.as_ref().map_or(0, |(messages, ..)| *messages);
            let more = u64::from(*outcome != OrderOutcome::Void);
            one.done = Some((before + more, outcome.clone(), reason.to_owned()));
        }
    }

    /// Those that are over, with their results.
    fn end(&mut self, over: impl Fn(&Open) -> bool) -> Vec<OrderResult> {
        let (ended, open) = std::mem::take(&mut self.open).into_iter().partition(over);
        self.open = open;
        let results: Vec<OrderResult> = ended.iter().map(Open::result).collect();
        self.over.extend(results.iter().cloned());
        let superfluous = self.over.len().saturating_sub(REMEMBERED);
        self.over.drain(..superfluous);
        results
    }
}

/// A message that waits at the server for its next attempt, and that nobody else can have been given yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GivenBack {
    message: u64,
    sequence: u64,
    subject: String,
    until: Duration,
}

impl GivenBack {
    /// Until its delay is over when the server took note of it, and until its deadline when not: whichever is first.
    pub(super) fn new(hand: Hand, now: Duration, delay: Duration) -> Self {
        let until = hand.deadline().min(now + delay);
        Self { message: hand.message, sequence: hand.sequence, subject: hand.subject, until }
    }

    /// See [`super::Lane::numbers`].
    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(Number<'_>)) {
        visit(Number::Pull(&mut self.message));
        visit(Number::Due(&mut self.until));
    }
}

impl Lane {
    /// The lane's key was read: these are the orders in it.
    pub(super) fn ordered(&mut self, now: Duration, incarnation: u64, orders: &[Order]) {
        for result in self.orders.told(incarnation, orders) {
            self.emit(Effect::OrderEnded { incarnation, result });
        }
        self.apply_orders(now);
        if self.has_orders() && self.hand.is_none() {
            // Is the lane past them?
            self.inspect(now);
        }
    }

    /// Whether there is something to carry out in the lane that we are in.
    pub(super) fn has_orders(&self) -> bool {
        !self.orders.open.is_empty() && self.incarnation() == Some(self.orders.incarnation)
    }

    /// Carries out what can be carried out now: the lane stands, or its message waits.
    pub(super) fn apply_orders(&mut self, now: Duration) {
        if !self.has_orders() || self.membership != Membership::Member || self.stopping() || !self.connected {
            return;
        }
        self.call_back(now);
        let Some(hand) = &self.hand else { return };
        let (sequence, attempts) = (hand.sequence, hand.attempts);
        if !matches!(hand.stage, Stage::Verifying { .. }) {
            self.pass(sequence);
        }
        let Some(hand) = &self.hand else { return };
        match hand.stage {
            // Sent again when it is due, not sooner.
            Stage::PuttingAway { .. } if hand.skipping.is_some() => {}
            Stage::Standing { .. } | Stage::PuttingAway { answered: true, .. } => {
                // Behind a parked message it would not be tried.
                let may_be_tried = !hand.behind;
                if !self.skip_if_ordered(now, attempts) && may_be_tried && self.orders.retry(sequence) {
                    if self.window.is_some() {
                        // In its place, as every attempt.
                        self.begin_handling(now);
                    } else {
                        self.give_back(now, Duration::ZERO, Some(State::Blocked));
                    }
                }
            }
            Stage::Held { .. } | Stage::Again { .. } => {
                let attempts = self.attempts_in_hand().saturating_sub(1);
                if !self.skip_if_ordered(now, attempts) && self.orders.retry(sequence) {
                    self.begin_handling(now);
                }
            }
            Stage::Verifying { .. }
            | Stage::Consulting { .. }
            | Stage::Refused
            | Stage::Handling { .. }
            | Stage::Settling { .. }
            | Stage::PuttingAway { answered: false, .. } => {}
        }
    }

    /// A message that waits for its next attempt comes at once when something is ordered of it.
    fn call_back(&mut self, now: Duration) {
        let Some(given_back) = &self.given_back else { return };
        let (sequence, subject) = (given_back.sequence, &given_back.subject);
        let wanted =
            self.orders.retry(sequence) || self.orders.skip(sequence, || self.key_of(subject)).is_some();
        if !wanted || now >= given_back.until {
            return;
        }
        let message = given_back.message;
        let token = self.token();
        self.emit(Effect::Nak { message, token, delay: Duration::ZERO });
        self.forget_given_back();
    }

    /// It cannot be called back any more.
    pub(super) fn forget_given_back(&mut self) {
        if let Some(GivenBack { message, .. }) = self.given_back.take() {
            self.emit(Effect::Forget { message });
        }
    }

    /// What time does to it.
    pub(super) fn given_back_lapses(&mut self, now: Duration) {
        if self.given_back.as_ref().is_some_and(|given_back| now >= given_back.until) {
            self.forget_given_back();
        }
    }

    fn key_of(&self, subject: &str) -> String {
        let mapping = self.current.as_ref().map(|lane| &lane.mapping);
        let key = mapping.and_then(|mapping| mapping.key_of(mapping.original_subject(subject)?));
        key.unwrap_or_default().join(".")
    }

    /// The handler is about to be asked: whether that is because of an order, so that attempts left do not matter.
    pub(super) fn begin_order(&mut self, sequence: u64) -> bool {
        let incarnation = self.orders.incarnation;
        if !self.has_orders() {
            return false;
        }
        let mut begun = Vec::new();
        for one in self.orders.open.iter_mut().filter(|one| one.retries(sequence) && !one.order.begun) {
            one.order.begun = true;
            begun.push(one.order.id.clone());
        }
        let any = !begun.is_empty();
        for id in begun {
            self.emit(Effect::OrderBegun { incarnation, id });
        }
        any
    }

    /// Whether there is an order to try what is in hand, given while its handler ran.
    pub(super) fn is_to_be_retried(&self, sequence: u64) -> bool {
        self.has_orders() && self.orders.retry(sequence)
    }

    /// Skips what is in hand if that is ordered; its handler does not run.
    pub(super) fn skip_if_ordered(&mut self, now: Duration, attempts: u64) -> bool {
        let Some(order) = self.skip_order().cloned() else { return false };
        let Some(hand) = &mut self.hand else { return false };
        hand.skipping = Some(Arc::new(order));
        hand.attempts = attempts;
        self.skip_on(now);
        true
    }

    /// Whether there is an order to skip what is in hand.
    pub(super) fn is_to_be_skipped(&self) -> bool {
        self.skip_order().is_some()
    }

    fn skip_order(&self) -> Option<&Order> {
        let hand = self.hand.as_ref().filter(|_| self.has_orders())?;
        self.orders.skip(hand.sequence, || self.key_of(&hand.subject))
    }

    /// Whether there is an order to skip a message that is not in hand yet.
    pub(super) fn skips(&self, sequence: u64, subject: &str) -> bool {
        self.has_orders() && self.orders.skip(sequence, || self.key_of(subject)).is_some()
    }

    /// The next step of skipping what is in hand: a dead letter first where the policy has some.
    pub(super) fn skip_on(&mut self, now: Duration) {
        let Some(lane) = self.current.clone() else { return };
        let Some(order) = self.skipping() else { return };
        let words = shortened(&format!("skipped by {}: {}", order.by, order.reason));
        match &lane.settings.on_exhausted {
            ExhaustedPolicy::DeadLetter { stream, subject, .. } => {
                if let Some(hand) = &mut self.hand {
                    hand.reason = words;
                }
                self.send_dead_letter(now, stream, subject);
            }
            ExhaustedPolicy::Block | ExhaustedPolicy::Drop { .. } | ExhaustedPolicy::ParkKey { .. } => {
                self.skipped(now);
            }
        }
    }

    /// The order because of which what is in hand is being skipped.
    pub(super) fn skipping(&self) -> Option<Arc<Order>> {
        self.hand.as_ref()?.skipping.clone()
    }

    /// It may be acknowledged now.
    pub(super) fn skipped(&mut self, now: Duration) {
        let Some(hand) = &self.hand else { return };
        let (sequence, attempts, key) = (hand.sequence, hand.attempts, self.key_of(&hand.subject));
        let Some(order) = self.skipping() else { return };
        let Order { reason, by, .. } = (*order).clone();
        self.orders.done(|one| one.skips(sequence, &key), &OrderOutcome::Skipped, "");
        self.note(Note::Skipped { sequence, attempts, reason: reason.clone(), by: by.clone() });
        self.say(|report| report.skipped = Some(Skipped { sequence, reason, by }));
        self.put_away(now, sequence);
    }

    /// The handler completed a message.
    pub(super) fn order_succeeded(&mut self, sequence: u64) {
        self.orders.done(|one| one.retries(sequence), &OrderOutcome::Succeeded, "");
    }

    /// A message was put away for another reason than an order.
    pub(super) fn order_failed(&mut self, sequence: u64, reason: &str) {
        self.orders.done(|one| one.retries(sequence) && one.order.begun, &OrderOutcome::Failed, reason);
    }

    /// The attempt that an order was about has failed: it is over.
    pub(super) fn attempt_failed(&mut self, sequence: u64, reason: &str) {
        self.order_failed(sequence, &shortened(reason));
        self.end_orders(|one| one.retries(sequence) && one.order.begun);
    }

    /// The server confirmed that a message is settled.
    pub(super) fn orders_settled(&mut self, sequence: u64) {
        self.end_orders(|one| one.order.last() <= sequence);
    }

    /// A message is the lane's next: it is past what came before.
    pub(super) fn pass(&mut self, sequence: u64) {
        self.end_orders(|one| one.order.last() < sequence);
    }

    /// A message will never be this lane's to do anything with.
    pub(super) fn refuse_orders(&mut self, sequence: u64) {
        let about = |one: &Open| one.order.sequence == Some(sequence);
        self.orders.done(about, &OrderOutcome::Void, REFUSED);
        self.end_orders(about);
    }

    /// The consumer's floor was seen. Only who has the lane, or nobody, says by it what came of an order: whoever carries it
    /// out knows better.
    pub(super) fn floor_seen(&mut self, floor: u64) {
        if self.hand.is_none() && !self.elsewhere && self.membership == Membership::Member {
            self.end_orders(|one| one.order.last() <= floor);
        }
    }

    fn end_orders(&mut self, over: impl Fn(&Open) -> bool) {
        if !self.has_orders() {
            return;
        }
        let incarnation = self.orders.incarnation;
        for result in self.orders.end(over) {
            self.emit(Effect::OrderEnded { incarnation, result });
        }
    }
}
