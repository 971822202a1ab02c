//! `kubectl lanes audit`: what a set's journal says. I/O; the verdict is `lanekeeper_core::journal`.
//!
//! Reads the journal from a stream, or follows it as it is written. Nothing is changed in NATS.

mod expected;

use std::{fmt::Write as _, time::Duration};

use k8s_openapi::jiff::Timestamp;
use lanekeeper_api::validate::Validated;
use lanekeeper_core::{
    fence::Fence,
    journal::{Checker, Entry, Options, Report},
};
use lanekeeper_nats::{
    ApiError, Connection,
    observe::{self, From, MessagesError, StoredMessage},
};
use serde::Serialize;

use crate::{
    arguments::{AuditFlags, NatsFlags},
    cluster::Cluster,
    look::{LookError, look},
    reach::{ReachError, reach},
};
use expected::Expected;

/// Handlings of each key that are kept while a journal is followed.
const KEPT_LIVE: usize = 2048;
/// What is on the way when a live audit ends is waited for this long.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    #[error("spec.worker.journal: the set keeps no journal; --subject names one that it had")]
    NoJournal,
    #[error(
        "no stream takes '{subject}': make one that does, or follow the journal as it is written, with --live"
    )]
    NoStream { subject: String },
    #[error("'{subject}' is taken by {}: choose one with --stream", streams.join(" and "))]
    SeveralStreams { subject: String, streams: Vec<String> },
    #[error("--stream {0}: there is no such stream")]
    Missing(String),
    #[error(
        "--against-stream: stream '{stream}' has {retention} retention, so what was handled is not in it any more; only limits retention is allowed"
    )]
    NotKept { stream: String, retention: String },
    #[error("--against-stream: the set has no record yet")]
    NoRecord,
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Look(#[from] LookError),
    #[error(transparent)]
    Messages(#[from] MessagesError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("Ctrl-C cannot be noticed: {0}")]
    Interrupt(std::io::Error),
}

/// The verdict and what it is about.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Audit {
    set: String,
    /// What was read or followed.
    subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
    against_stream: bool,
    clock_tolerance_milliseconds: u64,
    /// Something was found, and nothing is wrong with it.
    clean: bool,
    report: Report,
}

impl Audit {
    pub(crate) fn is_clean(&self) -> bool {
        self.clean
    }
}

/// Reads or follows, and judges.
pub(crate) async fn audit(
    cluster: &Cluster,
    set: &Validated,
    nats: &NatsFlags,
    flags: &AuditFlags,
) -> Result<Audit, AuditError> {
    let journal = flags.subject.clone().or_else(|| set.settings.journal.clone());
    let subject = format!("{}.*", journal.ok_or(AuditError::NoJournal)?);
    let options = Options {
        clock_tolerance: i64::try_from(flags.clock_tolerance.as_micros()).unwrap_or(i64::MAX),
        partial: true,
        examples: flags.examples,
        keep: flags.live.then_some(KEPT_LIVE),
        message,
        time,
    };
    let reached = reach(cluster, set, nats).await?;
    let connection = &reached.connection;
    let mut reader = Reader::new(set, options, flags.against_stream);
    let mut stream = None;
    if flags.live {
        follow(connection, &subject, flags, &mut reader).await?;
    } else {
        let name = stream_of(connection, &subject, flags).await?;
        let expected = if flags.against_stream {
            // Floors first and the journal last: what is settled by now is written by then.
            let seen = look(&reached, set).await?;
            let record = seen.record.as_ref().map(|record| record.value.clone());
            let record = record.ok_or(AuditError::NoRecord)?;
            Some(Expected::read(connection, set, record, &seen.consumers).await?)
        } else {
            None
        };
        let from = flags.since.clone().map(From::Time).or(flags.from.map(From::Sequence));
        let from = from.unwrap_or(From::Sequence(1));
        observe::messages(connection, &name, &subject, from, |message| reader.stored(&message)).await?;
        if let Some(expected) = expected {
            let last = observe::keeping(connection, &set.stream.mapping.stream).await?;
            expected.tell(&mut reader, last.map_or(0, |keeping| keeping.last_sequence));
        }
        stream = Some(name);
    }
    let report = reader.checker.report();
    Ok(Audit {
        set: set.name.to_string(),
        subject,
        stream,
        against_stream: flags.against_stream,
        clock_tolerance_milliseconds: u64::try_from(flags.clock_tolerance.as_millis()).unwrap_or(u64::MAX),
        clean: report.is_clean() && report.entries > 0,
        report,
    })
}

