//! A consumer with `MaxAckPending: 1` and a network, as far as a lane can tell them from real ones.
//!
//! Modelled on measurements: an ack counts by sequence alone, whoever sends it and however late; progress is
//! answered even for what is not pending; a nak keeps the slot; pulls are served in order of arrival. A pin is given
//! with a message, kept by new pulls that carry it, and lapses; while somebody has it nobody else gets anything.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    park_stream::{ParkDown, ParkStream, ParkUp},
    rig::WAIT,
};
use crate::{
    lane::{PullRequest, Renewal},
    release::Seen,
};

/// What travels to the server.
#[derive(Debug, Clone)]
pub(super) enum Up {
    Pull(PullRequest),
    Ack {
        sequence: u64,
        token: u64,
        pull: Option<PullRequest>,
    },
    Nak {
        sequence: u64,
        token: u64,
        delay: Duration,
    },
    Progress {
        sequence: u64,
        token: u64,
    },
    Renew(Renewal),
    Unpin,
    Inspect {
        token: u64,
        asked: Duration,
    },
    /// A dead letter.
    Publish {
        sequence: u64,
        token: u64,
    },
    Park(ParkUp),
}

/// What travels back.
#[derive(Debug, Clone)]
pub(super) enum Down {
    Message { pull: u64, sequence: u64, deliveries: u64, pin: Arc<str> },
    Expired { pull: u64 },
    WrongPin { pull: u64 },
    Heartbeat { pull: u64 },
    Answer { token: u64 },
    Stored { token: u64 },
    NotStored { token: u64 },
    Park(ParkDown),
    Facts { token: u64, asked: Duration, waiting: u64, delivered: u64, out: u64, pin: Option<Arc<str>> },
}

#[derive(Debug)]
struct Pending {
    sequence: u64,
    deliveries: u64,
    again_at: Duration,
}

#[derive(Debug)]
struct Waiting {
    worker: usize,
    pull: u64,
    pin: Option<Arc<str>>,
    expires_at: Duration,
    heartbeat: Duration,
    heartbeat_at: Duration,
}

#[derive(Debug)]
pub(super) struct Server {
    last: u64,
    /// The highest sequence that was ever delivered.
    delivered: u64,
    /// All of them, of whatever message.
    deliveries: u64,
    pending: Option<Pending>,
    waiting: VecDeque<Waiting>,
    pins: u64,
    /// Who has it now, and until when if nothing comes.
    pin: Option<(Arc<str>, Duration)>,
    /// Pins that were taken away from whoever had them.
    pub(super) taken: BTreeSet<Arc<str>>,
    /// The consumer does not pin.
    pub(super) pins_nobody: bool,
    pub(super) acked: Vec<u64>,
    /// What the stream of dead letters has, each once.
    pub(super) dead: BTreeSet<u64>,
    pub(super) park: ParkStream,
    /// Both take nothing.
    pub(super) full: bool,
    /// To each worker.
    pub(super) out: Vec<(usize, Down)>,
}

impl Server {
    pub(super) fn new(last: u64) -> Self {
        Self {
            last,
            delivered: 0,
            deliveries: 0,
            pending: None,
            waiting: VecDeque::new(),
            pins: 0,
            pin: None,
            taken: BTreeSet::new(),
            pins_nobody: false,
            acked: Vec::new(),
            dead: BTreeSet::new(),
            park: ParkStream::default(),
            full: false,
            out: Vec::new(),
        }
    }

    /// The message in somebody's hands is deleted from the stream.
    pub(super) fn delete_pending(&mut self) -> Option<u64> {
        self.pending.take().map(|pending| pending.sequence)
    }

    /// As those see it who release what a dead worker had.
    pub(super) fn seen(&mut self, now: Duration) -> Seen {
        self.lapse(now);
        Seen {
            pin: self.pin.as_ref().map(|(pin, _)| pin.to_string()).unwrap_or_default(),
            ack_pending: u64::from(self.pending.is_some()),
            consumer_sequence: self.deliveries,
            stream_sequence: self.delivered,
        }
    }

    /// The pin is taken away, as above; whether that was one of a living worker is what is tried.
    pub(super) fn release(&mut self) {
        self.pin = None;
    }

    /// Somebody takes the pin away, or a change of leader forgets it.
    pub(super) fn unpin(&mut self) {
        self.taken.extend(self.pin.take().map(|(pin, _)| pin));
    }

