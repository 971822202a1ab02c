//! One message of a stream with all of its headers, by the stream's leader. Reading only.
//!
//! The client's own reading of a single message keeps one value of each header; here every value is kept, in its order.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{api::ApiError, connection::Connection};

/// The server's codes for a message that is not there: none of this number, none under a filter.
const NOT_THERE: [u64; 2] = [10037, 10043];
/// What the block of headers begins with.
const VERSION: &str = "NATS/1.0";

/// A message as a stream holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeMessage {
    /// The subject under which it is stored.
    pub subject: String,
    /// Its number.
    pub sequence: u64,
    /// When it was stored, as the server states it (RFC 3339).
    pub time: String,
    /// Names and values in their order; a name may come more than once.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Bytes,
}

impl WholeMessage {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Deserialize)]
struct Answer {
    message: Stored,
}

#[derive(Deserialize)]
struct Stored {
    subject: String,
    seq: u64,
    time: String,
    #[serde(default)]
    hdrs: Option<String>,
    #[serde(default)]
    data: Option<String>,
}

/// The message with this number; `None` when the stream has none (any more).
pub async fn message(
    connection: &Connection,
    stream: &str,
    sequence: u64,
) -> Result<Option<WholeMessage>, ApiError> {
    get(connection, stream, json!({ "seq": sequence })).await
}

/// The first message under a filter with this number or a higher one; `None` when there is none.
pub async fn next_under(
    connection: &Connection,
    stream: &str,
    filter: &str,
    from: u64,
) -> Result<Option<WholeMessage>, ApiError> {
    get(connection, stream, json!({ "seq": from.max(1), "next_by_subj": filter })).await
}

async fn get(connection: &Connection, stream: &str, body: Value) -> Result<Option<WholeMessage>, ApiError> {
    let operation = format!("STREAM.MSG.GET.{stream}");
    let unreadable = |error: &dyn std::fmt::Display| ApiError::Unreadable {
        operation: operation.as_str().into(),
        error: error.to_string().into(),
    };
    let stored = match connection.api::<Answer>(&operation, &body).await {
        Ok(answer) => answer.message,
        Err(ApiError::Refused { refusal, .. }) if NOT_THERE.contains(&refusal.err_code) => return Ok(None),
        Err(error) => return Err(error),
    };
    let decode = |text: Option<String>| {
        text.map(|text| STANDARD.decode(text)).transpose().map_err(|error| unreadable(&error))
    };
    let headers = decode(stored.hdrs)?.unwrap_or_default();
    let headers = parse_headers(&headers).ok_or_else(|| unreadable(&"its headers are not headers"))?;
    Ok(Some(WholeMessage {
        subject: stored.subject,
        sequence: stored.seq,
        time: stored.time,
        headers,
        payload: decode(stored.data)?.unwrap_or_default().into(),
    }))
}

/// `NATS/1.0`, then one line for each value.
fn parse_headers(block: &[u8]) -> Option<Vec<(String, String)>> {
    if block.is_empty() {
        return Some(Vec::new());
    }
    let text = std::str::from_utf8(block).ok()?;
    let mut lines = text.split("\r\n");
    lines.next().filter(|first| first.starts_with(VERSION))?;
    let mut headers = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_header_is_kept_in_its_order() {
        let block = b"NATS/1.0\r\nmany: a\r\none:x:y\r\nmany: b\r\nempty:\r\n\r\n";
        let owned = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = vec![owned("many", "a"), owned("one", "x:y"), owned("many", "b"), owned("empty", "")];
        assert_eq!(parse_headers(block), Some(expected));
        assert_eq!(parse_headers(b""), Some(Vec::new()));
        assert_eq!(parse_headers(b"nonsense\r\n\r\n"), None);
        assert_eq!(parse_headers(b"NATS/1.0\r\nnonsense\r\n\r\n"), None);
    }
}
