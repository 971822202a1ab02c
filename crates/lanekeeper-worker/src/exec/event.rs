//! A message as one line: a `CloudEvent` in the JSON format, and the publisher's headers.
//!
//! Frozen, because handlers rely on it. Specification:
//! <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use lanekeeper_nats::async_nats::HeaderValue;
use serde::Serialize;

use crate::{cloudevent::TYPE, message::Message, time::rfc3339};

/// Values are as they are: unlike in HTTP headers nothing needs to be encoded but what JSON itself escapes, so that
/// there is no line feed in the line.
#[derive(Debug, Serialize)]
pub(super) struct Event<'a> {
    specversion: &'static str,
    pub(super) id: String,
    source: String,
    #[serde(rename = "type")]
    kind: &'static str,
    subject: &'a str,
    time: String,
    partitionkey: String,
    /// Fixed width, so that comparing the text compares the number.
    sequence: String,
    lanepartition: u32,
    /// An integer of `CloudEvents` has 32 bits.
    laneattempt: i32,
    lanefence: String,
    /// Each name as published, with all of its values. Nobody can forge an attribute by a header here.
    headers: BTreeMap<&'a str, Vec<&'a str>>,
    /// Always in this form: a payload that happens to be text would otherwise come in another one than its neighbour.
    data_base64: String,
}

impl<'a> Event<'a> {
    pub(super) fn new(message: &'a Message) -> Self {
        let (stream, sequence) = (message.stream(), message.sequence());
        let published = message.headers().into_iter().flat_map(|headers| headers.iter());
        let headers = published.map(|(name, values)| {
            (AsRef::<str>::as_ref(name), values.iter().map(HeaderValue::as_str).collect())
        });
        Self {
            specversion: "1.0",
            id: format!("{stream}/{sequence}"),
            source: format!("/nats/{stream}"),
            kind: TYPE,
            subject: message.subject(),
            time: rfc3339(message.published()),
            partitionkey: message.key(),
            sequence: format!("{sequence:020}"),
            lanepartition: message.partition(),
            laneattempt: i32::try_from(message.attempt()).unwrap_or(i32::MAX),
            lanefence: message.fence().to_string(),
            headers: headers.collect(),
            data_base64: STANDARD.encode(message.payload()),
        }
    }

    /// With its line feed.
    pub(super) fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_nats::async_nats::HeaderMap;
    use serde_json::{Value, json};

    use crate::cloudevent::tests::{message, message_with};

    use super::*;

    fn parsed(message: &Message) -> Value {
        let line = Event::new(message).line().unwrap();
        assert_eq!(line.split(|byte| *byte == b'\n').count(), 2, "one line, and nothing behind it");
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn the_members_are_frozen() {
        let mut published = HeaderMap::new();
        published.insert("Nats-Msg-Id", "17");
        published.append("X-Many", "a");
        published.append("X-Many", "b");
        published.insert("CE-Id", "forged");
        let expected = json!({
            "specversion": "1.0",
            "id": "ORDERS/42",
            "source": "/nats/ORDERS",
            "type": "dev.lanekeeper.message",
            "subject": "orders.k1",
            "time": "2023-11-14T22:13:20.123456789Z",
            "partitionkey": "k1",
            "sequence": "00000000000000000042",
            "lanepartition": 0,
            "laneattempt": 1,
            "lanefence": "0000000002-00000000000000000042",
            "headers": {"Nats-Msg-Id": ["17"], "X-Many": ["a", "b"], "CE-Id": ["forged"]},
            "data_base64": "eA==",
        });
        assert_eq!(parsed(&message("orders.k1", published)), expected);
    }

    #[test]
    fn any_payload_key_and_header_stay_on_one_line_and_come_back_exactly() {
        let bytes: Vec<u8> = (0..=255).chain([b'\n', b'\r', 0]).collect();
        let mut published = HeaderMap::new();
        published.insert("X-Odd", "Müller \"quoted\" \u{1f600} \\ \t");
        let event = parsed(&message_with("orders.k%ü\"", published, bytes.clone().into()));
        assert_eq!(STANDARD.decode(event["data_base64"].as_str().unwrap()).unwrap(), bytes);
        assert_eq!(event["partitionkey"], "k%ü\"");
        assert_eq!(event["headers"]["X-Odd"][0], "Müller \"quoted\" \u{1f600} \\ \t");
        let empty = parsed(&message_with("orders.k", HeaderMap::new(), Vec::new().into()));
        assert_eq!((&empty["data_base64"], &empty["headers"]), (&json!(""), &json!({})));
    }
}
