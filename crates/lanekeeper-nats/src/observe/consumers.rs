//! All consumers of a stream: ours and those of others.

use std::collections::BTreeMap;

use lanekeeper_core::consumer::ConsumerFound;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ConsumerInfo;
use crate::{
    api::{ApiError, Code},
    connection::Connection,
};

/// How often a list may change while it is read before it is an error.
const PATIENCE: usize = 10;

#[derive(Deserialize)]
struct Page {
    total: usize,
    #[serde(default)]
    consumers: Option<Vec<ConsumerInfo>>,
    /// Names of those whose leader did not answer.
    #[serde(default)]
    missing: Option<Vec<String>>,
}

/// One consumer; `None` when there is none of this name.
pub async fn consumer(
    connection: &Connection,
    stream: &str,
    name: &str,
) -> Result<Option<ConsumerFound>, ApiError> {
    Ok(consumer_info(connection, stream, name).await?.map(ConsumerInfo::found))
}

pub(crate) async fn consumer_info(
    connection: &Connection,
    stream: &str,
    name: &str,
) -> Result<Option<ConsumerInfo>, ApiError> {
    match connection.api(&format!("CONSUMER.INFO.{stream}.{name}"), &Value::Null).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.code() == Some(Code::ConsumerMissing) => Ok(None),
        Err(error) => Err(error),
    }
}

/// All consumers of a stream, by name. The list comes in pages; pages overlap by one consumer, so that a consumer that
/// appears or vanishes between two pages cannot hide another one: then reading starts again.
pub async fn consumers(connection: &Connection, stream: &str) -> Result<Vec<ConsumerFound>, ApiError> {
    let operation = format!("CONSUMER.LIST.{stream}");
    for _ in 0..PATIENCE {
        if let Some(found) = read_pages(connection, &operation).await? {
            return Ok(found.into_values().collect());
        }
    }
    Err(ApiError::Incomplete {
        operation: operation.into(),
        missing: "a list that stays the same while it is read".into(),
    })
}

async fn read_pages(
    connection: &Connection,
    operation: &str,
) -> Result<Option<BTreeMap<String, ConsumerFound>>, ApiError> {
    let mut found: BTreeMap<String, ConsumerFound> = BTreeMap::new();
    let mut last: Option<String> = None;
    loop {
        // The last one of the page before must be the first one of this page.
        let offset = found.len().saturating_sub(1);
        let page: Page = connection.api(operation, &json!({ "offset": offset })).await?;
        if let Some(missing) = page.missing.filter(|names| !names.is_empty()) {
            return Err(ApiError::Incomplete {
                operation: operation.into(),
                missing: missing.join(", ").into(),
            });
        }
        let consumers = page.consumers.unwrap_or_default();
        let first = consumers.first().map(|info| info.name.clone());
        if last.is_some() && first != last {
            return Ok(None);
        }
        let news = consumers.len() - usize::from(last.is_some());
        last = consumers.last().map(|info| info.name.clone());
        found.extend(consumers.into_iter().map(|info| (info.name.clone(), info.found())));
        if found.len() == page.total {
            return Ok(Some(found));
        }
        if news == 0 || found.len() > page.total {
            return Ok(None);
        }
    }
}
