//! What a lane is told: everything that happens to it, as values.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::{
    order::Order,
    park::{ParkOrder, ParkedMessage},
    record::{Assignment, Excused, Holder},
};

/// Something that happened. Times are not in it: they are passed to [`super::Lane::on`] separately.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event<'a> {
    /// Nothing but time passed.
    Tick,
    /// Requests reach the server again; everything asked for before may be lost.
    Connected,
    /// Requests do not reach the server.
    Disconnected,
    /// The assignment of the partition was read (again).
    Assigned(Arc<Assignment>),
    /// There is no assignment.
    Unassigned,
    /// We are a holder of the incarnation.
    Joined {
        /// Which lane.
        incarnation: u64,
        /// The key says that no worker may join any more; we had joined before.
        retiring: bool,
        /// What the key says of deliveries that were no attempts.
        excused: Option<Excused>,
    },
    /// The key of the incarnation was read.
    Key {
        /// Which lane.
        incarnation: u64,
        /// No worker may join any more.
        retiring: bool,
        /// Deliveries that were no attempts.
        excused: Option<Excused>,
    },
    /// The incarnation takes nobody any more, and we are no holder.
    JoinRefused {
        /// Which lane.
        incarnation: u64,
    },
    /// Whether we joined is not known.
    JoinFailed {
        /// Which lane.
        incarnation: u64,
    },
    /// We are no holder of the incarnation any more.
    Left {
        /// Which lane.
        incarnation: u64,
    },
    /// Whether we left is not known.
    LeaveFailed {
        /// Which lane.
        incarnation: u64,
    },
    /// The answer to an [`super::Effect::Inspect`].
    Consumer {
        /// Of the question.
        token: u64,
        /// The answer.
        facts: ConsumerFacts,
    },
    /// What the same answer says of the lane's backlog, if the lane's key could be read as well.
    Backlog(Box<Backlog>),
    /// The answer to an [`super::Effect::Inspect`]: there is no such consumer.
    ConsumerGone {
        /// Of the question.
        token: u64,
    },
    /// An [`super::Effect::Inspect`] was not answered.
    InspectFailed {
        /// Of the question.
        token: u64,
    },
    /// The answer to an [`super::Effect::List`].
    Listed {
        /// Of the question.
        token: u64,
        /// The stream sequences, rising.
        sequences: Vec<u64>,
    },
    /// An [`super::Effect::List`] was not answered.
    ListFailed {
        /// Of the question.
        token: u64,
    },
    /// A message arrived.
    Delivered(Delivered<'a>),
    /// A pull is alive on the server.
    Heartbeat {
        /// Which pull.
        pull: u64,
    },
    /// A pull ended without a message.
    PullEnded {
        /// Which pull.
        pull: u64,
        /// Why.
        status: PullStatus,
    },
    /// An ack, nak or in-progress ack was answered.
    Answered {
        /// Of the effect.
        token: u64,
    },
    /// Nobody listens where an ack, nak or in-progress ack was sent.
    NoResponders {
        /// Of the effect.
        token: u64,
    },
    /// Something is known of the lane's lease.
    Leased {
        /// Which lane.
        incarnation: u64,
        /// Until when it is ours; nothing when it is not.
        until: Option<Duration>,
    },
    /// The lane's key says that the breaker is open. Told before that the lane was joined.
    BreakerOpen {
        /// Which lane.
        incarnation: u64,
        /// The message at which it opened.
        sequence: u64,
    },
    /// What the lane's key says of orders, all of them, whenever it was read. Told before that the lane was joined.
    Orders {
        /// Which lane.
        incarnation: u64,
        /// The oldest first.
        orders: Vec<Order>,
    },
    /// What was put aside, as a dead letter or parked, is stored.
    Stored {
        /// Of the effect.
        token: u64,
    },
    /// What was put aside is not stored, or it is not known whether it is.
    NotStored {
        /// Of the effect.
        token: u64,
        /// Why.
        reason: String,
    },
    /// The answer to an [`super::Effect::LoadParked`].
    ParkedKeys {
        /// Of the question.
        token: u64,
        /// The keys of the share that are parked.
        keys: BTreeSet<Arc<str>>,
    },
    /// What the lane's key says persons want done with parked messages.
    ParkOrders {
        /// Which lane.
        incarnation: u64,
        /// All of them.
        orders: Vec<ParkOrder>,
        /// The key says that we are at it.
        claimed: bool,
    },
    /// The answer to an [`super::Effect::Claim`].
    Claimed {
        /// Which lane.
        incarnation: u64,
        /// Nobody else carries out orders. Otherwise somebody does, or it is not known.
        granted: bool,
    },
    /// The answer to an [`super::Effect::ListParked`].
    ParkedListed {
        /// Of the question.
        token: u64,
        /// What is parked, in any order.
        messages: Vec<ParkedMessage>,
    },
    /// The answer to an [`super::Effect::FetchParked`].
    ParkedFetched {
        /// Of the question.
        token: u64,
        /// The driver's handle of it, never used twice; nothing when it is not there any more.
        message: Option<u64>,
    },
    /// The answer to an [`super::Effect::DeleteParked`]: it is not there any more.
    ParkedDeleted {
        /// Of the effect.
        token: u64,
    },
    /// A request about parked messages failed.
    ParkFailed {
        /// Of the effect.
        token: u64,
        /// Why.
        reason: String,
    },
    /// The handler came to an end by itself.
    Handled(Outcome),
    /// Finish, leave and exit.
    Shutdown {
        /// How long what is in hand may still take.
        grace: Duration,
    },
}

