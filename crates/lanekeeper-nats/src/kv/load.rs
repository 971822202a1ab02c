//! Reading all keys under a prefix. For the operator: it needs the right to ask for the bucket's stream.
//!
//! The leader lists the keys; the values come in batches of direct reads, which any copy of the bucket may answer, so
//! each batch must prove that it is not older than the list. A thousand partitions are a handful of requests.

use std::collections::BTreeSet;

use serde_json::json;

use super::{Bucket, Entry, KvError};
use crate::{api::ApiError, connection::RequestError, observe::subjects_under};

/// Keys per batch. The server gives at most 1024 at once.
const BATCH: usize = 500;
/// How often a copy of the bucket may be behind before it is an error.
const PATIENCE: usize = 50;

impl Bucket {
    /// All keys that begin with `prefix` (which ends in `.`), at least as new as this call. Deleted keys are left out.
    pub async fn load(&self, prefix: &str) -> Result<Vec<Entry>, KvError> {
        self.load_listed(prefix).await.map(|(entries, _)| entries)
    }

    /// [`Bucket::load`], with every key that was there when the value of the key `naming` was written (and not deleted
    /// since). The list of keys comes before their values, so a key that is written in between, and then named, would
    /// be missing although its name is read.
    pub async fn load_named(&self, prefix: &str, naming: &str) -> Result<Vec<Entry>, KvError> {
        for _ in 0..PATIENCE {
            let (entries, listed) = self.load_listed(prefix).await?;
            let is_newer = |entry: &Entry| entry.key == naming && entry.revision > listed;
            if !entries.iter().any(is_newer) {
                return Ok(entries);
            }
        }
        let operation = format!("STREAM.INFO.{}", self.stream());
        let missing = format!("a list of keys as new as '{naming}', which changes all the time");
        Err(self.api_error(ApiError::Incomplete { operation: operation.into(), missing: missing.into() }))
    }

    /// Beside the entries, the last sequence at the moment of the list.
    async fn load_listed(&self, prefix: &str) -> Result<(Vec<Entry>, u64), KvError> {
        let (subjects, last) = self.list(&format!("{prefix}>")).await?;
        let subjects: Vec<String> = subjects.into_iter().collect();
        let mut entries = Vec::with_capacity(subjects.len());
        for batch in subjects.chunks(BATCH) {
            entries.extend(self.read_batch(batch, last).await?);
        }
        entries.retain(|entry| entry.value.is_some());
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        Ok((entries, last))
    }

    /// The subjects under a pattern of keys, and the last sequence at that moment, by the leader.
    async fn list(&self, keys: &str) -> Result<(BTreeSet<String>, u64), KvError> {
        let listed = subjects_under(self.connection(), &self.stream(), &self.subject(keys)).await;
        let (subjects, last) = listed.map_err(|error| self.api_error(error))?;
        Ok((subjects.into_keys().collect(), last))
    }

    async fn read_batch(&self, batch: &[String], not_before: u64) -> Result<Vec<Entry>, KvError> {
        let operation = format!("DIRECT.GET.{}", self.stream());
        let mut wanted: BTreeSet<&str> = batch.iter().map(String::as_str).collect();
        let mut entries = Vec::with_capacity(batch.len());
        for _ in 0..PATIENCE {
            let answer = self.multi_last(&operation, &wanted).await?;
            if answer.up_to < not_before {
                // A copy that is behind: another one answers next, or this one has caught up.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                continue;
            }
            for entry in answer.entries {
                wanted.remove(self.subject(&entry.key).as_str());
                entries.push(entry);
            }
            // A batch ends early when its bytes are too many; a key that vanished is in no batch.
            if wanted.is_empty() || answer.complete {
                return Ok(entries);
            }
        }
        let missing = format!("a copy of bucket '{}' that is up to date", self.name());
        Err(self.api_error(ApiError::Incomplete { operation: operation.into(), missing: missing.into() }))
    }

    async fn multi_last(&self, operation: &str, wanted: &BTreeSet<&str>) -> Result<Answer, KvError> {
        let subject = format!("{}.{operation}", self.connection().api_prefix());
        let body = json!({ "multi_last": wanted, "batch": wanted.len() });
        let asked = self.connection().request_many(&subject, body.to_string().into()).await;
        let mut answers = asked.map_err(|error| self.failed(operation, error))?;
        let mut entries = Vec::with_capacity(wanted.len());
        loop {
            let message = match answers.next().await {
                Ok(message) => message,
                Err(error) => return Err(self.unanswered(operation, error).await),
            };
            let header =
                |name: &str| -> Option<u64> { message.headers.as_ref()?.get(name)?.as_str().parse().ok() };
            match message.status.map(|status| status.as_u16()) {
                None => entries.push(self.entry(operation, &message)?),
                Some(204) => {
                    let up_to = header("Nats-UpTo-Sequence").unwrap_or(0);
                    let complete = header("Nats-Num-Pending") == Some(0);
                    return Ok(Answer { entries, up_to, complete });
                }
                // None of the keys is there: either this copy is behind, or they were purged. Only the list can tell.
                Some(404) => return self.none_there(wanted).await,
                Some(status) => {
                    let words = message.description.as_deref().unwrap_or_default();
                    return Err(self.unreadable(operation, &format!("status {status} {words}")));
                }
            }
        }
    }

    async fn none_there(&self, wanted: &BTreeSet<&str>) -> Result<Answer, KvError> {
        let (listed, _) = self.list(">").await?;
        let complete = wanted.iter().all(|subject| !listed.contains(*subject));
        // Proven by the leader, so no copy needs to be waited for.
        Ok(Answer { entries: Vec::new(), up_to: if complete { u64::MAX } else { 0 }, complete })
    }

    fn failed(&self, operation: &str, error: RequestError) -> KvError {
        self.api_error(self.connection().explain(operation, error))
    }
}

struct Answer {
    entries: Vec<Entry>,
    /// The answering copy had everything up to this sequence.
    up_to: u64,
    /// Whether nothing is left out.
    complete: bool,
}
