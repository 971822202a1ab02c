//! The lane: what a worker does with one message, one failure, one shutdown.
//!
//! A state machine without I/O. [`Lane::on`] is told what happened and when, and answers what is to be done;
//! [`Lane::wake`] says when time alone will matter. The worker drives it with sockets and clocks, tests with
//! virtual time. The rules (each of them a counterexample of a model, or measured on servers):
//!
//! - One message in hand. The next one is handed to the handler only when the ack of the one before is
//!   confirmed, by its answer or by the arrival of the next message for the pull that rode on the ack.
//! - A message's deadline counts from the sending of the pull that it answers. An answered in-progress ack
//!   moves it to its own sending plus the deadline of the consumer, if the answer came before the old one.
//! - Past its deadline a message is [`Note::Lost`] or [`Note::Stale`]: no ack, nak or progress is sent for it.
//! - While a handler runs no pull is out that could bring a message; the next one rides on the ack (`+NXT`). So after
//!   a shutdown began, the ack brings no further message.
//! - Messages come to the worker that has the lane's [`pin`], or its [`lease`]. Whoever may have lost it gives up what is
//!   in hand.
//! - Nothing is pulled before the lane was joined, and it is left only with nothing in hand and no pull that
//!   could still bring something (a retiring lane does not wait for its pull: its consumer is about to go).
//! - A message without attempts left stays in hand, kept alive, while the lane stands at it. It is put away only as
//!   the policy says, as often as the breaker allows, and acknowledged only once it is known to be stored elsewhere.
//! - What a person ordered is carried out by whoever has the message, and never while its handler runs.
//! - A message of a key that is [`parked`] is parked behind it. Nothing is handled before it is known which keys are.
//!   Parked messages are [released](replay) between two messages.
//! - A lane whose assignment says so has several messages on hand: [`window`], [`pipelined`], [`takeover`].
//! - A message that arrives while an earlier one was not seen settled is handled only after the server said
//!   that nothing else is out. Without that, a consumer whose limit somebody raised would break the order.
//!
//! - A lane that has nothing in hand is its own [`witness`]: messages that wait and reach nobody of the set are reported.
//!
//! Must not do: I/O, look at a clock, know how requests are sent.

mod batch;
mod completed;
mod effect;
mod event;
mod exhausted;
mod hand;
mod lease;
mod membership;
mod messages;
mod numbers;
mod orders;
mod parked;
mod pin;
mod pipelined;
mod pulls;
mod replay;
mod takeover;
mod time;
mod verdict;
mod window;
mod witness;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

#[doc(hidden)]
pub use self::numbers::Number;
use self::{
    completed::Completed,
    exhausted::Fuse,
    hand::{Hand, Stage},
    membership::Membership,
    orders::{GivenBack, Orders},
    pin::Pin,
    pulls::Pulls,
    replay::Replay,
    window::{Phase, Window},
    witness::Suspicion,
};
pub use self::{
    effect::{Effect, Note, PullRequest, Renewal},
    event::{Backlog, ConsumerFacts, Delivered, Event, Outcome, PullStatus},
};
use crate::{
    park::{ParkOrder, ParkOutcome},
    record::{Assignment, Blocked, Excused, Report},
};

/// Until the consumer's own deadline is known; no pull is sent before that.
const UNKNOWN_WAIT: Duration = Duration::from_secs(30);

