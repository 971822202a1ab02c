//! Carries out what the lane wants, and tells it what happens: sockets and clocks, no decisions.

mod effects;

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use lanekeeper_core::{
    invariants::LaneMonitor,
    lane::{ConsumerFacts, Delivered, Event, Lane, Outcome},
    record::Assignment,
};
use lanekeeper_nats::{
    Connection,
    lane::{AckSubject, Arrival, Delivery, InspectError, Inspector, LaneLink},
};
use tokio::{
    sync::mpsc,
    time::{Sleep, sleep_until},
};

use crate::{
    handler::{Handler, HandlerError},
    keys::{KeyCommand, KeyEvent, Keys},
    metrics::Metrics,
    status::{Board, HEARTBEAT},
};

/// A shutdown without a limit of its own ends this long after the longest handling: the pod's grace period is
/// 15 seconds more than that.
const AFTER_HANDLER: Duration = Duration::from_secs(10);
const DEFAULT_GRACE: Duration = Duration::from_secs(25);
/// A connection on which nothing was heard for this long, though something was asked, is made anew.
const SILENCE: Duration = Duration::from_secs(8);

type Running = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;

/// What an inspection came to.
enum Inspection {
    Facts { token: u64, facts: ConsumerFacts, pending: u64 },
    Gone { token: u64 },
    Failed { token: u64 },
}

/// A message that the lane has not forgotten yet.
struct Known {
    id: u64,
    delivery: Delivery,
    assignment: Arc<Assignment>,
}

/// Everything that the loop owns.
pub(crate) struct Driver<H> {
    lane: Lane,
    monitor: LaneMonitor,
    link: LaneLink,
    keys: Keys,
    inspector: Inspector,
    connection: Connection,
    handler: Arc<H>,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    start: Instant,
    /// The latest assignment that was read.
    assignment: Option<Arc<Assignment>>,
    known: Vec<Known>,
    arrived: u64,
    running: Option<Running>,
    running_since: Instant,
    inspections: (mpsc::UnboundedSender<Inspection>, mpsc::UnboundedReceiver<Inspection>),
    heard: Instant,
    armed: Instant,
    stream: String,
    grace: Option<Duration>,
    exit: bool,
}

/// What a driver is made of.
pub(crate) struct Parts<H> {
    pub(crate) lane: Lane,
    pub(crate) link: LaneLink,
    pub(crate) keys: Keys,
    pub(crate) connection: Connection,
    pub(crate) handler: Arc<H>,
    pub(crate) board: Arc<Board>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stream: String,
    pub(crate) grace: Option<Duration>,
}

impl<H: Handler> Driver<H> {
    pub(crate) fn new(parts: Parts<H>) -> Self {
        let now = Instant::now();
        Self {
            lane: parts.lane,
            monitor: LaneMonitor::new(),
            link: parts.link,
            keys: parts.keys,
            inspector: Inspector::new(parts.connection.clone()),
            connection: parts.connection,
            handler: parts.handler,
            board: parts.board,
            metrics: parts.metrics,
            start: now,
            assignment: None,
            known: Vec::new(),
            arrived: 0,
            running: None,
            running_since: now,
            inspections: mpsc::unbounded_channel(),
            heard: now,
            armed: now,
            stream: parts.stream,
            grace: parts.grace,
            exit: false,
        }
    }

