//! What a lane must never do, judged by its events and effects alone.

mod rule;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

pub use rule::LaneInvariant;

use crate::{
    lane::{Delivered, Effect, Event, Note, Outcome, PullStatus},
    order::{Order, Verb},
    record::{Assignment, Breaker, ExhaustedPolicy, Mode, Ownership},
    retry,
};

/// Orders that are remembered.
const ORDERS: usize = 64;
/// Completed sequences that are remembered; less than the lane itself remembers.
const REMEMBERED: usize = 1024;
/// In-progress acks without an answer that are remembered: more than a lane can have on hand at once.
const UNANSWERED: usize = 8192;

#[derive(Debug)]
struct Message {
    sequence: u64,
    deliveries: u64,
    subject: String,
    deadline: Duration,
    /// From then on its pin may be another's, and with it the message.
    pinned_until: Option<Duration>,
    /// The lane had a park when it came.
    parks: bool,
}

/// An account of what a lane was told and did.
#[derive(Debug, Default)]
pub struct LaneMonitor {
    assignments: BTreeMap<u64, Arc<Assignment>>,
    entering: Option<u64>,
    joined: Option<u64>,
    /// Until when its lease is ours.
    lease: Option<Duration>,
    /// The lane that `completed` is about.
    served: Option<u64>,
    wait: Option<Duration>,
    /// The deadline that was in force for pulls sent so far; a longer one counts only for later pulls.
    pulls: BTreeMap<u64, Duration>,
    messages: BTreeMap<u64, Message>,
    /// The same by sequence: with the message's number.
    on_hand: BTreeSet<(u64, u64)>,
    progress: BTreeMap<u64, (u64, Duration)>,
    /// When renewals of the pin were sent.
    renewals: BTreeMap<u64, Duration>,
    /// The message whose handler runs.
    handling: Option<u64>,
    /// Those that the handler was given with it.
    with: Vec<u64>,
    /// A completed sequence whose ack is not confirmed, with the first token of its acks.
    unconfirmed: Option<(u64, u64)>,
    /// The pull that rode on that ack.
    carried: Option<u64>,
    /// In the order in which they were completed.
    completed: VecDeque<u64>,
    highest: u64,
    /// The message that failed last, and how often in a row.
    failed: Option<(u64, u64)>,
    /// The message that will never work, as its handler said last.
    permanent: Option<u64>,
    /// Token and sequence of the dead letter that was sent last.
    dead_letter: Option<(u64, u64)>,
    put_away: PutAway,
    /// With the lane that each is for.
    orders: VecDeque<(u64, Order)>,
    park: Parked,
    violations: Vec<LaneInvariant>,
}

/// What is known of parked keys, and who may release them.
#[derive(Debug, Default)]
struct Parked {
    /// Of the question that was asked last.
    token: Option<u64>,
    keys: Option<BTreeSet<Arc<str>>>,
    pin: Option<String>,
    claimed: bool,
    /// When looks at the consumer were sent.
    looks: BTreeMap<u64, Duration>,
    /// When the latest of those was sent that were answered.
    proof: Duration,
}

/// What was put away lately, and where the breaker opened last.
#[derive(Debug, Default)]
struct PutAway {
    times: VecDeque<Duration>,
    open: Option<(u64, u64)>,
}

impl PutAway {
    fn opened(&mut self, incarnation: u64, sequence: u64) {
        if Some((incarnation, sequence)) > self.open {
            self.open = Some((incarnation, sequence));
            // Whatever is put away later is put away after it was closed, and everything began anew.
            self.times.clear();
        }
    }

    /// Takes note of one more; whether it was allowed.
    fn holds(&mut self, now: Duration, breaker: Breaker, incarnation: u64, sequence: u64) -> bool {
        let window = Duration::from_secs(breaker.window_seconds);
        self.times.retain(|earlier| *earlier + window > now);
        self.times.push_back(now);
        let open = self.open.is_some_and(|(of, at)| of == incarnation && sequence <= at);
        !open && self.times.len() <= breaker.max_exhausted as usize
    }
}