    pub(super) fn receive(&mut self, now: Duration, worker: usize, up: &Up) {
        self.lapse(now);
        match up.clone() {
            Up::Pull(request) => self.queue(now, worker, request),
            Up::Renew(Renewal { id: pull, pin }) => {
                let known = self.pin.as_ref().map(|(pin, _)| Arc::clone(pin));
                let refused = match known {
                    Some(known) => known != pin,
                    None => self.deliverable(now),
                };
                if refused {
                    self.out.push((worker, Down::WrongPin { pull }));
                } else {
                    self.keep(now, &pin);
                    self.out.push((worker, Down::Expired { pull }));
                }
            }
            Up::Unpin => self.unpin(),
            Up::Ack { sequence, token, pull } => {
                if self.pending.as_ref().is_some_and(|pending| pending.sequence == sequence) {
                    self.pending = None;
                    self.acked.push(sequence);
                }
                match pull {
                    Some(request) => self.queue(now, worker, request),
                    None => self.out.push((worker, Down::Answer { token })),
                }
            }
            Up::Nak { sequence, token, delay } => {
                if let Some(pending) = self.pending.as_mut().filter(|pending| pending.sequence == sequence) {
                    pending.again_at = now + delay;
                }
                self.out.push((worker, Down::Answer { token }));
            }
            Up::Progress { sequence, token } => {
                if let Some(pending) = self.pending.as_mut().filter(|pending| pending.sequence == sequence) {
                    pending.again_at = now + WAIT;
                }
                self.out.push((worker, Down::Answer { token }));
            }
            Up::Publish { token, .. } if self.full => self.out.push((worker, Down::NotStored { token })),
            Up::Publish { sequence, token } => {
                self.dead.insert(sequence);
                self.out.push((worker, Down::Stored { token }));
            }
            Up::Park(up) => {
                let out = self.pending.as_ref().map(|pending| pending.sequence);
                let gone = matches!(&up, ParkUp::Store { sequence, .. } if out != Some(*sequence));
                let unlocked = gone && !self.taken.is_empty();
                let down = self.park.receive(now, up, self.full, unlocked);
                self.out.push((worker, Down::Park(down)));
            }
            Up::Inspect { token, asked } => {
                let out = u64::from(self.pending.is_some());
                let pin = self.pin.as_ref().map(|(pin, _)| Arc::clone(pin));
                let (delivered, waiting) = (self.delivered, self.last - self.delivered);
                self.out.push((worker, Down::Facts { token, asked, waiting, delivered, out, pin }));
            }
        }
        self.serve(now);
    }

    fn lapse(&mut self, now: Duration) {
        self.pin.take_if(|(_, until)| now >= *until);
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
                self.out.push((worker, Down::WrongPin { pull: request.id }));
                return;
            }
            self.keep(now, pin);
        }
        self.waiting.push_back(Waiting {
            worker,
            pull: request.id,
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
                self.out.push((worker, Down::Expired { pull }));
            } else if now >= waiting.heartbeat_at {
                waiting.heartbeat_at = now + waiting.heartbeat;
                self.out.push((worker, Down::Heartbeat { pull }));
            }
        }
        if !self.deliverable(now) {
            return;
        }
        let Some(waiting) = self.next_waiting() else { return };
        let pin = waiting.pin.clone().unwrap_or_else(|| {
            if self.pins_nobody {
                return "".into();
            }
            self.pins += 1;
            let pin = Arc::<str>::from(format!("pin{}", self.pins));
            self.pin = Some((Arc::clone(&pin), now + WAIT));
            pin
        });
        let pending = self.pending.get_or_insert_with(|| {
            self.delivered += 1;
            Pending { sequence: self.delivered, deliveries: 0, again_at: now }
        });
        self.deliveries += 1;
        pending.deliveries += 1;
        pending.again_at = now + WAIT;
        let (sequence, deliveries) = (pending.sequence, pending.deliveries);
        self.out.push((waiting.worker, Down::Message { pull: waiting.pull, sequence, deliveries, pin }));
    }

    fn deliverable(&self, now: Duration) -> bool {
        let due = self.pending.as_ref().is_some_and(|pending| now >= pending.again_at);
        due || self.pending.is_none() && self.delivered < self.last
    }

    /// The first pull that may have a message; those with a pin that is not in force are refused on the way.
    fn next_waiting(&mut self) -> Option<Waiting> {
        let known = self.pin.as_ref().map(|(pin, _)| Arc::clone(pin));
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index) {
            if waiting.pin == known {
                return self.waiting.remove(index);
            }
            if waiting.pin.is_none() {
                index += 1;
                continue;
            }
            let (worker, pull) = (waiting.worker, waiting.pull);
            self.waiting.remove(index);
            self.out.push((worker, Down::WrongPin { pull }));
        }
        None
    }

    pub(super) fn wake(&self, now: Duration) -> Option<Duration> {
        let pulls = self.waiting.iter().flat_map(|waiting| [waiting.expires_at, waiting.heartbeat_at]);
        let pending = self.pending.as_ref().map(|pending| pending.again_at);
        let pin = self.pin.as_ref().map(|(_, until)| *until);
        pulls.chain(pending).chain(pin).filter(|time| *time > now).min()
    }
}
