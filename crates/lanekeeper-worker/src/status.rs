//! How a worker is, for health, readiness and whoever embeds it.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use std::time::{Duration, Instant};

use lanekeeper_core::lane::State;

/// The loop shows itself at least this often; much longer and it never will again.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
const DEAD_AFTER: Duration = Duration::from_secs(60);

/// A snapshot of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What the lane is doing.
    pub state: State,
    /// Whether NATS can be reached.
    pub connected: bool,
    /// It serves its lane, or waits for one as it was told to.
    pub in_place: bool,
    /// The lane's incarnation, while there is one.
    pub incarnation: Option<u64>,
    /// The message that the lane stands at.
    pub head: Option<u64>,
    /// What keeps it from going on, if anything does.
    pub trouble: Option<String>,
}

impl Status {
    fn new() -> Self {
        Self {
            state: State::Waiting,
            connected: false,
            in_place: false,
            incarnation: None,
            head: None,
            trouble: None,
        }
    }

    /// Why the worker is not ready; `None` when it is.
    pub fn not_ready(&self) -> Option<String> {
        let trouble = self.trouble.as_deref().unwrap_or("no more is known");
        if !self.connected {
            Some(format!("not connected to NATS: {trouble}"))
        } else if !self.in_place {
            Some(format!("the lane is {}: {trouble}", self.state.name()))
        } else {
            None
        }
    }
}

/// Shared by the loop, which writes, and whoever asks.
#[derive(Debug)]
pub(crate) struct Board {
    start: Instant,
    status: Mutex<Status>,
    alive: AtomicU64,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), status: Mutex::new(Status::new()), alive: AtomicU64::new(0) }
    }

    pub(crate) fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        self.update(|status| status.trouble = trouble);
    }

    /// Shows what the lane is doing: state, whether it is in place, incarnation and head.
    pub(crate) fn show(&self, shown: (State, bool, Option<u64>, Option<u64>)) {
        self.update(|status| (status.state, status.in_place, status.incarnation, status.head) = shown);
    }

    /// The loop came around.
    pub(crate) fn beat(&self, now: Instant) {
        let now = u64::try_from(now.duration_since(self.start).as_millis()).unwrap_or(u64::MAX);
        self.alive.store(now, Ordering::Relaxed);
    }

    /// The lane can recover by itself from everything but this: its loop is stuck or ended.
    pub(crate) fn is_dead(&self) -> bool {
        let alive = Duration::from_millis(self.alive.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(alive) > DEAD_AFTER
    }
}
