//! The handlings of one key, judged one after another.
//!
//! All that is asked is which of two handlings came first. Times of one instance are exact; between two instances only
//! what differs by more than the clock tolerance is certain, and a violation is only what is certain.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Ending, Options, Report,
    checker::{Expected, Handling, Instance},
};
use crate::{fence::Fence, invariants::JournalInvariant};

/// Judges one key.
pub(super) struct Judge<'a> {
    pub(super) name: &'a str,
    pub(super) options: &'a Options,
    pub(super) instances: &'a [Instance],
}

/// What was found out about all handlings of a key, before any is judged.
struct Facts<'a> {
    handlings: &'a [Handling],
    expected: &'a BTreeMap<Fence, Expected>,
    expecting: bool,
    /// Each message with the handlings (indices, by start) that completed it.
    messages: BTreeMap<Fence, Vec<usize>>,
    /// Messages below it were completed before the first handling that is known, unless they must have entries.
    base: Option<Fence>,
}

impl Judge<'_> {
    /// Sorts `handlings` by start without copies, judges all of them, and adds to the report what concerns the first
    /// `counted` ones. Messages below `base` are taken to be completed.
    pub(super) fn judge(
        &self,
        handlings: &mut Vec<Handling>,
        expected: &BTreeMap<Fence, Expected>,
        expecting: bool,
        base: Option<Fence>,
        counted: usize,
        report: &mut Report,
    ) {
        handlings.sort_by_key(|one| (one.start, one.end, one.instance, one.number, one.fence));
        let before = handlings.len();
        handlings.dedup();
        report.copies += before - handlings.len();
        let beginning = self.options.partial.then(|| self.beginning(handlings)).flatten();
        let facts = Facts::new(handlings, expected, expecting, base.or(beginning));
        let mut latest: Vec<&Handling> = Vec::new();
        for (index, handling) in handlings.iter().enumerate() {
            let running = self.running(&latest, handling);
            latest.retain(|other| other.instance != handling.instance || other.end > handling.end);
            if latest.iter().all(|other| other.instance != handling.instance) {
                latest.push(handling);
            }
            if index >= counted {
                break;
            }
            report.entries += 1;
            report.first = Some(report.first.map_or(handling.start, |first| first.min(handling.start)));
            report.last = report.last.max(Some(handling.end));
            if let Some(running) = running {
                let words = || format!("{} while {}", self.tell(handling), self.tell(running));
                report.violation(JournalInvariant::OneAtATime, self.options.examples, words);
            }
            if facts.is_unknown(handling.fence) {
                let words = || self.tell(handling);
                report.violation(JournalInvariant::NothingUnknown, self.options.examples, words);
                continue;
            }
            facts.count(index, report);
            if handling.outcome == Ending::Parked {
                // Its turn comes when its key is released.
                continue;
            }
            if let Some((invariant, fault)) = self.fault(&facts, index) {
                let words = || format!("{}: {fault}", self.tell(handling));
                report.violation(invariant, self.options.examples, words);
            }
        }
        self.gaps(&facts, counted, report);
    }

    /// The highest message with which a journal may begin. Which handling really was the first is not certain where clocks
    /// differ: it is one that no other of its instance, and no other by more than the tolerance, is ahead of.
    fn beginning(&self, handlings: &[Handling]) -> Option<Fence> {
        let latest = handlings.first()?.start.saturating_add(self.options.clock_tolerance);
        let mut instances = BTreeSet::new();
        let perhaps = handlings.iter().take_while(|one| one.start <= latest);
        perhaps.filter(|one| instances.insert(one.instance)).map(|one| one.fence).max()
    }

    /// Whether `one` may have ended when `other` began.
    fn may_precede(&self, one: &Handling, other: &Handling) -> bool {
        if one.is_in_batch_of(other) {
            return one.number < other.number;
        }
        let slack = if one.instance == other.instance { 0 } else { self.options.clock_tolerance };
        one.end <= other.start.saturating_add(slack)
    }

    /// Whether `one` certainly ended when `other` began.
    fn precedes(&self, one: &Handling, other: &Handling) -> bool {
        if one.is_in_batch_of(other) {
            return one.number < other.number;
        }
        let slack = if one.instance == other.instance { 0 } else { self.options.clock_tolerance };
        one.start < other.start && one.end.saturating_add(slack) <= other.start
    }

    /// A handling, of those that end last in their instances, that certainly runs at the same time.
    fn running<'h>(&self, latest: &[&'h Handling], handling: &Handling) -> Option<&'h Handling> {
        let at_once =
            |other: &&&Handling| !self.may_precede(other, handling) && !self.may_precede(handling, other);
        latest.iter().find(at_once).copied()
    }

    /// Whether the message may have been completed when this handling began.
    fn completed_before(&self, facts: &Facts<'_>, message: Fence, index: usize) -> bool {
        let handling = &facts.handlings[index];
        facts.is_assumed(message)
            || facts.messages.get(&message).is_some_and(|completions| {
                completions
                    .iter()
                    .any(|&other| other != index && self.may_precede(&facts.handlings[other], handling))
            })
    }

    /// What is wrong with the place of a handling in the order of its key; one reason is enough.
    fn fault(&self, facts: &Facts<'_>, index: usize) -> Option<(JournalInvariant, String)> {
        let handling = &facts.handlings[index];
        if self.completed_before(facts, handling.fence, index) {
            return None;
        }
        let ahead = facts.messages.range(handling.fence..).find(|(message, completions)| {
            **message > handling.fence
                && completions.iter().any(|&other| self.precedes(&facts.handlings[other], handling))
        });
        if let Some((ahead, _)) = ahead {
            let words =
                format!("started after {} was done, and is no repeat", (self.options.message)(*ahead));
            return Some((JournalInvariant::NoStepBack, words));
        }
        let previous = facts.previous(handling.fence)?;
        if facts.is_ahead_in_batch(previous, index) || self.completed_before(facts, previous, index) {
            return None;
        }
        let message = (self.options.message)(previous);
        let completions = facts.messages.get(&previous).into_iter().flatten();
        let words = match completions.map(|&other| facts.handlings[other].end).min() {
            Some(end) => format!("started before {message} was done at {}", (self.options.time)(end)),
            None => format!("started although {message} was never done"),
        };
        Some((JournalInvariant::CompletedBeforeNext, words))
    }

    /// Messages that were never completed although their turn has been, and those whose turn may come.
    fn gaps(&self, facts: &Facts<'_>, counted: usize, report: &mut Report) {
        let highest =
            facts.messages.iter().rev().find(|(_, completions)| !completions.is_empty()).map(|(one, _)| *one);
        let seen_last = |message: Fence| facts.handlings.iter().rposition(|one| one.fence == message);
        let mut judge = |message: Fence, settled: bool| {
            let done = facts.messages.get(&message).is_some_and(|completions| !completions.is_empty());
            if done || facts.is_assumed(message) {
                return;
            }
            let overtaken = highest.filter(|highest| *highest > message);
            if let Some(later) = overtaken {
                let words = || {
                    let (message, later) = ((self.options.message)(message), (self.options.message)(later));
                    format!("{message} of {} was never done, although {later} was", self.name)
                };
                report.violation(JournalInvariant::NothingSkipped, self.options.examples, words);
            } else if settled && !facts.is_parked(message) {
                let words = || format!("{} of {} was never done", (self.options.message)(message), self.name);
                report.violation(JournalInvariant::NothingSkipped, self.options.examples, words);
            } else {
                report.waiting += 1;
            }
        };
        if facts.expecting {
            for (&message, expected) in facts.expected {
                let begun = facts.base.is_some_and(|base| message >= base);
                judge(message, expected.settled && (expected.recorded || begun));
            }
            return;
        }
        for (&message, completions) in &facts.messages {
            if completions.is_empty() && seen_last(message).is_some_and(|last| last < counted) {
                judge(message, false);
            }
        }
    }

    fn tell(&self, handling: &Handling) -> String {
        let Handling { fence, start, end, instance, partition, attempt, outcome, .. } = handling;
        let (message, time) = (self.options.message, self.options.time);
        let pod = self.instances.get(*instance as usize).map_or("?", |instance| &instance.pod);
        format!(
            "{} of {} from {} to {} in {pod} (partition {partition}, attempt {attempt}, {outcome})",
            message(*fence),
            self.name,
            time(*start),
            time(*end),
        )
    }
}

