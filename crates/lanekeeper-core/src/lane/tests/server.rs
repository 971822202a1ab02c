//! A consumer with `MaxAckPending: 1` and a network, as far as a lane can tell them from real ones.
//!
//! Modelled on measurements: an ack counts by sequence alone, whoever sends it and however late; progress is
//! answered even for what is not pending; a nak keeps the slot; pulls are served in order of arrival.

use std::{collections::VecDeque, time::Duration};

use super::rig::WAIT;
use crate::lane::PullRequest;

/// What travels to the server.
#[derive(Debug, Clone)]
pub(super) enum Up {
    Pull(PullRequest),
    Ack { sequence: u64, token: u64, pull: Option<PullRequest> },
    Nak { sequence: u64, token: u64, delay: Duration },
    Progress { sequence: u64, token: u64 },
    Inspect { token: u64 },
}

/// What travels back.
#[derive(Debug, Clone)]
pub(super) enum Down {
    Message { pull: u64, sequence: u64, deliveries: u64 },
    Expired { pull: u64 },
    Heartbeat { pull: u64 },
    Answer { token: u64 },
    Facts { token: u64, ack_pending: u64 },
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
    expires_at: Duration,
    heartbeat: Duration,
    heartbeat_at: Duration,
}

#[derive(Debug)]
pub(super) struct Server {
    last: u64,
    /// The highest sequence that was ever delivered.
    delivered: u64,
    pending: Option<Pending>,
    waiting: VecDeque<Waiting>,
    pub(super) acked: Vec<u64>,
    /// To each worker.
    pub(super) out: Vec<(usize, Down)>,
}

impl Server {
    pub(super) fn new(last: u64) -> Self {
        Self {
            last,
            delivered: 0,
            pending: None,
            waiting: VecDeque::new(),
            acked: Vec::new(),
            out: Vec::new(),
        }
    }

    /// The message in somebody's hands is deleted from the stream.
    pub(super) fn delete_pending(&mut self) -> Option<u64> {
        self.pending.take().map(|pending| pending.sequence)
    }

    pub(super) fn receive(&mut self, now: Duration, worker: usize, up: &Up) {
        match *up {
            Up::Pull(request) => self.queue(now, worker, request),
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
            Up::Inspect { token } => {
                let ack_pending = u64::from(self.pending.is_some());
                self.out.push((worker, Down::Facts { token, ack_pending }));
            }
        }
        self.serve(now);
    }

    fn queue(&mut self, now: Duration, worker: usize, request: PullRequest) {
        self.waiting.push_back(Waiting {
            worker,
            pull: request.id,
            expires_at: now + request.expires,
            heartbeat: request.heartbeat,
            heartbeat_at: now + request.heartbeat,
        });
    }

    /// Delivers what may be delivered by now.
    pub(super) fn serve(&mut self, now: Duration) {
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
        let due = self.pending.as_ref().is_some_and(|pending| now >= pending.again_at);
        let new = self.pending.is_none() && self.delivered < self.last;
        if !(due || new) {
            return;
        }
        let Some(waiting) = self.waiting.pop_front() else { return };
        let pending = self.pending.get_or_insert_with(|| {
            self.delivered += 1;
            Pending { sequence: self.delivered, deliveries: 0, again_at: now }
        });
        pending.deliveries += 1;
        pending.again_at = now + WAIT;
        let (sequence, deliveries) = (pending.sequence, pending.deliveries);
        self.out.push((waiting.worker, Down::Message { pull: waiting.pull, sequence, deliveries }));
    }

    pub(super) fn wake(&self, now: Duration) -> Option<Duration> {
        let pulls = self.waiting.iter().flat_map(|waiting| [waiting.expires_at, waiting.heartbeat_at]);
        let pending = self.pending.as_ref().map(|pending| pending.again_at);
        pulls.chain(pending).filter(|time| *time > now).min()
    }
}
