//! A pinned consumer with several messages out and a network, as far as a pipelined lane can tell them from real ones.
//!
//! Modelled on measurements (2.11, 2.12, 2.15): what lapsed together is redelivered in the order of the stream, what was
//! given back in the order in which that arrived, both before new messages and beyond the limit; a redelivery has a new
//! consumer sequence; an ack is for its message alone, whoever sends it, and is answered also when that is not out; a
//! message that is deleted from the stream is never delivered again, and goes on counting as out on older servers.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    park_stream::{ParkDown, ParkStream, ParkUp},
    rig::WAIT,
};
use crate::lane::{ConsumerFacts, PullRequest, PullStatus, Renewal};

/// What travels to the server.
#[derive(Debug, Clone)]
pub(super) enum Up {
    Pull(PullRequest),
    /// The last one is answered.
    Acks {
        sequences: Vec<u64>,
        token: Option<u64>,
    },
    Nak {
        sequence: u64,
        token: u64,
    },
    Progress {
        sequence: u64,
        token: u64,
    },
    Renew(Renewal),
    Unpin,
    Inspect {
        token: u64,
    },
    List {
        token: u64,
        after: u64,
        until: u64,
    },
    Publish {
        sequence: u64,
        token: u64,
    },
    Park(ParkUp),
}

/// What travels back.
#[derive(Debug, Clone)]
pub(super) enum Down {
    Message { pull: u64, sequence: u64, consumer_sequence: u64, deliveries: u64, pin: Arc<str> },
    Ended { pull: u64, status: PullStatus },
    Heartbeat { pull: u64 },
    Answer { token: u64 },
    Facts { token: u64, facts: ConsumerFacts },
    Listed { token: u64, sequences: Vec<u64> },
    Stored { token: u64 },
    Park(ParkDown),
}

#[derive(Debug)]
struct Pending {
    deliveries: u64,
    again_at: Duration,
}

#[derive(Debug)]
struct Waiting {
    worker: usize,
    pull: u64,
    left: u32,
    pin: Option<Arc<str>>,
    expires_at: Duration,
    heartbeat: Duration,
    heartbeat_at: Duration,
}

#[derive(Debug)]
pub(super) struct WindowServer {
    window: u32,
    stream: BTreeSet<u64>,
    /// The latest delivery of each kind.
    delivered: u64,
    deliveries: u64,
    pending: BTreeMap<u64, Pending>,
    again: VecDeque<u64>,
    waiting: VecDeque<Waiting>,
    pins: u64,
    pin: Option<(Arc<str>, Duration)>,
    pub(super) taken: BTreeSet<Arc<str>>,
    /// So many of the next deliveries reach nobody.
    pub(super) losing: u32,
    pub(super) acked: BTreeSet<u64>,
    /// As servers before 2.12: what is deleted goes on counting as out.
    old: bool,
    pub(super) dead: BTreeSet<u64>,
    pub(super) park: ParkStream,
    pub(super) out: Vec<(usize, Down)>,
}

impl WindowServer {
    pub(super) fn new(last: u64, window: u32, old: bool) -> Self {
        Self {
            window,
            stream: (1..=last).collect(),
            delivered: 0,
            deliveries: 0,
            pending: BTreeMap::new(),
            again: VecDeque::new(),
            waiting: VecDeque::new(),
            pins: 0,
            pin: None,
            taken: BTreeSet::new(),
            losing: 0,
            acked: BTreeSet::new(),
            old,
            dead: BTreeSet::new(),
            park: ParkStream::default(),
            out: Vec::new(),
        }
    }

    /// Somebody deletes one of the messages that are out.
    pub(super) fn delete(&mut self, which: usize) -> Option<u64> {
        let out: Vec<u64> = self.pending.keys().copied().filter(|q| self.stream.contains(q)).collect();
        let sequence = *out.get(which % out.len().max(1))?;
        self.stream.remove(&sequence);
        if !self.old {
            self.pending.remove(&sequence);
        }
        Some(sequence)
    }

