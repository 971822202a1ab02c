//! A message that is put aside, as a dead letter or parked: its payload as it is, its headers and where it comes from.

use std::time::SystemTime;

use lanekeeper_core::{
    aside::{self as header, Kind, keeps, message_id},
    names::SetName,
};
use lanekeeper_nats::{
    async_nats::{HeaderMap, header::NATS_MESSAGE_ID},
    store::Letter,
};

use crate::{message::Message, time::rfc3339};

/// What is stored of a message, whose attempt is the last that was made.
pub(crate) fn letter(
    kind: Kind,
    set: &SetName,
    message: &Message,
    reason: &str,
    stream: String,
    subject: String,
) -> Letter {
    let mut headers = HeaderMap::new();
    for (name, values) in message.headers().into_iter().flat_map(HeaderMap::iter) {
        if keeps(name.as_ref()) {
            for value in values {
                headers.append(name.clone(), value.clone());
            }
        }
    }
    let publishers_id = message.headers().and_then(|headers| headers.get(NATS_MESSAGE_ID));
    if let Some(id) = publishers_id {
        headers.insert(header::MESSAGE_ID, id.clone());
    }
    let mut set_text = |name: &'static str, value: &str| headers.insert(name, one_line(value).as_str());
    set_text(header::SUBJECT, message.subject());
    set_text(header::STREAM, message.stream());
    set_text(header::SEQUENCE, &message.sequence().to_string());
    set_text(header::FENCE, &message.fence().to_string());
    set_text(header::KEY, &message.key());
    set_text(header::SET, &set.to_string());
    set_text(header::PARTITION, &message.partition().to_string());
    set_text(header::ATTEMPTS, &message.attempt().to_string());
    set_text(header::REASON, reason);
    set_text(header::PUBLISHED, &rfc3339(message.published()));
    set_text(header::TIME, &rfc3339(SystemTime::now()));
    Letter {
        stream,
        subject,
        id: message_id(kind, set, message.stream(), message.fence()),
        headers,
        payload: message.payload().clone(),
    }
}

/// A header's value is one line; what a handler says may be many.
fn one_line(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_many_lines_become_one_line() {
        assert_eq!(one_line("a\r\nNats-Rollup: all\tb\n"), "a  Nats-Rollup: all b");
    }
}
