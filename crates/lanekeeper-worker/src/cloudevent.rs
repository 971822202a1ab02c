//! A message as a `CloudEvent` in binary mode: attributes in headers, the payload as it is.
//!
//! Frozen, because handlers and their data rely on it. Specification:
//! <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md>.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{message::Message, time::rfc3339};

/// The type of every event.
pub(crate) const TYPE: &str = "dev.lanekeeper.message";

/// Headers that belong to one connection or one transfer, not to the message.
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
const KEEP_ALIVE: &str = "keep-alive";

const SPECVERSION: HeaderName = HeaderName::from_static("ce-specversion");
const ID: HeaderName = HeaderName::from_static("ce-id");
const SOURCE: HeaderName = HeaderName::from_static("ce-source");
const TYPE_NAME: HeaderName = HeaderName::from_static("ce-type");
const SUBJECT: HeaderName = HeaderName::from_static("ce-subject");
const TIME: HeaderName = HeaderName::from_static("ce-time");
const PARTITION_KEY: HeaderName = HeaderName::from_static("ce-partitionkey");
const SEQUENCE: HeaderName = HeaderName::from_static("ce-sequence");
const PARTITION: HeaderName = HeaderName::from_static("lane-partition");
const ATTEMPT: HeaderName = HeaderName::from_static("lane-attempt");
const FENCE: HeaderName = HeaderName::from_static("lane-fence");

/// All headers of the request for a message.
pub(crate) fn headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(16);
    let stream = message.stream();
    let sequence = message.sequence();
    headers.insert(SPECVERSION, HeaderValue::from_static("1.0"));
    headers.insert(TYPE_NAME, HeaderValue::from_static(TYPE));
    let mut set = |name: HeaderName, value: String| {
        let value = if is_plain(&value) { value } else { encode(&value) };
        // An encoded value is printable ASCII, which a header may hold.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    set(ID, format!("{stream}/{sequence}"));
    set(SOURCE, format!("/nats/{stream}"));
    set(SUBJECT, message.subject().to_owned());
    set(TIME, rfc3339(message.published()));
    set(PARTITION_KEY, message.key());
    // Fixed width, so that comparing the text compares the number.
    set(SEQUENCE, format!("{sequence:020}"));
    set(PARTITION, message.partition().to_string());
    set(ATTEMPT, message.attempt().to_string());
    set(FENCE, message.fence().to_string());
    pass_on(message, &mut headers);
    headers
}

/// The publisher's headers, except those that would pass for ours or belong to a connection.
fn pass_on(message: &Message, into: &mut HeaderMap) {
    let Some(published) = message.headers() else { return };
    let named_by_connection: Vec<String> = published
        .iter()
        .filter(|(name, _)| AsRef::<str>::as_ref(name).eq_ignore_ascii_case("connection"))
        .flat_map(|(_, values)| values)
        .flat_map(|value| value.as_str().split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    for (name, values) in published.iter() {
        // A name that HTTP cannot carry is left out.
        let Ok(name) = HeaderName::from_bytes(name.as_ref()) else { continue };
        let text = name.as_str();
        // Many servers fold '_' and '-' into one name, so both would pass for ours.
        let folded = text.replace('_', "-");
        let ours = folded.starts_with("ce-") || folded.starts_with("lane-");
        let hop = HOP_BY_HOP.iter().any(|hop| *hop == folded.as_str()) || folded == KEEP_ALIVE;
        if ours || hop || named_by_connection.iter().any(|named| named == text) {
            continue;
        }
        for value in values {
            // UTF-8 passes as it is; what HTTP cannot carry at all is encoded like an attribute.
            let value = HeaderValue::from_bytes(value.as_str().as_bytes())
                .or_else(|_| HeaderValue::from_str(&encode(value.as_str())));
            if let Ok(value) = value {
                // A map of headers holds about 24,000 names; more would be a publisher's attack on the lane.
                if into.try_append(name.clone(), value).is_err() {
                    tracing::warn!(
                        subject = message.subject(),
                        "more headers than HTTP can carry: the rest is left out"
                    );
                    return;
                }
            }
        }
    }
}

/// Whether a value is the same when it is encoded.
fn is_plain(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, 0x21..=0x7e) && !matches!(byte, b'"' | b'%'))
}

/// Percent-encoding of attribute values: space, double quote, percent, and everything but printable ASCII.
pub(crate) fn encode(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b' ' | b'"' | b'%' => push_encoded(&mut encoded, byte),
            0x21..=0x7e => encoded.push(char::from(byte)),
            _ => push_encoded(&mut encoded, byte),
        }
    }
    encoded
}

