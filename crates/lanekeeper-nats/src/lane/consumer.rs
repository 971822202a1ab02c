//! Looking at a lane's consumer: what a worker may see of it.

use std::time::Duration;

use lanekeeper_core::lane::ConsumerFacts;
use serde::Deserialize;

use crate::{
    api::{ApiError, Code},
    connection::Connection,
};

/// What the server says of a lane's consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerState {
    /// What the lane needs to know.
    pub facts: ConsumerFacts,
    /// Messages not delivered yet.
    pub pending: u64,
    /// Stream sequence of the last delivery.
    pub delivered: u64,
    /// Paused by somebody.
    pub paused: bool,
}

/// Why the consumer could not be looked at.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InspectError {
    /// There is no such consumer (or no such stream).
    #[error("consumer '{consumer}' of stream '{stream}' does not exist")]
    Gone {
        /// The consumer.
        consumer: String,
        /// The stream.
        stream: String,
    },
    /// Anything else: it may exist.
    #[error("consumer '{consumer}' cannot be looked at: {error}")]
    Unknown {
        /// The consumer.
        consumer: String,
        /// Why.
        #[source]
        error: ApiError,
    },
}

#[derive(Deserialize)]
struct Info {
    config: Config,
    #[serde(default)]
    num_pending: u64,
    #[serde(default)]
    num_ack_pending: u64,
    #[serde(default)]
    delivered: Position,
    #[serde(default)]
    ack_floor: Position,
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    priority_groups: Vec<Group>,
}

#[derive(Default, Deserialize)]
struct Position {
    #[serde(default)]
    consumer_seq: u64,
    #[serde(default)]
    stream_seq: u64,
}

/// What the stream answers when it is asked for a message.
#[derive(Deserialize)]
struct Stored {
    message: StoredMessage,
}

#[derive(Deserialize)]
struct StoredMessage {
    seq: u64,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    pinned_client_id: String,
}

#[derive(Deserialize)]
struct Config {
    /// Nanoseconds, as is the list.
    #[serde(default)]
    ack_wait: u64,
    #[serde(default)]
    backoff: Vec<u64>,
    #[serde(default)]
    max_ack_pending: i64,
    /// Nanoseconds after which a pin lapses.
    #[serde(default)]
    priority_timeout: u64,
}

impl Config {
    /// A delivery's deadline is its entry of the backoff list if there is one, so the shortest counts. What is in hand
    /// without the pin may be another's as well, so that has the same deadline.
    fn shortest_wait(&self) -> Duration {
        let waits = self.backoff.iter().copied().chain([self.ack_wait, self.priority_timeout]);
        let shortest = waits.filter(|wait| *wait > 0).min();
        Duration::from_nanos(shortest.unwrap_or_default())
    }
}

/// Looks at consumers of a stream.
#[derive(Debug, Clone)]
pub struct Inspector {
    connection: Connection,
}

impl Inspector {
    /// Looks over this connection.
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// Asks for the consumer's state.
    pub async fn inspect(&self, stream: &str, consumer: &str) -> Result<ConsumerState, InspectError> {
        let operation = format!("CONSUMER.INFO.{stream}.{consumer}");
        let answer = self.connection.api::<Info>(&operation, &()).await;
        let info = answer.map_err(|error| match error.code() {
            Some(Code::ConsumerMissing | Code::StreamMissing) => {
                InspectError::Gone { consumer: consumer.to_owned(), stream: stream.to_owned() }
            }
            _ => InspectError::Unknown { consumer: consumer.to_owned(), error },
        })?;
        let facts = ConsumerFacts {
            shortest_wait: info.config.shortest_wait(),
            max_ack_pending: info.config.max_ack_pending,
            delivered: info.delivered.stream_seq,
            deliveries: info.delivered.consumer_seq,
            ack_pending: info.num_ack_pending,
            floor: info.ack_floor.stream_seq,
            pin: info
                .priority_groups
                .into_iter()
                .map(|group| group.pinned_client_id)
                .find(|id| !id.is_empty())
                .map(Into::into),
        };
        Ok(ConsumerState {
            facts,
            pending: info.num_pending,
            delivered: info.delivered.stream_seq,
            paused: info.paused,
        })
    }

    /// The sequences of all messages that the stream has under a filter, above one sequence and up to another. Each of
    /// them is read whole, so this is for few.
    pub async fn list(
        &self,
        stream: &str,
        filter: &str,
        after: u64,
        until: u64,
    ) -> Result<Vec<u64>, ApiError> {
        let operation = format!("STREAM.MSG.GET.{stream}");
        let mut sequences = Vec::new();
        let mut next = after + 1;
        while next <= until {
            let body = serde_json::json!({ "seq": next, "next_by_subj": filter });
            match self.connection.api::<Stored>(&operation, &body).await {
                Ok(found) if found.message.seq <= until => {
                    next = found.message.seq + 1;
                    sequences.push(found.message.seq);
                }
                Ok(_) => break,
                Err(error) if error.code() == Some(Code::MessageMissing) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sequences)
    }

    /// Acknowledges those of some messages that the stream does not have: how many. What it has may be another lane's, and
    /// an ack would remove that from a work queue.
    pub async fn ack_gone(
        &self,
        stream: &str,
        consumer: &str,
        sequences: &[u64],
        consumer_sequence: u64,
    ) -> Result<usize, ApiError> {
        let operation = format!("STREAM.MSG.GET.{stream}");
        let mut gone = 0;
        for sequence in sequences {
            match self.connection.api::<Stored>(&operation, &serde_json::json!({ "seq": sequence })).await {
                Err(error) if error.code() == Some(Code::MessageMissing) => {}
                Ok(_) => continue,
                Err(error) => return Err(error),
            }
            // The server looks at the two sequences alone (measured on 2.11, 2.12 and 2.15).
            let ack = format!("$JS.ACK.{stream}.{consumer}.1.{sequence}.{consumer_sequence}.0.0");
            // The client is closed when this fails: then the process is about to end.
            let _ = self.connection.client().publish(ack, "+ACK".into()).await;
            gone += 1;
        }
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_of_ack_wait_backoff_list_and_pin_is_the_deadline() {
        let config =
            Config { ack_wait: 30, backoff: vec![20, 10, 40], max_ack_pending: 1, priority_timeout: 0 };
        assert_eq!(config.shortest_wait(), Duration::from_nanos(10));
        let config = Config { backoff: Vec::new(), ..config };
        assert_eq!(config.shortest_wait(), Duration::from_nanos(30));
        let config = Config { priority_timeout: 25, ..config };
        assert_eq!(config.shortest_wait(), Duration::from_nanos(25));
    }
}