impl LaneMonitor {
    /// An empty account.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of what the lane was told at `now`. Call it before [`LaneMonitor::did`].
    pub fn told(&mut self, now: Duration, event: &Event<'_>) {
        match event {
            Event::Assigned(assignment) => {
                self.assignments.insert(assignment.incarnation, Arc::clone(assignment));
                while self.assignments.len() > 8 {
                    self.assignments.pop_first();
                }
            }
            Event::Joined { incarnation, .. } if self.entering == Some(*incarnation) => {
                self.joined = Some(*incarnation);
                self.lease = None;
                self.park.keys = None;
                if self.served.replace(*incarnation) != Some(*incarnation) {
                    self.completed.clear();
                    self.highest = 0;
                }
            }
            Event::Consumer { facts, token } => {
                let shorter =
                    self.wait.map_or(Duration::ZERO, |wait| wait.saturating_sub(facts.shortest_wait));
                for message in self.messages.values_mut() {
                    message.deadline = message.deadline.saturating_sub(shorter);
                    message.pinned_until = message.pinned_until.map(|until| until.saturating_sub(shorter));
                }
                self.wait = Some(facts.shortest_wait);
                let sent = self.park.looks.remove(token).unwrap_or_default();
                self.park.proof = self.park.proof.max(sent);
            }
            Event::ParkedKeys { token, keys } if self.park.token == Some(*token) => {
                self.park.keys = Some(keys.clone());
            }
            Event::Claimed { granted, .. } => self.park.claimed = *granted,
            Event::Delivered(delivered) => self.arrived(now, delivered),
            Event::Answered { token } => self.confirmed(now, *token),
            Event::PullEnded { pull, status } => self.pull_ended(*pull, *status),
            Event::Handled(outcome) => {
                let with = std::mem::take(&mut self.with);
                for id in self.handling.take().into_iter().chain(with) {
                    let handled = self.messages.get(&id).filter(|message| now < message.deadline);
                    let Some(sequence) = handled.map(|message| message.sequence) else { return };
                    match outcome {
                        Outcome::Done => self.completed(sequence),
                        Outcome::Permanent { .. } => {
                            self.permanent = Some(sequence);
                            return;
                        }
                        _ => return,
                    }
                }
            }
            Event::Leased { incarnation, until } if self.joined == Some(*incarnation) => {
                if self.lease.is_none_or(|before| now >= before) {
                    self.park.keys = None;
                }
                self.lease = *until;
            }
            Event::BreakerOpen { incarnation, sequence } => self.put_away.opened(*incarnation, *sequence),
            Event::Orders { incarnation, orders } => self.ordered(*incarnation, orders),
            Event::Stored { token } => {
                let stored = self.dead_letter.take_if(|(sent, _)| sent == token);
                if let Some((_, sequence)) = stored.filter(|(_, sequence)| self.is_held(now, *sequence)) {
                    self.completed(sequence);
                }
            }
            _ => {}
        }
    }

