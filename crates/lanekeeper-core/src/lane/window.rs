//! What a pipelined lane has on hand: behind the message in hand, and completed but not acknowledged yet.
//!
//! The rules that make it right; each is kept by [`super::pipelined`] and [`super::takeover`]:
//!
//! - What is *sure* is every message that the server has out, from the earliest one on, in the order of the stream. Only
//!   the first of it is ever given to the handler.
//! - A delivery continues what is sure only if its consumer sequence is the next one: the server counts all deliveries of
//!   a consumer. After a gap, or with another pin, somebody else may have, or nobody got, an earlier message. Then what
//!   arrives is *unsure* until the whole of what is out is known and on hand.
//! - Each message has its own deadline, and is kept alive by itself. Past it, everything from that message on is given up.
//! - Each message is acknowledged by itself, several at a time in the order of the stream; the answer to the last one is for
//!   all, because a server takes in order what comes over one connection. (A consumer with `AckPolicy: All` would need one
//!   acknowledgement, but when a message that is out is deleted from the stream, servers since 2.12 take all before it for
//!   acknowledged, handled or not. Measured.)
//!
//! Must not do: I/O, decide what is asked of the server.

use std::{collections::VecDeque, time::Duration};

use super::batch::Batches;

/// Completed messages are acknowledged after this time at the latest, however few they are.
const ACK_DELAY: Duration = Duration::from_millis(2);
/// A pull asks for so many windows: the server's own limit holds back what does not fit.
const WINDOWS_PER_PULL: u32 = 4;

/// What a message is to the lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// To be handled.
    Ours,
    /// A predecessor had settled it.
    Covered,
    /// Not this lane's: the reason.
    Refused(String),
}

/// One message on hand that is not handled yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) message: u64,
    pub(super) sequence: u64,
    pub(super) consumer_sequence: u64,
    pub(super) kind: Kind,
    /// The subject under which it is stored.
    pub(super) subject: String,
    /// When it came.
    pub(super) arrived: Duration,
    /// When the latest request was sent that is known to have reached the server in time.
    pub(super) proof: Duration,
    pub(super) wait: Duration,
    /// The in-progress ack that is out.
    pub(super) progress: Option<(u64, Duration)>,
    pub(super) progress_due: Duration,
}

impl Item {
    pub(super) fn deadline(&self) -> Duration {
        self.proof + self.wait
    }

    /// The server has shown that it counted from `sent` on, or later.
    pub(super) fn proven(&mut self, sent: Duration, wait: Duration) {
        if sent > self.proof {
            self.proof = sent;
            self.wait = wait;
            self.progress_due = sent + wait / 3;
        }
    }

    /// When something is due for it by time alone.
    fn due(&self, talks: bool) -> Duration {
        if talks { self.progress_due.min(self.deadline()) } else { self.deadline() }
    }
}

/// What is known of what the server has out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Out {
    /// Everything up to this stream sequence is settled.
    pub(super) floor: u64,
    /// The latest stream sequence that was delivered.
    pub(super) delivered: u64,
    /// How many messages are out.
    pub(super) count: u64,
}

/// How far a takeover is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Every delivery continues what is on hand.
    Sure,
    /// What is sure is worked off; then the server is asked what it has out.
    Doubt {
        /// Not asked before.
        not_before: Duration,
    },
    /// The server is asked.
    Asking {
        /// Of the question.
        token: u64,
    },
    /// The stream is asked which messages those are.
    Listing {
        /// Of the question.
        token: u64,
        out: Out,
    },
    /// Some of them are not here yet.
    Missing {
        out: Out,
        /// When to look again: they may have been deleted.
        look_due: Duration,
    },
    /// Another worker has the pin.
    Elsewhere,
}

/// A message that is completed and not known to be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Done {
    message: u64,
    sequence: u64,
    deadline: Duration,
    /// When it was completed.
    since: Duration,
}

/// An acknowledgement that was sent and not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sent {
    token: u64,
    /// Up to this stream sequence.
    sequence: u64,
    at: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Window {
    pub(super) size: u32,
    pub(super) batches: Batches,
    pub(super) phase: Phase,
    /// The consumer sequence of the next delivery, where it is known.
    pub(super) expected: Option<u64>,
    /// That of the latest delivery when the consumer was looked at.
    pub(super) looked_at: u64,
    /// In the order of the stream.
    pub(super) sure: VecDeque<Item>,
    pub(super) unsure: Vec<Item>,
    /// The highest stream sequence that was delivered up to here, as far as it is sure.
    pub(super) last: u64,
    /// What the stream has of what is out.
    pub(super) listed: Vec<u64>,
    /// What is out was waited for, and did not come.
    pub(super) in_vain: bool,
    /// In the order of the stream.
    done: VecDeque<Done>,
    /// So many of these were acknowledged, and wait for the answer.
    unanswered: usize,
    acks: VecDeque<Sent>,
    /// When the latest pull or renewal was sent that is known to have kept the pin, and how long that counts.
    pinned: Option<(Duration, Duration)>,
    renewals: Vec<(u64, Duration)>,
    /// Nothing of what is on hand needs time before.
    due: Duration,
}