impl<'a> Facts<'a> {
    fn new(
        handlings: &'a [Handling],
        expected: &'a BTreeMap<Fence, Expected>,
        expecting: bool,
        base: Option<Fence>,
    ) -> Self {
        let mut messages: BTreeMap<Fence, Vec<usize>> = BTreeMap::new();
        for (index, handling) in handlings.iter().enumerate() {
            if expecting && !expected.contains_key(&handling.fence) {
                continue;
            }
            let completions = messages.entry(handling.fence).or_default();
            if handling.outcome.is_settled() {
                completions.push(index);
            }
        }
        Self { handlings, expected, expecting, messages, base }
    }

    /// Whether the last that is known of a message is that it was parked.
    fn is_parked(&self, message: Fence) -> bool {
        let last = self.handlings.iter().rfind(|one| one.fence == message);
        last.is_some_and(|one| one.outcome == Ending::Parked)
    }

    /// Whether the handler was given the message with this one, ahead of it: they succeed or fail together.
    fn is_ahead_in_batch(&self, message: Fence, index: usize) -> bool {
        // They have the same times, and are sorted by their numbers behind those.
        let ahead = self.handlings[..index].iter().rev();
        ahead
            .take_while(|other| other.is_in_batch_of(&self.handlings[index]))
            .any(|other| other.fence == message)
    }

    fn is_unknown(&self, message: Fence) -> bool {
        self.expecting && !self.expected.contains_key(&message)
    }

    /// Completed before the first handling that is known.
    fn is_assumed(&self, message: Fence) -> bool {
        self.base.is_some_and(|base| message < base)
            && !self.expected.get(&message).is_some_and(|expected| expected.recorded)
    }

    /// The message before this one in its key, as far as messages are known.
    fn previous(&self, message: Fence) -> Option<Fence> {
        if self.expecting {
            self.expected.range(..message).next_back().map(|(previous, _)| *previous)
        } else {
            self.messages.range(..message).next_back().map(|(previous, _)| *previous)
        }
    }

    /// Counts one handling of a message that is known.
    fn count(&self, index: usize, report: &mut Report) {
        let handling = &self.handlings[index];
        let completions = self.messages.get(&handling.fence).map(Vec::as_slice).unwrap_or_default();
        if handling.outcome == Ending::Parked {
            report.parked += 1;
        } else if !handling.outcome.is_settled() {
            report.unfinished += 1;
        } else if handling.outcome == Ending::PutAway {
            report.put_away += 1;
        } else if completions.first() == Some(&index) && !self.is_assumed(handling.fence) {
            report.handled += 1;
        } else {
            report.repeats += 1;
        }
    }
}
