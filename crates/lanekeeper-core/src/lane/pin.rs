//! The pin: to which of a lane's workers the server gives messages.
//!
//! The server delivers to the pin's holder alone, and gives the pin away only together with a message. So the pin is the
//! second lock besides the message in hand. It holds when the first one does not: when the message in hand is deleted
//! from the stream, or settled by an acknowledgement that comes far too late, nobody else gets the next one while its
//! holder keeps the pin.
//!
//! It is kept by new pulls that carry its id, so a pull that rides on an ack keeps it as well. While a message is in hand
//! no such pull is out; then renewals keep it, which can never bring a message. A holder gives its message up when the
//! pin may have lapsed (its last renewal that was answered is as old as the deadline), or when the server says that the
//! pin is another's: that other was given a message.

use std::{sync::Arc, time::Duration};

use super::{Effect, Lane, Note, Number, PullRequest, PullStatus, Renewal, Stage, Window};

/// A pin that the server gave us.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pin {
    id: Arc<str>,
    /// Pulls with a higher number carried it.
    after: u64,
}

impl Pin {
    pub(super) fn id(&self) -> Arc<str> {
        Arc::clone(&self.id)
    }

    /// Whether a message came with it.
    pub(super) fn is(&self, seen: Option<&str>) -> bool {
        seen == Some(&*self.id)
    }

    /// Whether a pull or renewal of this number was sent with it.
    pub(super) fn is_carried_by(&self, number: u64) -> bool {
        number > self.after
    }

    /// See [`super::Lane::numbers`].
    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(Number<'_>)) {
        visit(Number::Pull(&mut self.after));
    }
}

impl Lane {
    /// Whether the lane's messages come to this worker, as far as it knows.
    pub fn owns(&self) -> bool {
        self.pin.is_some() || self.lease.is_some()
    }

    /// The pin that we have.
    pub(super) fn own_pin(&self) -> Option<&str> {
        self.pin.as_ref().map(|pin| &*pin.id)
    }

    /// A new pull, with the pin if we have it.
    pub(super) fn issue(&mut self, now: Duration) -> PullRequest {
        let pin = self.pin.as_ref().map(|pin| Arc::clone(&pin.id));
        let batch = self.window.as_ref().map_or(1, Window::batch);
        let grouped = !self.is_leased();
        self.pulls.issue(now, self.wait, batch, grouped, pin)
    }

    /// A message came with this pin.
    pub(super) fn pinned(&mut self, pin: Option<&str>) {
        if self.is_leased() {
            // Somebody's change of the consumer, which the operator takes back.
            return;
        }
        self.elsewhere = false;
        let Some(id) = pin else {
            // The consumer does not pin, as one made by an earlier version.
            self.pin = None;
            self.parked = None;
            return;
        };
        match &mut self.pin {
            Some(known) if *known.id == *id => {}
            other => {
                let id: Arc<str> = id.into();
                *other = Some(Pin { id: Arc::clone(&id), after: self.pulls.last() });
                // Whoever had it before may have parked messages.
                self.parked = None;
                self.note(Note::Pinned);
                if let Some(incarnation) = self.incarnation() {
                    self.emit(Effect::Own { incarnation, pin: id });
                }
            }
        }
    }

    /// Says that we are there, if the message in hand came with a pin.
    pub(super) fn renew(&mut self, now: Duration) {
        let Some(pin) = self.pin.as_ref().map(|pin| Arc::clone(&pin.id)) else { return };
        if let Some(window) = &mut self.window {
            // A pull that is out has kept it, and is renewed before long.
            if self.pulls.standing() || !window.renewal_due(now, self.wait) {
                return;
            }
            window.renewal_sent(self.pulls.last() + 1, now);
        } else if let Some(hand) = &mut self.hand {
            hand.renewal_sent(self.pulls.last() + 1, now);
        } else {
            return;
        }
        let renewal = Renewal { id: self.pulls.number(), pin };
        self.emit(Effect::Renew(renewal));
    }

    /// A renewal came back; `false` if the number is not that of a renewal for what is in hand.
    pub(super) fn renewal_ended(&mut self, number: u64, status: PullStatus) -> bool {
        let taken_note_of = matches!(status, PullStatus::Expired | PullStatus::TooLarge);
        self.hand.as_mut().is_some_and(|hand| hand.renewal_ended(number, taken_note_of))
    }

    /// The server says that the pin which this pull or renewal carried is not ours.
    pub(super) fn pin_refused(&mut self, now: Duration, number: u64) {
        if self.pin.take_if(|pin| pin.is_carried_by(number)).is_none() {
            return;
        }
        self.note(Note::PinLost);
        self.give_up_replay(now);
        if self.window.is_some() {
            // The same: the ack is for what was completed alone.
            self.send_acks(now, true);
            self.lose_all(now);
            self.doubt(now);
            self.window.iter_mut().for_each(Window::unpinned);
        }
        // Whoever has it was given a message, so what is in hand is not ours any more. What was completed is
        // acknowledged all the same: until the server takes note of it, it counts as out.
        if self.hand.as_ref().is_some_and(|hand| !matches!(hand.stage, Stage::Settling { .. })) {
            self.lose(now);
        }
        self.stand_by();
    }

    /// What there is to say of the lane is another's to say.
    pub(super) fn stand_by(&mut self) {
        self.elsewhere = true;
        self.waiting = None;
        self.forget_given_back();
        self.say(|report| (report.blocked, report.lost) = (None, None));
    }

    /// What the consumer's state says of the pin, for those who look at us.
    pub(super) fn pin_seen(&mut self, seen: Option<&str>) {
        if self.is_leased() {
            return;
        }
        self.elsewhere = self.hand.is_none() && seen.is_some() && seen != self.own_pin();
        if self.elsewhere {
            self.stand_by();
        }
    }

    /// On the way out of a lane that goes on: the next worker need not wait until the pin lapses.
    pub(super) fn unpin(&mut self) {
        if self.pin.take().is_some() && self.connected && !self.ending() {
            self.emit(Effect::Unpin);
        }
    }
}