/// A message that arrived, as far as a lane needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delivered<'a> {
    /// The driver's handle of it, never used twice.
    pub message: u64,
    /// The pull that it answers.
    pub pull: u64,
    /// Stream sequence.
    pub sequence: u64,
    /// Consumer sequence: rises by one with each delivery of the lane's consumer, of whatever message.
    pub consumer_sequence: u64,
    /// How often the server has delivered it, this time included.
    pub deliveries: u64,
    /// The subject under which it is stored.
    pub subject: &'a str,
    /// The pin that it came with, where the consumer pins.
    pub pin: Option<&'a str>,
}

/// What the server says of the lane's consumer, as far as a lane needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ConsumerFacts {
    /// The shortest deadline that a delivery can have: `ack_wait`, an entry of a backoff list, or the time after which a
    /// pin lapses.
    pub shortest_wait: Duration,
    /// Messages out at once.
    pub max_ack_pending: i64,
    /// Messages out now.
    pub ack_pending: u64,
    /// The highest stream sequence that was delivered.
    pub delivered: u64,
    /// Consumer sequence of the latest delivery.
    pub deliveries: u64,
    /// The pin that some worker has.
    pub pin: Option<Arc<str>>,
    /// Everything of the lane up to this stream sequence is settled.
    pub floor: u64,
}

/// What waits at a lane's consumer and who could have it: the consumer was looked at first, then the lane's key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Backlog {
    /// The lane it is about.
    pub incarnation: u64,
    /// When the question was sent, on the clock of [`super::Lane::on`].
    pub asked: Duration,
    /// The same, in seconds since the Unix epoch: for people.
    pub asked_seconds: u64,
    /// Messages not delivered yet.
    pub waiting: u64,
    /// Messages out now.
    pub out: u64,
    /// Stream sequence of the last delivery.
    pub delivered: u64,
    /// Everything up to this stream sequence is settled.
    pub floor: u64,
    /// Somebody paused the consumer.
    pub paused: bool,
    /// The pin that somebody has.
    pub pin: Option<Arc<str>>,
    /// Holders of the lane besides us.
    pub siblings: Vec<Holder>,
    /// The pin that stands in the lane's key.
    pub noted: Option<Arc<str>>,
    /// It was noted by one of the siblings.
    pub noted_by_sibling: bool,
}

/// Why a pull ended without a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PullStatus {
    /// Its time was over (408), or there was nothing (404).
    Expired,
    /// The consumer was deleted (409).
    ConsumerDeleted,
    /// Nobody answers for the consumer (503): it is gone, or its server is.
    NoResponders,
    /// The pin is another's (423).
    WrongPin,
    /// The next message is larger than the pull allows (409).
    TooLarge,
    /// Anything else, such as a change of leader (409): to be repeated after a while.
    Refused,
}

/// How a handling ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The message is dealt with.
    Done,
    /// An attempt failed.
    Retry {
        /// What the handler said.
        reason: String,
        /// When it wants to be asked again; otherwise the lane's backoff decides.
        after: Option<Duration>,
    },
    /// It will never work.
    Permanent {
        /// What the handler said.
        reason: String,
    },
    /// Not now, and this was no attempt.
    Wait {
        /// What the handler said.
        reason: String,
        /// When it wants to be asked again.
        after: Duration,
    },
    /// The handler was not there, so this was no attempt.
    Unreachable {
        /// What went wrong.
        reason: String,
    },
}
