//! Taking over a pipelined lane: nothing is handled before the lane has all that the server has out.
//!
//! A worker that begins, that lost something, or that sees a gap in the consumer's sequence does not know the earliest
//! message that is out: the server gives a new owner whatever lapses first, new messages in between, and what was given
//! back in the order in which that happened (measured). So:
//!
//! 1. What is sure is worked off and acknowledged. What arrives is kept aside and alive.
//! 2. The consumer is asked: how many messages are out, from which floor, up to which message and which delivery. If there
//!    are none, every later delivery continues that.
//! 3. Otherwise the stream is asked which messages it has from the floor up to there. (The consumer's count alone would
//!    not do: it goes on counting a message that somebody deleted from the stream, which never comes. Measured.) When
//!    the stream has fewer than the consumer counts, it is asked twice: a replica that has just become its leader may lag.
//! 4. When all of these are on hand, they are sure, in the order of the stream. What is with another worker comes when
//!    its deadline has passed. Deliveries from the look on must follow each other; after a gap it begins anew.
//!
//! 5. What is still missing after its deadline is with a worker that is alive, perhaps with one that waits for what we have:
//!    when a pin is taken away nobody is told, and each keeps alive what it was given. So what is on hand is given back, and
//!    whoever is given it has the pin.
//!
//! `CONSUMER.RESET` would do without the third step, but servers before 2.14 have none.
//! A message is acknowledged by itself, so one that was deleted takes nothing with it.

use std::{collections::BTreeSet, time::Duration};

use super::{
    ConsumerFacts, Effect, Lane, Note, UNKNOWN_WAIT,
    window::{Item, Out, Phase},
};

/// Until a question that failed, or an answer that may be premature, is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// So many sequences at a time are looked up for whether they are gone: most of them are other lanes'.
const MOST_GONE: usize = 10_000;

impl Lane {
    /// What the server has out is not known (any more).
    pub(super) fn doubt(&mut self, now: Duration) {
        let Some(window) = &mut self.window else { return };
        window.expected = None;
        if window.phase == Phase::Sure {
            self.effects.push(Effect::Note(Note::Gathering));
        }
        // One that waits goes on waiting: it must not become a hot loop.
        if !matches!(window.phase, Phase::Doubt { .. }) {
            window.phase = Phase::Doubt { not_before: now };
        }
    }

    /// The next step of a takeover, if it is due.
    pub(super) fn take_over(&mut self, now: Duration) {
        let Some(window) = &self.window else { return };
        match window.phase {
            Phase::Doubt { not_before } => {
                let worked_off = self.hand.is_none() && window.sure.is_empty() && window.is_acknowledged();
                if worked_off && now >= not_before && self.connected && !self.stopping() {
                    self.ask_what_is_out(now);
                }
            }
            Phase::Missing { out, look_due } => {
                if self.has_all(out) {
                    self.begin_sure(out);
                } else if now >= look_due {
                    if let Some(window) = &mut self.window {
                        window.in_vain = true;
                    }
                    self.give_all_back();
                    self.doubt(now);
                    self.take_over(now);
                }
            }
            Phase::Sure | Phase::Asking { .. } | Phase::Listing { .. } | Phase::Elsewhere => {}
        }
    }

    fn ask_what_is_out(&mut self, now: Duration) {
        let token = self.token();
        self.inspecting = Some(token);
        self.inspect_due = now + UNKNOWN_WAIT;
        if let Some(window) = &mut self.window {
            window.phase = Phase::Asking { token };
        }
        self.emit(Effect::Inspect { token });
    }

    pub(super) fn is_asking(&self, asked: u64) -> bool {
        self.window
            .as_ref()
            .is_some_and(|window| matches!(window.phase, Phase::Asking { token } if token == asked))
    }

    /// The question, or the list, was not answered.
    pub(super) fn not_told(&mut self, now: Duration, of: u64) {
        let Some(window) = &mut self.window else { return };
        if let Phase::Asking { token } | Phase::Listing { token, .. } = window.phase
            && token == of
        {
            window.phase = Phase::Doubt { not_before: now + RETRY };
        }
    }

    /// The consumer was looked at for another reason.
    pub(super) fn consumer_seen(&mut self, now: Duration) {
        if !self.elsewhere && self.window.as_ref().is_some_and(|window| window.phase == Phase::Elsewhere) {
            self.doubt(now);
        }
    }

