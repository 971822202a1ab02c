//! A message as a handler sees it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use lanekeeper_core::{
    aside,
    fence::Fence,
    record::{Assignment, Mode},
};
use lanekeeper_nats::{
    async_nats::{HeaderMap, HeaderName, HeaderValue, Subject, header::NATS_MESSAGE_ID},
    lane::Delivery,
    observe::WholeMessage,
};

use crate::time::parse_rfc3339;

/// One message of the partition.
#[derive(Debug, Clone)]
pub struct Message {
    stored: Subject,
    headers: Option<HeaderMap>,
    payload: Bytes,
    sequence: u64,
    attempt: u64,
    published: Duration,
    stream_incarnation: u32,
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
            stream_incarnation: assignment.stream_incarnation,
            assignment,
        }
    }

    /// A message as it was before it was parked. `None` when what is parked says too little of it, or nothing of this
    /// mapping.
    pub(crate) fn unparked(found: &WholeMessage, assignment: Arc<Assignment>) -> Option<Self> {
        let stored = assignment.mapping.stored_subject(found.header(aside::SUBJECT)?)?;
        let fence: Fence = found.header(aside::FENCE)?.parse().ok()?;
        let mut headers = HeaderMap::new();
        for (name, value) in found.headers.iter().filter(|(name, _)| aside::keeps(name)) {
            headers.append(name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?);
        }
        if let Some(id) = found.header(aside::MESSAGE_ID) {
            headers.insert(NATS_MESSAGE_ID, id);
        }
        Some(Self {
            stored: stored.into(),
            headers: (!headers.is_empty()).then_some(headers),
            payload: found.payload.clone(),
            sequence: fence.sequence,
            attempt: 0,
            published: parse_rfc3339(found.header(aside::PUBLISHED)?)?,
            stream_incarnation: fence.stream_incarnation,
            assignment,
        })
    }

    /// The same message at another attempt.
    pub(crate) fn at_attempt(&self, attempt: u64) -> Self {
        Self { attempt, ..self.clone() }
    }

    pub(crate) fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// Whether it came through a lane whose handler is given several messages at once, though this may be a batch of one.
    pub(crate) fn is_of_batches(&self) -> bool {
        self.assignment.settings.delivery.mode() == Mode::Batch
    }

    /// The subject to which it was published.
    pub fn subject(&self) -> &str {
        self.assignment.mapping.original_subject(&self.stored).unwrap_or_default()
    }

    /// The tokens of its key, joined by dots. Messages of one key come in order.
    pub fn key(&self) -> String {
        self.assignment.mapping.key_text(self.subject()).unwrap_or_default()
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
        Fence { stream_incarnation: self.stream_incarnation, sequence: self.sequence }
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