    /// Judges what the lane did at `now`; the rules that it broke.
    pub fn did(&mut self, now: Duration, effects: &[Effect]) -> Vec<LaneInvariant> {
        for effect in effects {
            match effect {
                Effect::Join { incarnation } => self.entering = Some(*incarnation),
                Effect::Leave { .. } => {
                    self.demand(LaneInvariant::NothingInHandWhenLeaving, self.handling.is_none());
                    self.park.claimed = false;
                    self.joined = None;
                    self.lease = None;
                    self.entering = None;
                    self.unconfirmed = None;
                }
                Effect::Pull(request) => {
                    let free = self.handling.is_none() && self.unconfirmed.is_none() || self.is_pipelined();
                    self.demand(LaneInvariant::PullOnlyWhenFree, free);
                    self.pulled(now, request.id);
                }
                Effect::Ack { message, token, pull } => {
                    self.in_time(now, *message);
                    self.acknowledged(*message, *token);
                    if let Some(request) = pull {
                        self.carried = Some(request.id);
                        self.pulled(now, request.id);
                    }
                }
                Effect::Acks { messages, token } => {
                    for message in messages {
                        self.in_time(now, *message);
                        self.acknowledged(*message, *token);
                    }
                }
                Effect::Nak { message, .. } => self.in_time(now, *message),
                Effect::Progress { message, token } => {
                    self.in_time(now, *message);
                    self.progress.insert(*token, (*message, now));
                    while self.progress.len() > UNANSWERED {
                        self.progress.pop_first();
                    }
                }
                Effect::Renew(renewal) => {
                    self.renewals.insert(renewal.id, now);
                    while self.renewals.len() > 64 {
                        self.renewals.pop_first();
                    }
                }
                Effect::DeadLetter { message, token, .. } => {
                    self.in_time(now, *message);
                    let Some(sequence) = self.messages.get(message).map(|message| message.sequence) else {
                        continue;
                    };
                    if self.is_to_be_skipped(sequence) {
                        // Neither attempts nor the breaker count.
                        self.demand(LaneInvariant::SkippedByOrder, self.handling.is_none());
                        self.dead_letter = Some((*token, sequence));
                        continue;
                    }
                    // Sent again it is the same one.
                    let again = self.dead_letter.is_some_and(|(_, sent)| sent == sequence);
                    self.dead_letter = Some((*token, sequence));
                    self.put_away(now, sequence, again, |policy| {
                        matches!(policy, ExhaustedPolicy::DeadLetter { .. })
                    });
                }
                Effect::Note(Note::Divided { .. }) => (self.failed, self.permanent) = (None, None),
                // No answer in time is a failure as well, and no event.
                Effect::Note(Note::Failed { sequence, .. }) => {
                    let before = self.failed.filter(|(of, _)| of == sequence);
                    self.failed = Some((*sequence, before.map_or(0, |(_, times)| times) + 1));
                }
                Effect::Note(Note::Dropped { sequence, .. }) => {
                    let again = self.dead_letter.take_if(|(_, sent)| sent == sequence).is_some();
                    self.put_away(now, *sequence, again, |policy| {
                        matches!(policy, ExhaustedPolicy::Drop { .. })
                    });
                    self.completed(*sequence);
                }
                Effect::Note(Note::Skipped { sequence, .. }) => {
                    let joined = self.joined.and_then(|joined| self.assignments.get(&joined));
                    let stores = joined.is_some_and(|joined| {
                        matches!(joined.settings.on_exhausted, ExhaustedPolicy::DeadLetter { .. })
                    });
                    let stored = self.was_completed(*sequence);
                    let right = self.is_to_be_skipped(*sequence)
                        && self.is_held(now, *sequence)
                        && self.handling.is_none()
                        && (stored || !stores);
                    self.demand(LaneInvariant::SkippedByOrder, right);
                    if !stored {
                        self.completed(*sequence);
                    }
                }
                Effect::Park { message, token, .. } => self.parked(now, *message, *token),
                Effect::Note(Note::Parked { key, .. }) => {
                    self.park.keys.iter_mut().for_each(|keys| {
                        keys.insert(Arc::clone(key));
                    });
                }
                Effect::Note(Note::Released { sequence, .. } | Note::ParkedDropped { sequence, .. }) => {
                    self.remember(*sequence);
                }
                Effect::LoadParked { token } => self.park.token = Some(*token),
                Effect::Inspect { token } => {
                    self.park.looks.insert(*token, now);
                    while self.park.looks.len() > 64 {
                        self.park.looks.pop_first();
                    }
                }
                Effect::Claim { .. } => self.park.claimed = false,
                Effect::Unclaim { .. } => self.park.claimed = false,
                Effect::ParkOrderDone { .. } => (self.park.claimed, self.park.keys) = (false, None),
                Effect::HandleParked { message, .. } => {
                    self.may_release(now);
                    self.demand(LaneInvariant::OneHandler, self.handling.is_none());
                    self.demand(LaneInvariant::SettledBeforeNext, self.unconfirmed.is_none());
                    self.handling = Some(*message);
                }
                Effect::DeleteParked { .. } => self.may_release(now),
                Effect::Breaker { incarnation, sequence } => self.put_away.opened(*incarnation, *sequence),
                Effect::Handle { message, with, .. } => {
                    self.handled(now, *message);
                    for id in with {
                        self.handled_too(now, *id);
                    }
                }
                Effect::Cancel => {
                    self.handling = None;
                    self.with.clear();
                }
                Effect::Forget { message } => self.forgotten(now, *message),
                _ => {}
            }
        }
        std::mem::take(&mut self.violations)
    }

    fn completed(&mut self, sequence: u64) {
        self.remember(sequence);
        while let Some(id) = self.on_hand.range((sequence, 0)..=(sequence, u64::MAX)).next().copied() {
            self.on_hand.remove(&id);
        }
        self.unconfirmed = (!self.is_pipelined()).then_some((sequence, u64::MAX));
        self.carried = None;
    }

