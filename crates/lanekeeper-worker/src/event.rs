//! A message as JSON: a `CloudEvent` in the JSON format, as programs read it line by line, and as batches have it over HTTP.
//!
//! Frozen, because handlers rely on it. Specification:
//! <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use lanekeeper_nats::async_nats::HeaderValue;
use serde::Serialize;

use crate::{cloudevent::TYPE, message::Message, time::rfc3339};

/// The publisher's headers: each name as published, with all of its values. Nobody can forge an attribute by one here.
type Headers<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// Values are as they are: unlike in HTTP headers nothing needs to be encoded but what JSON itself escapes, so that
/// there is no line feed in it.
#[derive(Debug, Serialize)]
pub(crate) struct Event<'a> {
    specversion: &'static str,
    pub(crate) id: String,
    source: String,
    #[serde(rename = "type")]
    kind: &'static str,
    subject: &'a str,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    datacontenttype: Option<&'a str>,
    partitionkey: String,
    /// Fixed width, so that comparing the text compares the number.
    sequence: String,
    lanepartition: u32,
    /// An integer of `CloudEvents` has 32 bits.
    laneattempt: i32,
    lanefence: String,
    /// Only for a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Headers<'a>>,
    /// Only over HTTP, where libraries check: an attribute of `CloudEvents` can be a text, but not an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    natsheaders: Option<String>,
    /// Always in this form: a payload that happens to be text would otherwise come in another one than its neighbour.
    data_base64: String,
}

impl<'a> Event<'a> {
    /// As a program reads it.
    pub(crate) fn for_program(message: &'a Message) -> Self {
        Self { headers: Some(headers(message)), ..Self::new(message) }
    }

    /// As one of a batch over HTTP.
    pub(crate) fn for_http(message: &'a Message) -> Self {
        let headers = headers(message);
        let content_type = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let datacontenttype = content_type.and_then(|(_, values)| values.first().copied());
        // A map of texts can always be written.
        let natsheaders = if headers.is_empty() { None } else { serde_json::to_string(&headers).ok() };
        Self { datacontenttype, natsheaders, ..Self::new(message) }
    }

    fn new(message: &'a Message) -> Self {
        let (stream, sequence) = (message.stream(), message.sequence());
        Self {
            specversion: "1.0",
            id: format!("{stream}/{sequence}"),
            source: format!("/nats/{stream}"),
            kind: TYPE,
            subject: message.subject(),
            time: rfc3339(message.published()),
            datacontenttype: None,
            partitionkey: message.key(),
            sequence: format!("{sequence:020}"),
            lanepartition: message.partition(),
            laneattempt: i32::try_from(message.attempt()).unwrap_or(i32::MAX),
            lanefence: message.fence().to_string(),
            headers: None,
            natsheaders: None,
            data_base64: STANDARD.encode(message.payload()),
        }
    }
}

fn headers(message: &Message) -> Headers<'_> {
    let published = message.headers().into_iter().flat_map(|headers| headers.iter());
    published
        .map(|(name, values)| (AsRef::<str>::as_ref(name), values.iter().map(HeaderValue::as_str).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use lanekeeper_nats::async_nats::HeaderMap;
    use serde_json::{Value, json};

    use crate::cloudevent::tests::{message, message_with};

    use super::*;

    fn parsed(message: &Message) -> Value {
        let line = serde_json::to_vec(&Event::for_program(message)).unwrap();
        assert!(!line.contains(&b'\n'), "it is one line");
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

    #[test]
    fn over_http_the_headers_are_one_text_and_the_content_type_is_an_attribute() {
        let mut published = HeaderMap::new();
        published.insert("content-Type", "application/json");
        published.append("X-Many", "a");
        published.append("X-Many", "b");
        let with = message("orders.k1", published);
        let event = serde_json::to_value(Event::for_http(&with)).unwrap();
        assert_eq!(event["datacontenttype"], "application/json");
        let headers: Value = serde_json::from_str(event["natsheaders"].as_str().unwrap()).unwrap();
        assert_eq!(headers, json!({"content-Type": ["application/json"], "X-Many": ["a", "b"]}));
        let without = message("orders.k1", HeaderMap::new());
        let mut event = serde_json::to_value(Event::for_http(&without)).unwrap();
        let mut program = serde_json::to_value(Event::for_program(&without)).unwrap();
        assert_eq!(program.as_object_mut().unwrap().remove("headers"), Some(json!({})));
        assert_eq!(event, program, "the rest is the same");
        for (name, value) in event.as_object_mut().unwrap() {
            assert!(value.is_string() || value.is_number(), "{name} is no attribute of CloudEvents");
            assert!(name == "data_base64" || name.bytes().all(|byte| byte.is_ascii_lowercase()), "{name}");
        }
    }
}
