//! What is recorded in NATS: the record of a set, the key of each incarnation, assignments and reports.
//!
//! All of it is JSON with `"v": 1` in the KV bucket; unknown fields are ignored, so that a newer version can
//! add some. NATS is the truth: deleting the Kubernetes status, or the operator, loses nothing of this.
//! This module holds the shapes only; who may write which, and when, is [`crate::plan`] and [`crate::lane`].

use serde::{Deserialize, Serialize};

use crate::{
    mapping::Mapping,
    order::{Order, OrderResult},
    share::Share,
};

/// The version written into each value.
pub const VERSION: u32 = 1;

fn version() -> u32 {
    VERSION
}

/// Whose a record is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// The Kubernetes cluster: the uid of its namespace `kube-system`.
    pub cluster: String,
    /// The set's namespace.
    pub namespace: String,
    /// The set's name.
    pub name: String,
    /// The set's uid.
    pub uid: String,
}

/// How it is decided which of a lane's workers has its messages. A lane keeps to one for its whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Ownership {
    /// The server pins its consumer to one of them.
    #[default]
    Pin,
    /// They write a lease, see [`crate::lease`].
    Lease,
}

/// How far a lane is. See [`crate::plan`] for what each state allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LaneState {
    /// Allocated: its consumer may not exist yet, nobody pulls.
    Created,
    /// In use.
    Open,
    /// No pull begins any more; it waits for its holders. Irrevocable.
    Retiring,
    /// Its holders are gone and its floor is final.
    Settled,
}

/// All messages of a share up to a sequence are settled by a predecessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Floor {
    /// The predecessor's share.
    #[serde(flatten)]
    pub share: Share,
    /// The last settled stream sequence.
    pub sequence: u64,
}

/// How a lane's messages are given out. It is part of a lane for life, so another one is for a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// One at a time, each acknowledgement confirmed.
    #[default]
    Serial,
    /// Several are out, handled one after another.
    Pipelined,
    /// Several are out, and handled together.
    Batch,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_serial(mode: &Mode) -> bool {
    *mode == Mode::Serial
}

/// How a lane gets its messages, with what can be changed in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Delivery {
    /// One at a time, each acknowledgement confirmed.
    #[default]
    Serial,
    /// Several are on hand, handled one after another in the order of the stream; acknowledgements are confirmed together.
    Pipelined {
        /// How many messages may be out at once; so many may be handled again after a crash.
        window: u32,
    },
    /// The same, but the handler is given several at once: they succeed or fail together.
    Batch {
        /// How many messages may be out at once; so many may be handled again after a crash.
        window: u32,
        /// How many the handler is given at once, at most; no more than the window.
        most: u32,
        /// How long fewer wait for others.
        wait_milliseconds: u64,
    },
}

impl Delivery {
    /// What of it a lane has for life.
    pub fn mode(self) -> Mode {
        match self {
            Self::Serial => Mode::Serial,
            Self::Pipelined { .. } => Mode::Pipelined,
            Self::Batch { .. } => Mode::Batch,
        }
    }

    /// How many messages the server may have out at once.
    pub fn most_out(self) -> u32 {
        match self {
            Self::Serial => 1,
            Self::Pipelined { window } | Self::Batch { window, .. } => window,
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One incarnation of a partition, in the record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneRecord {
    /// Unique in the set for ever.
    pub incarnation: u64,
    /// The keys it has.
    #[serde(flatten)]
    pub share: Share,
    /// How far it is.
    pub state: LaneState,
    /// Who has its messages.
    #[serde(default)]
    pub ownership: Ownership,
    /// How its consumer gives messages out.
    #[serde(default, skip_serializing_if = "is_serial")]
    pub mode: Mode,
    /// The first stream sequence it serves; 1 means from the beginning.
    pub start: u64,
    /// Floors of predecessors at or above `start`: what they cover is acknowledged without a handler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub floors: Vec<Floor>,
    /// Whether any worker was ever told of it: a lane never opened needs no settling.
    #[serde(default)]
    pub opened: bool,
    /// Settled by deleting its consumer and waiting one `AckWait`, because holders could not be asked.
    #[serde(default)]
    pub fenced: bool,
    /// The longest `AckWait` that its workers may go by, noted when it is fenced: by then neither its consumer nor its
    /// assignment need be there to tell. 0 is not noted.
    #[serde(default)]
    pub fence_milliseconds: u64,
    /// The last floor seen of its consumer, in case somebody deletes it; never above the true floor.
    #[serde(default)]
    pub checkpoint: u64,
}

/// The record of a set: written by the operator only, by compare-and-set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// [`VERSION`].
    #[serde(default = "version")]
    pub v: u32,
    /// Whose it is.
    pub owner: Owner,
    /// The stream's name.
    pub stream: String,
    /// The stream's creation time as the server states it (RFC 3339): tells a stream from its replacement.
    pub stream_created: String,
    /// Part of the fence: rises when the stream is replaced. Starts at 1.
    pub stream_incarnation: u32,
    /// The highest incarnation number ever allocated.
    pub counter: u64,
    /// The number of partitions that the last change leads, or led, to; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// When the last change of the number of partitions began, in seconds since the Unix epoch, by the clock of the
    /// operator that began it. Only for damping: nothing about order depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_seconds: Option<u64>,
    /// Every lane that is not forgotten yet.
    pub lanes: Vec<LaneRecord>,
}

/// A process that may hold a message of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The pod's name.
    pub pod: String,
    /// One start of the lane's container: a new process is a new holder.
    pub instance: String,
}

/// Who has a lane's messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owned {
    /// The process.
    pub holder: Holder,
    /// The pin that the server gave it; empty where it has a lease.
    pub pin: String,
}