    fn remember(&mut self, sequence: u64) {
        self.completed.push_back(sequence);
        self.highest = self.highest.max(sequence);
        if self.completed.len() > REMEMBERED {
            self.completed.pop_front();
        }
    }

    fn ordered(&mut self, incarnation: u64, orders: &[Order]) {
        for order in orders {
            if !self.orders.iter().any(|(of, known)| *of == incarnation && known.id == order.id) {
                self.orders.push_back((incarnation, order.clone()));
            }
        }
        let superfluous = self.orders.len().saturating_sub(ORDERS);
        self.orders.drain(..superfluous);
    }

    /// Whether somebody ordered that a message that is in hand be skipped.
    fn is_to_be_skipped(&self, sequence: u64) -> bool {
        if self.orders.is_empty() {
            return false;
        }
        let Some(assignment) = self.joined.and_then(|joined| self.assignments.get(&joined)) else {
            return false;
        };
        let mapping = &assignment.mapping;
        let mut messages = self.messages.values().filter(|message| message.sequence == sequence);
        let key = messages.find_map(|message| mapping.key_of(mapping.original_subject(&message.subject)?));
        let key = key.unwrap_or_default().join(".");
        let covers = |order: &Order| order.verb == Verb::Skip && order.covers(sequence, &key);
        self.orders.iter().any(|(of, order)| *of == assignment.incarnation && covers(order))
    }

    fn may_release(&mut self, now: Duration) {
        let proven = now < self.park.proof + self.wait.unwrap_or_default();
        self.demand(LaneInvariant::ReleasedByClaim, self.park.claimed && self.joined.is_some() && proven);
    }

    /// A message is sent to the park stream: because no attempt is left, or because its key is parked.
    fn parked(&mut self, now: Duration, message: u64, token: u64) {
        self.in_time(now, message);
        let Some(sequence) = self.messages.get(&message).map(|message| message.sequence) else { return };
        let again = self.dead_letter.is_some_and(|(_, sent)| sent == sequence);
        self.dead_letter = Some((token, sequence));
        if self.is_key_parked(message) != Some(true) {
            self.put_away(now, sequence, again, |policy| matches!(policy, ExhaustedPolicy::ParkKey { .. }));
        }
    }

    /// Whether the key of a message is parked; nothing when that is not known.
    fn is_key_parked(&self, message: u64) -> Option<bool> {
        let message = self.messages.get(&message)?;
        let mapping = &self.assignments.get(&self.joined?)?.mapping;
        let key = mapping.key_text(mapping.original_subject(&message.subject)?)?;
        Some(self.park.keys.as_ref()?.contains(key.as_str()))
    }

    fn is_held(&self, now: Duration, sequence: u64) -> bool {
        self.messages.values().any(|message| message.sequence == sequence && now < message.deadline)
    }

    fn put_away(
        &mut self,
        now: Duration,
        sequence: u64,
        again: bool,
        agrees: impl Fn(&ExhaustedPolicy) -> bool,
    ) {
        let assignment = self.joined.and_then(|joined| self.assignments.get(&joined)).cloned();
        let settings = assignment.as_ref().map(|assignment| &assignment.settings);
        let deliveries = self.messages.values().filter(|message| message.sequence == sequence);
        let deliveries = deliveries.map(|message| message.deliveries).max().unwrap_or_default();
        let failed = self.failed.filter(|(of, _)| *of == sequence).map_or(0, |(_, times)| times);
        // A pipelined lane tries again in place, without another delivery.
        let deliveries = if self.is_pipelined() { failed } else { deliveries };
        let exhausted = self.permanent == Some(sequence)
            || settings.is_some_and(|settings| retry::exhausted(&settings.retry, deliveries));
        // A policy that changed in the meantime does not take back what is on its way.
        let agreed = again || settings.is_some_and(|settings| agrees(&settings.on_exhausted));
        self.demand(LaneInvariant::PutAwayByPolicy, exhausted && agreed && self.is_held(now, sequence));
        let breaker = settings.and_then(|settings| settings.on_exhausted.breaker());
        if let (Some(breaker), Some(incarnation), false) = (breaker, self.joined, again) {
            let holds = self.put_away.holds(now, breaker, incarnation, sequence);
            self.demand(LaneInvariant::BreakerHolds, holds);
        }
    }

