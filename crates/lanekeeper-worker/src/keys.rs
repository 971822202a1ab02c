//! The KV keys of a worker: its assignment, its lane's key, its report.
//!
//! Background tasks turn keys into events and effects into writes, so that the lane's loop never waits for one:
//! - [`watch`] reads the assignment and the lane's key at the start, at each connect, when something (perhaps)
//!   changed, and every 15 seconds all the same;
//! - [`write`] joins, leaves and records by compare-and-set, and writes the report;
//! - [`lease`] contends for the lane's lease, where it has one.
//!
//! Without permission for the bucket no lane is started, and a running one goes on.

mod lease;
mod watch;
mod write;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lanekeeper_core::{
    names::SetName,
    order::{Order, OrderResult},
    park::{ParkOrder, ParkOutcome},
    record::{Assignment, Excused, Holder, LaneKey, Report},
};
use lanekeeper_nats::Bucket;
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::status::Board;

/// What the keys say, for the lane.
#[derive(Debug)]
pub(crate) enum KeyEvent {
    Assigned(Arc<Assignment>),
    Unassigned,
    Key { incarnation: u64, retiring: bool, excused: Option<Excused> },
    Joined { incarnation: u64, retiring: bool, excused: Option<Excused> },
    BreakerOpen { incarnation: u64, sequence: u64 },
    Orders { incarnation: u64, orders: Vec<Order> },
    Leased { incarnation: u64, until: Option<Instant> },
    ParkOrders { incarnation: u64, orders: Vec<ParkOrder>, claimed: bool },
    Claimed { incarnation: u64, granted: bool },
    JoinRefused { incarnation: u64 },
    JoinFailed { incarnation: u64 },
    Left { incarnation: u64 },
    LeaveFailed { incarnation: u64 },
}

/// What the lane wants written.
#[derive(Debug)]
pub(crate) enum KeyCommand {
    Join { incarnation: u64 },
    Leave { incarnation: u64, excused: Option<Excused> },
    Excuse { incarnation: u64, excused: Excused },
    Own { incarnation: u64, pin: Arc<str> },
    Contend { incarnation: u64, time: Duration },
    Breaker { incarnation: u64, sequence: u64 },
    OrderBegun { incarnation: u64, id: String },
    OrderEnded { incarnation: u64, result: OrderResult },
    Claim { incarnation: u64 },
    Unclaim { incarnation: u64 },
    ParkOrderDone { incarnation: u64, id: String, outcome: ParkOutcome },
    Report(Report),
}

/// Whose keys.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) set: SetName,
    pub(crate) partition: u32,
    pub(crate) holder: Holder,
    pub(crate) bucket: Bucket,
}

impl Identity {
    /// The key of a lane; `None` if there is none or it cannot be read.
    pub(crate) async fn lane_key(&self, incarnation: u64) -> Option<LaneKey> {
        let key = self.set.lane_key(incarnation);
        let read = self.bucket.get_json::<LaneKey>(&key).await;
        let read = read.inspect_err(|error| tracing::debug!(%error, key, "the lane's key cannot be read"));
        read.ok().flatten().map(|found| found.value)
    }
}

/// The way to both tasks; they end when it is dropped.
pub(crate) struct Keys {
    pub(crate) commands: mpsc::UnboundedSender<KeyCommand>,
    pub(crate) events: mpsc::UnboundedReceiver<KeyEvent>,
    _tasks: tokio::task::JoinSet<()>,
}

impl Keys {
    pub(crate) fn start(identity: Identity, board: Arc<Board>) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let (events_sender, events) = mpsc::unbounded_channel();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(watch::watch(identity.clone(), events_sender.clone(), board).in_current_span());
        tasks.spawn(write::write(identity, received, events_sender).in_current_span());
        Self { commands, events, _tasks: tasks }
    }
}
