//! The witness: messages wait, and nobody of the set gets one.
//!
//! Servers do not say when a lane stands still for a reason of theirs: somebody else has its one slot, somebody paused the
//! consumer, or nothing is delivered at all. So a worker that has nothing in hand looks: at the consumer, then at the
//! lane's key. It suspects when messages wait while neither it nor a sibling can have them, and says so when the floor did not
//! move for as long as a message that nobody holds may take to come again.
//!
//! A sibling that has noted the pin is a witness of its own, so a handler that takes long is no stall for those who stand by.
//! What stays open: a sibling that is cut off for good and still stands in the key is taken for one that is at work.
//!
//! Must not do: anything but speak. Nothing about order depends on it.

use std::time::Duration;

use super::{Backlog, Effect, Lane, Note, membership::RETRY};
use crate::{
    record::{Holder, StallKind, Stalled},
    retry,
};

/// A lane that stands still is looked at this often, so that the end is seen soon.
const OFTEN: Duration = Duration::from_secs(5);

/// What the witness goes by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Suspicion {
    present: Option<Seen>,
    /// What is out may have been given back before we came, to be delivered again after a delay that we do not know.
    inherited: bool,
    /// The delay with which we gave a message back ourselves.
    delay: Duration,
}

/// What was seen again and again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Seen {
    kind: StallKind,
    floor: u64,
    siblings: Vec<Holder>,
    since: Duration,
    last: Duration,
}

impl Suspicion {
    /// In again, perhaps: a delay of our own that we know of may still run.
    pub(super) fn joined(&mut self) {
        self.present = None;
        self.inherited = true;
    }

    pub(super) fn gave_back(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// See [`Lane::numbers`].
    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(super::Number<'_>)) {
        if let Some(seen) = &mut self.present {
            visit(super::Number::Since(&mut seen.since));
            visit(super::Number::Since(&mut seen.last));
        }
    }
}

impl Lane {
    /// The consumer and the lane's key were looked at.
    pub(super) fn witness(&mut self, now: Duration, seen: &Backlog) {
        let ours =
            self.membership == super::Membership::Member && self.incarnation() == Some(seen.incarnation);
        if !ours || self.stopping() {
            return;
        }
        if now.saturating_sub(seen.asked) > self.wait / 4 {
            // A process that was frozen hears of a time that is over.
            self.inspect_due = self.inspect_due.min(now + RETRY);
            return;
        }
        self.note_again(seen);
        let busy = self.hand.is_some() || self.next.is_some() || self.behind() > 0;
        if busy || !self.fit || self.replaying(now) {
            return self.unsuspect();
        }
        if seen.out == 0 {
            self.suspicion.inherited = false;
        }
        self.inspect_due = self.inspect_due.min(now + self.wait);
        match self.suspect(seen) {
            Some(kind) => self.suspected(now, kind, seen),
            None => self.unsuspect(),
        }
    }

    /// Why what waits could wait for ever.
    fn suspect(&self, seen: &Backlog) -> Option<StallKind> {
        if self.report.blocked.is_some() || self.report.refused.is_some() {
            // A person is called already.
            return None;
        }
        if seen.paused {
            return Some(StallKind::ConsumerPaused);
        }
        // A change of leader forgets the pin; its holder goes on all the same.
        let of_the_noted = seen.pin.is_none() || seen.pin == seen.noted;
        if seen.noted_by_sibling && of_the_noted {
            return None;
        }
        let pinned_elsewhere = seen.pin.as_deref().is_some_and(|pin| Some(pin) != self.own_pin());
        match (seen.out, seen.waiting) {
            (0, 0) => None,
            (0, _) if !pinned_elsewhere => Some(StallKind::NothingMoves),
            _ => Some(StallKind::SlotHeldElsewhere),
        }
    }

    fn suspected(&mut self, now: Duration, kind: StallKind, seen: &Backlog) {
        let said = self.report.stalled.is_some();
        let longest_gap = self.wait * 3 / 2;
        let goes_on = self.suspicion.present.as_mut().filter(|before| {
            let steady = before.siblings == seen.siblings && now <= before.last + longest_gap;
            before.kind == kind && before.floor == seen.floor && (said || steady)
        });
        let since = if let Some(before) = goes_on {
            before.last = now;
            before.since
        } else {
            self.unsuspect();
            let siblings = seen.siblings.clone();
            self.suspicion.present = Some(Seen { kind, floor: seen.floor, siblings, since: now, last: now });
            now
        };
        if self.report.stalled.is_some() {
            self.inspect_due = self.inspect_due.min(now + (self.wait / 3).min(OFTEN));
            return;
        }
        let due = match kind {
            StallKind::ConsumerPaused => now,
            StallKind::SlotHeldElsewhere | StallKind::NothingMoves => since + self.patience(seen),
        };
        if now < due {
            self.inspect_due = self.inspect_due.min(due);
            return;
        }
        let stalled = Stalled {
            kind,
            sequence: if seen.out > 0 { seen.delivered } else { seen.delivered.max(seen.floor) + 1 },
            since_seconds: seen.asked_seconds.saturating_sub(now.saturating_sub(since).as_secs()),
        };
        self.note(Note::Stalled(stalled));
        self.say(|report| report.stalled = Some(stalled));
        self.inspect_due = self.inspect_due.min(now + (self.wait / 3).min(OFTEN));
    }

    /// A message that nobody holds comes again within one deadline; one that was given back, after a delay besides.
    fn patience(&self, seen: &Backlog) -> Duration {
        let unknown = self.suspicion.inherited || !seen.siblings.is_empty();
        let settings = self.current.as_ref().map(|lane| &lane.settings);
        let longest = settings.filter(|_| unknown).map(|settings| retry::slow(&settings.retry));
        self.wait * 3 / 2 + longest.unwrap_or_default().max(self.suspicion.delay)
    }

    /// The note that we have the pin may be lost, or another's old one may have come later than ours.
    fn note_again(&mut self, seen: &Backlog) {
        let (Some(pin), Some(incarnation)) = (seen.pin.clone(), self.incarnation()) else { return };
        if self.own_pin() == Some(&*pin) && seen.noted.as_deref() != Some(&*pin) {
            self.emit(Effect::Own { incarnation, pin });
        }
    }

    /// A message came to us, so nobody keeps them from us.
    pub(super) fn reached(&mut self) {
        self.unsuspect();
        self.suspicion = Suspicion::default();
    }

    /// Nothing speaks for a stall (any more).
    pub(super) fn unsuspect(&mut self) {
        self.suspicion.present = None;
        if self.report.stalled.is_some() {
            self.note(Note::Moving);
            self.say(|report| report.stalled = None);
        }
    }
}