    fn is_pipelined(&self) -> bool {
        let assignment = self.joined.or(self.served).and_then(|joined| self.assignments.get(&joined));
        assignment.is_some_and(|assignment| assignment.settings.delivery.mode() != Mode::Serial)
    }

    /// Whether everything before it that is on hand, and in time, was completed, or goes to the handler with it.
    fn is_first(&self, after: u64, sequence: u64, now: Duration) -> bool {
        self.on_hand.range((after + 1, 0)..(sequence, 0).max((after + 1, 0))).all(|(earlier, id)| {
            self.was_completed(*earlier)
                || self
                    .messages
                    .get(id)
                    .is_none_or(|message| now >= message.deadline || self.covered(message))
        })
    }

    fn demand(&mut self, invariant: LaneInvariant, holds: bool) {
        if !holds {
            self.violations.push(invariant);
        }
    }

    /// Whether the lane is ours as far as a lease decides that.
    fn has_lease(&self, now: Duration) -> bool {
        let assignment = self.joined.and_then(|joined| self.assignments.get(&joined));
        let leased = assignment.is_some_and(|assignment| assignment.settings.ownership == Ownership::Lease);
        !leased || self.lease.is_some_and(|until| now < until)
    }

    fn pulled(&mut self, now: Duration, pull: u64) {
        self.demand(LaneInvariant::PullOnlyWhenJoined, self.joined.is_some());
        self.demand(LaneInvariant::OnlyWithLease, self.has_lease(now));
        self.pulls.insert(pull, now);
        while self.pulls.len() > 256 {
            self.pulls.pop_first();
        }
    }

    fn arrived(&mut self, now: Duration, delivered: &Delivered<'_>) {
        let pipelined = self.is_pipelined();
        let sent = if pipelined {
            self.pulls.get(&delivered.pull).copied()
        } else {
            self.pulls.remove(&delivered.pull)
        };
        let Some(sent) = sent else { return };
        let deadline = sent + self.wait.unwrap_or_default();
        let joined = self.joined.and_then(|joined| self.assignments.get(&joined));
        let leased = joined.is_some_and(|joined| joined.settings.ownership == Ownership::Lease);
        // Somebody else may have parked since the messages came to us.
        if !leased && now < deadline && (delivered.pin.is_none() || delivered.pin != self.park.pin.as_deref())
        {
            self.park.keys = None;
            self.park.pin = delivered.pin.map(str::to_owned);
        }
        if now < deadline
            && self.carried == Some(delivered.pull)
            && self.unconfirmed.is_some_and(|(sequence, _)| delivered.sequence > sequence)
        {
            self.unconfirmed = None;
        }
        let message = Message {
            sequence: delivered.sequence,
            deliveries: delivered.deliveries,
            subject: delivered.subject.to_owned(),
            deadline,
            pinned_until: delivered.pin.map(|_| deadline),
            parks: self
                .joined
                .and_then(|joined| self.assignments.get(&joined))
                .is_some_and(|assignment| assignment.settings.park.is_some()),
        };
        if pipelined {
            // Its clock began again, whichever delivery the lane goes on with.
            for (_, id) in self.on_hand.range((message.sequence, 0)..=(message.sequence, u64::MAX)) {
                if let Some(known) = self.messages.get_mut(id).filter(|known| now < known.deadline) {
                    known.deadline = known.deadline.max(deadline);
                }
            }
        }
        // The same message again while its handler runs: it is that handler's now.
        if !pipelined
            && let Some(running) = self.handling
            && self.messages.get(&running).is_some_and(|known| known.sequence == message.sequence)
            && now < deadline
        {
            self.handling = Some(delivered.message);
        }
        self.on_hand.insert((message.sequence, delivered.message));
        self.messages.insert(delivered.message, message);
    }

    /// A renewal that the server took note of kept the pin.
    fn pull_ended(&mut self, pull: u64, status: PullStatus) {
        let Some(sent) = self.renewals.remove(&pull) else { return };
        if matches!(status, PullStatus::Expired | PullStatus::TooLarge) {
            let until = sent + self.wait.unwrap_or_default();
            for message in self.messages.values_mut() {
                message.pinned_until = message.pinned_until.map(|before| before.max(until));
            }
        }
    }

