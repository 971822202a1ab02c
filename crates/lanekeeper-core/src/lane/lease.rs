//! The lease: what stands in the place of the pin where the set says so.
//!
//! The lane is told until when it is ours ([`crate::lease`] decides that) and asks for messages, and keeps them, only
//! meanwhile. As the pin it is the second lock besides the message in hand. What is completed is acknowledged all the
//! same: until the server takes note of that, the message counts as out, whoever has the lease.

use std::time::Duration;

use super::{Effect, Lane, Note, Stage};
use crate::record::Ownership;

impl Lane {
    /// Whether the lane's messages go to the one with its lease.
    pub(super) fn is_leased(&self) -> bool {
        self.current.as_ref().is_some_and(|lane| lane.settings.ownership == Ownership::Lease)
    }

    /// Whether messages may be asked for and taken, as far as that is up to the lease.
    pub(super) fn may_own(&self) -> bool {
        self.lease.is_some() || !self.is_leased()
    }

    /// In the lane: from now on it is tried to get the lease.
    pub(super) fn contend(&mut self) {
        self.lease = None;
        let Some(lane) = self.current.as_ref().filter(|_| self.is_leased()) else { return };
        let (incarnation, time) =
            (lane.incarnation, Duration::from_millis(lane.settings.ack_wait_milliseconds));
        self.elsewhere = true;
        self.emit(Effect::Contend { incarnation, time });
    }

    /// The lease is ours until then, or not any more.
    pub(super) fn leased(&mut self, now: Duration, incarnation: u64, until: Option<Duration>) {
        if self.incarnation() != Some(incarnation) || self.membership != super::Membership::Member {
            return;
        }
        match until.filter(|until| *until > now) {
            None => self.lease_over(now),
            Some(until) => {
                if self.lease.replace(until).is_none() {
                    self.elsewhere = false;
                    // Whoever had it before may have parked messages.
                    self.parked = None;
                    self.note(Note::Leased);
                    self.emit(Effect::Own { incarnation, pin: "".into() });
                    self.pulls.ask_at_once();
                    self.doubt(now);
                }
            }
        }
    }

    /// The time of the lease is over, as far as we know.
    pub(super) fn lease_lapse(&mut self, now: Duration) {
        if self.lease.is_some_and(|until| now >= until) {
            self.lease_over(now);
        }
    }

    fn lease_over(&mut self, now: Duration) {
        if self.lease.take().is_none() {
            return;
        }
        self.note(Note::LeaseOver);
        self.give_up_replay(now);
        // Another may be given what these would bring.
        self.pulls.forget_all();
        if let Some(next) = self.next.take() {
            self.note(Note::Stale(next.sequence));
            self.emit(Effect::Forget { message: next.message });
        }
        if self.window.is_some() {
            self.send_acks(now, true);
            self.lose_all(now);
            self.doubt(now);
        }
        if self.hand.as_ref().is_some_and(|hand| !matches!(hand.stage, Stage::Settling { .. })) {
            self.lose(now);
        }
        self.stand_by();
    }
}
