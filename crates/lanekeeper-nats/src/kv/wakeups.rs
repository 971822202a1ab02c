//! Being woken when keys change.

use async_nats::Subscriber;
use futures::{StreamExt, stream::SelectAll};

use super::{Bucket, KvError};
use crate::connection::RequestError;

/// A subscription to the keys of a bucket. What arrives is only a reason to read: refused writes arrive here too,
/// and what was written while the connection was down does not.
#[derive(Debug)]
pub struct Wakeups {
    subscribers: SelectAll<Subscriber>,
    bucket: Bucket,
}

impl Wakeups {
    /// The next key that somebody (perhaps) wrote; `None` when the connection was closed for good.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            let message = self.subscribers.next().await?;
            let prefix = self.bucket.write_subject("");
            let written = message.subject.strip_prefix(prefix.as_str());
            if let Some(key) = written.or_else(|| self.bucket.key_of(&message.subject)) {
                return Some(key.to_owned());
            }
        }
    }
}

impl Bucket {
    /// Subscribes to a pattern of keys, for example `set.shop.orders.>`. A subscription that the server denies is
    /// silent (the connection's health has its words), and through a leaf node writes at the hub are not heard; so read on
    /// your own from time to time.
    pub async fn wakeups(&self, keys: &str) -> Result<Wakeups, KvError> {
        let mut subscribers = SelectAll::new();
        subscribers.push(self.subscribe(self.subject(keys)).await?);
        if self.connection().domain().is_some() {
            // Through a leaf node only writes of the same leaf are heard, and only under the name they are sent to:
            // servers of different domains keep `$KV` to themselves.
            subscribers.push(self.subscribe(self.write_subject(keys)).await?);
        }
        Ok(Wakeups { subscribers, bucket: self.clone() })
    }

    async fn subscribe(&self, subject: String) -> Result<Subscriber, KvError> {
        self.connection().client().subscribe(subject.clone()).await.map_err(|error| {
            let error = RequestError::Client(error.to_string());
            let error = self.connection().explain(&format!("subscribe to {subject}"), error);
            KvError::Api { bucket: self.name().to_owned(), error }
        })
    }
}
