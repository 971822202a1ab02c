//! What comes back to a lane.

use std::{future::poll_fn, task::Poll, time::Duration};

use async_nats::{HeaderMap, Message, Subject};
use bytes::Bytes;
use futures::StreamExt;
use lanekeeper_core::lane::PullStatus;

use super::{AckSubject, LaneLink};

/// Something that arrived.
#[derive(Debug)]
pub enum Arrival {
    /// A message for a pull.
    Message {
        /// The pull that it answers.
        pull: u64,
        /// The message.
        delivery: Delivery,
    },
    /// A pull is alive on the server.
    Heartbeat {
        /// Which pull.
        pull: u64,
    },
    /// A pull ended without a message.
    Ended {
        /// Which pull.
        pull: u64,
        /// Why, as a lane needs to know it.
        status: PullStatus,
        /// Why, in the server's code and words.
        words: String,
    },
    /// An ack, nak or in-progress ack was answered.
    Answered {
        /// Its token.
        token: u64,
    },
    /// Nobody listens where an ack, nak or in-progress ack was sent.
    NoResponders {
        /// Its token.
        token: u64,
    },
    /// Cannot be read; the reason. It is no answer to anything.
    Unreadable(String),
}

/// A message as it was delivered.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The subject under which it is stored.
    pub subject: Subject,
    /// Where it is acknowledged.
    pub ack: Subject,
    /// Stream sequence.
    pub sequence: u64,
    /// How often the message was delivered, this time included.
    pub deliveries: u64,
    /// When the message was stored, since the Unix epoch.
    pub published: Duration,
    /// Messages that the consumer has not delivered yet.
    pub pending: u64,
    /// Its headers.
    pub headers: Option<HeaderMap>,
    /// Its payload.
    pub payload: Bytes,
}

impl LaneLink {
    /// The next arrival; `None` when the client was closed for good. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Arrival> {
        poll_fn(|context| {
            if let Poll::Ready(message) = self.answers.poll_next_unpin(context) {
                return Poll::Ready(message.map(|message| answer(&message)));
            }
            self.slots.poll_next(context).map(|next| {
                let (pull, message) = next?;
                let arrival = for_pull(pull, message);
                if !matches!(arrival, Arrival::Heartbeat { .. }) {
                    self.slots.end(pull);
                }
                Some(arrival)
            })
        })
        .await
    }
}

fn answer(message: &Message) -> Arrival {
    let token = message.subject.rsplit_once('.').and_then(|(_, token)| token.parse().ok());
    let Some(token) = token else {
        return Arrival::Unreadable(format!("'{}' is the subject of no answer", message.subject));
    };
    match message.status.map(|status| status.as_u16()) {
        Some(503) => Arrival::NoResponders { token },
        _ => Arrival::Answered { token },
    }
}

fn for_pull(pull: u64, message: Message) -> Arrival {
    // Only a message has an ack subject; what a publisher wrote into its headers means nothing here.
    if let Some(ack) = message.reply {
        let AckSubject { sequence, deliveries, published, pending, .. } = match AckSubject::parse(&ack) {
            Ok(read) => read,
            Err(error) => return Arrival::Unreadable(format!("a message: {error}")),
        };
        let (subject, headers, payload) = (message.subject, message.headers, message.payload);
        let delivery = Delivery { subject, ack, sequence, deliveries, published, pending, headers, payload };
        return Arrival::Message { pull, delivery };
    }
    match message.status.map(|status| status.as_u16()) {
        Some(100) => Arrival::Heartbeat { pull },
        Some(code) => {
            let words = message.description.unwrap_or_default();
            Arrival::Ended { pull, status: status_of(code, &words), words: format!("{code} {words}") }
        }
        None => Arrival::Unreadable("a message without an ack subject".into()),
    }
}

fn status_of(code: u16, words: &str) -> PullStatus {
    match code {
        404 | 408 => PullStatus::Expired,
        409 if words.eq_ignore_ascii_case("consumer deleted") => PullStatus::ConsumerDeleted,
        423 => PullStatus::WrongPin,
        503 => PullStatus::NoResponders,
        _ => PullStatus::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_server_are_told_apart() {
        assert_eq!(status_of(409, "Consumer Deleted"), PullStatus::ConsumerDeleted);
        for words in ["Leadership Change", "Server Shutdown", "Consumer is push based", "Exceeded MaxWaiting"]
        {
            assert_eq!(status_of(409, words), PullStatus::Refused);
        }
        assert_eq!(status_of(408, "Request Timeout"), PullStatus::Expired);
        assert_eq!(status_of(423, "Nats-Pin-Id mismatch"), PullStatus::WrongPin);
        assert_eq!(status_of(400, "Bad Request"), PullStatus::Refused);
    }
}
