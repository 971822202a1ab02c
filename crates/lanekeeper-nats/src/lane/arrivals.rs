//! What comes back to a lane.

use std::{future::poll_fn, task::Poll, time::Duration};

use async_nats::{HeaderMap, HeaderValue, Message, Subject};
use bytes::Bytes;
use futures::StreamExt;
use lanekeeper_core::lane::PullStatus;

use super::{AckSubject, LaneLink};

/// The header with the pin's id.
const PIN: &str = "Nats-Pin-Id";

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
    /// Consumer sequence: rises with each delivery of the consumer.
    pub consumer_sequence: u64,
    /// How often the message was delivered, this time included.
    pub deliveries: u64,
    /// When the message was stored, since the Unix epoch.
    pub published: Duration,
    /// Messages that the consumer has not delivered yet.
    pub pending: u64,
    /// The pin that the server gave with it.
    pub pin: Option<String>,
    /// Its headers, as published.
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
                match arrival {
                    Arrival::Heartbeat { .. } => {}
                    Arrival::Message { .. } => self.slots.delivered(pull),
                    _ => self.slots.end(pull),
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
        let AckSubject { sequence, consumer_sequence, deliveries, published, pending, .. } =
            match AckSubject::parse(&ack) {
                Ok(read) => read,
                Err(error) => return Arrival::Unreadable(format!("a message: {error}")),
            };
        let (subject, payload) = (message.subject, message.payload);
        let (pin, headers) = without_pin(message.headers);
        let delivery = Delivery {
            subject,
            ack,
            sequence,
            consumer_sequence,
            deliveries,
            published,
            pending,
            pin,
            headers,
            payload,
        };
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

/// The server adds the pin to a message's own headers, after them: a header of that name which a publisher wrote comes
/// first and means nothing.
fn without_pin(headers: Option<HeaderMap>) -> (Option<String>, Option<HeaderMap>) {
    let Some(headers) = headers else { return (None, None) };
    let is_id = |pin: &&str| !pin.is_empty() && pin.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let Some(pin) = headers.get_last(PIN).map(HeaderValue::as_str).filter(is_id).map(str::to_owned) else {
        return (None, Some(headers));
    };
    if headers.len() == 1 {
        return (Some(pin), None);
    }
    let mut rest = HeaderMap::new();
    for (name, values) in headers.iter().filter(|(name, _)| AsRef::<str>::as_ref(*name) != PIN) {
        for value in values {
            rest.append(name.clone(), value.clone());
        }
    }
    (Some(pin), Some(rest))
}

fn status_of(code: u16, words: &str) -> PullStatus {
    match code {
        404 | 408 => PullStatus::Expired,
        409 if words.eq_ignore_ascii_case("consumer deleted") => PullStatus::ConsumerDeleted,
        409 if words.eq_ignore_ascii_case("message size exceeds maxbytes") => PullStatus::TooLarge,
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
        assert_eq!(status_of(409, "Message Size Exceeds MaxBytes"), PullStatus::TooLarge);
        assert_eq!(status_of(400, "Bad Request"), PullStatus::Refused);
    }

    #[test]
    fn the_servers_pin_is_taken_and_only_what_was_published_is_left() {
        let mut headers = HeaderMap::new();
        assert_eq!(without_pin(None), (None, None));
        headers.append(PIN, "server0");
        assert_eq!(without_pin(Some(headers)), (Some("server0".into()), None));
        let mut headers = HeaderMap::new();
        headers.append(PIN, "publishers");
        headers.append("trace", "1");
        headers.append("trace", "2");
        headers.append(PIN, "server1");
        let (pin, rest) = without_pin(Some(headers));
        assert_eq!(pin.as_deref(), Some("server1"));
        let mut expected = HeaderMap::new();
        expected.append("trace", "1");
        expected.append("trace", "2");
        assert_eq!(rest, Some(expected));
    }

    #[test]
    fn what_cannot_be_a_pin_is_left_where_it_is() {
        for text in ["", "a\"b", "a b"] {
            let mut headers = HeaderMap::new();
            headers.append(PIN, text);
            assert_eq!(without_pin(Some(headers.clone())), (None, Some(headers)), "{text:?}");
        }
    }
}
