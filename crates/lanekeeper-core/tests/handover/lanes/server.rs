//! What consumers and bucket do with what workers ask of them.

use std::time::Duration;

use lanekeeper_core::{
    lane::{ConsumerFacts, Delivered, Event, PullStatus},
    record::{Excused, LaneKey},
};

use super::{
    pod::{Late, Pull, Request, pin_named, subject},
    run::{Mutant, Run},
    state::{State, WAIT},
};
use crate::world::Violation;

/// How long a pull waits.
const PULL: Duration = Duration::from_secs(5);
/// When one that waits shows life, before its end.
const HEARTBEAT: Duration = Duration::from_millis(2500);
/// More deliveries than this are not told apart.
const MOST_DELIVERIES: u64 = 3;

/// A pull that waits for a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    pub(crate) pod: usize,
    pub(crate) pull: Pull,
    pub(crate) until: Duration,
}

impl Waiting {
    pub(crate) fn heartbeat(&self) -> Duration {
        self.until.saturating_sub(HEARTBEAT)
    }
}

/// A consumer's pulls, and its message in somebody's hands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Serving {
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) deliveries: u64,
    /// When what is pending is delivered again.
    pub(crate) again_at: Duration,
    /// Who has the consumer, and until when if no new pull of its comes.
    pub(crate) pin: Option<(&'static str, Duration)>,
    /// How many pins were given.
    pub(crate) pins: usize,
}

impl State {
    /// What the consumer would deliver now, if a pull waits.
    pub(crate) fn next_message(&self, incarnation: u64) -> Option<u64> {
        self.serving.get(&incarnation)?.next()?;
        self.due(incarnation)
    }

    /// The same, whoever waits.
    pub(crate) fn due(&self, incarnation: u64) -> Option<u64> {
        let again_at = self.serving.get(&incarnation)?.again_at;
        if self.world.consumers.get(&incarnation)?.pending.is_some() && self.now < again_at {
            return None;
        }
        self.world.deliverable(incarnation)
    }

    /// The oldest pull is answered with what is next: whose it was, and what it is told.
    pub(crate) fn take_message(&mut self, incarnation: u64) -> Option<(usize, Event<'static>)> {
        let sequence = self.next_message(incarnation)?;
        let now = self.now;
        let consumer = self.world.consumers.get_mut(&incarnation)?;
        let again = consumer.pending == Some(sequence);
        consumer.pending = Some(sequence);
        let serving = self.serving.get_mut(&incarnation)?;
        serving.deliveries = if again { (serving.deliveries + 1).min(MOST_DELIVERIES) } else { 1 };
        serving.again_at = now + WAIT;
        let deliveries = serving.deliveries;
        let Waiting { pod, pull, .. } = serving.waiting.remove(serving.next()?);
        let pin = pull.pin.unwrap_or_else(|| {
            serving.pins += 1;
            let pin = pin_named(serving.pins);
            serving.pin = Some((pin, now + WAIT));
            pin
        });
        let pull = pull.number;
        let hash = self.world.message(sequence).hash;
        let delivered = Delivered {
            message: pull,
            pull,
            sequence,
            consumer_sequence: 0,
            deliveries,
            subject: subject(hash),
            pin: Some(pin),
        };
        Some((pod, Event::Delivered(delivered)))
    }

