//! Releasing and dropping parked messages, one order of a person at a time.
//!
//! It runs between two messages: no pull is out that could bring one, nothing is in hand. It begins with a claim in the
//! lane's key, so that one worker of the lane does it. From then on the consumer is looked at as often as a message in hand
//! would be kept alive, and a pin that we have is renewed with it. What is being released is given up like a message in
//! hand: when no look was answered well for as long as the consumer's deadline (somebody may have fenced the lane), or when
//! the lane's messages go to another worker.
//!
//! Nothing of it is kept but the messages themselves: whoever comes next begins with what is left. Attempts are counted here,
//! in memory, from 1.

mod messages;
mod owner;

use std::{collections::VecDeque, time::Duration};

use super::{
    Effect, Lane, Note, Number, Outcome, exhausted::LONGEST_ANSWER, membership::Membership, window::Phase,
};
use crate::park::{ParkOrder, ParkOutcome, ParkedMessage};

/// After a claim that was not granted, and after what was given up.
const AGAIN: Duration = Duration::from_secs(1);
/// So often in a row a request may fail before the order ends: the lane takes no message meanwhile.
const PATIENCE: u64 = 5;
/// Orders that are known to be done, in case they are read once more.
const REMEMBERED: usize = 64;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    /// The claim.
    Claiming,
    /// The first look at the consumer.
    Looking,
    /// The list of what is parked.
    Listing,
    /// The next message.
    Fetching,
    /// Its handler.
    Handling { message: u64, since: Duration },
    /// A while, before it is handed to the handler once more.
    Waiting { message: u64 },
    /// It was handled, or is dropped: its deletion.
    Deleting,
}

/// An order that is being carried out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Replay {
    order: ParkOrder,
    step: Step,
    /// Of the request that is out; 0 when none is.
    token: u64,
    /// When to give up waiting for its answer, or to ask again.
    due: Duration,
    /// When the latest look was sent that was answered well.
    proof: Option<Duration>,
    /// The same of the latest renewal; nothing while nobody has the pin.
    pinned: Option<Duration>,
    holds_pin: bool,
    looks: Vec<(u64, Duration)>,
    renewals: Vec<(u64, Duration)>,
    look_due: Duration,
    list: VecDeque<ParkedMessage>,
    outcome: ParkOutcome,
    /// Attempts at the first of the list that failed.
    attempts: u64,
    unreachable: u32,
    refusals: u64,
}

impl Replay {
    fn new(order: ParkOrder, now: Duration) -> Self {
        let outcome = ParkOutcome { drop: order.drop, ..ParkOutcome::default() };
        Self {
            order,
            step: Step::Claiming,
            token: 0,
            due: now + LONGEST_ANSWER,
            proof: None,
            pinned: None,
            holds_pin: false,
            looks: Vec::new(),
            renewals: Vec::new(),
            look_due: now,
            list: VecDeque::new(),
            outcome,
            attempts: 0,
            unreachable: 0,
            refusals: 0,
        }
    }

    /// After this another worker may do the same.
    fn deadline(&self, wait: Duration) -> Option<Duration> {
        let proof = self.proof?;
        Some(self.pinned.map_or(proof, |pinned| pinned.min(proof)) + wait)
    }

    fn head(&self) -> Option<u64> {
        self.list.front().map(|message| message.fence.sequence)
    }

    fn is_handling(&self) -> bool {
        matches!(self.step, Step::Handling { .. })
    }

    /// See [`super::Lane::numbers`].
    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(Number<'_>)) {
        visit(Number::Token(&mut self.token));
        visit(Number::Due(&mut self.due));
        visit(Number::Due(&mut self.look_due));
        self.proof.iter_mut().chain(&mut self.pinned).for_each(|time| visit(Number::Since(time)));
        for (token, sent) in &mut self.looks {
            visit(Number::Token(token));
            visit(Number::Since(sent));
        }
        for (number, sent) in &mut self.renewals {
            visit(Number::Pull(number));
            visit(Number::Since(sent));
        }
        match &mut self.step {
            Step::Handling { message, since } => {
                visit(Number::Pull(message));
                visit(Number::Since(since));
            }
            Step::Waiting { message } => visit(Number::Pull(message)),
            _ => {}
        }
    }
}

