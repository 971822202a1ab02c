//! What a worker counts. Names are documented in docs/metrics.md and do not change.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use lanekeeper_core::{
    invariants::LaneInvariant,
    lane::{Note, State},
    names::SetName,
    record::StallKind,
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InvariantLabel {
    invariant: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// Seconds; from a fast function to the longest handler.
const HANDLING_BUCKETS: [f64; 12] =
    [0.000_1, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

pub(crate) struct Metrics {
    registry: Registry,
    handled: Counter,
    failed: Counter,
    duplicates: Counter,
    skipped: Counter,
    ordered_skips: Counter,
    refused: Counter,
    stale: Counter,
    overtaken: Counter,
    dead_lettered: Counter,
    dead_letter_failures: Counter,
    dropped: Counter,
    parked: Counter,
    released: Counter,
    park_failures: Counter,
    parked_keys: Gauge,
    breaker_openings: Counter,
    divided_batches: Counter,
    deadline_losses: Counter,
    shutdown_cuts: Counter,
    journal_failures: Counter,
    violations: Family<InvariantLabel, Counter>,
    handling: Histogram,
    lag: Gauge,
    head_age: Gauge<f64, AtomicU64>,
    state: Family<StateLabel, Gauge>,
    stalled: Family<KindLabel, Gauge>,
    owner: Gauge,
    connected: Gauge,
    connects: Counter,
    /// When the message at the head was published, in nanoseconds since 1970; 0 when there is none.
    head: AtomicU64,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new(set: &SetName, partition: u32) -> Self {
        let labels = [
            ("namespace".into(), set.namespace.clone().into()),
            ("set".into(), set.name.clone().into()),
            ("partition".into(), partition.to_string().into()),
        ];
        let mut registry = Registry::with_labels(labels.into_iter());
        let lane = registry.sub_registry_with_prefix("lanekeeper_lane");
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            lane.register(name, help, counter.clone());
            counter
        };
        let handled = counter("handled", "Messages that the handler completed");
        let failed = counter("failed", "Attempts that failed");
        let duplicates =
            counter("duplicates", "Messages acknowledged without the handler: completed here before");
        let skipped =
            counter("skipped", "Messages acknowledged without the handler: settled by a predecessor");
        let ordered_skips =
            counter("ordered_skips", "Messages acknowledged without the handler: a person ordered it");
        let refused = counter("refused", "Messages refused because they do not belong to the lane");
        let stale = counter("stale", "Messages dropped because they arrived past their deadline");
        let overtaken = counter("overtaken", "Messages dropped because another one was out");
        let dead_lettered = counter("dead_lettered", "Messages put away into the stream of dead letters");
        let dead_letter_failures =
            counter("dead_letter_failures", "Times that a dead letter was not known to be stored");
        let dropped = counter("dropped", "Messages given up as the set's policy says");
        let parked = counter("parked", "Messages stored in the park stream");
        let released =
            counter("released", "Parked messages that were handled, or dropped by order of a person");
        let park_failures = counter("park_failures", "Times that a request about parked messages failed");
        let breaker_openings = counter("breaker_openings", "Times that the breaker opened");
        let divided_batches = counter(
            "divided_batches",
            "Batches without attempts left, whose messages were handed over one at a time",
        );
        let deadline_losses =
            counter("deadline_losses", "Messages given up because their deadline passed without proof");
        let shutdown_cuts = counter("shutdown_cuts", "Handlings cut short by a shutdown");
        let journal_failures = counter(
            "journal_failures",
            "Entries of the journal that were not sent, or that the server refused",
        );
        let connects = counter("nats_connects", "Times that the connection to NATS came up");
        let violations = Family::<InvariantLabel, Counter>::default();
        lane.register(
            "invariant_violations",
            "Times that the lane did what it must never do",
            violations.clone(),
        );
        for invariant in LaneInvariant::ALL {
            // Shown as 0 from the start.
            drop(violations.get_or_create(&InvariantLabel { invariant: invariant.name() }));
        }
        let handling = Histogram::new(HANDLING_BUCKETS);
        lane.register("handling_seconds", "How long handlings took", handling.clone());
        let lag = Gauge::default();
        lane.register("lag_messages", "Messages waiting or in hand", lag.clone());
        let parked_keys = Gauge::default();
        lane.register("parked_keys", "Keys that are parked, as far as the owner knows", parked_keys.clone());
        let head_age = Gauge::<f64, AtomicU64>::default();
        lane.register(
            "head_age_seconds",
            "Age of the message that the lane stands at, 0 when there is none",
            head_age.clone(),
        );
        let state = Family::<StateLabel, Gauge>::default();
        lane.register("state", "1 for the state that the lane is in", state.clone());
        let stalled = Family::<KindLabel, Gauge>::default();
        lane.register(
            "stalled",
            "1 while messages wait and nobody of the set gets them, by why",
            stalled.clone(),
        );
        for kind in StallKind::ALL {
            // Shown as 0 from the start.
            drop(stalled.get_or_create(&KindLabel { kind: kind.name() }));
        }
        let owner = Gauge::default();
        lane.register("owner", "1 while the lane's messages come to this worker", owner.clone());
        let connected = Gauge::default();
        lane.register("nats_connected", "1 while NATS can be reached", connected.clone());
        Self {
            registry,
            handled,
            failed,
            duplicates,
            skipped,
            ordered_skips,
            refused,
            stale,
            overtaken,
            dead_lettered,
            dead_letter_failures,
            dropped,
            parked,
            released,
            park_failures,
            parked_keys,
            breaker_openings,
            divided_batches,
            deadline_losses,
            shutdown_cuts,
            journal_failures,
            violations,
            handling,
            lag,
            head_age,
            state,
            stalled,
            owner,
            connected,
            connects,
            head: AtomicU64::new(0),
        }
    }

    pub(crate) fn note(&self, note: &Note) {
        let counter = match note {
            Note::Completed(_) => &self.handled,
            Note::Failed { .. } => &self.failed,
            Note::Duplicate(_) => &self.duplicates,
            Note::Covered(_) => &self.skipped,
            Note::Skipped { .. } => &self.ordered_skips,
            Note::Refused { .. } => &self.refused,
            Note::Stale(_) => &self.stale,
            Note::Overtaken(_) => &self.overtaken,
            Note::DeadLettered { .. } => &self.dead_lettered,
            Note::NotStored { .. } => &self.dead_letter_failures,
            Note::Dropped { .. } => &self.dropped,
            Note::Parked { .. } => &self.parked,
            Note::NotParked { .. } => &self.park_failures,
            Note::Released { .. } | Note::ParkedDropped { .. } => &self.released,
            Note::BreakerOpen(_) => &self.breaker_openings,
            Note::Lost(_) => &self.deadline_losses,
            Note::Divided { .. } => &self.divided_batches,
            Note::LostBehind { messages, .. } => {
                self.deadline_losses.inc_by(*messages as u64);
                return;
            }
            Note::Cut(_) => &self.shutdown_cuts,
            Note::Stalled(stalled) => return self.set_stalled(Some(stalled.kind)),
            Note::Moving => return self.set_stalled(None),
            Note::Violation(invariant) => return self.violation(*invariant),
            Note::Joined
            | Note::Gathering
            | Note::Gathered(_)
            | Note::Left
            | Note::Settled(_)
            | Note::Held { .. }
            | Note::ParkOrderDone { .. }
            | Note::Unserial(_)
            | Note::Pinned
            | Note::PinLost
            | Note::Leased
            | Note::LeaseOver
            | Note::ConsumerGone => return,
        };
        counter.inc();
    }

    pub(crate) fn violation(&self, invariant: LaneInvariant) {
        self.violations.get_or_create(&InvariantLabel { invariant: invariant.name() }).inc();
    }

    pub(crate) fn journal_failure(&self) {
        self.journal_failures.inc();
    }

    pub(crate) fn handling(&self, time: Duration) {
        self.handling.observe(time.as_secs_f64());
    }

    pub(crate) fn set_lag(&self, messages: u64) {
        self.lag.set(i64::try_from(messages).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_head(&self, published: Option<Duration>) {
        let nanoseconds = published.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.head.store(nanoseconds, Ordering::Relaxed);
    }

    fn set_stalled(&self, now: Option<StallKind>) {
        for kind in StallKind::ALL {
            self.stalled.get_or_create(&KindLabel { kind: kind.name() }).set(i64::from(now == Some(kind)));
        }
    }

    pub(crate) fn set_owner(&self, owner: bool) {
        self.owner.set(i64::from(owner));
    }

    /// What is not known is not changed.
    pub(crate) fn set_parked_keys(&self, keys: Option<usize>) {
        if let Some(keys) = keys {
            self.parked_keys.set(i64::try_from(keys).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn connection(&self, up: bool) {
        self.connected.set(i64::from(up));
        if up {
            self.connects.inc();
        }
    }

    /// The text that is scraped.
    pub(crate) fn text(&self, state: State) -> String {
        for other in State::ALL {
            let gauge = self.state.get_or_create(&StateLabel { state: other.name() });
            gauge.set(i64::from(other == state));
        }
        let head = Duration::from_nanos(self.head.load(Ordering::Relaxed));
        let age = if head.is_zero() {
            Duration::ZERO
        } else {
            (SystemTime::UNIX_EPOCH + head).elapsed().unwrap_or(Duration::ZERO)
        };
        self.head_age.set(age.as_secs_f64());
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