    /// A request reaches the server; the answer.
    pub(crate) fn receive(
        &mut self,
        run: &Run,
        pod: usize,
        request: &Request,
    ) -> Result<Option<Event<'static>>, Violation> {
        let now = self.now;
        let pending = |state: &Self, incarnation: u64, sequence: u64| {
            state.world.consumers.get(&incarnation).is_some_and(|one| one.pending == Some(sequence))
        };
        Ok(match *request {
            Request::Pull { incarnation, pull } => self.queue(pod, incarnation, pull),
            Request::Ack { incarnation, sequence, token, pull } => {
                self.world.acknowledge(incarnation, sequence)?;
                match pull {
                    Some(pull) => self.queue(pod, incarnation, pull),
                    None => Some(self.answer(incarnation, token)),
                }
            }
            Request::Renew { incarnation, pull } => {
                let refused = self.refuses(incarnation, pull);
                let status = match self.serving.get_mut(&incarnation) {
                    None => PullStatus::NoResponders,
                    Some(_) if refused => PullStatus::WrongPin,
                    Some(serving) => {
                        serving.keep(pull, now);
                        PullStatus::Expired
                    }
                };
                Some(Event::PullEnded { pull: pull.number, status })
            }
            Request::Unpin { incarnation } => {
                self.unpin(incarnation);
                None
            }
            Request::Nak { incarnation, sequence, token, delay } => {
                if pending(self, incarnation, sequence) {
                    self.serving.entry(incarnation).or_default().again_at = now + delay;
                }
                Some(self.answer(incarnation, token))
            }
            Request::Progress { incarnation, sequence, token } => {
                if pending(self, incarnation, sequence) {
                    self.serving.entry(incarnation).or_default().again_at = now + WAIT;
                }
                Some(self.answer(incarnation, token))
            }
            Request::Inspect { incarnation, token } => Some(match self.world.consumers.get(&incarnation) {
                None => Event::ConsumerGone { token },
                Some(consumer) => {
                    let ack_pending = u64::from(consumer.pending.is_some());
                    let pin = self.serving.get(&incarnation).and_then(Serving::pinned).map(Into::into);
                    // The floor matters for orders alone, and nobody orders anything here.
                    let facts = ConsumerFacts {
                        shortest_wait: WAIT,
                        max_ack_pending: 1,
                        ack_pending,
                        pin,
                        ..ConsumerFacts::default()
                    };
                    Event::Consumer { token, facts }
                }
            }),
            Request::Join { .. } | Request::Leave { .. } | Request::Excuse { .. } => {
                let (answer, write) = self.write(run, pod, request);
                if let Some((incarnation, _, after)) = write {
                    self.world.lane_keys.insert(incarnation, after);
                }
                answer
            }
        })
    }

    /// What a worker makes of the key as it is: its answer, and the write (which lane's, from what, to what).
    pub(crate) fn write(
        &self,
        run: &Run,
        pod: usize,
        request: &Request,
    ) -> (Option<Event<'static>>, Option<(u64, LaneKey, LaneKey)>) {
        let holder = self.world.holder(pod);
        let key = |incarnation: u64| self.world.lane_keys.get(&incarnation).cloned();
        match *request {
            Request::Join { incarnation } => {
                let Some(before) = key(incarnation) else {
                    return (Some(Event::JoinRefused { incarnation }), None);
                };
                let (retiring, excused) = (before.retiring, before.excused);
                let joined = Event::Joined { incarnation, retiring, excused };
                if before.holders.contains(&holder) || (run.is(Mutant::PullsWithoutJoining) && !retiring) {
                    return (Some(joined), None);
                }
                if retiring && !run.is(Mutant::JoinsRetiring) {
                    return (Some(Event::JoinRefused { incarnation }), None);
                }
                let mut after = before.clone();
                after.holders.push(holder);
                let joined = Event::Joined { incarnation, retiring: false, excused };
                (Some(joined), Some((incarnation, before, after)))
            }
            Request::Leave { incarnation, excused } => {
                let left = Some(Event::Left { incarnation });
                let Some(before) = key(incarnation).filter(|key| key.holders.contains(&holder)) else {
                    return (left, None);
                };
                let mut after = before.clone();
                after.holders.retain(|one| *one != holder);
                after.excused = merged(after.excused, excused);
                (left, Some((incarnation, before, after)))
            }
            Request::Excuse { incarnation, excused } => {
                let Some(before) = key(incarnation) else { return (None, None) };
                let after = LaneKey { excused: merged(before.excused, Some(excused)), ..before.clone() };
                (None, Some((incarnation, before, after)))
            }
            _ => (None, None),
        }
    }

    fn answer(&self, incarnation: u64, token: u64) -> Event<'static> {
        if self.world.consumers.contains_key(&incarnation) {
            Event::Answered { token }
        } else {
            Event::NoResponders { token }
        }
    }

    fn queue(&mut self, pod: usize, incarnation: u64, pull: Pull) -> Option<Event<'static>> {
        if !self.world.consumers.contains_key(&incarnation) {
            return Some(Event::PullEnded { pull: pull.number, status: PullStatus::NoResponders });
        }
        let now = self.now;
        if self.refuses(incarnation, pull) {
            return Some(Event::PullEnded { pull: pull.number, status: PullStatus::WrongPin });
        }
        let serving = self.serving.entry(incarnation).or_default();
        serving.keep(pull, now);
        serving.waiting.push(Waiting { pod, pull, until: now + PULL });
        None
    }

    /// Something that was late arrives.
    pub(crate) fn late_arrives(&mut self, run: &Run, pod: usize, late: Late) -> Result<(), Violation> {
        match late {
            Late::Write { incarnation, before, after } => {
                if self.world.lane_keys.get(&incarnation) == Some(&before) {
                    self.world.lane_keys.insert(incarnation, after);
                }
            }
            Late::Asked(request) => {
                if let Some(answer) = self.receive(run, pod, &request)? {
                    self.tell(run, pod, answer)?;
                }
            }
            Late::Heard(event) => self.tell(run, pod, event)?,
        }
        Ok(())
    }

    /// What follows for the servers from what has just happened.
    pub(crate) fn servers_follow(&mut self, run: &Run) -> Result<(), Violation> {
        let gone: Vec<u64> =
            self.serving.keys().copied().filter(|one| !self.world.consumers.contains_key(one)).collect();
        for incarnation in gone {
            for waiting in self.serving.remove(&incarnation).unwrap_or_default().waiting {
                let status = PullStatus::ConsumerDeleted;
                self.tell(run, waiting.pod, Event::PullEnded { pull: waiting.pull.number, status })?;
            }
        }
        for (incarnation, serving) in &mut self.serving {
            if self.world.consumers[incarnation].pending.is_none() {
                (serving.deliveries, serving.again_at) = (0, Duration::ZERO);
            }
        }
        self.refuse_wrong_pins(run)?;
        // A write by compare-and-set whose revision is gone will never be done.
        let keys = &self.world.lane_keys;
        let lives = |late: &Late| match late {
            Late::Write { incarnation, before, .. } => keys.get(incarnation) == Some(before),
            Late::Asked(_) | Late::Heard(_) => true,
        };
        for pod in &mut self.pods {
            pod.late.retain(lives);
        }
        self.late_of_the_dead.retain(lives);
        Ok(())
    }
}

fn merged(known: Option<Excused>, new: Option<Excused>) -> Option<Excused> {
    match (known, new) {
        (Some(known), Some(new)) if known.sequence > new.sequence => Some(known),
        (known, new) => new.or(known),
    }
}