impl Lane {
    /// What the lane's key says persons want. Orders that are done are said to be done once more: perhaps that was not written.
    pub(super) fn park_orders(&mut self, incarnation: u64, orders: Vec<ParkOrder>, claimed: bool) {
        if self.incarnation() != Some(incarnation) || self.membership != Membership::Member {
            return;
        }
        let (done, wanted): (Vec<_>, Vec<_>) =
            orders.into_iter().partition(|order| self.park_orders_done.iter().any(|(id, _)| *id == order.id));
        self.park_orders = wanted;
        if claimed || !done.is_empty() {
            self.parked = None;
        }
        for order in done {
            let outcome = self.park_orders_done.iter().find(|(id, _)| *id == order.id);
            if let Some(outcome) = outcome.map(|(_, outcome)| outcome.clone()) {
                self.emit(Effect::ParkOrderDone { incarnation, id: order.id, outcome });
            }
        }
        if claimed && self.replay.is_none() {
            self.emit(Effect::Unclaim { incarnation });
        }
    }

    /// No pull begins: an order is, or is about to be, carried out. A lane that is in doubt of what is out needs its pulls to get
    /// that first.
    pub(super) fn replaying(&self, now: Duration) -> bool {
        let is_sure = self.window.as_ref().is_none_or(|window| window.phase == Phase::Sure);
        self.replay.is_some() || is_sure && self.wants_replay(now)
    }

    fn wants_replay(&self, now: Duration) -> bool {
        let parks = self.current.as_ref().is_some_and(|lane| lane.settings.park.is_some());
        parks && !self.park_orders.is_empty() && now >= self.replay_due && !self.elsewhere && !self.stopping()
    }

    /// Begins as soon as nothing is in hand and nothing can come.
    pub(super) fn replay_if_due(&mut self, now: Duration) {
        let free =
            self.replay.is_none() && self.hand.is_none() && self.next.is_none() && self.is_worked_off();
        let in_place = self.membership == Membership::Member && self.connected && self.fit;
        if !free || !in_place || !self.wants_replay(now) || self.pulls.may_be_answered(now) {
            return;
        }
        let (Some(order), Some(incarnation)) = (self.park_orders.first().cloned(), self.incarnation()) else {
            return;
        };
        self.pulls.doubt_all();
        self.replay = Some(Replay::new(order, now));
        self.emit(Effect::Claim { incarnation });
    }

    pub(super) fn claimed(&mut self, now: Duration, incarnation: u64, granted: bool) {
        let ours = self.incarnation() == Some(incarnation);
        let claiming = self.replay.as_ref().is_some_and(|replay| replay.step == Step::Claiming);
        if !ours || !claiming {
            if granted && ours && self.replay.is_none() {
                self.emit(Effect::Unclaim { incarnation });
            }
            return;
        }
        if !granted {
            self.replay = None;
            self.replay_due = now + AGAIN;
            return;
        }
        let holds_pin = self.pin.is_some();
        if let Some(replay) = &mut self.replay {
            replay.step = Step::Looking;
            replay.due = now + LONGEST_ANSWER;
            replay.holds_pin = holds_pin;
        }
        self.look(now);
    }

    /// After the first look, and the first renewal where we have the pin.
    fn begin_listing(&mut self, now: Duration) {
        let ready = self.replay.as_ref().is_some_and(|replay| {
            replay.step == Step::Looking
                && replay.proof.is_some()
                && (!replay.holds_pin || replay.pinned.is_some())
        });
        if ready {
            self.ask(now, Step::Listing);
        }
    }

    fn order_done(&mut self, now: Duration) {
        let Some(replay) = self.replay.take() else { return };
        let Replay { order, outcome, .. } = replay;
        self.park_orders.retain(|other| other.id != order.id);
        if self.park_orders_done.len() == REMEMBERED {
            self.park_orders_done.pop_front();
        }
        self.park_orders_done.push_back((order.id.clone(), outcome.clone()));
        // What is parked now is looked up when it matters.
        self.parked = None;
        self.note(Note::ParkOrderDone { outcome: outcome.clone() });
        if let Some(incarnation) = self.incarnation() {
            self.emit(Effect::ParkOrderDone { incarnation, id: order.id, outcome });
        }
        self.pulls.ask_at_once();
        self.replay_due = now;
    }

    /// What was being released may be another's: nothing more is done for it. What is left of the order waits.
    pub(super) fn give_up_replay(&mut self, now: Duration) {
        let Some(replay) = self.replay.take() else { return };
        self.replay_due = now + AGAIN;
        self.parked = None;
        if let Step::Handling { message, .. } | Step::Waiting { message } = replay.step {
            if replay.is_handling() {
                self.emit(Effect::Cancel);
                self.note(Note::Lost(replay.head().unwrap_or_default()));
            }
            self.emit(Effect::Forget { message });
        }
        if let Some(incarnation) = self.incarnation() {
            self.emit(Effect::Unclaim { incarnation });
        }
        self.pulls.ask_at_once();
    }

