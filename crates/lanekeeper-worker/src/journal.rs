//! The journal of what this process handles, published for whoever audits; nothing at all unless the set asks for it.
//!
//! An entry leaves before the acknowledgement of its message, over the same connection. A server takes in order what
//! comes over one connection, so an acknowledgement that it confirmed says that the entry reached it too; when the
//! connection was made anew in between, that is not certain, and the entry is sent once more (with the same message
//! id, so a stream keeps one). A journal never holds the lane up, and its failures are counted and nothing else.
//! What an entry says, and how journals are judged, is `lanekeeper_core::journal`.

use std::{
    collections::VecDeque,
    time::{Instant, SystemTime},
};

use lanekeeper_core::{
    journal::{Ending, Entry, subject},
    lane::Note,
    names::SetName,
    record::Holder,
};
use lanekeeper_nats::{
    Connection, ConnectionEvent,
    async_nats::{HeaderMap, connection::State, header},
};
use tokio::sync::broadcast;

use crate::{message::Message, metrics::Metrics};

/// What a handler that runs, or was just stopped, was given: one message, or a batch of them.
struct Running {
    entries: Vec<Entry>,
    subject: String,
    since: Instant,
    stopped: bool,
}

/// Entries beyond that are of messages that were given up after they were completed.
const MOST_UNCONFIRMED: usize = 1024;

/// A completed handling whose acknowledgement is not confirmed.
#[derive(Clone)]
struct Unconfirmed {
    sequence: u64,
    subject: String,
    id: String,
    payload: bytes::Bytes,
    /// Which connection it left on; `None`: it did not leave.
    connects: Option<u64>,
}

/// The journal of one process.
pub(crate) struct Journal {
    set: SetName,
    partition: u32,
    holder: Holder,
    connection: Connection,
    begun: u64,
    /// Where the entry before ended: an instance's own times never go back, whatever the clock does.
    last: i64,
    running: Option<Box<Running>>,
    /// In the order in which they were completed: a pipelined lane acknowledges several together.
    unconfirmed: VecDeque<Unconfirmed>,
    /// Opened with the first entry.
    events: Option<broadcast::Receiver<ConnectionEvent>>,
}

impl Journal {
    pub(crate) fn new(set: SetName, partition: u32, holder: Holder, connection: Connection) -> Self {
        Self {
            set,
            partition,
            holder,
            connection,
            begun: 0,
            last: 0,
            running: None,
            unconfirmed: VecDeque::new(),
            events: None,
        }
    }

    /// Whether there is anything to say of what comes next.
    pub(crate) fn is_open(&self) -> bool {
        self.running.is_some() || !self.unconfirmed.is_empty()
    }

    /// A handler is called, with messages of a set that keeps a journal under `journal`.
    pub(crate) async fn begin(
        &mut self,
        journal: &str,
        incarnation: u64,
        messages: &[Message],
        metrics: &Metrics,
    ) {
        // Those on another connection may be lost, whatever becomes of their acknowledgements.
        self.send_again(metrics).await;
        let start = microseconds(SystemTime::now()).max(self.last + 1);
        self.last = start;
        let batch = (messages.len() > 1).then_some(self.begun + 1);
        let entries = messages.iter().map(|message| self.entry(incarnation, batch, message, start)).collect();
        let subject = subject(journal, self.partition);
        self.running = Some(Box::new(Running { entries, subject, since: Instant::now(), stopped: false }));
    }

    fn entry(&mut self, incarnation: u64, batch: Option<u64>, message: &Message, start: i64) -> Entry {
        self.begun += 1;
        Entry {
            v: Entry::VERSION,
            namespace: self.set.namespace.clone(),
            set: self.set.name.clone(),
            partition: self.partition,
            incarnation,
            pod: self.holder.pod.clone(),
            instance: self.holder.instance.clone(),
            handling: self.begun,
            batch,
            key: message.key(),
            subject: message.subject().to_owned(),
            fence: message.fence(),
            attempt: message.attempt(),
            start,
            end: start,
            outcome: Ending::Lost,
        }
    }

    /// The handler came to an end by itself.
    pub(crate) async fn ended(&mut self, outcome: Ending, metrics: &Metrics) {
        self.stopped();
        self.publish(outcome, metrics).await;
    }

