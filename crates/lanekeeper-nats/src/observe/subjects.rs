//! The subjects that a stream has messages of, by its leader. Reading only.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use crate::{api::ApiError, connection::Connection};

#[derive(Deserialize)]
struct Page {
    state: PageState,
    #[serde(default)]
    total: usize,
}

#[derive(Deserialize)]
struct PageState {
    last_seq: u64,
    #[serde(default)]
    subjects: Option<BTreeMap<String, u64>>,
}

/// The subjects under a filter, each with the number of its messages, and the last sequence of the stream at that moment.
/// What changes while the pages are read may be in the list or not.
pub async fn subjects_under(
    connection: &Connection,
    stream: &str,
    filter: &str,
) -> Result<(BTreeMap<String, u64>, u64), ApiError> {
    let operation = format!("STREAM.INFO.{stream}");
    let mut subjects = BTreeMap::new();
    let mut first = None;
    let mut offset = 0;
    loop {
        let body = json!({ "subjects_filter": filter, "offset": offset });
        let page: Page = connection.api(&operation, &body).await?;
        let found = page.state.subjects.unwrap_or_default();
        offset += found.len();
        let last = *first.get_or_insert(page.state.last_seq);
        let done = found.is_empty() || offset >= page.total;
        subjects.extend(found);
        if done {
            return Ok((subjects, last));
        }
    }
}