/// The key of one incarnation: written by operator and workers, by compare-and-set only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneKey {
    /// [`VERSION`].
    #[serde(default = "version")]
    pub v: u32,
    /// No worker may join any more. Never goes back to false.
    pub retiring: bool,
    /// Who joined and did not leave.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// Deliveries that were no attempts, of the message they name; see [`Excused`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excused: Option<Excused>,
    /// Who joined before all others: nobody can have had a lease before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Holder>,
    /// Who was pinned (or got the lease) last, as that process noted; see [`crate::release`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owned>,
    /// The message at which the breaker opened. Means nothing any more once the lane is past it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<u64>,
    /// What persons want done that is not done yet, the oldest first. No more are taken than
    /// [`crate::order::MAX_ORDERS`]; a lane that succeeds several may inherit more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Order>,
    /// What came of the last orders, the oldest first; at most [`crate::order::MAX_ORDERS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<OrderResult>,
    /// Who carries out orders about parked messages. It counts as long as that process is among the holders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releasing: Option<Holder>,
}

impl LaneKey {
    /// A lane that nobody joined yet.
    pub fn new() -> Self {
        Self {
            v: VERSION,
            retiring: false,
            holders: Vec::new(),
            excused: None,
            first: None,
            owner: None,
            breaker: None,
            orders: Vec::new(),
            results: Vec::new(),
            releasing: None,
        }
    }

    /// Whether a holder may carry out orders about parked messages: no other holder does.
    pub fn may_release(&self, holder: &Holder) -> bool {
        let other = self.releasing.as_ref().filter(|other| *other != holder);
        !self.retiring
            && self.holders.contains(holder)
            && other.is_none_or(|other| !self.holders.contains(other))
    }
}

impl Default for LaneKey {
    fn default() -> Self {
        Self::new()
    }
}

/// Deliveries of one message that were no attempts to handle it (a shutdown cut the handler short, the handler
/// could not be reached). They stand in the lane's key because the next pod must know them, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Excused {
    /// The message.
    pub sequence: u64,
    /// How many of its deliveries were no attempts.
    pub deliveries: u64,
}

/// Retrying a failed message in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Delay after the first failure; doubles with each further one.
    pub initial_backoff_milliseconds: u64,
    /// The delay never exceeds this; a blocked lane tries again at this interval.
    pub max_backoff_milliseconds: u64,
    /// Attempts after which the message is exhausted; 0 means never.
    pub max_attempts: u64,
}

/// What happens to a message whose attempts are exhausted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExhaustedPolicy {
    /// The lane stops here, retries slowly and says so.
    Block,
    /// It goes to another stream, and once it is there the lane goes on.
    DeadLetter {
        /// The stream that has to take it.
        stream: String,
        /// The subject under which it is published.
        subject: String,
        /// When the lane stops all the same.
        breaker: Breaker,
    },
    /// It is given up: the lane goes on.
    Drop {
        /// When the lane stops all the same.
        breaker: Breaker,
    },
    /// It and every later one of its key go to [`LaneSettings::park`]; the other keys go on.
    ParkKey {
        /// When the lane stops all the same.
        breaker: Breaker,
    },
}

impl ExhaustedPolicy {
    /// What limits it; `None` where nothing is put away.
    pub fn breaker(&self) -> Option<Breaker> {
        match self {
            Self::Block => None,
            Self::DeadLetter { breaker, .. } | Self::Drop { breaker } | Self::ParkKey { breaker } => {
                Some(*breaker)
            }
        }
    }
}

/// Where the parked messages of a set are. That there are some of a key is what locks it, whatever the policy is by now.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Park {
    /// The stream that has to take them.
    pub stream: String,
    /// What their subjects begin with; see [`crate::park`].
    pub prefix: String,
}

/// How many messages of a lane may be put away in how long: a broken database must not empty a stream into the dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// As many within the window are put away; the lane stops at the next one.
    pub max_exhausted: u32,
    /// The window.
    pub window_seconds: u64,
}

