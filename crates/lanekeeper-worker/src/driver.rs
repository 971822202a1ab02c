//! Carries out what the lane wants, and tells it what happens: sockets and clocks, no decisions.

mod effects;
mod look;
mod shelf;

use std::{
    collections::BTreeSet,
    future::{Future, pending, poll_fn},
    mem,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use futures::FutureExt;
use lanekeeper_core::{
    invariants::LaneMonitor,
    journal::Ending,
    lane::{Backlog, ConsumerFacts, Delivered, Effect, Event, Lane, Outcome},
    names::SetName,
    park::ParkedMessage,
    record::Assignment,
};
use lanekeeper_nats::{
    Connection,
    lane::{Arrival, Delivery, Inspector, LaneLink},
    store::{Letter, StoreError, store},
};
use tokio::{
    sync::mpsc,
    time::{Sleep, sleep_until},
};
use tracing::Instrument;

use self::shelf::{Known, Shelf};
use crate::{
    handler::{BatchHandler, HandlerError},
    hot::Hot,
    journal::Journal,
    keys::{Identity, KeyCommand, KeyEvent, Keys},
    message::Message,
    metrics::Metrics,
    parked::ParkedError,
    status::{Board, HEARTBEAT},
};

/// A shutdown without a limit of its own ends this long after the longest handling: the pod's grace period is
/// 15 seconds more than that.
const AFTER_HANDLER: Duration = Duration::from_secs(10);
const DEFAULT_GRACE: Duration = Duration::from_secs(25);
/// A connection on which nothing was heard for this long, though something was asked, is made anew.
const SILENCE: Duration = Duration::from_secs(8);
/// After so many arrivals everything else has its turn.
const TOGETHER: usize = 64;

type Running = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;

/// What came of something that went on in the background.
enum Background {
    /// The connection came up or went down; whether it came up since the last time.
    Connection {
        up: bool,
        anew: bool,
    },
    Facts {
        token: u64,
        facts: ConsumerFacts,
        pending: u64,
        backlog: Option<Box<Backlog>>,
    },
    Gone {
        token: u64,
    },
    Failed {
        token: u64,
    },
    Listed {
        token: u64,
        sequences: Vec<u64>,
    },
    ListFailed {
        token: u64,
    },
    /// What became of a message that is put aside.
    Aside {
        token: u64,
        result: Result<u64, StoreError>,
    },
    /// What the park stream has, or what became of something there.
    Parked {
        token: u64,
        result: Result<Parked, ParkedError>,
    },
}

/// A handling that is over.
struct Stopped {
    messages: Option<Arc<[Message]>>,
    took: Duration,
}

/// An answer about parked messages.
enum Parked {
    Keys(BTreeSet<Arc<str>>),
    List(Vec<ParkedMessage>),
    Fetched(Option<Box<Message>>),
    Deleted,
}

/// Everything that the loop owns.
pub(crate) struct Driver<H> {
    lane: Lane,
    monitor: LaneMonitor,
    link: LaneLink,
    keys: Keys,
    identity: Identity,
    journal: Journal,
    inspector: Inspector,
    connection: Connection,
    handler: Arc<H>,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    hot: Arc<Hot>,
    start: Instant,
    /// The latest assignment that was read.
    assignment: Option<Arc<Assignment>>,
    /// Of the first assignment: the pod's grace was made for it, and does not change with later ones.
    handler_timeout: Option<u64>,
    known: Shelf,
    /// The parked message that is being released, under its number.
    unparked: Option<(u64, Box<Message>)>,
    running: Option<Running>,
    running_since: Duration,
    /// What the handler that runs was given.
    running_with: Option<Arc<[Message]>>,
    /// When the present event happened: the clock is read once for each.
    now: Duration,
    background: (mpsc::UnboundedSender<Background>, mpsc::UnboundedReceiver<Background>),
    heard: Instant,
    armed: Instant,
    set: SetName,
    stream: String,
    grace: Option<Duration>,
    exit: bool,
}

/// What a driver is made of.
pub(crate) struct Parts<H> {
    pub(crate) lane: Lane,
    pub(crate) link: LaneLink,
    pub(crate) keys: Keys,
    pub(crate) identity: Identity,
    pub(crate) journal: Journal,
    pub(crate) connection: Connection,
    pub(crate) handler: Arc<H>,
    pub(crate) board: Arc<Board>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) hot: Arc<Hot>,
    pub(crate) set: SetName,
    pub(crate) stream: String,
    pub(crate) grace: Option<Duration>,
}

