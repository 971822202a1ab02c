//! What servers, accounts, streams and consumers are, as `lanekeeper_core` sees them.
//!
//! Reading only. A list that may lack something is an error, never a shorter list: what is missing from it would be
//! taken for deleted.

mod consumers;
mod messages;
mod one;
mod stored;
mod subjects;
mod wire;

use lanekeeper_core::stream::StreamFound;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    api::{ApiError, Code},
    cause::Cause,
    connection::Connection,
};
pub(crate) use consumers::consumer_info;
pub use consumers::{consumer, consumers};
pub use messages::{
    Followed, From, Keeping, MessagesError, StoredMessage, follow, keeping, last_under, messages,
};
pub use one::{WholeMessage, message, next_under};
pub use stored::{Stored, stored_after, stored_between};
pub use subjects::subjects_under;
pub(crate) use wire::{ConsumerInfo, Object, StreamInfo};

/// The oldest server that has what lanes need; its API level is 1.
pub const OLDEST: (u64, u64) = (2, 11);

/// A server and an account that can be worked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Version of the server that the connection goes to.
    pub version: String,
    /// What the `JetStream` API can do: 1 is 2.11, 2 is 2.12.
    pub api_level: u64,
    /// The account's domain, as the server says it.
    pub domain: Option<String>,
    /// Most consumers that the account may have; `None` is no limit.
    pub max_consumers: Option<u64>,
    /// Consumers that the account has.
    pub consumers: u64,
}

/// Why there are no facts.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FactsError {
    /// No answer, or a refusal.
    #[error(transparent)]
    Api(ApiError),
    /// Older than what is supported: such servers accept fields that lanes need, and ignore them.
    #[error(
        "the server at {servers} is version {version} (API level {api_level}); 2.11 is the oldest that is supported"
    )]
    ServerTooOld {
        /// As given in settings.
        servers: String,
        /// Its version.
        version: String,
        /// Its API level.
        api_level: u64,
    },
}

impl FactsError {
    /// The cause, of the closed list.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Api(error) => error.cause(),
            Self::ServerTooOld { .. } => Cause::ServerTooOld,
        }
    }
}

#[derive(Deserialize)]
struct AccountInfo {
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    consumers: u64,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    api: Level,
}

#[derive(Default, Deserialize)]
struct Limits {
    #[serde(default)]
    max_consumers: i64,
}

#[derive(Default, Deserialize)]
struct Level {
    #[serde(default)]
    level: u64,
}

/// Asks for the account, which also shows whether there is `JetStream` at all, and that the server is new enough.
pub async fn facts(connection: &Connection) -> Result<Facts, FactsError> {
    let account: AccountInfo = connection.api("INFO", &Value::Null).await.map_err(FactsError::Api)?;
    let version = connection.client().server_info().version;
    let api_level = account.api.level;
    // The server of the connection may be a leaf of the ones with JetStream: both must be new enough.
    if api_level == 0 || release(&version).is_none_or(|release| release < OLDEST) {
        return Err(FactsError::ServerTooOld {
            servers: connection.servers().to_owned(),
            version,
            api_level,
        });
    }
    Ok(Facts {
        version,
        api_level,
        domain: account.domain.filter(|domain| !domain.is_empty()),
        max_consumers: u64::try_from(account.limits.max_consumers).ok(),
        consumers: account.consumers,
    })
}

/// Major and minor number of a version, for example of `2.12.0-RC.1`.
fn release(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A stream; `None` when there is none of this name.
pub async fn stream(connection: &Connection, name: &str) -> Result<Option<StreamFound>, ApiError> {
    Ok(stream_info(connection, name).await?.map(StreamInfo::found))
}

pub(crate) async fn stream_info(connection: &Connection, name: &str) -> Result<Option<StreamInfo>, ApiError> {
    match connection.api(&format!("STREAM.INFO.{name}"), &Value::Null).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.code() == Some(Code::StreamMissing) => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    streams: Option<Vec<String>>,
}

/// Streams other than `except` that take some of these subjects.
pub async fn streams_taking(
    connection: &Connection,
    subjects: &[String],
    except: &str,
) -> Result<Vec<String>, ApiError> {
    let mut taking = Vec::new();
    for subject in subjects {
        // More than one page of them would be no help to anybody.
        let names: Names = connection.api("STREAM.NAMES", &json!({ "subject": subject })).await?;
        taking.extend(names.streams.unwrap_or_default());
    }
    taking.retain(|name| name != except);
    taking.sort();
    taking.dedup();
    Ok(taking)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_release() {
        assert_eq!(release("2.11.0"), Some((2, 11)));
        assert_eq!(release("v2.15.0-RC.1"), Some((2, 15)));
        assert_eq!(release("dev"), None);
        assert!(release("2.9.25").unwrap() < OLDEST && release("2.10.29").unwrap() < OLDEST);
    }
}
