//! The one message that a lane has in hand, and how long it may keep it.

use std::{sync::Arc, time::Duration};

use super::{Number, window::Item};
use crate::order::Order;

/// What is being done with the message in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// An earlier message was not seen settled: the server is asked whether this one may be out.
    Verifying {
        /// Of the question.
        token: u64,
    },
    /// It is asked which keys are parked.
    Consulting {
        /// Of the question.
        token: u64,
        /// None is on its way: it has to be asked (again).
        answered: bool,
        /// When to ask, or to give up waiting for the answer.
        due: Duration,
    },
    /// The handler runs.
    Handling {
        /// Since when.
        since: Duration,
        /// Whether the consumer's deadline was looked up again for this long handling.
        inspected: bool,
    },
    /// The handler was not there or wants to be left alone: asked again later, and kept alive meanwhile.
    Held {
        /// Until when.
        until: Duration,
    },
    /// An attempt failed; a pipelined lane makes the next one in its place.
    Again {
        /// When.
        until: Duration,
    },
    /// A pipelined lane stands at a message that is not its own.
    Refused,
    /// No attempt is left: the lane stands here, and gives it back later to be tried again.
    Standing {
        /// Until when.
        until: Duration,
    },
    /// No attempt is left, or its key is parked: it has to be in another stream before it is acknowledged.
    PuttingAway {
        /// Of what was sent there last.
        token: u64,
        /// None is on its way: it has to be sent (again).
        answered: bool,
        /// When to send it, or to give up waiting for the answer.
        due: Duration,
    },
    /// Completed or put away, here or by a predecessor; the ack is not confirmed yet.
    Settling {
        /// When the last ack was sent; nothing when one is due at once.
        sent: Option<Duration>,
        /// The pull that rode on the first one.
        carried: Option<u64>,
        /// Its own confirmation was asked for, too.
        repeated: bool,
        /// Answers to this token and later ones confirm it.
        since_token: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Hand {
    pub(super) message: u64,
    pub(super) sequence: u64,
    pub(super) deliveries: u64,
    /// The subject under which it is stored.
    pub(super) subject: String,
    pub(super) stage: Stage,
    /// So many of what is behind it go to the handler with it.
    pub(super) with: usize,
    /// When the latest request was sent that is known to have reached the server in time.
    proof: Duration,
    wait: Duration,
    progress: Vec<(u64, Duration)>,
    progress_due: Duration,
    /// When the latest pull or renewal was sent that is known to have kept the pin; nothing where there is none.
    pinned: Option<Duration>,
    renewals: Vec<(u64, Duration)>,
    /// This delivery is recorded as no attempt.
    pub(super) excused: bool,
    /// How often the handler was not there.
    pub(super) unreachable: u32,
    /// Its key, where messages are parked.
    pub(super) key: Option<Arc<str>>,
    /// It is parked because an earlier message of its key is.
    pub(super) behind: bool,
    /// What was sent last went to the park stream.
    pub(super) parking: bool,
    /// What is said of it where it is put away: how many attempts were made, and how the last one failed.
    pub(super) attempts: u64,
    pub(super) reason: String,
    /// How often it could not be stored there, or it could not be known which keys are parked.
    pub(super) refusals: u64,
    /// It is being put away because of this order.
    pub(super) skipping: Option<Arc<Order>>,
}

impl Hand {
    /// A message that answers a pull sent at `pulled`.
    pub(super) fn new(
        message: u64,
        sequence: u64,
        deliveries: u64,
        subject: String,
        pulled: Duration,
        pinned: bool,
        wait: Duration,
    ) -> Self {
        Self {
            message,
            sequence,
            deliveries,
            subject,
            with: 0,
            // Replaced as soon as it is known what the message is.
            stage: Stage::Settling { sent: None, carried: None, repeated: false, since_token: u64::MAX },
            proof: pulled,
            wait,
            progress: Vec::new(),
            progress_due: pulled + wait / 3,
            pinned: pinned.then_some(pulled),
            renewals: Vec::new(),
            excused: false,
            unreachable: 0,
            key: None,
            behind: false,
            parking: false,
            attempts: 0,
            reason: String::new(),
            refusals: 0,
            skipping: None,
        }
    }

    /// The first of what a pipelined lane has on hand. The pin is the whole lane's there.
    pub(super) fn of(item: Item, stage: Stage) -> Self {
        let hand = Self::new(item.message, item.sequence, 1, item.subject, item.proof, false, item.wait);
        let progress = item.progress.into_iter().collect();
        Self { stage, progress, progress_due: item.progress_due, ..hand }
    }

    /// The server has shown that it counted from `sent` on, or later.
    pub(super) fn proven(&mut self, sent: Duration, wait: Duration) {
        if sent > self.proof {
            self.proof = sent;
            self.wait = wait;
            self.progress_due = sent + wait / 3;
        }
    }

    /// After this nothing may be sent for the message: the server may have given it, or the pin, to another.
    pub(super) fn deadline(&self) -> Duration {
        self.pinned.map_or(self.proof, |pinned| pinned.min(self.proof)) + self.wait
    }

    /// When the server is to be told that work goes on.
    pub(super) fn progress_due(&self) -> Duration {
        self.progress_due
    }

    pub(super) fn progress_at_once(&mut self, now: Duration) {
        self.progress_due = now;
    }

    pub(super) fn progress_sent(&mut self, token: u64, now: Duration) {
        self.progress.push((token, now));
        self.progress_due = now + self.wait / 3;
    }

    /// An in-progress ack was answered before the deadline: it was in force when it was sent.
    pub(super) fn progress_answered(&mut self, token: u64, wait: Duration) {
        let Some(index) = self.progress.iter().position(|(sent, _)| *sent == token) else { return };
        self.proof = self.proof.max(self.progress[index].1);
        self.progress.drain(..=index);
        self.wait = wait;
        self.progress_due = self.progress_due.min(self.proof + wait / 3).max(self.proof);
    }

    pub(super) fn renewal_sent(&mut self, number: u64, now: Duration) {
        self.renewals.push((number, now));
    }

    /// A renewal came back; whether it is one of this message's. It counts when the server took note of it.
    pub(super) fn renewal_ended(&mut self, number: u64, taken_note_of: bool) -> bool {
        let Some(index) = self.renewals.iter().position(|(sent, _)| *sent == number) else { return false };
        let (_, sent) = self.renewals.swap_remove(index);
        if taken_note_of {
            self.pinned = self.pinned.map(|before| before.max(sent));
        }
        true
    }

    /// See [`super::Lane::numbers`].
    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(Number<'_>)) {
        visit(Number::Pull(&mut self.message));
        visit(Number::Since(&mut self.proof));
        visit(Number::Due(&mut self.progress_due));
        for (token, sent) in &mut self.progress {
            visit(Number::Token(token));
            visit(Number::Since(sent));
        }
        if let Some(pinned) = &mut self.pinned {
            visit(Number::Since(pinned));
        }
        for (number, sent) in &mut self.renewals {
            visit(Number::Pull(number));
            visit(Number::Since(sent));
        }
        match &mut self.stage {
            Stage::Verifying { token } => visit(Number::Token(token)),
            Stage::Handling { since, .. } => visit(Number::Since(since)),
            Stage::Held { until } | Stage::Again { until } | Stage::Standing { until } => {
                visit(Number::Due(until));
            }
            Stage::Refused => {}
            Stage::PuttingAway { token, due, .. } | Stage::Consulting { token, due, .. } => {
                visit(Number::Token(token));
                visit(Number::Due(due));
            }
            Stage::Settling { sent, carried, since_token, .. } => {
                if let Some(sent) = sent {
                    visit(Number::Since(sent));
                }
                if let Some(pull) = carried {
                    visit(Number::Pull(pull));
                }
                visit(Number::Token(since_token));
            }
        }
    }

    /// The consumer's deadline changed. What is already running may only become shorter by it.
    pub(super) fn limit(&mut self, wait: Duration) {
        if wait < self.wait {
            self.wait = wait;
            self.progress_due = self.progress_due.min(self.proof + wait / 3);
        }
    }

    /// The same message was delivered once more, to us: its clock began again.
    pub(super) fn delivered_again(
        &mut self,
        message: u64,
        deliveries: u64,
        pulled: Duration,
        pinned: bool,
        wait: Duration,
    ) {
        self.message = message;
        self.deliveries = deliveries;
        self.pinned = pinned.then(|| self.pinned.unwrap_or_default().max(pulled));
        if pulled > self.proof {
            self.proof = pulled;
            self.wait = wait;
            self.progress_due = pulled + wait / 3;
        }
    }
}
