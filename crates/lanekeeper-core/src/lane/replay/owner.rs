//! Whether what is being released is still this worker's: looks at the consumer, and renewals of the pin.

use std::time::Duration;

use crate::lane::{ConsumerFacts, Effect, Lane, Note, Pin, PullStatus, Renewal};

impl Lane {
    /// Asks whether the lane is still what it was, and says that we are there.
    pub(super) fn look(&mut self, now: Duration) {
        let token = self.token();
        let renewal = self.pin.as_ref().map(Pin::id).map(|pin| Renewal { id: self.pulls.number(), pin });
        let wait = self.wait;
        let Some(replay) = &mut self.replay else { return };
        replay.looks.push((token, now));
        replay.look_due = now + wait / 3;
        if let Some(renewal) = &renewal {
            replay.renewals.push((renewal.id, now));
        }
        self.effects.extend(renewal.map(Effect::Renew));
        self.emit(Effect::Inspect { token });
    }

    /// The answer to a look; `false` if it is none of ours.
    pub(in crate::lane) fn looked(&mut self, now: Duration, token: u64, facts: &ConsumerFacts) -> bool {
        let ours = self.pin.as_ref().map(Pin::id);
        let Some(replay) = &mut self.replay else { return false };
        let Some(index) = replay.looks.iter().position(|(sent, _)| *sent == token) else { return false };
        let sent = replay.looks[index].1;
        replay.looks.drain(..=index);
        if facts.pin.is_some() && facts.pin != ours {
            self.give_up_replay(now);
            self.pin_seen(facts.pin.as_deref());
            return true;
        }
        replay.proof = replay.proof.max(Some(sent));
        // A deadline that somebody made shorter counts at once.
        self.wait = facts.shortest_wait;
        self.fit = self.window.is_some() || facts.max_ack_pending == 1;
        self.begin_listing(now);
        true
    }

    /// The lane is gone, or cannot be looked at; `false` if it is no answer to a look of ours.
    pub(in crate::lane) fn not_looked(&mut self, now: Duration, token: u64, gone: bool) -> bool {
        let wait = self.wait;
        let Some(replay) = &mut self.replay else { return false };
        let Some(index) = replay.looks.iter().position(|(sent, _)| *sent == token) else { return false };
        replay.looks.remove(index);
        replay.look_due = replay.look_due.min(now + wait / 10);
        if gone {
            self.give_up_replay(now);
            self.note(Note::ConsumerGone);
            self.gone = true;
        }
        true
    }

    /// A renewal came back; `false` if it is none of ours.
    pub(in crate::lane) fn replay_renewed(&mut self, now: Duration, number: u64, status: PullStatus) -> bool {
        let Some(replay) = &mut self.replay else { return false };
        let Some(index) = replay.renewals.iter().position(|(sent, _)| *sent == number) else { return false };
        let (_, sent) = replay.renewals.swap_remove(index);
        if matches!(status, PullStatus::Expired | PullStatus::TooLarge) {
            replay.pinned = replay.pinned.max(Some(sent));
            self.begin_listing(now);
        }
        true
    }

    /// What is being released may be another's by now.
    pub(in crate::lane) fn lapse_replay(&mut self, now: Duration) {
        let deadline = self.replay.as_ref().and_then(|replay| replay.deadline(self.wait));
        if deadline.is_some_and(|deadline| now >= deadline) {
            self.give_up_replay(now);
        }
    }
}