    fn confirmed(&mut self, now: Duration, token: u64) {
        if let Some((message, sent)) = self.progress.remove(&token)
            && let Some(message) = self.messages.get_mut(&message)
            && now < message.deadline
        {
            message.deadline = message.deadline.max(sent + self.wait.unwrap_or_default());
        }
        if self.unconfirmed.is_some_and(|(_, since)| token >= since) {
            self.unconfirmed = None;
        }
    }

    fn in_time(&mut self, now: Duration, message: u64) {
        let in_time = self.messages.get(&message).is_some_and(|message| now < message.deadline);
        self.demand(LaneInvariant::NothingAfterDeadline, in_time);
    }

    fn acknowledged(&mut self, message: u64, token: u64) {
        let Some(message) = self.messages.get(&message) else { return };
        let sequence = message.sequence;
        let completed = self.was_completed(sequence) || self.covered(message);
        self.demand(LaneInvariant::CompletedBeforeAck, completed);
        if let Some((unconfirmed, since)) = &mut self.unconfirmed
            && *unconfirmed == sequence
        {
            *since = (*since).min(token);
        }
    }

    fn hash(&self, message: &Message) -> Option<(u32, &Assignment)> {
        let assignment = self.assignments.get(&self.joined?)?;
        let mapping = &assignment.mapping;
        Some((mapping.key_hash(mapping.original_subject(&message.subject)?)?, assignment))
    }

    fn was_completed(&self, sequence: u64) -> bool {
        // The usual message is newer than all of them, or the latest.
        sequence <= self.highest && self.completed.iter().rev().any(|completed| *completed == sequence)
    }

    fn covered(&self, message: &Message) -> bool {
        self.hash(message).is_some_and(|(hash, assignment)| {
            let covers = |floor: &crate::record::Floor| {
                floor.share.contains_hash(hash) && message.sequence <= floor.sequence
            };
            assignment.floors.iter().any(covers)
        })
    }

    fn handled(&mut self, now: Duration, id: u64) {
        self.demand(LaneInvariant::OneHandler, self.handling.is_none());
        self.demand(LaneInvariant::OnlyWithLease, self.has_lease(now));
        self.demand(LaneInvariant::SettledBeforeNext, self.unconfirmed.is_none());
        self.handling = Some(id);
        self.may_be_handled(now, 0, id);
    }

    /// In the same batch, behind those before.
    fn handled_too(&mut self, now: Duration, id: u64) {
        let before = self.with.last().copied().or(self.handling);
        let before = before.and_then(|before| self.messages.get(&before)).map(|message| message.sequence);
        self.with.push(id);
        self.may_be_handled(now, before.unwrap_or_default(), id);
    }

    fn may_be_handled(&mut self, now: Duration, after: u64, id: u64) {
        let behind =
            |message: &Message| message.sequence > after && self.is_first(after, message.sequence, now);
        let first = self.messages.get(&id).is_some_and(behind);
        self.demand(LaneInvariant::InStreamOrder, first);
        let Some(message) = self.messages.get(&id) else {
            return self.demand(LaneInvariant::HandledInTime, false);
        };
        let (in_time, repeated) = (now < message.deadline, self.was_completed(message.sequence));
        let own = self.hash(message).is_some_and(|(hash, assignment)| assignment.share.contains_hash(hash));
        let waits = message.parks && self.is_key_parked(id) != Some(false);
        self.demand(LaneInvariant::ParkedKeysWait, !waits);
        self.demand(LaneInvariant::HandledInTime, in_time);
        self.demand(LaneInvariant::OnlyOwnKeys, own);
        self.demand(LaneInvariant::NotCompletedTwice, !repeated);
    }

    fn forgotten(&mut self, now: Duration, id: u64) {
        let Some(message) = self.messages.remove(&id) else { return };
        self.on_hand.remove(&(message.sequence, id));
        let again = || self.messages.values().any(|other| other.sequence == message.sequence);
        let unconfirmed = self.unconfirmed.is_some_and(|(sequence, _)| sequence == message.sequence);
        let deadline = message.pinned_until.map_or(message.deadline, |until| until.min(message.deadline));
        if unconfirmed && now >= deadline && !again() {
            // Given up: it may have become another's, who is free to go on.
            self.unconfirmed = None;
        }
    }
}