    /// What the consumer says of what is out.
    pub(super) fn told_what_is_out(&mut self, now: Duration, facts: &ConsumerFacts) {
        if self.elsewhere {
            // Its owner has it; whoever gets it next begins with a delivery.
            self.lose_all(now);
            if let Some(window) = &mut self.window {
                window.phase = Phase::Elsewhere;
            }
            return;
        }
        let token = self.token();
        let Some(window) = &mut self.window else { return };
        window.expected = Some(facts.deliveries + 1);
        window.looked_at = facts.deliveries;
        // Of what arrived since, only what follows without a gap is known to be all.
        let mut dropped: Vec<Item> = Vec::new();
        window.unsure.sort_by_key(|item| item.consumer_sequence);
        for item in std::mem::take(&mut window.unsure) {
            if item.consumer_sequence <= facts.deliveries || window.continues(item.consumer_sequence) {
                window.unsure.push(item);
            } else {
                dropped.push(item);
            }
        }
        let out = Out { floor: facts.floor, delivered: facts.delivered, count: facts.ack_pending };
        window.phase = Phase::Listing { token, out };
        for item in &dropped {
            self.emit(Effect::Forget { message: item.message });
        }
        if out.count == 0 {
            if let Some(window) = &mut self.window {
                window.listed.clear();
            }
            self.begin_sure(out);
        } else {
            self.emit(Effect::List { token, after: out.floor, until: out.delivered });
        }
    }

    /// Servers before 2.12 go on counting what was deleted from the stream, and that would hold the floor for ever. What
    /// the stream does not have is acknowledged: nobody can handle it. (What is another lane's is still there, and must not
    /// be: on a work queue that would remove it.) What was acknowledged long ago above one that is gone may hide it in the
    /// count, so after a wait in vain it is looked for all the same; it holds the floor, so it is among the first.
    fn acknowledge_gone(&mut self, out: Out, listed: &[u64], consumer_sequence: u64) {
        let in_vain = self.window.as_ref().is_some_and(|window| window.in_vain);
        if listed.len() as u64 >= out.count && !in_vain {
            return;
        }
        let missing = |sequence: &u64| listed.binary_search(sequence).is_err();
        let sequences: Vec<u64> = (out.floor + 1..=out.delivered).filter(missing).take(MOST_GONE).collect();
        if !sequences.is_empty() && self.connected {
            self.emit(Effect::AckGone { sequences, consumer_sequence });
        }
    }

    /// The messages that the stream has of what is out.
    pub(super) fn listed(&mut self, now: Duration, of: u64, sequences: Vec<u64>) {
        let longest = self.wait.max(RETRY);
        let Some(window) = &mut self.window else { return };
        let Phase::Listing { token, out } = window.phase else { return };
        if token != of {
            return;
        }
        let agrees = sequences.len() as u64 == out.count || window.listed == sequences;
        let looked_at = window.looked_at;
        window.phase = if agrees {
            Phase::Missing { out, look_due: now + longest }
        } else {
            Phase::Doubt { not_before: now + RETRY }
        };
        if agrees {
            self.acknowledge_gone(out, &sequences, looked_at);
        }
        if let Some(window) = &mut self.window {
            window.listed = sequences;
        }
    }

    /// Whether all that is out is on hand: everything that the stream has of it, or as many of these as the consumer counts.
    /// (After a crash of the server a consumer's floor may lie below what was acknowledged long ago, and that never comes.)
    fn has_all(&self, out: Out) -> bool {
        self.window.as_ref().is_some_and(|window| {
            let here: BTreeSet<u64> = window.unsure.iter().map(|item| item.sequence).collect();
            let on_hand = window.listed.iter().filter(|sequence| here.contains(*sequence)).count();
            on_hand == window.listed.len() || on_hand as u64 == out.count
        })
    }

    /// All of what is out is on hand.
    fn begin_sure(&mut self, out: Out) {
        let Some(window) = &mut self.window else { return };
        let mut settled: Vec<u64> = Vec::new();
        window.unsure.sort_by_key(|item| item.sequence);
        window.unsure.retain(|item| {
            let is_out = item.sequence > out.floor;
            if !is_out {
                settled.push(item.message);
            }
            is_out
        });
        window.last = out.delivered;
        for item in std::mem::take(&mut window.unsure) {
            let last = window.last.max(item.sequence);
            window.push(item);
            window.last = last;
        }
        window.listed.clear();
        window.in_vain = false;
        window.phase = Phase::Sure;
        let messages = window.sure.len();
        self.forget_all(settled);
        if messages > 0 {
            self.note(Note::Gathered(messages));
        }
    }
}
