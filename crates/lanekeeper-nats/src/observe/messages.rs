//! The messages of a stream under a filter, from a place to the present end; and those of a subject as they come.
//! Reading only.
//!
//! By batches of direct reads: no consumer is made, so nothing is changed and no message is held back from being
//! discarded. Any copy of the stream may answer and be behind, so the leader is asked for the end, and reading goes on
//! until it is reached.

use std::time::Duration;

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    api::ApiError,
    connection::{Connection, ConnectionEvent, RequestError},
};

/// Messages and bytes per batch.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 4 << 20;
/// How often a copy may be found behind, and the pause before it is asked again.
const PATIENCE: usize = 50;
const FEW: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);
/// The server's code for a filter without any message.
const NO_MESSAGE: u64 = 10037;

/// A message as a stream holds it.
#[derive(Debug, Clone)]
pub struct StoredMessage {
    /// The subject under which it is stored.
    pub subject: String,
    /// Its number.
    pub sequence: u64,
    /// When it was stored, as the server states it (RFC 3339).
    pub time: String,
    /// Its payload.
    pub payload: Bytes,
}

/// Where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// With this sequence or the first one after it.
    Sequence(u64),
    /// With the first message stored at this time (RFC 3339) or later.
    Time(String),
}

/// Why messages cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MessagesError {
    /// Direct reads are switched off.
    #[error("stream '{stream}' does not allow direct reads (`nats stream edit {stream} --allow-direct`)")]
    NoDirectReads {
        /// The stream.
        stream: String,
    },
    /// The server did not answer, or refused.
    #[error(transparent)]
    Api(#[from] ApiError),
}

#[derive(Deserialize)]
struct Last {
    message: LastMessage,
}

#[derive(Deserialize)]
struct LastMessage {
    seq: u64,
}

