//! Writing one key, by compare-and-set.

use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Bucket, KvError};
use crate::{
    api::{ApiError, Code, read_answer},
    cause::Cause,
    connection::RequestError,
};

const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

#[derive(Deserialize)]
struct Stored {
    stream: String,
    seq: u64,
}

impl Bucket {
    /// Writes a key that must not exist (or was deleted). The new revision.
    pub async fn create(&self, key: &str, value: Bytes) -> Result<u64, KvError> {
        let conflict = match self.write(key, &value, Some(0), false).await {
            Err(conflict) if conflict.is_conflict() => conflict,
            other => return other,
        };
        // A deletion leaves a marker, which is a revision of its own.
        match self.last(key).await? {
            Some(marker) if marker.value.is_none() => {
                self.write(key, &value, Some(marker.revision), false).await
            }
            _ => Err(conflict),
        }
    }

    /// Writes a key that must be at `revision`. The new revision.
    pub async fn update(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, KvError> {
        self.write(key, &value, Some(revision), false).await
    }

    /// [`Bucket::update`], or [`Bucket::create`] when nothing is expected there.
    pub async fn put_expecting(
        &self,
        key: &str,
        value: Bytes,
        expected: Option<u64>,
    ) -> Result<u64, KvError> {
        match expected {
            Some(revision) => self.update(key, value, revision).await,
            None => self.create(key, value).await,
        }
    }

    /// [`Bucket::put_expecting`] of a value as JSON.
    pub async fn put_json(
        &self,
        key: &str,
        value: &impl Serialize,
        expected: Option<u64>,
    ) -> Result<u64, KvError> {
        self.put_expecting(key, self.json(key, value)?, expected).await
    }

    /// Writes a key whatever is there: only for keys with one writer. The new revision.
    pub async fn put(&self, key: &str, value: Bytes) -> Result<u64, KvError> {
        self.write(key, &value, None, false).await
    }

    /// A value as JSON, for [`Bucket::put`] and its like.
    pub fn json(&self, key: &str, value: &impl Serialize) -> Result<Bytes, KvError> {
        serde_json::to_vec(value).map(Bytes::from).map_err(|error| KvError::Unreadable {
            bucket: self.name().to_owned(),
            key: key.to_owned(),
            revision: 0,
            error: error.to_string(),
        })
    }

    /// Deletes a key that must be at `revision`; a marker stays in its place.
    pub async fn delete(&self, key: &str, revision: u64) -> Result<(), KvError> {
        self.write(key, &Bytes::new(), Some(revision), true).await.map(drop)
    }

    async fn write(
        &self,
        key: &str,
        value: &Bytes,
        expected: Option<u64>,
        deletion: bool,
    ) -> Result<u64, KvError> {
        let mut headers = HeaderMap::new();
        if let Some(expected) = expected {
            headers.insert(EXPECTED, HeaderValue::from(expected));
        }
        if deletion {
            headers.insert("KV-Operation", "DEL");
        }
        let subject = self.write_subject(key);
        let answer = match self.connection().request(&subject, Some(headers), value.clone()).await {
            Ok(message) => read_answer::<Stored>(&subject, &message.payload),
            Err(error @ RequestError::NoResponders) => return Err(self.unanswered(&subject, error).await),
            Err(error) => Err(self.connection().explain(&subject, error)),
        };
        match answer {
            Ok(stored) if stored.stream == self.stream() => Ok(stored.seq),
            Ok(stored) => Err(KvError::BucketUnfit {
                bucket: self.name().to_owned(),
                why: format!("stream '{}' takes its subjects", stored.stream),
            }),
            Err(error) => Err(self.write_error(key, expected, error)),
        }
    }

    fn write_error(&self, key: &str, expected: Option<u64>, error: ApiError) -> KvError {
        let (bucket, key) = (self.name().to_owned(), key.to_owned());
        if error.code().map(Code::cause) == Some(Cause::Raced) {
            return KvError::Conflict { bucket, key, expected: expected.unwrap_or_default() };
        }
        if error.is_outcome_unknown() {
            return KvError::Unknown { bucket, key, error };
        }
        self.api_error(error)
    }
}
