//! Parked keys: which ones there are, and putting a message behind the others of its key.
//!
//! Nothing is handled before it is known what is parked of the lane's share. That is forgotten whenever another worker may
//! have parked meanwhile: with each new pin. Why the order holds is told in [`crate::park`].

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{Effect, Lane, Note, Stage, exhausted::LONGEST_ANSWER};
use crate::{
    record::{Blocked, BlockedBy},
    retry,
};

/// What is said of a message that waits behind another one of its key.
const BEHIND: &str = "an earlier message of its key is parked";

impl Lane {
    /// Whether what is in hand may be handled, as far as parked keys are concerned. If not, it is looked up, or parked.
    pub(super) fn key_is_free(&mut self, now: Duration) -> bool {
        // It may have come before the lane had a park.
        let key = self.hand.as_ref().and_then(|hand| self.parked_key(&hand.subject));
        let (Some(hand), Some(key)) = (&mut self.hand, key) else { return true };
        hand.key = Some(Arc::clone(&key));
        match &self.parked {
            Some(keys) if keys.contains(&key) => {
                hand.behind = true;
                BEHIND.clone_into(&mut hand.reason);
                self.send_to_park(now);
                false
            }
            Some(_) => true,
            None => {
                self.consult(now);
                false
            }
        }
    }

    /// The key of a message, where messages are parked.
    pub(super) fn parked_key(&self, subject: &str) -> Option<Arc<str>> {
        let lane = self.current.as_ref().filter(|lane| lane.settings.park.is_some())?;
        lane.mapping.key_text(lane.mapping.original_subject(subject)?).map(Into::into)
    }

    /// Whether a message that is not in hand yet has to be parked behind another one of its key, or might have to be.
    pub(super) fn is_parked_behind(&self, subject: &str) -> bool {
        let Some(key) = self.parked_key(subject) else { return false };
        self.parked.as_ref().is_none_or(|keys| keys.contains(&key))
    }

    /// Asks what is parked, now or as soon as there is a connection.
    pub(super) fn consult(&mut self, now: Duration) {
        if !self.connected {
            return self.set_stage(Stage::Consulting { token: 0, answered: true, due: now });
        }
        let token = self.token();
        self.set_stage(Stage::Consulting { token, answered: false, due: now + LONGEST_ANSWER });
        self.emit(Effect::LoadParked { token });
    }

    pub(super) fn parked_keys(&mut self, now: Duration, of: u64, keys: BTreeSet<Arc<str>>) {
        let Some(hand) = &mut self.hand else { return };
        if !matches!(hand.stage, Stage::Consulting { token, .. } if token == of) {
            return;
        }
        hand.refusals = 0;
        self.parked = Some(keys);
        if self.report.blocked.as_ref().is_some_and(|blocked| blocked.by == BlockedBy::Park) {
            self.say(|report| report.blocked = None);
        }
        self.begin_handling(now);
    }

    pub(super) fn park_failed(&mut self, now: Duration, token: u64, reason: &str) {
        if self.consulting(token) {
            return self.not_consulted(now, reason);
        }
        self.replay_refused(now, token, reason);
    }

    fn consulting(&self, of: u64) -> bool {
        self.hand.as_ref().is_some_and(
            |hand| matches!(hand.stage, Stage::Consulting { token, answered: false, .. } if token == of),
        )
    }

    fn not_consulted(&mut self, now: Duration, reason: &str) {
        let Some(retry) = self.current.as_ref().map(|lane| lane.settings.retry) else { return };
        let Some(hand) = &mut self.hand else { return };
        hand.refusals += 1;
        let delay = retry::delay(&retry, hand.refusals);
        hand.stage = Stage::Consulting { token: 0, answered: true, due: now + delay };
        let sequence = hand.sequence;
        self.note(Note::NotParked { sequence, delay, reason: reason.to_owned() });
        self.blocked(BlockedBy::Park, &format!("it is not known which keys are parked: {reason}"));
    }

    /// What time does to the question.
    pub(super) fn consultation_due(&mut self, now: Duration, answered: bool) {
        if !answered {
            let reason = format!("nothing was heard for {} s", LONGEST_ANSWER.as_secs());
            self.not_consulted(now, &reason);
        } else if self.connected && !self.stopping() {
            self.consult(now);
        }
    }

    /// Stores what is in hand in the park stream, now or as soon as there is a connection.
    pub(super) fn send_to_park(&mut self, now: Duration) {
        let connected = self.connected;
        let token = self.token();
        let until = self.ours_until();
        let Some(hand) = &mut self.hand else { return };
        hand.parking = true;
        if !connected {
            hand.stage = Stage::PuttingAway { token, answered: true, due: now };
            return;
        }
        hand.stage = Stage::PuttingAway { token, answered: false, due: now + LONGEST_ANSWER };
        let effect = Effect::Park {
            message: hand.message,
            token,
            attempts: hand.attempts,
            reason: hand.reason.clone(),
            until,
        };
        self.emit(effect);
    }

    /// What is in hand is in the park stream: its key is parked.
    pub(super) fn is_parked(&mut self, now: Duration) {
        let Some(hand) = &self.hand else { return };
        let (sequence, attempts, reason) = (hand.sequence, hand.attempts, hand.reason.clone());
        let first = !hand.behind;
        let Some(key) = hand.key.clone() else { return };
        if let Some(keys) = &mut self.parked {
            keys.insert(Arc::clone(&key));
        }
        if first {
            self.order_failed(sequence, &reason);
            let said = Blocked::new(sequence, format!("key {key}: {reason}"));
            self.say(|report| report.parked = Some(said));
        }
        self.note(Note::Parked { sequence, attempts, reason, key, first });
        self.put_away(now, sequence);
    }

    /// How many keys are parked, as far as this worker has to know it.
    pub fn parked_count(&self) -> Option<usize> {
        self.parked.as_ref().map(BTreeSet::len)
    }
}
