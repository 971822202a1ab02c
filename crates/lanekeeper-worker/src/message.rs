//! A message as a handler sees it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use lanekeeper_core::{fence::Fence, record::Assignment};
use lanekeeper_nats::{
    async_nats::{HeaderMap, Subject},
    lane::Delivery,
};

/// One message of the partition.
#[derive(Debug, Clone)]
pub struct Message {
    stored: Subject,
    headers: Option<HeaderMap>,
    payload: Bytes,
    sequence: u64,
    attempt: u64,
    published: Duration,
    assignment: Arc<Assignment>,
}

impl Message {
    /// A delivered message of a lane. Its subject was checked before: what is not mapped is no lane's.
    pub(crate) fn new(delivery: Delivery, assignment: Arc<Assignment>, attempt: u64) -> Self {
        Self {
            stored: delivery.subject,
            headers: delivery.headers,
            payload: delivery.payload,
            sequence: delivery.sequence,
            attempt,
            published: delivery.published,
            assignment,
        }
    }

    /// The subject to which it was published.
    pub fn subject(&self) -> &str {
        self.assignment.mapping.original_subject(&self.stored).unwrap_or_default()
    }

    /// The tokens of its key, joined by dots. Messages of one key come in order.
    pub fn key(&self) -> String {
        self.assignment.mapping.key_of(self.subject()).unwrap_or_default().join(".")
    }

    /// Its headers, as published.
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.headers.as_ref()
    }

    /// Its payload, as published.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.assignment.mapping.stream
    }

    /// Its number in the stream.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Strictly rising for the messages of one key, over changes of worker and partition: what a side effect
    /// compares, to recognise a repeat and never to overwrite newer with older.
    pub fn fence(&self) -> Fence {
        Fence { stream_incarnation: self.assignment.stream_incarnation, sequence: self.sequence }
    }

    /// The partition that serves its key now.
    pub fn partition(&self) -> u32 {
        self.assignment.share.partition()
    }

    /// 1, and one more for each attempt that failed before.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// When the stream took it.
    pub fn published(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.published
    }
}
