//! One dead letter, read; and what is published of it again. Pure.

use lanekeeper_core::{
    aside::{self as header, keeps, replay_of},
    fence::Fence,
};
use lanekeeper_nats::{
    async_nats::{HeaderMap, HeaderName, HeaderValue},
    observe::WholeMessage,
};
use serde::Serialize;

/// What a dead letter says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Letter {
    /// Its number in the stream of dead letters.
    pub(crate) sequence: u64,
    /// The number that the message had in its stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) original: Option<u64>,
    pub(crate) key: String,
    pub(crate) partition: String,
    pub(crate) attempts: String,
    pub(crate) reason: String,
    /// When it was put away.
    pub(crate) time: String,
    /// The subject that it was published to.
    pub(crate) subject: String,
    #[serde(skip)]
    pub(crate) fence: Option<Fence>,
}

impl Letter {
    /// What is missing is shown as empty: a person may have published it.
    pub(crate) fn read(found: &WholeMessage) -> Self {
        let text = |name: &str| found.header(name).unwrap_or_default().to_owned();
        let time = text(header::TIME);
        Self {
            sequence: found.sequence,
            original: found.header(header::SEQUENCE).and_then(|text| text.parse().ok()),
            key: text(header::KEY),
            partition: text(header::PARTITION),
            attempts: text(header::ATTEMPTS),
            reason: text(header::REASON),
            time: if time.is_empty() { found.time.clone() } else { time },
            subject: text(header::SUBJECT),
            fence: found.header(header::FENCE).and_then(|text| text.parse().ok()),
        }
    }

    /// Whether it says enough to be published again.
    pub(crate) fn check(&self) -> Result<(), String> {
        match (self.subject.as_str(), self.fence) {
            ("", _) => {
                Err(format!("it has no header {}, so it is no dead letter of a worker", header::SUBJECT))
            }
            (_, None) => Err(format!("it has no header {} that can be read", header::FENCE)),
            _ => Ok(()),
        }
    }
}

/// A message as it is published again.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) stream: String,
    pub(super) subject: String,
    pub(super) fence: Fence,
    /// The publisher's, each value of each; and what says where it comes from.
    pub(super) headers: HeaderMap,
}

impl Again {
    pub(super) fn new(found: &WholeMessage) -> Result<Self, String> {
        let letter = Letter::read(found);
        letter.check()?;
        let (Some(fence), Some(stream)) = (letter.fence, found.header(header::STREAM)) else {
            return Err(format!("it has no header {}", header::STREAM));
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &found.headers {
            if !keeps(name) || name == header::REPLAY_OF {
                continue;
            }
            let wrong = || format!("its header '{name}' cannot be sent again as it is");
            let parsed = (name.parse::<HeaderName>(), value.parse::<HeaderValue>());
            let (Ok(name), Ok(value)) = parsed else { return Err(wrong()) };
            headers.append(name, value);
        }
        headers.insert(header::REPLAY_OF, replay_of(stream, fence).as_str());
        Ok(Self { stream: stream.to_owned(), subject: letter.subject, fence, headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(headers: &[(&str, &str)]) -> WholeMessage {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        WholeMessage {
            subject: "lanekeeper.dlq.shop.orders".into(),
            sequence: 3,
            time: "2026-01-01T00:00:00Z".into(),
            headers: headers.iter().map(owned).collect(),
            payload: "x".into(),
        }
    }

    const FENCE: &str = "0000000001-00000000000000000017";

    #[test]
    fn what_the_publisher_wrote_comes_back_and_what_was_added_does_not() {
        let again = Again::new(&found(&[
            ("many", "a"),
            ("Nats-Msg-Id", "lanekeeper-dlq shop/orders ORDERS x"),
            ("many", "b"),
            (header::SUBJECT, "orders.k"),
            (header::STREAM, "ORDERS"),
            (header::FENCE, FENCE),
            (header::MESSAGE_ID, "mine"),
            (header::REPLAY_OF, "of an earlier time"),
            (header::REASON, "422"),
        ]))
        .unwrap();
        assert_eq!((again.stream.as_str(), again.subject.as_str()), ("ORDERS", "orders.k"));
        let values = |name: &str| {
            again.headers.get_all(name).map(|value| value.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(values("many"), ["a", "b"]);
        assert_eq!(values(header::REPLAY_OF), [format!("ORDERS {FENCE}")]);
        assert_eq!(again.headers.iter().count(), 2, "{:?}", again.headers);
    }

    #[test]
    fn what_is_no_dead_letter_of_a_worker_is_not_published() {
        for (headers, words) in [
            (vec![], "no header Lanekeeper-Subject"),
            (vec![(header::SUBJECT, "orders.k"), (header::FENCE, "x")], "no header Lanekeeper-Fence"),
            (vec![(header::SUBJECT, "orders.k"), (header::FENCE, FENCE)], "no header Lanekeeper-Stream"),
        ] {
            let error = Again::new(&found(&headers)).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_letter_without_headers_is_shown_as_far_as_it_goes() {
        let letter = Letter::read(&found(&[]));
        assert_eq!((letter.sequence, letter.original, letter.key.as_str()), (3, None, ""));
        assert_eq!(letter.time, "2026-01-01T00:00:00Z");
    }
}
