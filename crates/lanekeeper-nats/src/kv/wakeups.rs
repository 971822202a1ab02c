//! Being woken when keys change.

use async_nats::Subscriber;
use futures::StreamExt;

use super::{Bucket, KvError};
use crate::connection::RequestError;

/// A subscription to the keys of a bucket. What arrives is only a reason to read: refused writes arrive here too,
/// and what was written while the connection was down does not.
#[derive(Debug)]
pub struct Wakeups {
    subscriber: Subscriber,
    bucket: Bucket,
}

impl Wakeups {
    /// The next key that somebody (perhaps) wrote; `None` when the connection was closed for good.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            let message = self.subscriber.next().await?;
            if let Some(key) = self.bucket.key_of(&message.subject) {
                return Some(key.to_owned());
            }
        }
    }
}

impl Bucket {
    /// Subscribes to a pattern of keys, for example `set.shop.orders.>`. A subscription that the server denies is
    /// silent (the connection's health has its words); so read on your own from time to time.
    pub async fn wakeups(&self, keys: &str) -> Result<Wakeups, KvError> {
        let subscriber = self.connection().client().subscribe(self.subject(keys)).await.map_err(|error| {
            let error = RequestError::Client(error.to_string());
            let error = self.connection().explain(&format!("subscribe to {keys}"), error);
            KvError::Api { bucket: self.name().to_owned(), error }
        })?;
        Ok(Wakeups { subscriber, bucket: self.clone() })
    }
}