/// How a lane is to be run: the part of the spec that workers need.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaneSettings {
    /// The server's deadline for one message, kept alive while its handler runs. A lease is given for as long.
    pub ack_wait_milliseconds: u64,
    /// Who has the lane's messages.
    #[serde(default)]
    pub ownership: Ownership,
    /// Longest time one handling may take.
    pub handler_timeout_milliseconds: u64,
    /// Retrying.
    pub retry: Retry,
    /// What comes after the last attempt.
    pub on_exhausted: ExhaustedPolicy,
    /// Where messages are parked, once the set had a policy that parks any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub park: Option<Park>,
    /// How messages come.
    #[serde(default, skip_serializing_if = "Delivery::is_default")]
    pub delivery: Delivery,
    /// Lanes stop after the message in hand.
    #[serde(default)]
    pub paused: bool,
    /// The journal's subject: each handling is published below it. `None`: no journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
}

/// What the workers of one partition are to do: written by the operator only, by compare-and-set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// [`VERSION`].
    #[serde(default = "version")]
    pub v: u32,
    /// The lane's durable consumer.
    pub consumer: String,
    /// The lane's incarnation; rises with every assignment of the partition that names another lane.
    pub incarnation: u64,
    /// The keys it has: a worker refuses any other.
    #[serde(flatten)]
    pub share: Share,
    /// The consumer's filter.
    pub filter: String,
    /// How subjects and keys are read.
    pub mapping: Mapping,
    /// Part of the fence.
    pub stream_incarnation: u32,
    /// What predecessors settled: acknowledged without the handler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub floors: Vec<Floor>,
    /// No new pull: finish, settle, leave.
    pub retiring: bool,
    /// How to run it.
    pub settings: LaneSettings,
}

/// Why a lane stands at a message whose attempts are exhausted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BlockedBy {
    /// The set's policy.
    #[default]
    Policy,
    /// Too many messages were exhausted within the breaker's window.
    Breaker,
    /// The dead letter could not be stored.
    DeadLetter,
    /// The message could not be parked, or it is not known what is.
    Park,
}

/// Why a lane cannot go on by itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// The message it stands at.
    pub sequence: u64,
    /// What the handler said last, shortened; or why the dead letter could not be stored.
    pub reason: String,
    /// Why the lane stands there.
    #[serde(default, skip_serializing_if = "is_policy")]
    pub by: BlockedBy,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_policy(by: &BlockedBy) -> bool {
    *by == BlockedBy::Policy
}

impl Blocked {
    /// A lane that stands at a message, as its policy says.
    pub fn new(sequence: u64, reason: impl Into<String>) -> Self {
        Self { sequence, reason: reason.into(), by: BlockedBy::Policy }
    }
}

/// Why messages of a lane wait although its worker asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StallKind {
    /// A message is out, or the lane is pinned to somebody, and it is no worker of the set.
    SlotHeldElsewhere,
    /// Somebody paused the consumer.
    ConsumerPaused,
    /// The server delivers nothing, for no reason that can be seen.
    NothingMoves,
}

impl StallKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::SlotHeldElsewhere, Self::ConsumerPaused, Self::NothingMoves];

    /// As people, logs and metrics read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SlotHeldElsewhere => "SlotHeldElsewhere",
            Self::ConsumerPaused => "ConsumerPaused",
            Self::NothingMoves => "NothingMoves",
        }
    }
}

/// A lane whose messages wait while nobody of the set has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stalled {
    /// Why.
    pub kind: StallKind,
    /// The stream sequence of the message that is out; if none is, the first that can be waiting.
    pub sequence: u64,
    /// When it was seen first, in seconds since the Unix epoch by the worker's clock. For people only.
    pub since_seconds: u64,
}

/// A message that was acknowledged without the handler because a person said so.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// The message.
    pub sequence: u64,
    /// Why, in the person's words.
    pub reason: String,
    /// Who it was, as their plugin says.
    pub by: String,
}

/// What a pod says of its partition: written by the worker, only when its meaning changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`VERSION`].
    #[serde(default = "version")]
    pub v: u32,
    /// The lane it is about.
    pub incarnation: u64,
    /// Set while the lane stands at a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// Messages that did not belong to the share and were refused (fail closed): a defect somewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Blocked>,
    /// The lane lost its deadline at this sequence and has not handled anything since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// The last message that was dropped, and why. It stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Blocked>,
    /// Set while messages wait and nobody of the set gets them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<Stalled>,
    /// The last message that was skipped by order of a person. It stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Skipped>,
    /// The last message at which a key was parked, and why. It stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Blocked>,
}

impl Report {
    /// Nothing to say of this lane.
    pub fn new(incarnation: u64) -> Self {
        Self {
            v: VERSION,
            incarnation,
            blocked: None,
            refused: None,
            lost: None,
            dropped: None,
            stalled: None,
            skipped: None,
            parked: None,
        }
    }
}

#[cfg(test)]
mod tests;
