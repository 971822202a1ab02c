//! What an answer of a handler means.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use crate::handler::HandlerError;

/// A body is read to its end so that the connection can be used again; beyond this size it is closed.
const LARGEST_BODY: usize = 64 * 1024;
/// And after this time: the status is the answer, and an answer without a length on a connection that stays open (a
/// handler that forgot it) has a body that never ends.
const PATIENCE: Duration = Duration::from_millis(250);
/// As much of it is kept as a reason.
const REASON: usize = 200;

/// An answer that was read.
pub(super) struct Answer {
    pub(super) outcome: Result<(), HandlerError>,
    /// Its body came to its end, so the connection can be used again.
    pub(super) ended: bool,
}

pub(super) async fn read(response: Response<Incoming>) -> Answer {
    let (head, body) = response.into_parts();
    let mut read = Vec::new();
    // The usual answer has no body, and needs no clock.
    let ended = body.is_end_stream() || timeout(PATIENCE, drain(body, &mut read)).await.unwrap_or(false);
    let mut words = String::from_utf8_lossy(&read).trim().chars().take(REASON).collect::<String>();
    if !ended {
        words.push_str(" (the body of the answer did not end)");
    }
    Answer { outcome: meaning(head.status, &head.headers, words.trim()), ended }
}

/// Whether the body came to its end. Dropped before that, it takes its connection along.
async fn drain(mut body: Incoming, read: &mut Vec<u8>) -> bool {
    while read.len() <= LARGEST_BODY {
        match body.frame().await {
            None => return true,
            Some(Ok(frame)) => read.extend(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => return false,
        }
    }
    false
}

fn meaning(status: StatusCode, headers: &HeaderMap, words: &str) -> Result<(), HandlerError> {
    let reason = if words.is_empty() { status.to_string() } else { format!("{status}: {words}") };
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::CONFLICT => Ok(()),
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Err(HandlerError::Permanent { reason }),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            Err(match retry_after(headers, SystemTime::now()) {
                Some(after) => HandlerError::Wait { reason, after },
                None => HandlerError::retry(reason),
            })
        }
        _ => Err(HandlerError::retry(reason)),
    }
}

/// Seconds, or a date; that counts from the date of the answer, because the clock of this process may be another.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let answered = headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let answered = answered.and_then(|date| httpdate::parse_http_date(date.trim()).ok()).unwrap_or(now);
    Some(date.duration_since(answered).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(status: u16, retry_after: Option<&str>) -> Result<(), HandlerError> {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_str(text).unwrap());
        }
        meaning(StatusCode::from_u16(status).unwrap(), &headers, "because")
    }

    #[test]
    fn each_status_means_what_is_documented() {
        for status in [200, 201, 202, 204, 299, 409] {
            assert_eq!(of(status, None), Ok(()), "{status}");
        }
        for status in [400, 422] {
            assert!(matches!(of(status, None), Err(HandlerError::Permanent { .. })), "{status}");
        }
        for status in [301, 401, 404, 429, 500, 502, 503, 504] {
            assert!(matches!(of(status, None), Err(HandlerError::Retry { after: None, .. })), "{status}");
        }
        for status in [429, 503] {
            let after = Duration::from_secs(7);
            assert!(matches!(of(status, Some("7")), Err(HandlerError::Wait { after: a, .. }) if a == after));
        }
        assert!(matches!(of(500, Some("7")), Err(HandlerError::Retry { .. })));
        assert!(of(500, None).unwrap_err().to_string().contains("because"));
    }

    #[test]
    fn a_date_to_retry_after_is_understood_and_nonsense_is_none() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("Fri, 31 Dec 1999 23:59:59 GMT"));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_799 - 30);
        assert_eq!(retry_after(&headers, now), Some(Duration::from_secs(30)));
        headers.insert(header::DATE, HeaderValue::from_static("Fri, 31 Dec 1999 23:59:52 GMT"));
        assert_eq!(retry_after(&headers, now), Some(Duration::from_secs(7)), "by the handler's clock");
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("soon"));
        assert_eq!(retry_after(&headers, now), None);
    }
}