impl Window {
    pub(super) fn new(size: u32, batches: Batches) -> Self {
        Self {
            size,
            batches,
            phase: Phase::Doubt { not_before: Duration::ZERO },
            expected: None,
            looked_at: 0,
            sure: VecDeque::new(),
            unsure: Vec::new(),
            last: 0,
            listed: Vec::new(),
            in_vain: false,
            done: VecDeque::new(),
            unanswered: 0,
            acks: VecDeque::new(),
            pinned: None,
            renewals: Vec::new(),
            due: Duration::MAX,
        }
    }

    /// How many messages a pull asks for.
    pub(super) fn batch(&self) -> u32 {
        self.size.saturating_mul(WINDOWS_PER_PULL)
    }

    /// Somebody raised the consumer's limit; it is not for the lane to take all that there is. What is out it has to have all the
    /// same, however much that is: the limit, or the window, was larger once.
    pub(super) fn overflows(&self) -> bool {
        let out = match self.phase {
            Phase::Listing { out, .. } | Phase::Missing { out, .. } => out.count,
            _ => 0,
        };
        self.len() as u64 > u64::from(self.batch()).saturating_add(out)
    }

    pub(super) fn len(&self) -> usize {
        self.sure.len() + self.unsure.len()
    }

    /// Whether the delivery is the next one of the consumer; takes note of it.
    pub(super) fn continues(&mut self, consumer_sequence: u64) -> bool {
        let next = self.expected == Some(consumer_sequence);
        if next {
            self.expected = Some(consumer_sequence + 1);
        }
        next
    }

    pub(super) fn find(&mut self, sequence: u64) -> Option<&mut Item> {
        match self.sure.binary_search_by_key(&sequence, |item| item.sequence) {
            Ok(index) => self.sure.get_mut(index),
            Err(_) => self.unsure.iter_mut().find(|item| item.sequence == sequence),
        }
    }

    /// One more on hand, behind all others.
    pub(super) fn push(&mut self, item: Item) {
        self.due = self.due.min(item.progress_due);
        self.last = item.sequence;
        self.sure.push_back(item);
    }

    pub(super) fn stash(&mut self, item: Item) {
        self.due = self.due.min(item.progress_due);
        self.unsure.push(item);
    }

    /// Nothing is sure any more but so many, which are in the handler. What was completed comes again and is known then.
    pub(super) fn reconsider(&mut self, in_hand: usize) {
        self.unsure.extend(self.sure.drain(in_hand.min(self.sure.len())..));
    }

    /// It has to be looked at everything.
    pub(super) fn look_at(&mut self, now: Duration) {
        self.due = self.due.min(now);
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    pub(super) fn due(&self) -> Option<Duration> {
        (self.due < Duration::MAX).then_some(self.due)
    }

    /// After everything that was due was done. `talks`: in-progress acks can be sent.
    pub(super) fn schedule(&mut self, talks: bool) {
        let items = self.sure.iter().chain(&self.unsure).map(|item| item.due(talks));
        let done = self.done.iter().map(|done| done.deadline);
        self.due = items.chain(done).chain(self.pin_deadline()).min().unwrap_or(Duration::MAX);
    }

    /// The consumer's deadline changed. What is already running may only become shorter by it.
    pub(super) fn limit(&mut self, now: Duration, wait: Duration) {
        for item in self.sure.iter_mut().chain(&mut self.unsure).filter(|item| wait < item.wait) {
            item.wait = wait;
            item.progress_due = item.progress_due.min(item.proof + wait / 3);
        }
        if let Some((_, counts)) = &mut self.pinned {
            *counts = wait.min(*counts);
        }
        self.look_at(now);
    }

    /// Everything is to be kept alive at once.
    pub(super) fn progress_at_once(&mut self, now: Duration) {
        self.sure.iter_mut().chain(&mut self.unsure).for_each(|item| item.progress_due = now);
        self.look_at(now);
    }

    /// An in-progress ack was answered in time.
    pub(super) fn progress_answered(&mut self, token: u64, wait: Duration) {
        let mut items = self.sure.iter_mut().chain(&mut self.unsure);
        if let Some(item) = items.find(|item| item.progress.is_some_and(|(sent, _)| sent == token))
            && let Some((_, sent)) = item.progress.take()
        {
            item.proven(sent, wait);
        }
    }

    /// Everything on hand, for nothing of it is the lane's any more.
    pub(super) fn take_all(&mut self) -> Vec<Item> {
        let mut all: Vec<Item> = self.sure.drain(..).chain(self.unsure.drain(..)).collect();
        all.sort_by_key(|item| item.sequence);
        all
    }

    // Completed and acknowledged.

    /// One more is completed.
    pub(super) fn complete(&mut self, now: Duration, message: u64, sequence: u64, deadline: Duration) {
        self.due = self.due.min(deadline);
        self.done.push_back(Done { message, sequence, deadline, since: now });
    }

    /// Whether everything that was completed is known to be acknowledged.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.done.is_empty()
    }