/// The last sequence under a filter, by the leader; `None` when there is none.
pub async fn last_under(
    connection: &Connection,
    stream: &str,
    filter: &str,
) -> Result<Option<u64>, ApiError> {
    let body = json!({ "last_by_subj": filter });
    match connection.api::<Last>(&format!("STREAM.MSG.GET.{stream}"), &body).await {
        Ok(last) => Ok(Some(last.message.seq)),
        Err(ApiError::Refused { refusal, .. }) if refusal.err_code == NO_MESSAGE => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives each message under a filter to `each`, up to the one that was the last when this was called.
pub async fn messages(
    connection: &Connection,
    stream: &str,
    filter: &str,
    from: From,
    mut each: impl FnMut(StoredMessage),
) -> Result<(), MessagesError> {
    let Some(end) = last_under(connection, stream, filter).await? else { return Ok(()) };
    let mut from = from;
    let mut behind = 0;
    loop {
        let batch = batch(connection, stream, filter, &from).await?;
        let (length, more) = (batch.messages.len(), batch.more);
        for message in batch.messages {
            if message.sequence > end {
                return Ok(());
            }
            from = From::Sequence(message.sequence + 1);
            each(message);
        }
        if matches!(from, From::Sequence(next) if next > end) {
            return Ok(());
        }
        if length > 0 || more {
            continue;
        }
        // This copy of the stream is behind; or the last message is gone by now; or it is older than what is asked for.
        behind += 1;
        let gone = last_under(connection, stream, filter).await?.is_none_or(|last| last < end);
        if gone || (behind > FEW && matches!(from, From::Time(_))) {
            return Ok(());
        }
        if behind >= PATIENCE {
            let missing = format!("a copy of stream '{stream}' that is up to date");
            let operation = format!("DIRECT.GET.{stream}").into();
            return Err(ApiError::Incomplete { operation, missing: missing.into() }.into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

struct Batch {
    messages: Vec<StoredMessage>,
    more: bool,
}

async fn batch(
    connection: &Connection,
    stream: &str,
    filter: &str,
    from: &From,
) -> Result<Batch, MessagesError> {
    let operation = format!("DIRECT.GET.{stream}");
    let subject = format!("{}.{operation}", connection.api_prefix());
    let mut body = json!({ "batch": BATCH, "max_bytes": BATCH_BYTES, "next_by_subj": filter });
    match from {
        From::Sequence(sequence) => body["seq"] = (*sequence).max(1).into(),
        From::Time(time) => body["start_time"] = time.as_str().into(),
    }
    let asked = connection.request_many(&subject, body.to_string().into()).await;
    let mut answers = asked.map_err(|error| connection.explain(&operation, error))?;
    let unreadable =
        |error: &str| ApiError::Unreadable { operation: operation.as_str().into(), error: error.into() };
    let mut messages = Vec::new();
    loop {
        let message = match answers.next().await {
            Ok(message) => message,
            // The leader answered a moment ago: nobody answers direct reads of it.
            Err(RequestError::NoResponders) => {
                return Err(MessagesError::NoDirectReads { stream: stream.to_owned() });
            }
            Err(error) => return Err(connection.explain(&operation, error).into()),
        };
        let header = |name: &str| Some(message.headers.as_ref()?.get(name)?.as_str().to_owned());
        match message.status.map(|status| status.as_u16()) {
            None => messages.push(stored(&message).ok_or_else(|| unreadable("its headers are not there"))?),
            Some(204) => {
                let pending = header("Nats-Num-Pending").and_then(|text| text.parse::<u64>().ok());
                return Ok(Batch { messages, more: pending.is_some_and(|pending| pending > 0) });
            }
            Some(404) => return Ok(Batch { messages, more: false }),
            Some(status) => {
                let words = message.description.as_deref().unwrap_or_default();
                return Err(unreadable(&format!("status {status} {words}")).into());
            }
        }
    }
}

fn stored(message: &Message) -> Option<StoredMessage> {
    let header = |name: &str| Some(message.headers.as_ref()?.get(name)?.as_str());
    Some(StoredMessage {
        subject: header("Nats-Subject")?.to_owned(),
        sequence: header("Nats-Sequence")?.parse().ok()?,
        time: header("Nats-Time-Stamp")?.to_owned(),
        payload: message.payload.clone(),
    })
}

/// How a stream keeps messages, as far as a reader has to know it.
#[derive(Debug, Clone, Deserialize)]
pub struct Keeping {
    /// `limits`, `interest` or `workqueue`.
    pub retention: String,
    /// The last sequence that was stored.
    pub last_sequence: u64,
    /// Whether single messages can be deleted.
    pub deletes: bool,
}

/// How a stream keeps messages; `None` when there is no such stream.
pub async fn keeping(connection: &Connection, stream: &str) -> Result<Option<Keeping>, ApiError> {
    match connection.api::<Value>(&format!("STREAM.INFO.{stream}"), &Value::Null).await {
        Ok(info) => Ok(Some(Keeping {
            retention: info["config"]["retention"].as_str().unwrap_or("limits").to_owned(),
            last_sequence: info["state"]["last_seq"].as_u64().unwrap_or_default(),
            deletes: !["deny_delete", "sealed"].iter().any(|no| info["config"][no].as_bool() == Some(true)),
        })),
        Err(error) if error.code() == Some(crate::api::Code::StreamMissing) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is published to a subject from now on.
pub struct Followed {
    subscriber: Subscriber,
    events: broadcast::Receiver<ConnectionEvent>,
    subject: String,
}

/// Follows a subject. What is published while the connection is down is missed.
pub async fn follow(connection: &Connection, subject: &str) -> Result<Followed, ApiError> {
    let events = connection.events();
    let cannot = |error: &dyn std::error::Error| ApiError::Client {
        operation: format!("subscribing to {subject}").into(),
        error: error.to_string().into(),
    };
    let client = connection.client();
    let subscriber = client.subscribe(subject.to_owned()).await.map_err(|error| cannot(&error))?;
    client.flush().await.map_err(|error| cannot(&error))?;
    Ok(Followed { subscriber, events, subject: subject.to_owned() })
}

impl Followed {
    /// The next subject and payload. Fails when the server denies the subscription.
    pub async fn next(&mut self) -> Result<(String, Bytes), ApiError> {
        let operation = || Box::from(format!("subscribing to {}", self.subject));
        let closed =
            || ApiError::Client { operation: operation(), error: "the connection was closed".into() };
        loop {
            tokio::select! {
                biased;
                message = self.subscriber.next() => {
                    let message = message.ok_or_else(closed)?;
                    return Ok((message.subject.to_string(), message.payload));
                }
                event = self.events.recv() => match event {
                    Ok(ConnectionEvent::Violation(violation)) if violation.subscription => {
                        return Err(ApiError::Denied { operation: operation(), violation: violation.text.into() });
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(closed()),
                },
            }
        }
    }
}