fn push_encoded(encoded: &mut String, byte: u8) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    encoded.push('%');
    encoded.push(DIGITS[usize::from(byte >> 4)]);
    encoded.push(DIGITS[usize::from(byte & 15)]);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use lanekeeper_core::{
        mapping::Mapping,
        record::{Assignment, Delivery as How, ExhaustedPolicy, LaneSettings, Ownership, Retry, VERSION},
        share::Share,
        subject::SubjectPattern,
    };
    use lanekeeper_nats::{async_nats, lane::Delivery};

    use super::*;

    pub(crate) fn message(subject: &str, published: async_nats::HeaderMap) -> Message {
        message_with(subject, published, Bytes::from_static(b"x"))
    }

    pub(crate) fn message_with(subject: &str, published: async_nats::HeaderMap, payload: Bytes) -> Message {
        let mapping = Mapping::new("ORDERS", SubjectPattern::parse("orders.*").unwrap(), &[1], 2).unwrap();
        let stored = mapping.stored_subject(subject).unwrap();
        let share = Share { modulus: 1, residue: 0 };
        let retry = Retry { initial_backoff_milliseconds: 1, max_backoff_milliseconds: 1, max_attempts: 1 };
        let settings = LaneSettings {
            ack_wait_milliseconds: 1,
            ownership: Ownership::Pin,
            handler_timeout_milliseconds: 1,
            retry,
            on_exhausted: ExhaustedPolicy::Block,
            park: None,
            delivery: How::Serial,
            paused: false,
            journal: None,
        };
        let assignment = Assignment {
            v: VERSION,
            consumer: "c".into(),
            incarnation: 1,
            share,
            filter: mapping.filter(share),
            mapping,
            stream_incarnation: 2,
            floors: Vec::new(),
            retiring: false,
            settings,
        };
        let ack = "$JS.ACK.ORDERS.c.1.42.7.1700000000123456789.0";
        let delivery = Delivery {
            subject: stored.into(),
            ack: ack.into(),
            sequence: 42,
            consumer_sequence: 7,
            deliveries: 1,
            published: std::time::Duration::from_nanos(1_700_000_000_123_456_789),
            pending: 0,
            pin: None,
            headers: Some(published),
            payload,
        };
        Message::new(delivery, Arc::new(assignment), 1)
    }

    #[test]
    fn the_attributes_are_frozen() {
        let headers = headers(&message("orders.k1", async_nats::HeaderMap::new()));
        let expected = [
            ("ce-specversion", "1.0"),
            ("ce-id", "ORDERS/42"),
            ("ce-source", "/nats/ORDERS"),
            ("ce-type", "dev.lanekeeper.message"),
            ("ce-subject", "orders.k1"),
            ("ce-time", "2023-11-14T22:13:20.123456789Z"),
            ("ce-partitionkey", "k1"),
            ("ce-sequence", "00000000000000000042"),
            ("lane-partition", "0"),
            ("lane-attempt", "1"),
            ("lane-fence", "0000000002-00000000000000000042"),
        ];
        for (name, value) in expected {
            assert_eq!(headers.get(name).and_then(|value| value.to_str().ok()), Some(value), "{name}");
        }
        assert_eq!(headers.len(), expected.len());
    }

    #[test]
    fn keys_that_are_not_ascii_are_encoded() {
        let headers = headers(&message("orders.k%ü", async_nats::HeaderMap::new()));
        assert_eq!(headers["ce-partitionkey"], "k%25%C3%BC");
        assert_eq!(headers["ce-subject"], "orders.k%25%C3%BC");
        assert_eq!(encode("Euro € \"😀\""), "Euro%20%E2%82%AC%20%22%F0%9F%98%80%22");
    }

    #[test]
    fn more_headers_than_http_can_carry_do_not_end_the_worker() {
        let mut published = async_nats::HeaderMap::new();
        for number in 0..40_000 {
            published.insert(format!("h{number}"), "x");
        }
        let headers = headers(&message("orders.k1", published));
        assert_eq!(headers["ce-subject"], "orders.k1");
        assert!(headers.len() > 10_000);
    }

    #[test]
    fn headers_of_the_publisher_pass_except_ours_and_those_of_a_connection() {
        let mut published = async_nats::HeaderMap::new();
        for (name, value) in [
            ("Nats-Msg-Id", "17"),
            ("Content-Type", "application/json"),
            ("X-Name", "Müller"),
            ("Connection", "X-Private, close"),
            ("X-Private", "no"),
            ("Transfer-Encoding", "chunked"),
            ("Host", "elsewhere"),
            ("Content-Length", "99"),
            ("CE-Id", "forged"),
            ("Lane-Fence", "forged"),
            ("lane_fence", "forged"),
            ("Ce_Id", "forged"),
        ] {
            published.insert(name, value);
        }
        published.append("X-Many", "a");
        published.append("X-Many", "b");
        let headers = headers(&message("orders.k1", published));
        assert_eq!(headers["nats-msg-id"], "17");
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["x-name"].as_bytes(), "Müller".as_bytes());
        assert_eq!(headers.get_all("x-many").iter().count(), 2);
        for gone in
            ["connection", "x-private", "transfer-encoding", "host", "content-length", "lane_fence", "ce_id"]
        {
            assert!(!headers.contains_key(gone), "{gone}");
        }
        assert_eq!(
            (&headers["ce-id"], headers.get_all("ce-id").iter().count()),
            (&HeaderValue::from_static("ORDERS/42"), 1)
        );
        assert_eq!(headers.get_all("lane-fence").iter().count(), 1);
    }
}
