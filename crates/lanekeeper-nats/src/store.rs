//! Publishing a message into a stream so that it is known to be there; and deleting one.
//!
//! A server that answers `duplicate` may be wrong: after a change of the stream's leader it was seen to say so of a message
//! that it never stored. So what it says it has is read back before anybody relies on it.

use std::time::Instant;

use async_nats::{HeaderMap, connection::State, header};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    api::{ApiError, read_answer},
    connection::{Connection, RequestError},
    observe,
};

/// A message for a stream.
#[derive(Debug, Clone)]
pub struct Letter {
    /// The stream that has to take it.
    pub stream: String,
    /// The subject.
    pub subject: String,
    /// Within the stream's window, a message of this id is stored once.
    pub id: String,
    /// Other headers.
    pub headers: HeaderMap,
    /// The payload.
    pub payload: Bytes,
}

/// Why it is not known that a message is stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Nothing was sent.
    #[error("not connected to NATS")]
    NotConnected,
    /// Nothing was sent.
    #[error("it was too late to send it")]
    TooLate,
    /// Nobody took it.
    #[error("no stream takes subject '{subject}' (it has to be stream '{stream}')")]
    NoStream {
        /// The subject.
        subject: String,
        /// The stream.
        stream: String,
    },
    /// It was sent; or the server denied that, or the client, because it is too large.
    #[error("{0}")]
    NoAnswer(String),
    /// The server refused it.
    #[error("stream '{stream}': {error}")]
    Refused {
        /// The stream.
        stream: String,
        /// Its words.
        #[source]
        error: ApiError,
    },
    /// The server says that it has it, but not where it says.
    #[error(
        "stream '{stream}' says that it has the message at sequence {sequence}, but it is not there{why}; it takes it again when its duplicate window is over"
    )]
    NotThere {
        /// The stream.
        stream: String,
        /// Where it should be.
        sequence: u64,
        /// What was found.
        why: String,
    },
}

#[derive(Deserialize)]
struct Taken {
    seq: u64,
    #[serde(default)]
    duplicate: bool,
}

/// Publishes it, unless it is `until`, and says where it is stored. An error may still mean that it was: publishing it
/// again with the same id makes that certain.
pub async fn store(connection: &Connection, letter: Letter, until: Instant) -> Result<u64, StoreError> {
    if connection.client().connection_state() != State::Connected {
        return Err(StoreError::NotConnected);
    }
    if Instant::now() >= until {
        return Err(StoreError::TooLate);
    }
    let Letter { stream, subject, id, mut headers, payload } = letter;
    headers.insert(header::NATS_MESSAGE_ID, id.as_str());
    headers.insert(header::NATS_EXPECTED_STREAM, stream.as_str());
    let answer = match connection.request(&subject, Some(headers), payload).await {
        Ok(answer) => answer,
        Err(RequestError::NoResponders) => return Err(StoreError::NoStream { subject, stream }),
        Err(error) => return Err(StoreError::NoAnswer(error.to_string())),
    };
    let taken: Taken = match read_answer("the message", &answer.payload) {
        Ok(taken) => taken,
        Err(error) => return Err(StoreError::Refused { stream, error }),
    };
    if taken.duplicate {
        read_back(connection, &stream, taken.seq, &id).await?;
    }
    Ok(taken.seq)
}

async fn read_back(connection: &Connection, stream: &str, sequence: u64, id: &str) -> Result<(), StoreError> {
    let not_there = |why: String| StoreError::NotThere { stream: stream.to_owned(), sequence, why };
    let stored = connection.context().get_stream_no_info(stream).await;
    let stored = stored.map_err(|error| not_there(format!(" ({error})")))?;
    let found = stored.get_raw_message(sequence).await.map_err(|error| not_there(format!(" ({error})")))?;
    let has = found.headers.get(header::NATS_MESSAGE_ID).map(async_nats::HeaderValue::as_str);
    if has == Some(id) { Ok(()) } else { Err(not_there(String::new())) }
}

/// Deletes one message from a stream; `false` when it is not there (any more).
pub async fn remove(connection: &Connection, stream: &str, sequence: u64) -> Result<bool, ApiError> {
    let operation = format!("STREAM.MSG.DELETE.{stream}");
    let body = json!({ "seq": sequence, "no_erase": true });
    match connection.api::<Value>(&operation, &body).await {
        Ok(_) => Ok(true),
        // Servers have several words for what is not there, so they are asked.
        Err(error @ ApiError::Refused { .. }) => {
            match observe::message(connection, stream, sequence).await? {
                Some(_) => Err(error),
                None => Ok(false),
            }
        }
        Err(error) => Err(error),
    }
}
