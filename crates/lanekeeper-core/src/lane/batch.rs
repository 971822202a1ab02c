//! Handing several messages to the handler at once: when a batch begins, what is in it, and what becomes of one that fails.
//!
//! The message in hand is the first of its batch. The others stay where they were, at the head of what is sure, and are
//! counted in the hand; so each is kept alive, and lapses, as every message on hand. Past the deadline of one of them the
//! whole batch is given up.
//!
//! A batch that fails is tried again as it was. With no attempt left it is divided: its messages are handed over one at a
//! time, with attempts of their own, so that the policy meets only those that are at fault.

use std::{collections::VecDeque, time::Duration};

use super::{
    Lane, Note, Stage,
    window::{Item, Kind, Phase},
};

/// How messages are put together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Batches {
    /// As many as the handler is given at once.
    most: u32,
    /// How long fewer wait for others.
    patience: Duration,
    /// Messages up to this one are handed over one at a time.
    alone: u64,
}

impl Batches {
    pub(super) fn new(most: u32, patience: Duration) -> Self {
        Self { most, patience, alone: 0 }
    }

    /// The set says something else now.
    pub(super) fn change(&mut self, wanted: &Self) {
        (self.most, self.patience) = (wanted.most, wanted.patience);
    }

    /// The last message of a batch.
    pub(super) fn last(first: u64, sure: &VecDeque<Item>, with: usize) -> u64 {
        with.checked_sub(1).and_then(|index| sure.get(index)).map_or(first, |item| item.sequence)
    }
}

impl Lane {
    /// When the first of what is sure is handed over; nothing when there is none, or something is in hand.
    pub(super) fn begins_at(&self) -> Option<Duration> {
        let window = self.window.as_ref().filter(|_| self.hand.is_none())?;
        let first = window.sure.front()?;
        let full = window.sure.len() >= window.batches.most as usize;
        let alone = first.sequence <= window.batches.alone || first.kind != Kind::Ours;
        // What is in doubt waits until this is worked off.
        let at_once = full || alone || window.phase != Phase::Sure;
        Some(if at_once { Duration::ZERO } else { first.arrived + window.batches.patience })
    }

    pub(super) fn may_begin(&self, now: Duration) -> bool {
        self.begins_at().is_some_and(|begins| now >= begins)
    }

    /// What goes to the handler with the message in hand: all that follows without anything in between that needs
    /// something else than the handler. Once it was tried nothing is added.
    pub(super) fn compose(&mut self, attempt: u64) -> Vec<u64> {
        let (Some(window), Some(hand)) = (&self.window, &self.hand) else { return Vec::new() };
        let most = window.batches.most.saturating_sub(1) as usize;
        let most = if attempt > 1 { most.min(hand.with) } else { most };
        if most == 0 || hand.sequence <= window.batches.alone {
            return self.with(Vec::new());
        }
        let fits = |item: &&Item| {
            item.kind == Kind::Ours
                && !self.completed.contains(item.sequence)
                && !self.skips(item.sequence, &item.subject)
                && !self.is_parked_behind(&item.subject)
        };
        let with = window.sure.iter().take(most).take_while(fits).map(|item| item.message).collect();
        self.with(with)
    }

    fn with(&mut self, messages: Vec<u64>) -> Vec<u64> {
        if let Some(hand) = &mut self.hand {
            hand.with = messages.len();
        }
        messages
    }

    /// The batch behind the message in hand, which is done with.
    pub(super) fn take_composed(&mut self) -> Vec<Item> {
        let with = self.hand.as_mut().map_or(0, |hand| std::mem::take(&mut hand.with));
        match &mut self.window {
            Some(window) if with > 0 => window.sure.drain(..with.min(window.sure.len())).collect(),
            _ => Vec::new(),
        }
    }

    /// A batch without attempts left is handed over one message at a time; `false` if it is one message already.
    pub(super) fn divide(&mut self, now: Duration, attempt: u64, reason: &str) -> bool {
        let (Some(window), Some(hand)) = (&mut self.window, &mut self.hand) else { return false };
        let with = std::mem::take(&mut hand.with);
        if with == 0 {
            return false;
        }
        let first = hand.sequence;
        window.batches.alone = Batches::last(first, &window.sure, with);
        hand.stage = Stage::Again { until: now };
        self.tried = None;
        self.note(Note::Failed {
            sequence: first,
            attempt,
            delay: Duration::ZERO,
            exhausted: false,
            reason: reason.to_owned(),
        });
        self.note(Note::Divided { first, messages: with + 1 });
        self.say(|report| report.lost = None);
        true
    }
}
