//! How many messages a stream holds under a filter, between two sequences. Reading only.
//!
//! By a batch of direct reads that asks for one message: the server says how many more there are. No consumer is needed,
//! and no more than one message is sent, whatever their number. The stream must allow direct reads.

use serde_json::json;

use crate::{
    api::ApiError,
    connection::{Connection, RequestError},
};

/// How often the end of a range is counted again while messages of the filter come in.
const PATIENCE: usize = 5;

/// A number of messages; the two are equal unless messages came in all the while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Not fewer than this.
    pub at_least: u64,
    /// Not more than this.
    pub at_most: u64,
}

/// Messages under a filter with a sequence above `after`. `None` when the stream allows no direct reads.
pub async fn stored_after(
    connection: &Connection,
    stream: &str,
    filter: &str,
    after: u64,
) -> Result<Option<u64>, ApiError> {
    let operation = format!("DIRECT.GET.{stream}");
    let subject = format!("{}.{operation}", connection.api_prefix());
    let body = json!({ "seq": after + 1, "batch": 1, "next_by_subj": filter });
    let asked = connection.request_many(&subject, body.to_string().into()).await;
    let mut answers = asked.map_err(|error| connection.explain(&operation, error))?;
    let unreadable =
        |error: &str| ApiError::Unreadable { operation: operation.as_str().into(), error: error.into() };
    let mut found = 0;
    loop {
        let message = match answers.next().await {
            Ok(message) => message,
            // The stream was there a moment ago: nobody answers direct reads of it.
            Err(RequestError::NoResponders) => return Ok(None),
            Err(error) => return Err(connection.explain(&operation, error)),
        };
        match message.status.map(|status| status.as_u16()) {
            None => found += 1,
            Some(204) => {
                let headers = message.headers.as_ref();
                let pending = headers.and_then(|headers| headers.get("Nats-Num-Pending"));
                let pending = pending.and_then(|text| text.as_str().parse::<u64>().ok());
                let pending = pending.ok_or_else(|| unreadable("there is no header Nats-Num-Pending"))?;
                return Ok(Some(found + pending));
            }
            Some(404) => return Ok(Some(0)),
            Some(status) => {
                let words = message.description.as_deref().unwrap_or_default();
                return Err(unreadable(&format!("status {status} {words}")));
            }
        }
    }
}

/// Messages under a filter with a sequence above `after` and up to `up_to`. `None` when the stream allows no direct
/// reads.
pub async fn stored_between(
    connection: &Connection,
    stream: &str,
    filter: &str,
    (after, up_to): (u64, u64),
) -> Result<Option<Stored>, ApiError> {
    let behind = async || stored_after(connection, stream, filter, up_to).await;
    let Some(mut before) = behind().await? else { return Ok(None) };
    let mut best = Stored { at_least: 0, at_most: u64::MAX };
    for _ in 0..PATIENCE {
        let all = stored_after(connection, stream, filter, after).await?.unwrap_or(before);
        let now = behind().await?.unwrap_or(before);
        // What came in meanwhile is counted in one of the two, and nobody knows whether in the other.
        let (few, many) = (before.min(now), before.max(now));
        best.at_least = best.at_least.max(all.saturating_sub(many));
        best.at_most = best.at_most.min(all.saturating_sub(few));
        if before == now {
            break;
        }
        before = now;
    }
    Ok(Some(best))
}