impl<H: BatchHandler> Driver<H> {
    pub(crate) fn new(parts: Parts<H>) -> Self {
        let now = Instant::now();
        Self {
            lane: parts.lane,
            monitor: LaneMonitor::new(),
            link: parts.link,
            keys: parts.keys,
            identity: parts.identity,
            journal: parts.journal,
            inspector: Inspector::new(parts.connection.clone()),
            connection: parts.connection,
            handler: parts.handler,
            board: parts.board,
            metrics: parts.metrics,
            hot: parts.hot,
            start: now,
            assignment: None,
            handler_timeout: None,
            known: Shelf::default(),
            unparked: None,
            running: None,
            running_since: Duration::ZERO,
            running_with: None,
            now: Duration::ZERO,
            background: mpsc::unbounded_channel(),
            heard: now,
            armed: now,
            set: parts.set,
            stream: parts.stream,
            grace: parts.grace,
            exit: false,
        }
    }

    /// Until the lane says that the process may end.
    pub(crate) async fn run(mut self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        let mut ending = false;
        self.watch_connection();
        let timer = sleep_until(Instant::now().into());
        tokio::pin!(timer);
        while !self.exit {
            tokio::select! {
                biased;
                () = &mut shutdown, if !ending => {
                    ending = true;
                    tracing::info!("shutting down");
                    self.tell(Event::Shutdown { grace: self.grace() }).await;
                }
                result = running(&mut self.running) => self.handled(result).await,
                arrival = self.link.next() => {
                    let Some(arrival) = arrival else {
                        if !ending {
                            self.closed(shutdown).await;
                        }
                        return;
                    };
                    self.arrived(arrival).await;
                }
                Some(event) = self.keys.events.recv() => self.key_event(event).await,
                Some(event) = self.background.1.recv() => self.in_background(event).await,
                () = &mut timer => self.tell(Event::Tick).await,
            }
            self.go_on_at_once().await;
            self.arm(timer.as_mut());
        }
    }

    /// Many handlings end at once, and many messages arrive together; they need no turn of the loop each.
    async fn go_on_at_once(&mut self) {
        for _ in 0..TOGETHER {
            while let Some(result) = self.running.as_mut().and_then(FutureExt::now_or_never) {
                self.handled(result).await;
            }
            let Some(Some(arrival)) = self.link.next().now_or_never() else { return };
            self.arrived(arrival).await;
        }
    }

    /// The client never gives up by itself. Should it all the same, nothing here can help: the loop stops showing
    /// that it is alive, so health turns red.
    async fn closed(&mut self, shutdown: impl Future<Output = ()>) {
        tracing::error!("the NATS client was closed for good");
        self.board.set_trouble(Some("the NATS client was closed for good".into()));
        shutdown.await;
    }

    /// Timers are set early rather than often: one that fires for nothing costs less than setting it each time.
    fn arm(&mut self, timer: Pin<&mut Sleep>) {
        let now = self.now;
        let wake = self.lane.wake(now).unwrap_or(now + HEARTBEAT).min(now + HEARTBEAT);
        let wake = self.start + wake;
        if timer.is_elapsed() || wake < self.armed {
            self.armed = wake;
            timer.reset(wake.into());
        }
    }

    fn grace(&self) -> Duration {
        let usual = self
            .handler_timeout
            .map_or(DEFAULT_GRACE, |longest| Duration::from_millis(longest) + AFTER_HANDLER);
        self.grace.unwrap_or(usual)
    }