    pub(super) fn unpin(&mut self) {
        self.taken.extend(self.pin.take().map(|(pin, _)| pin));
    }

    /// Another replica leads: pins and pulls are forgotten, and so is what was to be redelivered at once.
    pub(super) fn change_leader(&mut self) {
        self.unpin();
        self.again.clear();
        for Waiting { worker, pull, .. } in std::mem::take(&mut self.waiting) {
            self.out.push((worker, Down::Ended { pull, status: PullStatus::Refused }));
        }
    }

    pub(super) fn receive(&mut self, now: Duration, worker: usize, up: &Up) {
        self.lapse(now);
        match up.clone() {
            Up::Pull(request) => self.queue(now, worker, request),
            Up::Renew(Renewal { id: pull, pin }) => {
                let refused = match &self.pin {
                    Some((known, _)) => *known != pin,
                    None => self.deliverable(),
                };
                if !refused {
                    self.keep(now, &pin);
                }
                let status = if refused { PullStatus::WrongPin } else { PullStatus::Expired };
                self.out.push((worker, Down::Ended { pull, status }));
            }
            Up::Unpin => self.unpin(),
            Up::Acks { sequences, token } => {
                for sequence in sequences {
                    if self.pending.remove(&sequence).is_some() {
                        self.acked.insert(sequence);
                    }
                    self.again.retain(|again| *again != sequence);
                }
                self.out.extend(token.map(|token| (worker, Down::Answer { token })));
            }
            Up::Nak { sequence, token } => {
                if self.pending.contains_key(&sequence) && !self.again.contains(&sequence) {
                    self.again.push_back(sequence);
                }
                self.out.push((worker, Down::Answer { token }));
            }
            Up::Progress { sequence, token } => {
                if let Some(pending) = self.pending.get_mut(&sequence) {
                    pending.again_at = now + WAIT;
                }
                self.out.push((worker, Down::Answer { token }));
            }
            Up::Publish { sequence, token } => {
                self.dead.insert(sequence);
                self.out.push((worker, Down::Stored { token }));
            }
            Up::Park(up) => {
                let gone =
                    matches!(&up, ParkUp::Store { sequence, .. } if !self.pending.contains_key(sequence));
                let unlocked = gone && !self.taken.is_empty();
                let down = self.park.receive(now, up, false, unlocked);
                self.out.push((worker, Down::Park(down)));
            }
            Up::Inspect { token } => {
                let facts = ConsumerFacts {
                    shortest_wait: WAIT,
                    max_ack_pending: i64::from(self.window),
                    ack_pending: self.pending.len() as u64,
                    floor: self.pending.keys().next().map_or(self.delivered, |first| first - 1),
                    delivered: self.delivered,
                    deliveries: self.deliveries,
                    pin: self.pin.as_ref().map(|(pin, _)| Arc::clone(pin)),
                };
                self.out.push((worker, Down::Facts { token, facts }));
            }
            Up::List { token, after, until } => {
                let sequences = self.stream.range(after + 1..).copied().take_while(|q| *q <= until).collect();
                self.out.push((worker, Down::Listed { token, sequences }));
            }
        }
        self.serve(now);
    }

    fn lapse(&mut self, now: Duration) {
        self.pin.take_if(|(_, until)| now >= *until);
        let again = &mut self.again;
        for (sequence, pending) in &mut self.pending {
            if now >= pending.again_at && !again.contains(sequence) {
                pending.again_at = now + WAIT;
                again.push_back(*sequence);
            }
        }
    }

    fn keep(&mut self, now: Duration, pin: &Arc<str>) {
        if let Some((known, until)) = &mut self.pin
            && known == pin
        {
            *until = now + WAIT;
        }
    }

