//! Reading one key.

use async_nats::{HeaderMap, HeaderValue, Message};
use bytes::Bytes;
use lanekeeper_core::plan::Revisioned;
use lanekeeper_core::record::VERSION;
use serde::de::DeserializeOwned;

use super::{Bucket, Entry, KvError};
use crate::{
    api::{ApiError, Code},
    connection::RequestError,
};

const NO_MESSAGE: u16 = 404;

/// The version that each value says; absent it is the first.
#[derive(serde::Deserialize)]
struct Versioned {
    #[serde(default = "first")]
    v: u32,
}

fn first() -> u32 {
    1
}

impl Bucket {
    /// The value of a key; `None` when it does not exist or was deleted. Any copy of the bucket may answer, so it
    /// may be a little old; a write with its revision then meets a conflict.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, KvError> {
        Ok(self.last(key).await?.filter(|entry| entry.value.is_some()))
    }

    /// The value of a key as JSON.
    pub async fn get_json<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Revisioned<T>>, KvError> {
        let Some(entry) = self.get(key).await? else { return Ok(None) };
        self.parse(&entry)
    }

    /// The value of an entry as JSON; `None` when the key was deleted.
    pub fn parse<T: DeserializeOwned>(&self, entry: &Entry) -> Result<Option<Revisioned<T>>, KvError> {
        let Some(value) = &entry.value else { return Ok(None) };
        let unreadable = |error: String| KvError::Unreadable {
            bucket: self.name().to_owned(),
            key: entry.key.clone(),
            revision: entry.revision,
            error,
        };
        // A later version may mean something else by the same names, and what it wrote must not be written over.
        let version = serde_json::from_slice::<Versioned>(value).map_or(VERSION, |read| read.v);
        if version > VERSION {
            return Err(unreadable(format!("it has v {version}, and this version knows at most {VERSION}")));
        }
        let value = serde_json::from_slice(value).map_err(|error| unreadable(error.to_string()))?;
        Ok(Some(Revisioned { revision: entry.revision, value }))
    }

    /// The last write to a key, a deletion included.
    pub(crate) async fn last(&self, key: &str) -> Result<Option<Entry>, KvError> {
        let operation = format!("DIRECT.GET.{}.{}", self.stream(), self.subject(key));
        let subject = format!("{}.{operation}", self.connection().api_prefix());
        let message = match self.connection().request(&subject, None, Bytes::new()).await {
            Ok(message) => message,
            Err(error) => return Err(self.unanswered(&operation, error).await),
        };
        match message.status.map(|status| status.as_u16()) {
            None => self.entry(&operation, &message).map(Some),
            Some(NO_MESSAGE) => Ok(None),
            Some(status) => {
                let words = message.description.unwrap_or_default();
                Err(self.unreadable(&operation, &format!("status {status} {words}")))
            }
        }
    }

    /// A message of the bucket, as direct reads give it.
    pub(super) fn entry(&self, operation: &str, message: &Message) -> Result<Entry, KvError> {
        let headers = message.headers.as_ref();
        let header = |name: &str| headers.and_then(|headers| headers.get(name)).map(HeaderValue::as_str);
        let missing = |name: &str| self.unreadable(operation, &format!("there is no header {name}"));
        let subject = header("Nats-Subject").ok_or_else(|| missing("Nats-Subject"))?;
        let key = self.key_of(subject).ok_or_else(|| self.unreadable(operation, subject))?.to_owned();
        let revision = header("Nats-Sequence").and_then(|text| text.parse().ok());
        let revision = revision.ok_or_else(|| missing("Nats-Sequence"))?;
        let value = (!is_deletion(headers)).then(|| message.payload.clone());
        Ok(Entry { key, revision, value })
    }

    /// No answer to a read or write: a missing bucket looks like a missing `JetStream`, so ask for its stream.
    pub(super) async fn unanswered(&self, operation: &str, error: RequestError) -> KvError {
        let bucket = self.name().to_owned();
        match self.connection().explain(operation, error) {
            ApiError::Denied { violation, .. } => KvError::Forbidden { bucket, violation: violation.into() },
            error @ ApiError::NoResponders { .. } => match self.info().await {
                Err(KvError::BucketMissing { .. }) => KvError::BucketMissing { bucket },
                Ok(info) if !info.config["allow_direct"].as_bool().unwrap_or(false) => {
                    KvError::BucketUnfit { bucket, why: "allow_direct is false, must be true".into() }
                }
                _ => KvError::Api { bucket, error },
            },
            error => KvError::Api { bucket, error },
        }
    }

    pub(super) fn unreadable(&self, operation: &str, error: &str) -> KvError {
        let error = ApiError::Unreadable { operation: operation.into(), error: error.into() };
        KvError::Api { bucket: self.name().to_owned(), error }
    }

    /// An error of the API about the bucket's stream.
    pub(super) fn api_error(&self, error: ApiError) -> KvError {
        let bucket = self.name().to_owned();
        match error {
            ApiError::Denied { violation, .. } => KvError::Forbidden { bucket, violation: violation.into() },
            error if error.code() == Some(Code::StreamMissing) => KvError::BucketMissing { bucket },
            error => KvError::Api { bucket, error },
        }
    }
}

fn is_deletion(headers: Option<&HeaderMap>) -> bool {
    let Some(headers) = headers else { return false };
    let operation = headers.get("KV-Operation").map(HeaderValue::as_str);
    // Servers write a marker of their own when a limit removed a key.
    matches!(operation, Some("DEL" | "PURGE")) || headers.get("Nats-Marker-Reason").is_some()
}