    /// Tells the lane, and does what it wants.
    async fn tell(&mut self, event: Event<'_>) {
        self.now = self.start.elapsed();
        let now = self.now;
        self.monitor.told(now, &event);
        let mut effects = self.lane.on(now, event);
        for invariant in self.monitor.did(now, &effects) {
            self.metrics.violation(invariant);
            tracing::error!(
                invariant = invariant.name(),
                head = self.lane.head(),
                "the lane did what it must never do"
            );
        }
        let settles = effects.iter().any(|effect| matches!(effect, Effect::Ack { .. } | Effect::Acks { .. }));
        for effect in effects.drain(..) {
            self.carry_out(effect).await;
        }
        self.lane.carried_out(effects);
        if settles {
            let_others_go_on().await;
        }
        self.board.beat(self.start + now);
        self.metrics.set_owner(self.lane.owns());
        self.metrics.set_parked_keys(self.lane.parked_count());
        let shown = (self.lane.state(), self.lane.in_place(), self.lane.incarnation(), self.lane.head());
        self.board.show(shown);
    }

    async fn handled(&mut self, result: Result<(), HandlerError>) {
        let stopped = self.stopped_running();
        let (ending, outcome) = match result {
            Ok(()) => (Ending::Done, Outcome::Done),
            Err(HandlerError::Retry { reason, after }) => (Ending::Failed, Outcome::Retry { reason, after }),
            Err(HandlerError::Permanent { reason }) => (Ending::Permanent, Outcome::Permanent { reason }),
            Err(HandlerError::Wait { reason, after }) => (Ending::Waited, Outcome::Wait { reason, after }),
            Err(HandlerError::Unreachable { reason }) => {
                (Ending::Unreachable, Outcome::Unreachable { reason })
            }
        };
        // Before the lane acknowledges.
        if self.journal.is_open() {
            self.journal.ended(ending, &self.metrics).await;
        }
        self.tell(Event::Handled(outcome)).await;
        // Counted when the server has its acknowledgement.
        let took = self.count(&stopped);
        self.metrics.handling(took);
    }

    /// The handler is not running any more.
    fn stopped_running(&mut self) -> Stopped {
        self.running = None;
        let took = self.start.elapsed().saturating_sub(self.running_since);
        Stopped { messages: self.running_with.take(), took }
    }

    /// How long the handler did run; its keys have had that time.
    fn count(&self, stopped: &Stopped) -> Duration {
        // Nobody knows more than that the messages of a batch took so long together.
        let messages = stopped.messages.as_deref().unwrap_or_default();
        let each = stopped.took / u32::try_from(messages.len()).unwrap_or(u32::MAX).max(1);
        for message in messages {
            self.hot.add(self.start + self.now, &message.key(), each);
        }
        stopped.took
    }

    async fn arrived(&mut self, arrival: Arrival) {
        self.heard = self.start + self.now;
        match arrival {
            Arrival::Message { pull, delivery } => self.delivered(pull, delivery).await,
            Arrival::Heartbeat { pull } => self.tell(Event::Heartbeat { pull }).await,
            Arrival::Ended { pull, status, words } => {
                tracing::debug!(pull, words, "a pull ended");
                self.tell(Event::PullEnded { pull, status }).await;
            }
            Arrival::Answered { token } => self.tell(Event::Answered { token }).await,
            Arrival::NoResponders { token } => self.tell(Event::NoResponders { token }).await,
            Arrival::Unreadable(what) => tracing::error!(what, "something arrived that cannot be read"),
        }
    }

    async fn delivered(&mut self, pull: u64, mut delivery: Delivery) {
        // What comes for a lane that was left is the lane's to drop, so it is told all the same.
        let Some(assignment) = self.lane.serving().or(self.assignment.as_ref()).cloned() else { return };
        let (sequence, deliveries) = (delivery.sequence, delivery.deliveries);
        let behind = self.lane.behind() as u64;
        self.metrics.set_lag(delivery.pending + 1 + behind);
        if behind == 0 && self.running.is_none() {
            self.metrics.set_head(Some(delivery.published));
        }
        let (subject, pin) = (delivery.subject.clone(), delivery.pin.take());
        let (subject, pin) = (&*subject, pin.as_deref());
        let consumer_sequence = delivery.consumer_sequence;
        let message = self.known.put(Known { delivery, assignment });
        let delivered = Delivered { message, pull, sequence, consumer_sequence, deliveries, subject, pin };
        self.tell(Event::Delivered(delivered)).await;
    }