    /// On the way out: whether a handler still has to end.
    pub(super) fn replay_holds(&mut self, now: Duration) -> bool {
        let Some(replay) = &self.replay else { return false };
        match replay.step {
            Step::Handling { .. } => true,
            // It was handled: the deletion is on its way.
            Step::Deleting if replay.token != 0 => true,
            _ => {
                self.give_up_replay(now);
                false
            }
        }
    }

    /// What time does to an order that is being carried out.
    pub(super) fn pass_replay_time(&mut self, now: Duration) {
        let Some(replay) = &self.replay else { return };
        let (step, token, due) = (replay.step, replay.token, replay.due);
        let cut = self.shutdown.is_some_and(|shutdown| now >= shutdown.cut);
        match step {
            _ if cut => {
                if let (Step::Handling { message, .. }, sequence) = (step, replay.head().unwrap_or_default())
                {
                    self.emit(Effect::Cancel);
                    self.note(Note::Cut(sequence));
                    self.emit(Effect::Forget { message });
                    if let Some(replay) = &mut self.replay {
                        replay.step = Step::Listing;
                    }
                }
                return self.give_up_replay(now);
            }
            Step::Handling { since, .. } => {
                if let Some(limit) = self.handler_timeout()
                    && now >= since + limit
                {
                    self.emit(Effect::Cancel);
                    let reason = format!("no answer within {} ms", limit.as_millis());
                    self.replay_handled(now, &Outcome::Retry { reason, after: None });
                }
            }
            Step::Claiming | Step::Looking if now >= due => return self.give_up_replay(now),
            Step::Claiming | Step::Looking => {}
            Step::Waiting { message } if now >= due => {
                if self.stopping() {
                    return self.give_up_replay(now);
                }
                self.handle_parked(now, message);
            }
            Step::Waiting { .. } => {}
            Step::Listing | Step::Fetching | Step::Deleting if now >= due => {
                if token != 0 {
                    let reason = format!("nothing was heard for {} s", LONGEST_ANSWER.as_secs());
                    self.replay_refused(now, token, &reason);
                } else {
                    self.ask(now, step);
                }
            }
            Step::Listing | Step::Fetching | Step::Deleting => {}
        }
        let look = self.replay.as_ref().is_some_and(|replay| {
            now >= replay.look_due && !matches!(replay.step, Step::Claiming | Step::Looking)
        });
        if look && self.connected {
            self.look(now);
        }
    }

    /// A connection that comes back: what was asked for is asked for again.
    pub(super) fn replay_connected(&mut self, now: Duration) {
        let Some(replay) = &mut self.replay else { return };
        replay.looks.clear();
        match replay.step {
            Step::Claiming => {
                if let Some(incarnation) = self.incarnation() {
                    self.emit(Effect::Claim { incarnation });
                }
            }
            Step::Looking => self.look(now),
            Step::Handling { .. } | Step::Waiting { .. } => replay.look_due = now,
            step @ (Step::Listing | Step::Fetching | Step::Deleting) => {
                replay.look_due = now;
                self.ask(now, step);
            }
        }
    }

    /// When this part next needs time.
    pub(super) fn replay_wake(&self) -> [Option<Duration>; 4] {
        let Some(replay) = &self.replay else {
            return [(!self.park_orders.is_empty()).then_some(self.replay_due), None, None, None];
        };
        let due = match replay.step {
            Step::Handling { since, .. } => self.handler_timeout().map(|limit| since + limit),
            _ => Some(replay.due),
        };
        let look = self.connected.then_some(replay.look_due);
        [due, look, replay.deadline(self.wait), self.shutdown.map(|shutdown| shutdown.cut)]
    }

    /// The state and the message of what is being released.
    pub(super) fn replay_state(&self) -> Option<(super::State, Option<u64>)> {
        let replay = self.replay.as_ref()?;
        let state = match replay.step {
            Step::Claiming | Step::Looking => super::State::Idle,
            Step::Listing | Step::Fetching | Step::Handling { .. } => super::State::Handling,
            Step::Waiting { .. } if replay.attempts > 0 => super::State::RetryWait,
            Step::Waiting { .. } => super::State::Held,
            Step::Deleting => super::State::Settling,
        };
        Some((state, replay.head()))
    }
}