    /// Until the lane says that the process may end.
    pub(crate) async fn run(mut self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        let mut ending = false;
        let mut health = self.connection.watch_health();
        let mut connects = 0;
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
                    let Some(arrival) = arrival else { return self.closed().await };
                    self.arrived(arrival).await;
                }
                Some(event) = self.keys.events.recv() => self.key_event(event).await,
                Some(inspection) = self.inspections.1.recv() => self.inspected(inspection).await,
                Ok(()) = health.changed() => {
                    let now = health.borrow_and_update().clone();
                    self.connection_changed(now.connected, now.connects != connects).await;
                    connects = now.connects;
                }
                () = &mut timer => self.tell(Event::Tick).await,
            }
            self.arm(timer.as_mut());
        }
    }

    /// The client never gives up by itself. Should it all the same, nothing here can help: the loop stops showing
    /// that it is alive, so health turns red.
    async fn closed(&mut self) {
        tracing::error!("the NATS client was closed for good");
        self.board.set_trouble(Some("the NATS client was closed for good".into()));
        pending::<()>().await;
    }

    /// Timers are set early rather than often: one that fires for nothing costs less than setting it each time.
    fn arm(&mut self, timer: Pin<&mut Sleep>) {
        let now = self.start.elapsed();
        let wake = self.lane.wake(now).unwrap_or(now + HEARTBEAT).min(now + HEARTBEAT);
        let wake = self.start + wake;
        if timer.is_elapsed() || wake < self.armed {
            self.armed = wake;
            timer.reset(wake.into());
        }
    }

    fn grace(&self) -> Duration {
        let longest =
            self.assignment.as_ref().map(|assignment| assignment.settings.handler_timeout_milliseconds);
        let usual = longest.map_or(DEFAULT_GRACE, |longest| Duration::from_millis(longest) + AFTER_HANDLER);
        self.grace.unwrap_or(usual)
    }

    /// Tells the lane, and does what it wants.
    async fn tell(&mut self, event: Event<'_>) {
        let now = self.start.elapsed();
        self.monitor.told(now, &event);
        let effects = self.lane.on(now, event);
        for invariant in self.monitor.did(now, &effects) {
            self.metrics.violation(invariant);
            tracing::error!(
                invariant = invariant.name(),
                head = self.lane.head(),
                "the lane did what it must never do"
            );
        }
        for effect in effects {
            self.carry_out(effect).await;
        }
        self.board.beat();
        let (state, in_place) = (self.lane.state(), self.lane.in_place());
        let (incarnation, head) = (self.lane.incarnation(), self.lane.head());
        self.board.update(|status| {
            status.state = state;
            status.in_place = in_place;
            status.incarnation = incarnation;
            status.head = head;
        });
    }

    async fn handled(&mut self, result: Result<(), HandlerError>) {
        self.running = None;
        self.metrics.handling(self.running_since.elapsed());
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(HandlerError::Retry { reason, after }) => Outcome::Retry { reason, after },
            Err(HandlerError::Permanent { reason }) => Outcome::Permanent { reason },
            Err(HandlerError::Wait { reason, after }) => Outcome::Wait { reason, after },
            Err(HandlerError::Unreachable { reason }) => Outcome::Unreachable { reason },
        };
        self.tell(Event::Handled(outcome)).await;
    }

    async fn arrived(&mut self, arrival: Arrival) {
        self.heard = Instant::now();
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

    async fn delivered(&mut self, pull: u64, delivery: Delivery) {
        // What comes for a lane that was left is the lane's to drop, so it is told all the same.
        let assignment = self.lane.serving().or(self.assignment.as_ref()).cloned();
        let (Ok(ack), Some(assignment)) = (AckSubject::parse(&delivery.ack), assignment) else {
            return;
        };
        let (sequence, deliveries) = (ack.sequence, ack.deliveries);
        self.metrics.set_lag(ack.pending + 1);
        self.metrics.set_head(Some(ack.published));
        self.arrived += 1;
        let message = self.arrived;
        let subject = delivery.subject.clone();
        self.known.push(Known { id: message, delivery, assignment });
        self.tell(Event::Delivered(Delivered { message, pull, sequence, deliveries, subject: &subject }))
            .await;
    }

    async fn key_event(&mut self, event: KeyEvent) {
        self.heard = Instant::now();
        let event = match event {
            KeyEvent::Assigned(assignment) => {
                if self.assignment.as_ref().is_none_or(|known| known.incarnation <= assignment.incarnation) {
                    self.assignment = Some(Arc::clone(&assignment));
                }
                Event::Assigned(assignment)
            }
            KeyEvent::Unassigned => Event::Unassigned,
            KeyEvent::Key { incarnation, retiring, excused } => Event::Key { incarnation, retiring, excused },
            KeyEvent::Joined { incarnation, retiring, excused } => {
                Event::Joined { incarnation, retiring, excused }
            }
            KeyEvent::JoinRefused { incarnation } => Event::JoinRefused { incarnation },
            KeyEvent::JoinFailed { incarnation } => Event::JoinFailed { incarnation },
            KeyEvent::Left { incarnation } => Event::Left { incarnation },
            KeyEvent::LeaveFailed { incarnation } => Event::LeaveFailed { incarnation },
        };
        self.tell(event).await;
    }

    async fn inspected(&mut self, inspection: Inspection) {
        match inspection {
            Inspection::Facts { token, facts, pending } => {
                self.heard = Instant::now();
                self.metrics.set_lag(pending + facts.ack_pending);
                self.tell(Event::Consumer { token, facts }).await;
            }
            Inspection::Gone { token } => self.tell(Event::ConsumerGone { token }).await,
            Inspection::Failed { token } => {
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

    /// Asks in the background; the answer comes as an event.
    fn inspect(&self, token: u64) {
        let Some(consumer) = self.lane.serving().map(|assignment| assignment.consumer.clone()) else {
            // Asked for later: the lane is in no hurry for a lane that it does not have.
            let _ = self.inspections.0.send(Inspection::Failed { token });
            return;
        };
        let (inspector, stream, answers) =
            (self.inspector.clone(), self.stream.clone(), self.inspections.0.clone());
        tokio::spawn(async move {
            let answer = match inspector.inspect(&stream, &consumer).await {
                Ok(state) => Inspection::Facts { token, facts: state.facts, pending: state.pending },
                Err(InspectError::Gone { .. }) => Inspection::Gone { token },
                Err(error) => {
                    tracing::debug!(%error, "the consumer could not be looked at");
                    Inspection::Failed { token }
                }
            };
            // Nobody listens when the process ends.
            let _ = answers.send(answer);
        });
    }

    fn command(&self, command: KeyCommand) {
        // The task lives as long as the driver.
        let _ = self.keys.commands.send(command);
    }
}

async fn running(running: &mut Option<Running>) -> Result<(), HandlerError> {
    match running {
        Some(running) => running.await,
        None => pending().await,
    }
}