    async fn key_event(&mut self, event: KeyEvent) {
        self.heard = Instant::now();
        let event = match event {
            KeyEvent::Assigned(assignment) => {
                if self.assignment.as_ref().is_none_or(|known| known.incarnation <= assignment.incarnation) {
                    self.handler_timeout.get_or_insert(assignment.settings.handler_timeout_milliseconds);
                    self.assignment = Some(Arc::clone(&assignment));
                }
                Event::Assigned(assignment)
            }
            KeyEvent::Unassigned => Event::Unassigned,
            KeyEvent::Key { incarnation, retiring, excused } => Event::Key { incarnation, retiring, excused },
            KeyEvent::Joined { incarnation, retiring, excused } => {
                Event::Joined { incarnation, retiring, excused }
            }
            KeyEvent::Leased { incarnation, until } => Event::Leased {
                incarnation,
                until: until.map(|until| until.saturating_duration_since(self.start)),
            },
            KeyEvent::BreakerOpen { incarnation, sequence } => Event::BreakerOpen { incarnation, sequence },
            KeyEvent::Orders { incarnation, orders } => Event::Orders { incarnation, orders },
            KeyEvent::ParkOrders { incarnation, orders, claimed } => {
                Event::ParkOrders { incarnation, orders, claimed }
            }
            KeyEvent::Claimed { incarnation, granted } => Event::Claimed { incarnation, granted },
            KeyEvent::JoinRefused { incarnation } => Event::JoinRefused { incarnation },
            KeyEvent::JoinFailed { incarnation } => Event::JoinFailed { incarnation },
            KeyEvent::Left { incarnation } => Event::Left { incarnation },
            KeyEvent::LeaveFailed { incarnation } => Event::LeaveFailed { incarnation },
        };
        self.tell(event).await;
    }

    async fn in_background(&mut self, event: Background) {
        match event {
            Background::Connection { up, anew } => self.connection_changed(up, anew).await,
            Background::Facts { token, facts, pending, backlog } => {
                self.heard = Instant::now();
                self.metrics.set_lag(pending + facts.ack_pending);
                self.tell(Event::Consumer { token, facts }).await;
                if let Some(backlog) = backlog {
                    self.tell(Event::Backlog(backlog)).await;
                }
            }
            Background::Listed { token, sequences } => self.tell(Event::Listed { token, sequences }).await,
            Background::ListFailed { token } => self.tell(Event::ListFailed { token }).await,
            Background::Aside { token, result: Ok(sequence) } => {
                tracing::debug!(sequence, "what is put aside is stored");
                self.tell(Event::Stored { token }).await;
            }
            Background::Aside { token, result: Err(error) } => {
                self.tell(Event::NotStored { token, reason: error.to_string() }).await;
            }
            Background::Parked { token, result } => self.parked(token, result).await,
            Background::Gone { token } => self.tell(Event::ConsumerGone { token }).await,
            Background::Failed { token } => {
                if self.connection.health().connected && self.heard.elapsed() > SILENCE {
                    tracing::warn!("nothing was heard from NATS; connecting anew");
                    self.heard = Instant::now();
                    if let Err(error) = self.connection.client().force_reconnect().await {
                        tracing::warn!(%error, "cannot connect anew");
                    }
                }
                self.tell(Event::InspectFailed { token }).await;
            }
        }
    }

    async fn connection_changed(&mut self, up: bool, anew: bool) {
        self.board.update(|status| status.connected = up);
        if anew {
            // It may have come up again before anybody looked.
            self.metrics.connection(up);
            self.tell(Event::Disconnected).await;
        }
        if up && anew {
            tracing::info!("connected to NATS");
            self.heard = Instant::now();
            self.tell(Event::Connected).await;
        } else if !up {
            tracing::warn!(error = self.connection.health().last_error, "not connected to NATS");
            self.metrics.connection(false);
            self.tell(Event::Disconnected).await;
        }
    }

    /// Changes of the connection come as events, like everything else that is rare: the loop stays short.
    fn watch_connection(&self) {
        let (mut health, events) = (self.connection.watch_health(), self.background.0.clone());
        let watch = async move {
            let mut connects = 0;
            loop {
                let now = health.borrow_and_update().clone();
                let (up, anew) = (now.connected, now.connects != connects);
                connects = now.connects;
                if events.send(Background::Connection { up, anew }).is_err()
                    || health.changed().await.is_err()
                {
                    return;
                }
            }
        };
        tokio::spawn(watch.in_current_span());
    }

