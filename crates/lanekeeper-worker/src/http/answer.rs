//! What an answer of a handler means.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use crate::handler::HandlerError;

/// Read to its end so that the connection can be used again; beyond this it is closed.
const LARGEST_BODY: usize = 64 * 1024;
/// As much of it is kept as a reason.
const REASON: usize = 200;

pub(super) async fn outcome(response: Response<Incoming>) -> Result<(), HandlerError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LARGEST_BODY).collect().await.map(http_body_util::Collected::to_bytes);
    let words = body.as_ref().map(|body| String::from_utf8_lossy(body)).unwrap_or_default();
    meaning(head.status, &head.headers, words.trim())
}

fn meaning(status: StatusCode, headers: &HeaderMap, words: &str) -> Result<(), HandlerError> {
    let words: String = words.chars().take(REASON).collect();
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

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
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
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("soon"));
        assert_eq!(retry_after(&headers, now), None);
    }
}
