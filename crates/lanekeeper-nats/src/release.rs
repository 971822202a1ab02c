//! Takes pin and message away from a worker that is proven to be gone. What is asked in which order, and why that does
//! no harm however late it arrives, is [`lanekeeper_core::release`].

use lanekeeper_core::{
    consumer::GROUP,
    release::{Seen, may_give_back, may_unpin},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{api::ApiError, connection::Connection};

/// What was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Nothing: the pin is not, or no longer, the one of that worker.
    Nothing,
    /// The pin; no message was out.
    Pin,
    /// The pin and the message with this stream sequence.
    Message(u64),
}

/// Why it is not known whether anything was taken away. Then it lapses by itself.
#[derive(Debug, Clone, thiserror::Error)]
#[error("consumer '{consumer}' of stream '{stream}' could not be released: {error}")]
pub struct ReleaseError {
    stream: String,
    consumer: String,
    #[source]
    error: ApiError,
}

#[derive(Deserialize)]
struct Info {
    delivered: Delivered,
    #[serde(default)]
    num_ack_pending: u64,
    #[serde(default)]
    priority_groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Delivered {
    #[serde(default)]
    consumer_seq: u64,
    #[serde(default)]
    stream_seq: u64,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    pinned_client_id: String,
}

impl Info {
    fn seen(self) -> Seen {
        Seen {
            pin: self.priority_groups.into_iter().map(|group| group.pinned_client_id).collect(),
            ack_pending: self.num_ack_pending,
            consumer_sequence: self.delivered.consumer_seq,
            stream_sequence: self.delivered.stream_seq,
        }
    }
}

/// Releases what the worker with this pin had. To be called by one worker, once, with evidence of that one's end.
pub async fn release(
    connection: &Connection,
    stream: &str,
    consumer: &str,
    pin: &str,
) -> Result<Released, ReleaseError> {
    let failed = |error| ReleaseError { stream: stream.to_owned(), consumer: consumer.to_owned(), error };
    let look = format!("CONSUMER.INFO.{stream}.{consumer}");
    let before = connection.api::<Info>(&look, &()).await.map_err(failed)?.seen();
    if !may_unpin(pin, &before) {
        return Ok(Released::Nothing);
    }
    let unpin = format!("CONSUMER.UNPIN.{stream}.{consumer}");
    connection.api::<Value>(&unpin, &json!({"group": GROUP})).await.map_err(failed)?;
    let after = connection.api::<Info>(&look, &()).await.map_err(failed)?.seen();
    if !may_give_back(&before, &after) {
        return Ok(Released::Pin);
    }
    // The server looks at the two sequences alone (measured on 2.11, 2.12 and 2.15).
    let (sequence, delivery) = (before.stream_sequence, before.consumer_sequence);
    let ack = format!("$JS.ACK.{stream}.{consumer}.1.{sequence}.{delivery}.0.0");
    match connection.client().publish(ack, "-NAK".into()).await {
        Ok(()) => Ok(Released::Message(sequence)),
        // The client is closed: this process is about to end.
        Err(_) => Ok(Released::Pin),
    }
}