    /// The handler was stopped; the lane's next note says why.
    pub(crate) fn stopped(&mut self) {
        let Some(running) = self.running.as_mut().filter(|running| !running.stopped) else { return };
        let took = i64::try_from(running.since.elapsed().as_micros()).unwrap_or(i64::MAX);
        for entry in &mut running.entries {
            entry.end = entry.start.saturating_add(took);
            self.last = self.last.max(entry.end);
        }
        running.stopped = true;
    }

    /// What the lane says of the message in hand.
    pub(crate) async fn note(&mut self, note: &Note, metrics: &Metrics) {
        let outcome = match note {
            Note::ParkOrderDone { .. } => {
                self.send_again(metrics).await;
                self.unconfirmed.clear();
                return;
            }
            Note::Settled(sequence) => {
                self.send_again(metrics).await;
                self.unconfirmed.retain(|entry| entry.sequence > *sequence);
                return;
            }
            Note::Failed { .. } => Ending::Failed,
            Note::Lost(_) => Ending::Lost,
            Note::Cut(_) => Ending::Cut,
            _ => return,
        };
        if self.running.as_ref().is_some_and(|running| running.stopped) {
            self.publish(outcome, metrics).await;
        }
    }

    /// What left on a connection that is no more may not have arrived.
    async fn send_again(&mut self, metrics: &Metrics) {
        let connects = Some(self.connects());
        for index in 0..self.unconfirmed.len() {
            if self.unconfirmed[index].connects != connects
                && let Some(entry) = self.send(self.unconfirmed[index].clone(), metrics).await
            {
                self.unconfirmed[index] = entry;
            }
        }
        while self.unconfirmed.len() > MOST_UNCONFIRMED {
            self.unconfirmed.pop_front();
        }
    }

    async fn publish(&mut self, outcome: Ending, metrics: &Metrics) {
        let Some(running) = self.running.take() else { return };
        for mut entry in running.entries {
            entry.outcome = outcome;
            self.publish_one(&entry, running.subject.clone(), metrics).await;
        }
    }

    async fn publish_one(&mut self, entry: &Entry, subject: String, metrics: &Metrics) {
        let id = format!("{} {} {}", entry.pod, entry.instance, entry.handling);
        let payload = match serde_json::to_vec(entry) {
            Ok(payload) => payload.into(),
            Err(error) => {
                tracing::warn!(%error, "an entry of the journal cannot be written");
                return metrics.journal_failure();
            }
        };
        let sent = Unconfirmed { sequence: entry.fence.sequence, subject, id, payload, connects: None };
        let sent = self.send(sent, metrics).await;
        // Only what was completed or put away is acknowledged; the rest is told once.
        let acknowledged = matches!(entry.outcome, Ending::Done | Ending::PutAway | Ending::Parked);
        self.unconfirmed.extend(sent.filter(|_| acknowledged));
    }

    /// Sends now or never, as everything that a lane sends.
    async fn send(&mut self, mut entry: Unconfirmed, metrics: &Metrics) -> Option<Unconfirmed> {
        self.complaints(&entry.subject, metrics);
        entry.connects = None;
        let client = self.connection.client().clone();
        if client.connection_state() == State::Connected {
            let connects = self.connects();
            let mut headers = HeaderMap::new();
            headers.insert(header::NATS_MESSAGE_ID, entry.id.as_str());
            let published =
                client.publish_with_headers(entry.subject.clone(), headers, entry.payload.clone()).await;
            match published {
                Ok(()) => entry.connects = Some(connects),
                Err(error) => {
                    tracing::warn!(%error, subject = entry.subject, "an entry of the journal cannot be published");
                    metrics.journal_failure();
                    return None;
                }
            }
        } else {
            metrics.journal_failure();
        }
        Some(entry)
    }

    /// What the server refused comes later, and for the subject only.
    fn complaints(&mut self, subject: &str, metrics: &Metrics) {
        let events = self.events.get_or_insert_with(|| self.connection.events());
        loop {
            match events.try_recv() {
                Ok(ConnectionEvent::Violation(violation)) if violation.subject == subject => {
                    tracing::warn!(subject, "the server refuses the journal: {}", violation.text);
                    metrics.journal_failure();
                }
                Ok(_) | Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => return,
            }
        }
    }

    fn connects(&self) -> u64 {
        self.connection.watch_health().borrow().connects
    }
}

fn microseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