    /// Whether it is completed, and its acknowledgement not answered.
    pub(super) fn is_done(&self, sequence: u64) -> bool {
        self.done.binary_search_by_key(&sequence, |done| done.sequence).is_ok()
    }

    /// When acknowledgements of what is completed are to be sent (again); `hasty`: as soon as there is any.
    pub(super) fn ack_due(&self, repeat: Duration, hasty: bool) -> Option<Duration> {
        let Some(first) = self.done.get(self.unanswered) else {
            return self.acks.back().map(|sent| sent.at + repeat);
        };
        let unsent = self.done.len() - self.unanswered;
        let at_once = hasty || unsent >= (self.size as usize / 2).max(1);
        Some(if at_once { Duration::ZERO } else { first.since + ACK_DELAY })
    }

    /// The messages to acknowledge: the new ones, or all once more when there are none.
    pub(super) fn ack_sent(&mut self, now: Duration, token: u64) -> Vec<u64> {
        let from = if self.unanswered == self.done.len() { 0 } else { self.unanswered };
        self.unanswered = self.done.len();
        if let Some(last) = self.done.back() {
            self.acks.push_back(Sent { token, sequence: last.sequence, at: now });
        }
        self.done.range(from..).map(|done| done.message).collect()
    }

    /// Nothing that was sent can be counted on.
    pub(super) fn forget_acks(&mut self) {
        self.acks.clear();
        self.unanswered = 0;
    }

    /// Acknowledgements were answered: up to which sequence, if it was that, and the messages that are done with.
    pub(super) fn acked(&mut self, token: u64) -> Option<(u64, Vec<u64>)> {
        let index = self.acks.iter().position(|sent| sent.token == token)?;
        let up_to = self.acks[index].sequence;
        self.acks.drain(..=index);
        let count = self.done.partition_point(|done| done.sequence <= up_to);
        self.unanswered = self.unanswered.saturating_sub(count);
        Some((up_to, self.done.drain(..count).map(|done| done.message).collect()))
    }

    /// Whether something that was completed is past its deadline: it cannot be acknowledged any more.
    pub(super) fn has_lapsed_done(&self, now: Duration) -> bool {
        self.done.iter().any(|done| now >= done.deadline)
    }

    /// What is completed is not acknowledged by us: those messages.
    pub(super) fn give_up_done(&mut self) -> Vec<u64> {
        self.forget_acks();
        self.done.drain(..).map(|done| done.message).collect()
    }

    // The pin.

    /// A pull or renewal that was sent then has kept the pin.
    pub(super) fn pin_kept(&mut self, sent: Duration, wait: Duration) {
        if self.pinned.is_none_or(|(before, _)| sent > before) {
            self.pinned = Some((sent, wait));
        }
    }

    pub(super) fn unpinned(&mut self) {
        self.pinned = None;
        self.renewals.clear();
    }

    /// Until when the pin is ours; nothing where there is none.
    pub(super) fn pin_deadline(&self) -> Option<Duration> {
        self.pinned.map(|(sent, counts)| sent + counts)
    }

    pub(super) fn renewal_sent(&mut self, number: u64, now: Duration) {
        self.renewals.push((number, now));
    }

    /// When the renewal was sent, if it is one.
    pub(super) fn renewal_ended(&mut self, number: u64) -> Option<Duration> {
        let index = self.renewals.iter().position(|(sent, _)| *sent == number)?;
        Some(self.renewals.swap_remove(index).1)
    }

    /// Whether a renewal is due; it is no use more often.
    pub(super) fn renewal_due(&self, now: Duration, wait: Duration) -> bool {
        let latest = self.renewals.iter().map(|(_, sent)| *sent).max();
        latest.max(self.pinned.map(|(sent, _)| sent)).is_some_and(|latest| now >= latest + wait / 3)
    }
}