/// The stream that has the journal.
async fn stream_of(connection: &Connection, subject: &str, flags: &AuditFlags) -> Result<String, AuditError> {
    if let Some(name) = &flags.stream {
        let found = observe::keeping(connection, name).await?;
        return found.map(|_| name.clone()).ok_or_else(|| AuditError::Missing(name.clone()));
    }
    let mut streams = observe::streams_taking(connection, &[subject.to_owned()], "").await?;
    let subject = subject.to_owned();
    match streams.len() {
        0 => Err(AuditError::NoStream { subject }),
        1 => Ok(streams.remove(0)),
        _ => Err(AuditError::SeveralStreams { subject, streams }),
    }
}

/// Until Ctrl-C, or for as long as was asked.
async fn follow(
    connection: &Connection,
    subject: &str,
    flags: &AuditFlags,
    reader: &mut Reader,
) -> Result<(), AuditError> {
    let mut followed = observe::follow(connection, subject).await?;
    let limit = flags.duration.map_or_else(|| "until Ctrl-C".to_owned(), |limit| format!("for {limit:?}"));
    eprintln!("following {subject} {limit}");
    let ended = async {
        match flags.duration {
            Some(limit) => {
                tokio::time::sleep(limit).await;
                Ok(())
            }
            None => tokio::signal::ctrl_c().await,
        }
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            biased;
            end = &mut ended => break end.map_err(AuditError::Interrupt)?,
            message = followed.next() => {
                let (subject, payload) = message?;
                reader.read(&payload, || format!("on '{subject}'"));
            }
        }
    }
    let last = tokio::time::sleep(LAST_WORDS);
    tokio::pin!(last);
    loop {
        tokio::select! {
            biased;
            () = &mut last => return Ok(()),
            message = followed.next() => {
                let (subject, payload) = message?;
                reader.read(&payload, || format!("on '{subject}'"));
            }
        }
    }
}

/// Takes entries of one set into the checker.
struct Reader {
    namespace: String,
    set: String,
    checker: Checker,
    /// When the first entry of the set was stored.
    begun: Option<Timestamp>,
    /// Which messages have entries, with their keys; only kept when they are to be compared.
    seen: Option<Vec<(Fence, String)>>,
}

impl Reader {
    fn new(set: &Validated, options: Options, compare: bool) -> Self {
        Self {
            namespace: set.name.namespace.clone(),
            set: set.name.name.clone(),
            checker: Checker::new(options),
            begun: None,
            seen: compare.then(Vec::new),
        }
    }

    fn stored(&mut self, message: &StoredMessage) {
        if self.read(&message.payload, || format!("number {} of the journal", message.sequence)) {
            let stored = || message.time.parse().ok();
            self.begun = self.begun.or_else(stored);
        }
    }

    /// Whether it was an entry of this set.
    fn read(&mut self, payload: &[u8], place: impl Fn() -> String) -> bool {
        let unreadable = |checker: &mut Checker, error: &dyn std::fmt::Display| {
            checker.unreadable(|| format!("{}: {error}", place()));
            false
        };
        let entry = match serde_json::from_slice::<Entry>(payload) {
            Ok(entry) => entry,
            Err(error) => return unreadable(&mut self.checker, &error),
        };
        if entry.namespace != self.namespace || entry.set != self.set {
            return false;
        }
        match entry.judgeable() {
            Ok(entry) => {
                if let Some(seen) = &mut self.seen {
                    seen.push((entry.fence, entry.key.clone()));
                }
                self.checker.add(&entry);
                true
            }
            Err(error) => unreadable(&mut self.checker, &error),
        }
    }
}

/// A message in words; the incarnation of its stream only when there were several.
fn message(fence: Fence) -> String {
    match fence.stream_incarnation {
        1 => format!("message {}", fence.sequence),
        incarnation => format!("message {} (of incarnation {incarnation} of the stream)", fence.sequence),
    }
}

fn time(microseconds: i64) -> String {
    Timestamp::from_microsecond(microseconds)
        .map_or_else(|_| microseconds.to_string(), |time| time.to_string())
}

/// For people.
pub(crate) fn render(audit: &Audit) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<16}{value}");
    };
    line("Set:", &audit.set);
    match &audit.stream {
        Some(stream) => line("Journal:", &format!("{} in stream {stream}", audit.subject)),
        None => line("Journal:", &format!("{}, live", audit.subject)),
    }
    if let (Some(first), Some(last)) = (audit.report.first, audit.report.last) {
        line("From:", &time(first));
        line("To:", &time(last));
    }
    line("Clocks:", &format!("two pods' may differ by {} ms", audit.clock_tolerance_milliseconds));
    let verdict = match audit.report.violated() {
        _ if audit.report.entries == 0 => "no entry was found".to_owned(),
        0 if audit.clean => "every key in order".to_owned(),
        0 => "not everything can be read".to_owned(),
        1 => "1 violation".to_owned(),
        count => format!("{count} violations"),
    };
    let _ = write!(text, "\n{}\nVerdict: {verdict}\n", audit.report);
    text
}

#[cfg(test)]
mod tests;