    fn queue(&mut self, now: Duration, worker: usize, request: PullRequest) {
        if let Some(pin) = &request.pin {
            if self.pin.as_ref().is_some_and(|(known, _)| known != pin) {
                self.out.push((worker, Down::Ended { pull: request.id, status: PullStatus::WrongPin }));
                return;
            }
            self.keep(now, pin);
        }
        self.waiting.push_back(Waiting {
            worker,
            pull: request.id,
            left: request.batch,
            pin: request.pin,
            expires_at: now + request.expires,
            heartbeat: request.heartbeat,
            heartbeat_at: now + request.heartbeat,
        });
    }

    /// Delivers what may be delivered by now.
    pub(super) fn serve(&mut self, now: Duration) {
        self.lapse(now);
        for index in (0..self.waiting.len()).rev() {
            let waiting = &mut self.waiting[index];
            let (worker, pull) = (waiting.worker, waiting.pull);
            if now >= waiting.expires_at {
                self.waiting.remove(index);
                self.out.push((worker, Down::Ended { pull, status: PullStatus::Expired }));
            } else if now >= waiting.heartbeat_at {
                waiting.heartbeat_at = now + waiting.heartbeat;
                self.out.push((worker, Down::Heartbeat { pull }));
            }
        }
        while self.deliverable() {
            let Some(index) = self.next_waiting() else { return };
            self.deliver(now, index);
        }
    }

    fn deliver(&mut self, now: Duration, index: usize) {
        let Some(sequence) = self.take_next() else { return };
        let pin = self.waiting[index].pin.clone().unwrap_or_else(|| {
            let known = self.pin.as_ref().map(|(pin, _)| Arc::clone(pin));
            known.unwrap_or_else(|| {
                self.pins += 1;
                let pin = Arc::<str>::from(format!("pin{}", self.pins));
                self.pin = Some((Arc::clone(&pin), now + WAIT));
                // The pull goes on with the pin that it was given.
                self.waiting[index].pin = Some(Arc::clone(&pin));
                pin
            })
        });
        self.deliveries += 1;
        let pending = self.pending.entry(sequence).or_insert(Pending { deliveries: 0, again_at: now });
        pending.deliveries += 1;
        pending.again_at = now + WAIT;
        let (deliveries, consumer_sequence) = (pending.deliveries, self.deliveries);
        let waiting = &mut self.waiting[index];
        let (worker, pull) = (waiting.worker, waiting.pull);
        waiting.left -= 1;
        if waiting.left == 0 {
            self.waiting.remove(index);
        }
        if self.losing > 0 {
            self.losing -= 1;
            return;
        }
        self.out.push((worker, Down::Message { pull, sequence, consumer_sequence, deliveries, pin }));
    }

    fn deliverable(&self) -> bool {
        self.again.iter().any(|again| self.stream.contains(again))
            || self.pending.len() < self.window as usize && self.next_new().is_some()
    }

    fn next_new(&self) -> Option<u64> {
        self.stream.range(self.delivered + 1..).next().copied()
    }

    fn take_next(&mut self) -> Option<u64> {
        while let Some(again) = self.again.pop_front() {
            if self.stream.contains(&again) {
                return Some(again);
            }
        }
        let next = self.next_new()?;
        self.delivered = next;
        Some(next)
    }

    /// The first pull that may have a message; those with a pin that is not in force are refused on the way.
    fn next_waiting(&mut self) -> Option<usize> {
        let known = self.pin.as_ref().map(|(pin, _)| Arc::clone(pin));
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index) {
            if waiting.pin == known {
                return Some(index);
            }
            if waiting.pin.is_none() {
                index += 1;
                continue;
            }
            let (worker, pull) = (waiting.worker, waiting.pull);
            self.waiting.remove(index);
            self.out.push((worker, Down::Ended { pull, status: PullStatus::WrongPin }));
        }
        None
    }

    pub(super) fn wake(&self, now: Duration) -> Option<Duration> {
        let pulls = self.waiting.iter().flat_map(|waiting| [waiting.expires_at, waiting.heartbeat_at]);
        let pending = self.pending.values().map(|pending| pending.again_at);
        let pin = self.pin.as_ref().map(|(_, until)| *until);
        pulls.chain(pending).chain(pin).filter(|time| *time > now).min()
    }
}