/// What a lane is doing, as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// No lane is open to us.
    Waiting,
    /// On the way in.
    Joining,
    /// Ready for the next message.
    Idle,
    /// Ready to take over: another worker has the lane's pin or lease.
    Standby,
    /// Pipelined: everything that the server has out has to be on hand first.
    Gathering,
    /// The handler runs.
    Handling,
    /// The handler is not there; the message is held.
    Held,
    /// Completed or being put away; the server has not confirmed it yet.
    Settling,
    /// A failed message waits for its next attempt.
    RetryWait,
    /// No attempt is left: the lane stands here and tries slowly, or cannot put the message away.
    Blocked,
    /// A message or consumer that must not be served as it is.
    Refusing,
    /// On the way out.
    Leaving,
    /// The deadline of the last message passed without proof.
    Lost,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 13] = [
        Self::Waiting,
        Self::Joining,
        Self::Idle,
        Self::Standby,
        Self::Gathering,
        Self::Handling,
        Self::Held,
        Self::Settling,
        Self::RetryWait,
        Self::Blocked,
        Self::Refusing,
        Self::Leaving,
        Self::Lost,
    ];

    /// As metrics and logs name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Joining => "joining",
            Self::Idle => "idle",
            Self::Standby => "standby",
            Self::Gathering => "gathering",
            Self::Handling => "handling",
            Self::Held => "held",
            Self::Settling => "settling",
            Self::RetryWait => "retry-wait",
            Self::Blocked => "blocked",
            Self::Refusing => "refusing",
            Self::Leaving => "leaving",
            Self::Lost => "lost",
        }
    }
}

/// What a driver may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether in-progress acks are sent. Switched off only by tests of what happens without.
    pub progress: bool,
    /// Whether the handler takes several messages at once; if not, a batch is one message.
    pub batches: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { progress: true, batches: false }
    }
}

/// A message that was given back, or is to come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Waiting {
    sequence: u64,
    state: State,
}

/// A message that arrived before the one ahead of it was confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Next {
    message: u64,
    sequence: u64,
    deliveries: u64,
    subject: String,
    pinned: bool,
    pulled: Duration,
}

/// A shutdown that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shutdown {
    /// What is in hand then is cut.
    cut: Duration,
}

/// One partition's lane, as one worker process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts: any combination of them can be")]
pub struct Lane {
    options: Options,
    connected: bool,
    /// The latest assignment that was read.
    assignment: Option<Arc<Assignment>>,
    /// The lane that we are entering, serving or leaving.
    current: Option<Arc<Assignment>>,
    membership: Membership,
    /// Do not try this incarnation before the assignment was read again.
    barred: Option<u64>,
    retiring: bool,
    gone: bool,
    shutdown: Option<Shutdown>,
    /// The consumer's shortest deadline.
    wait: Duration,
    /// The consumer gives messages out as it must.
    fit: bool,
    inspecting: Option<u64>,
    inspect_due: Duration,
    pulls: Pulls,
    pin: Option<Pin>,
    /// Until when the lease is ours.
    lease: Option<Duration>,
    /// Another worker has the pin, or may have the lease.
    elsewhere: bool,
    hand: Option<Hand>,
    next: Option<Next>,
    /// What a pipelined lane has behind the message in hand.
    window: Option<Window>,
    /// Attempts of one message of a pipelined lane that failed.
    tried: Option<(u64, u64)>,
    waiting: Option<Waiting>,
    /// What may still be called back of what was given back with a delay.
    given_back: Option<GivenBack>,
    /// The earliest message that was ours and that we did not see settled.
    unsettled: Option<u64>,
    completed: Completed,
    /// The incarnation that `completed` is about.
    served: Option<u64>,
    excused: Option<Excused>,
    fuse: Fuse,
    suspicion: Suspicion,
    orders: Orders,
    /// The parked keys of the share; nothing when another worker may have parked since they were looked up.
    parked: Option<BTreeSet<Arc<str>>>,
    /// What persons want done with parked messages.
    park_orders: Vec<ParkOrder>,
    /// The latest that were done.
    park_orders_done: VecDeque<(String, ParkOutcome)>,
    replay: Option<Replay>,
    replay_due: Duration,
    report: Report,
    tokens: u64,
    effects: Vec<Effect>,
}

