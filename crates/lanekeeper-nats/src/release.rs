//! Takes pin (or lease) and message away from a worker that is proven to be gone. What is asked in which order, and why that does
//! no harm however late it arrives, is [`lanekeeper_core::release`].

use lanekeeper_core::{
    consumer::GROUP,
    lease::{Lease, Terms},
    record::Holder,
    release::{Seen, may_give_all_back, may_give_back, may_unpin},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    api::ApiError,
    connection::Connection,
    kv::{Bucket, KvError},
    lane::Inspector,
    lease,
};

/// What was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Nothing: pin or lease is not, or no longer, the one of that worker.
    Nothing,
    /// Pin or lease; no message was out.
    Ownership,
    /// Pin or lease, and the message with this stream sequence.
    Message(u64),
    /// The pin and so many messages of a pipelined lane.
    Messages(usize),
}

/// Why it is not known whether anything was taken away. Then it lapses by itself.
#[derive(Debug, Clone, thiserror::Error)]
#[error("consumer '{consumer}' of stream '{stream}' could not be released: {error}")]
pub struct ReleaseError {
    stream: String,
    consumer: String,
    #[source]
    error: ReleaseCause,
}

/// What went wrong.
#[derive(Debug, Clone, thiserror::Error)]
enum ReleaseCause {
    #[error(transparent)]
    Api(ApiError),
    #[error(transparent)]
    Lease(KvError),
}

/// A lane's consumer.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Of the stream.
    pub connection: &'a Connection,
    /// The stream.
    pub stream: &'a str,
    /// The consumer.
    pub consumer: &'a str,
}

impl Target<'_> {
    fn failed(&self, error: ReleaseCause) -> ReleaseError {
        ReleaseError { stream: self.stream.to_owned(), consumer: self.consumer.to_owned(), error }
    }

    async fn look(&self) -> Result<Info, ReleaseError> {
        let operation = format!("CONSUMER.INFO.{}.{}", self.stream, self.consumer);
        let info = self.connection.api::<Info>(&operation, &()).await;
        info.map_err(|error| self.failed(ReleaseCause::Api(error)))
    }

    /// What is out is given back, if it is what was out before.
    async fn give_back(&self, before: &Seen) -> Result<Released, ReleaseError> {
        let info = self.look().await?;
        if info.config.max_ack_pending != 1 {
            return Ok(self.give_all_back(before, info).await);
        }
        if !may_give_back(before, &info.seen()) {
            return Ok(Released::Ownership);
        }
        let sequence = before.stream_sequence;
        let sent = self.nak(sequence, before.consumer_sequence).await;
        Ok(if sent { Released::Message(sequence) } else { Released::Ownership })
    }

    /// The same for all that a lane of a windowed mode had. Which messages those are only the stream knows; without the right
    /// to ask it they lapse by themselves.
    async fn give_all_back(&self, before: &Seen, info: Info) -> Released {
        let (floor, filter) = (info.ack_floor.stream_seq, info.config.filter_subject.clone());
        let after = info.seen();
        if !may_give_all_back(before, &after) {
            return Released::Ownership;
        }
        let Self { connection, stream, consumer } = self;
        let inspector = Inspector::new((*connection).clone());
        let out = match inspector.list(stream, &filter, floor, after.stream_sequence).await {
            Ok(out) => out,
            Err(error) => {
                tracing::warn!(%error, consumer, "what a worker had that is gone cannot be looked up: it lapses by itself");
                return Released::Ownership;
            }
        };
        for sequence in &out {
            if !self.nak(*sequence, before.consumer_sequence).await {
                return Released::Ownership;
            }
        }
        Released::Messages(out.len())
    }

    /// Whether it was sent; if not, the client is closed: this process is about to end.
    async fn nak(&self, sequence: u64, delivery: u64) -> bool {
        let Self { connection, stream, consumer } = self;
        // The server looks at the two sequences alone (measured on 2.11, 2.12 and 2.15).
        let ack = format!("$JS.ACK.{stream}.{consumer}.1.{sequence}.{delivery}.0.0");
        connection.client().publish(ack, "-NAK".into()).await.is_ok()
    }
}

#[derive(Deserialize)]
struct Info {
    config: Config,
    delivered: Delivered,
    #[serde(default)]
    ack_floor: Delivered,
    #[serde(default)]
    num_ack_pending: u64,
    #[serde(default)]
    priority_groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    max_ack_pending: i64,
    #[serde(default)]
    filter_subject: String,
}

#[derive(Default, Deserialize)]
struct Delivered {
    #[serde(default)]
    consumer_seq: u64,
    #[serde(default)]
    stream_seq: u64,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    pinned_client_id: String,
}

impl Info {
    fn seen(self) -> Seen {
        Seen {
            pin: self.priority_groups.into_iter().map(|group| group.pinned_client_id).collect(),
            ack_pending: self.num_ack_pending,
            consumer_sequence: self.delivered.consumer_seq,
            stream_sequence: self.delivered.stream_seq,
        }
    }
}

/// Releases what the worker with this pin had. To be called by one worker, once, with evidence of that one's end.
pub async fn release(target: Target<'_>, pin: &str) -> Result<Released, ReleaseError> {
    let before = target.look().await?.seen();
    if !may_unpin(pin, &before) {
        return Ok(Released::Nothing);
    }
    let unpin = format!("CONSUMER.UNPIN.{}.{}", target.stream, target.consumer);
    let unpinned = target.connection.api::<Value>(&unpin, &json!({"group": GROUP})).await;
    unpinned.map_err(|error| target.failed(ReleaseCause::Api(error)))?;
    target.give_back(&before).await
}

/// Releases what the worker with the lease under `key` had, likewise.
pub async fn release_lease(
    target: Target<'_>,
    bucket: &Bucket,
    key: &str,
    dead: &Holder,
    terms: Terms,
) -> Result<Released, ReleaseError> {
    let failed = |error| target.failed(ReleaseCause::Lease(error));
    let found = lease::read(bucket, key).await.map_err(failed)?;
    let Some(held) = found.lease.filter(|lease| lease.is_of(dead)) else { return Ok(Released::Nothing) };
    let before = target.look().await?.seen();
    let free = bucket.json(key, &Lease::free(held.nonce, terms)).map_err(failed)?;
    match bucket.update(key, free, found.revision).await {
        Ok(_) => target.give_back(&before).await,
        // Its last write was under way, or it is another's by now.
        Err(error) if error.is_conflict() => Ok(Released::Nothing),
        Err(error) => Err(failed(error)),
    }
}
