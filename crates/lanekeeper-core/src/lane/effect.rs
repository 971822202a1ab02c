//! What a lane wants done: everything it does to the world, as values.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    consumer::GROUP,
    invariants::LaneInvariant,
    order::OrderResult,
    park::ParkOutcome,
    record::{Excused, Report, Stalled},
};

/// Something to do. Effects are carried out in order; none of them waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Become a holder of the incarnation, by compare-and-set.
    Join {
        /// Which lane.
        incarnation: u64,
    },
    /// Give back the lease, and be no holder any more, by compare-and-set.
    Leave {
        /// Which lane.
        incarnation: u64,
        /// Recorded in the same write.
        excused: Option<Excused>,
    },
    /// Record deliveries that were no attempts.
    Excuse {
        /// Which lane.
        incarnation: u64,
        /// What to record.
        excused: Excused,
    },
    /// Note in the lane's key that we have its pin or lease, for whoever finds out that this process has ended.
    Own {
        /// Which lane.
        incarnation: u64,
        /// The pin; empty for a lease.
        pin: Arc<str>,
    },
    /// Try to get the lane's lease, and keep it, until the lane is left.
    Contend {
        /// Which lane.
        incarnation: u64,
        /// For how long it is given.
        time: Duration,
    },
    /// Record that the breaker is open.
    Breaker {
        /// Which lane.
        incarnation: u64,
        /// The message at which it opened.
        sequence: u64,
    },
    /// Record that the one attempt of an order has begun.
    OrderBegun {
        /// Which lane.
        incarnation: u64,
        /// The order's.
        id: String,
    },
    /// Replace an order in the lane's key by what came of it.
    OrderEnded {
        /// Which lane.
        incarnation: u64,
        /// What came of it.
        result: OrderResult,
    },
    /// Publish a message as a dead letter, and say once whether it is stored.
    DeadLetter {
        /// Which message.
        message: u64,
        /// Comes back with the answer.
        token: u64,
        /// The stream that has to take it.
        stream: String,
        /// The subject under which it is published.
        subject: String,
        /// How many attempts were made.
        attempts: u64,
        /// What the handler said last.
        reason: String,
        /// Nothing is sent from then on: the message may be another's.
        until: Duration,
    },
    /// Publish a message to the park stream, and say once whether it is stored.
    Park {
        /// Which message.
        message: u64,
        /// Comes back with the answer.
        token: u64,
        /// How many attempts were made.
        attempts: u64,
        /// What the handler said last, or that an earlier message is parked.
        reason: String,
        /// Nothing is sent from then on: the message may be another's.
        until: Duration,
    },
    /// Ask which keys of the share are parked.
    LoadParked {
        /// Comes back with the answer.
        token: u64,
    },
    /// Be the one of the lane's holders who carries out orders about parked messages, by compare-and-set. It holds as long
    /// as we are among them.
    Claim {
        /// Which lane.
        incarnation: u64,
    },
    /// Be it no longer.
    Unclaim {
        /// Which lane.
        incarnation: u64,
    },
    /// Ask what is parked.
    ListParked {
        /// Comes back with the answer.
        token: u64,
        /// Of this key.
        key: Arc<str>,
    },
    /// Get a parked message.
    FetchParked {
        /// Comes back with the answer.
        token: u64,
        /// Its sequence in the park stream.
        stored: u64,
    },
    /// Start the handler with a parked message.
    HandleParked {
        /// Which message, as it was fetched.
        message: u64,
        /// Which attempt this is, from 1.
        attempt: u64,
    },
    /// Delete a message from the park stream: it was handled, or is dropped.
    DeleteParked {
        /// Comes back with the answer.
        token: u64,
        /// Its sequences there.
        stored: Vec<u64>,
        /// Nothing is sent from then on.
        until: Duration,
    },
    /// An order about parked messages is done: take it out of the lane's key, with the claim.
    ParkOrderDone {
        /// Which lane.
        incarnation: u64,
        /// Which order.
        id: String,
        /// What came of it.
        outcome: ParkOutcome,
    },
    /// Ask for the facts of the consumer.
    Inspect {
        /// Comes back with the answer.
        token: u64,
    },
    /// Ask which messages of the lane the stream has.
    List {
        /// Comes back with the answer.
        token: u64,
        /// Above this stream sequence.
        after: u64,
        /// Up to this one.
        until: u64,
    },
    /// Acknowledge those of these messages that the stream does not have any more: the consumer may count them as out all the
    /// same.
    AckGone {
        /// Stream sequences.
        sequences: Vec<u64>,
        /// The consumer sequence of the latest delivery.
        consumer_sequence: u64,
    },
    /// Ask for messages.
    Pull(PullRequest),
    /// Acknowledge messages of a pipelined lane, in this order; the answer is to the last one.
    Acks {
        /// Which messages; at least one.
        messages: Vec<u64>,
        /// Comes back with the answer.
        token: u64,
    },
    /// Acknowledge a message, and ask for the next one in the same breath.
    Ack {
        /// Which message.
        message: u64,
        /// Comes back with the answer, if there is no pull: then the answer goes to the pull's own subject.
        token: u64,
        /// The pull that rides on the ack.
        pull: Option<PullRequest>,
    },
    /// Give a message back, to be delivered again after the delay.
    Nak {
        /// Which message.
        message: u64,
        /// Comes back with the answer.
        token: u64,
        /// How long the server keeps it.
        delay: Duration,
    },
    /// Tell the server that the message is still worked on.
    Progress {
        /// Which message.
        message: u64,
        /// Comes back with the answer.
        token: u64,
    },
    /// Tell the server that the pin's holder is alive, while no pull for a message is out.
    Renew(Renewal),
    /// Take the lane's pin away from whoever has it, so that another worker need not wait until it lapses.
    Unpin,
    /// Start the handler.
    Handle {
        /// With which message.
        message: u64,
        /// Which attempt this is, from 1.
        attempt: u64,
        /// Those that it is given together with it, behind it and in order.
        with: Vec<u64>,
    },
    /// Stop the handler; its result no longer counts.
    Cancel,
    /// The message is of no use any more.
    Forget {
        /// Which message.
        message: u64,
    },
    /// Say this of the partition; only emitted when its meaning changed.
    Report(Report),
    /// Count and log it.
    Note(Note),
    /// The process may end: nothing is in hand, and the lane was left if that was possible.
    Exit,
}