impl Lane {
    /// A lane that knows nothing yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            connected: false,
            assignment: None,
            current: None,
            membership: Membership::Outside,
            barred: None,
            retiring: false,
            gone: false,
            shutdown: None,
            wait: UNKNOWN_WAIT,
            fit: false,
            inspecting: None,
            inspect_due: Duration::ZERO,
            pulls: Pulls::default(),
            pin: None,
            lease: None,
            elsewhere: false,
            hand: None,
            next: None,
            window: None,
            tried: None,
            waiting: None,
            given_back: None,
            unsettled: None,
            completed: Completed::default(),
            served: None,
            excused: None,
            fuse: Fuse::default(),
            suspicion: Suspicion::default(),
            orders: Orders::default(),
            parked: None,
            park_orders: Vec::new(),
            park_orders_done: VecDeque::new(),
            replay: None,
            replay_due: Duration::ZERO,
            report: Report::new(0),
            tokens: 0,
            effects: Vec::new(),
        }
    }

    /// Takes note of what happened at `now` (time since some start, never going back) and says what to do.
    pub fn on(&mut self, now: Duration, event: Event<'_>) -> Vec<Effect> {
        // Time first: what comes after the deadline comes too late, whatever it is.
        self.lapse(now);
        match event {
            Event::Tick => {}
            Event::Connected => {
                self.connected(now);
                self.apply_orders(now);
            }
            Event::Disconnected => {
                self.connected = false;
                self.pulls.doubt_all();
            }
            Event::Assigned(assignment) => self.assigned(assignment),
            Event::Unassigned => self.unassigned(),
            Event::Joined { incarnation, retiring, excused } => self.joined(incarnation, retiring, excused),
            Event::Key { incarnation, retiring, excused } => self.key_read(incarnation, retiring, excused),
            Event::JoinRefused { incarnation } => self.join_refused(incarnation),
            Event::JoinFailed { incarnation } => self.join_failed(now, incarnation),
            Event::Left { incarnation } => self.left(incarnation),
            Event::LeaveFailed { incarnation } => self.leave_failed(now, incarnation),
            Event::Consumer { token, facts } => self.inspected(now, token, &facts),
            Event::Backlog(backlog) => self.witness(now, &backlog),
            Event::ConsumerGone { token } => self.consumer_gone(now, token),
            Event::InspectFailed { token } => self.inspect_failed(now, token),
            Event::Delivered(delivered) => self.delivered(now, delivered),
            Event::Listed { token, sequences } => self.listed(now, token, sequences),
            Event::ListFailed { token } => self.not_told(now, token),
            Event::Heartbeat { pull } => self.pulls.heard(now, pull),
            Event::PullEnded { pull, status } => self.pull_ended(now, pull, status),
            Event::Answered { token } => self.answered(now, token),
            Event::NoResponders { token: _ } => self.inspect(now),
            Event::Leased { incarnation, until } => self.leased(now, incarnation, until),
            Event::BreakerOpen { incarnation, sequence } => self.breaker_open(incarnation, sequence),
            Event::Orders { incarnation, orders } => self.ordered(now, incarnation, &orders),
            Event::Stored { token } => self.stored(now, token),
            Event::NotStored { token, reason } => self.not_stored(now, token, &reason),
            Event::ParkedKeys { token, keys } => self.parked_keys(now, token, keys),
            Event::ParkOrders { incarnation, orders, claimed } => {
                self.park_orders(incarnation, orders, claimed);
            }
            Event::Claimed { incarnation, granted } => self.claimed(now, incarnation, granted),
            Event::ParkedListed { token, messages } => self.parked_listed(now, token, messages),
            Event::ParkedFetched { token, message } => self.parked_fetched(now, token, message),
            Event::ParkedDeleted { token } => self.parked_deleted(now, token),
            Event::ParkFailed { token, reason } => self.park_failed(now, token, &reason),
            Event::Handled(outcome) => self.handled(now, outcome),
            Event::Shutdown { grace } => {
                self.shutdown.get_or_insert(Shutdown { cut: now + grace });
            }
        }
        self.advance(now);
        std::mem::take(&mut self.effects)
    }

    /// Gives back what [`Lane::on`] returned, once it is carried out: its room is used again.
    pub fn carried_out(&mut self, mut effects: Vec<Effect>) {
        effects.clear();
        if self.effects.is_empty() {
            self.effects = effects;
        }
    }

    /// What the lane is doing.
    pub fn state(&self) -> State {
        match self.membership {
            Membership::Outside | Membership::Exited => return State::Waiting,
            Membership::Inspecting | Membership::Joining { .. } => return State::Joining,
            Membership::Leaving { .. } => return State::Leaving,
            Membership::Member => {}
        }
        if let Some((state, _)) = self.replay_state() {
            return state;
        }
        match (self.hand.as_ref().map(|hand| hand.stage), self.waiting) {
            (Some(Stage::Consulting { .. }), _) if self.is_blocked() => State::Blocked,
            (Some(Stage::Consulting { .. }), _) => State::Handling,
            (Some(Stage::Verifying { .. } | Stage::Handling { .. }), _) => State::Handling,
            (Some(Stage::Held { .. }), _) => State::Held,
            (Some(Stage::Again { .. }), _) => State::RetryWait,
            (Some(Stage::Refused), _) => State::Refusing,
            (Some(Stage::Standing { .. }), _) => State::Blocked,
            (Some(Stage::PuttingAway { .. }), _) if self.is_blocked() => State::Blocked,
            (Some(Stage::PuttingAway { .. } | Stage::Settling { .. }), _) => State::Settling,
            (None, _) if self.stopping() => State::Leaving,
            (None, Some(waiting)) => waiting.state,
            (None, None) if !self.fit => State::Refusing,
            (None, None) if self.elsewhere => State::Standby,
            (None, None) if self.is_gathering() => State::Gathering,
            (None, None) if self.report.lost.is_some() => State::Lost,
            (None, None) => State::Idle,
        }
    }

    fn is_gathering(&self) -> bool {
        self.window.as_ref().is_some_and(|window| window.phase != Phase::Sure && window.len() > 0)
    }

    fn is_blocked(&self) -> bool {
        self.hand.as_ref().is_some_and(|hand| hand.refusals > 0)
    }

    /// The message that the lane stands at, in hand or waiting to come again.
    pub fn head(&self) -> Option<u64> {
        if let Some((_, released @ Some(_))) = self.replay_state() {
            return released;
        }
        self.hand.as_ref().map(|hand| hand.sequence).or(self.waiting.map(|waiting| waiting.sequence))
    }

    /// The assignment that the lane serves, enters or leaves.
    pub fn serving(&self) -> Option<&Arc<Assignment>> {
        self.current.as_ref()
    }

    /// The incarnation that the lane serves, enters or leaves.
    pub fn incarnation(&self) -> Option<u64> {
        self.current.as_ref().map(|lane| lane.incarnation)
    }

    /// Nothing keeps this worker from serving but what it was told: no lane is open to it, the set is
    /// paused, or it is in.
    pub fn in_place(&self) -> bool {
        match self.membership {
            Membership::Member => self.fit,
            Membership::Inspecting | Membership::Joining { .. } => false,
            Membership::Leaving { .. } | Membership::Exited => true,
            Membership::Outside => self.connected && !self.may_enter(),
        }
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn forget_all(&mut self, messages: impl IntoIterator<Item = u64>) {
        self.effects.extend(messages.into_iter().map(|message| Effect::Forget { message }));
    }

    fn note(&mut self, note: Note) {
        self.effects.push(Effect::Note(note));
    }

    /// Changes what is said of the partition, and says it if that means something else than before.
    fn say(&mut self, change: impl FnOnce(&mut Report)) {
        let before = self.report.clone();
        change(&mut self.report);
        if self.report != before {
            self.effects.push(Effect::Report(self.report.clone()));
        }
    }

    fn refuse(&mut self, sequence: u64, reason: String) {
        self.say(|report| report.refused = Some(Blocked::new(sequence, reason)));
    }
}

#[cfg(test)]
mod tests;