    async fn parked(&mut self, token: u64, result: Result<Parked, ParkedError>) {
        let event = match result {
            Ok(Parked::Keys(keys)) => Event::ParkedKeys { token, keys },
            Ok(Parked::List(messages)) => Event::ParkedListed { token, messages },
            Ok(Parked::Fetched(None)) => Event::ParkedFetched { token, message: None },
            Ok(Parked::Fetched(Some(message))) => {
                let number = self.known.number();
                self.unparked = Some((number, message));
                Event::ParkedFetched { token, message: Some(number) }
            }
            Ok(Parked::Deleted) => Event::ParkedDeleted { token },
            Err(error) => Event::ParkFailed { token, reason: error.to_string() },
        };
        self.tell(event).await;
    }

    /// Asks about parked messages in the background; the answer comes as an event.
    fn ask_park<F: Future<Output = Result<Parked, ParkedError>> + Send + 'static>(
        &self,
        token: u64,
        ask: impl FnOnce(Connection, Arc<Assignment>) -> F,
    ) {
        let answers = self.background.0.clone();
        let Some(assignment) = self.lane.serving().cloned() else {
            let _ = answers.send(Background::Parked { token, result: Err(ParkedError::NoPark) });
            return;
        };
        let asked = ask(self.connection.clone(), assignment);
        tokio::spawn(async move {
            let result = asked.await;
            // Nobody listens when the process ends.
            let _ = answers.send(Background::Parked { token, result });
        });
    }

    /// Asks the stream in the background; the answer comes as an event.
    fn list(&self, token: u64, after: u64, until: u64) {
        let (inspector, stream, answers) =
            (self.inspector.clone(), self.stream.clone(), self.background.0.clone());
        let filter = self.lane.serving().map(|assignment| assignment.filter.clone()).unwrap_or_default();
        let list = async move {
            let answer = match inspector.list(&stream, &filter, after, until).await {
                Ok(sequences) => Background::Listed { token, sequences },
                Err(error) => {
                    tracing::warn!(%error, "what is out cannot be looked up in the stream: the lane waits");
                    Background::ListFailed { token }
                }
            };
            // Nobody listens when the process ends.
            let _ = answers.send(answer);
        };
        tokio::spawn(list.in_current_span());
    }

    /// In the background; whether it was done shows when the consumer is looked at next.
    fn ack_gone(&self, sequences: Vec<u64>, consumer_sequence: u64) {
        let Some(consumer) = self.lane.serving().map(|assignment| assignment.consumer.clone()) else {
            return;
        };
        let (inspector, stream) = (self.inspector.clone(), self.stream.clone());
        let acknowledge = async move {
            match inspector.ack_gone(&stream, &consumer, &sequences, consumer_sequence).await {
                Ok(gone) => {
                    tracing::info!(gone, "acknowledged what was deleted from the stream while it was out");
                }
                Err(error) => {
                    tracing::warn!(%error, "what was deleted from the stream may still count as out");
                }
            }
        };
        tokio::spawn(acknowledge.in_current_span());
    }

    /// Publishes in the background; the answer comes as an event.
    fn put_aside(&self, token: u64, letter: Letter, until: Duration) {
        let (connection, answers, until) =
            (self.connection.clone(), self.background.0.clone(), self.start + until);
        tokio::spawn(async move {
            let result = store(&connection, letter, until).await;
            // Nobody listens when the process ends.
            let _ = answers.send(Background::Aside { token, result });
        });
    }

    fn command(&self, command: KeyCommand) {
        // The task lives as long as the driver.
        let _ = self.keys.commands.send(command);
    }
}

/// The client's task sends what it was given; what is left to do here holds nobody up.
async fn let_others_go_on() {
    let mut waited = false;
    poll_fn(|context| {
        if mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn running(running: &mut Option<Running>) -> Result<(), HandlerError> {
    match running {
        Some(running) => running.await,
        None => pending().await,
    }
}