/// A request for messages: one, unless the lane is pipelined.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PullRequest {
    /// Part of the subject on which it is answered; never used twice.
    pub id: u64,
    /// How many it may bring.
    pub batch: u32,
    /// When the server gives up.
    pub expires: Duration,
    /// How often the server shows that it did not forget.
    pub heartbeat: Duration,
    /// Whether it names the consumer's group: without that a pinned consumer gives it nothing.
    pub grouped: bool,
    /// The pin that we have. Without one the pull waits until nobody has it.
    pub pin: Option<Arc<str>>,
}

/// A request that keeps the pin and can never bring a message: it takes none larger than one byte, and a message is
/// larger by its subject alone. (Measured: only a new pull with the pin's id keeps the pin, not an in-progress ack.)
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// Part of the subject on which it is answered, from the same numbers as pulls.
    pub id: u64,
    /// The pin.
    pub pin: Arc<str>,
}

/// What happened, for logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Note {
    /// The lane is ours to serve.
    Joined,
    /// It no longer is.
    Left,
    /// The handler is done with a message.
    Completed(u64),
    /// The server took note of it.
    Settled(u64),
    /// An attempt failed.
    Failed {
        /// The message.
        sequence: u64,
        /// Which attempt.
        attempt: u64,
        /// When the next one comes.
        delay: Duration,
        /// No attempt was left, or none will ever work: the set's policy decides.
        exhausted: bool,
        /// What the handler said.
        reason: String,
    },
    /// No attempt is left, and it is stored as a dead letter; it is acknowledged next.
    DeadLettered {
        /// The message.
        sequence: u64,
        /// How many attempts were made.
        attempts: u64,
        /// What the handler said.
        reason: String,
    },
    /// No attempt is left, and it is given up; it is acknowledged next.
    Dropped {
        /// The message.
        sequence: u64,
        /// How many attempts were made.
        attempts: u64,
        /// What the handler said.
        reason: String,
    },
    /// A person ordered that it be skipped, and where the policy has dead letters it is stored as one; it is acknowledged
    /// next.
    Skipped {
        /// The message.
        sequence: u64,
        /// How many attempts were made.
        attempts: u64,
        /// Why, in the person's words.
        reason: String,
        /// Who it was, as their plugin says.
        by: String,
    },
    /// The dead letter could not be stored: the lane stands here and sends it again.
    NotStored {
        /// The message.
        sequence: u64,
        /// When it is sent again.
        delay: Duration,
        /// Why not.
        reason: String,
    },
    /// It is parked, and its key with it; it is acknowledged next.
    Parked {
        /// The message.
        sequence: u64,
        /// How many attempts were made.
        attempts: u64,
        /// What the handler said, or that an earlier message is parked.
        reason: String,
        /// Its key.
        key: Arc<str>,
        /// It is the first of its key.
        first: bool,
    },
    /// It could not be parked, or what is parked could not be read or deleted: that is tried again.
    NotParked {
        /// The message.
        sequence: u64,
        /// When it is tried again.
        delay: Duration,
        /// Why not.
        reason: String,
    },
    /// A parked message was handled; it is deleted next.
    Released {
        /// The message.
        sequence: u64,
        /// How many attempts that took.
        attempts: u64,
    },
    /// A parked message is dropped; it is deleted next.
    ParkedDropped {
        /// The message.
        sequence: u64,
        /// The driver's handle of it.
        message: u64,
    },
    /// What a person wanted done with parked messages is done.
    ParkOrderDone {
        /// What came of it.
        outcome: ParkOutcome,
    },
    /// More messages were exhausted than the breaker allows: the lane stands at this one.
    BreakerOpen(u64),
    /// The handler is not there or wants to be left alone; the message is held.
    Held {
        /// The message.
        sequence: u64,
        /// When it is asked again.
        delay: Duration,
        /// What it said, or what went wrong.
        reason: String,
    },
    /// Came again after it was completed here.
    Duplicate(u64),
    /// A predecessor had settled it.
    Covered(u64),
    /// Does not belong to the lane.
    Refused {
        /// The message.
        sequence: u64,
        /// Why not.
        reason: String,
    },
    /// Arrived past its deadline, or for a pull nobody waits for.
    Stale(u64),
    /// The deadline passed without proof: handler cancelled, result discarded.
    Lost(u64),
    /// Behind it, so many messages on hand were given up as well, or alone; the first of them.
    LostBehind {
        /// The first.
        first: u64,
        /// How many.
        messages: usize,
    },
    /// A batch has no attempt left: its messages are handed over one at a time.
    Divided {
        /// The first.
        first: u64,
        /// How many.
        messages: usize,
    },
    /// The shutdown cut the handler short.
    Cut(u64),
    /// A message arrived while another was out: the consumer does not serve one at a time.
    Overtaken(u64),
    /// The consumer must have one message out at once, and does not.
    Unserial(i64),
    /// Something may be out that is not on hand: the lane goes on when it has everything.
    Gathering,
    /// It has; so many messages.
    Gathered(usize),
    /// There is no such consumer any more.
    ConsumerGone,
    /// The server gave the lane's pin to us.
    Pinned,
    /// The pin is not ours any more.
    PinLost,
    /// Messages wait, and nobody of the set gets them.
    Stalled(Stalled),
    /// That is over.
    Moving,
    /// The lane's lease is ours.
    Leased,
    /// The lease is not ours any more.
    LeaseOver,
    /// The lane did what it must never do.
    Violation(LaneInvariant),
}

impl fmt::Display for PullRequest {
    /// The request's body as servers since 2.11 read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both are seconds at most; narrower numbers are written faster, and this is written for each message.
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (expires, heartbeat) = (nanoseconds(self.expires), nanoseconds(self.heartbeat));
        let batch = self.batch;
        write!(f, r#"{{"batch":{batch},"expires":{expires},"idle_heartbeat":{heartbeat}"#)?;
        if !self.grouped {
            return f.write_str("}");
        }
        write!(f, r#","group":"{GROUP}""#)?;
        match &self.pin {
            Some(pin) => write!(f, r#","id":"{pin}"}}"#),
            None => f.write_str("}"),
        }
    }
}

impl fmt::Display for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It ends by itself after this; the server's answer is the proof that it was there.
        const NANOSECONDS: u32 = 10_000_000;
        let pin = &self.pin;
        write!(f, r#"{{"batch":1,"expires":{NANOSECONDS},"max_bytes":1,"group":"{GROUP}","id":"{pin}"}}"#)
    }
}
