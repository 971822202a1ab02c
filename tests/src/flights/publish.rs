//! Publishes in order, whatever happens to the connection.
//!
//! Many messages are on their way at once, and one of them may be lost while its successors arrive; sent again it
//! would stand behind them, and the stream itself would be out of order. So each message says which sequence the
//! stream must have reached before it (`Nats-Expected-Last-Sequence`): after a lost one the server refuses the rest.
//! After any failure the stream is asked how far it is, what it has is compared by `Nats-Msg-Id`, and the rest is
//! sent again. (The server looks at the expected sequence before it looks for duplicates, so a plain repeat is refused:
//! measured on 2.15.) This asks for a stream that nobody else writes to.

use std::{
    collections::VecDeque,
    future::IntoFuture,
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use async_nats::jetstream::{
    Context,
    context::{PublishError, PublishErrorKind},
    message::PublishMessage,
    publish::PublishAck,
};

use super::data::Message;

/// How many messages wait for their acknowledgement at the same time.
const WINDOW: usize = 256;
/// How long nothing may be acknowledged before the publisher gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the stream may take to say how far it is.
const ANSWER: Duration = Duration::from_secs(2);
const NOT_ALONE: &str = "is somebody else publishing?";
/// Before sending again, so that a lost server is not flooded.
const PAUSE: Duration = Duration::from_millis(200);

type Acknowledgement = Pin<Box<dyn Future<Output = Result<PublishAck, PublishError>> + Send>>;

/// A publisher to one stream that has the stream to itself.
#[derive(Debug, Clone)]
pub struct Publisher {
    jetstream: Context,
    stream: String,
    subject: String,
}

impl Publisher {
    /// Publishes to `<subject>.<key>`, which must belong to the stream.
    pub fn new(jetstream: Context, stream: &str, subject: &str) -> Self {
        Self { jetstream, stream: stream.to_owned(), subject: subject.to_owned() }
    }

    /// The last sequence of the stream: what is published next stands behind it.
    pub async fn last_sequence(&self) -> Result<u64> {
        let stream = self.jetstream.get_stream(&self.stream).await;
        let stream = stream.with_context(|| format!("looking up stream {}", self.stream))?;
        Ok(stream.cached_info().state.last_sequence)
    }

    /// Publishes all messages behind `base`, in order; `progress` hears how many are acknowledged.
    pub async fn publish(
        &self,
        base: u64,
        messages: &[Message],
        mut progress: impl FnMut(usize),
    ) -> Result<()> {
        let mut waiting: VecDeque<Acknowledgement> = VecDeque::new();
        let mut acknowledged = 0;
        let mut moved = Instant::now();
        while acknowledged < messages.len() {
            let place = base + acknowledged as u64 + 1;
            let failed = match self.step(base, messages, acknowledged, &mut waiting).await {
                Ok(ack) => {
                    // A duplicate by the server's word alone is no proof: its place must be the right one, too.
                    ensure!(
                        ack.sequence == place,
                        "message {} was stored at {} and not at {place}: {NOT_ALONE}",
                        acknowledged + 1,
                        ack.sequence
                    );
                    acknowledged += 1;
                    moved = Instant::now();
                    progress(acknowledged);
                    continue;
                }
                Err(error) => error,
            };
            if !worth_a_retry(failed.kind()) || moved.elapsed() > PATIENCE {
                return Err(failed).with_context(|| format!("publishing message {}", acknowledged + 1));
            }
            waiting.clear();
            // What cannot be asked now is asked after the next failure.
            if let Some(last) = self.last_sequence_soon().await {
                let stored = self.verified(base, messages.len(), acknowledged, last).await?;
                if stored > acknowledged {
                    acknowledged = stored;
                    moved = Instant::now();
                    progress(acknowledged);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn last_sequence_soon(&self) -> Option<u64> {
        tokio::time::timeout(ANSWER, self.last_sequence()).await.ok()?.ok()
    }

    /// How many of ours the stream has, when its last sequence is `last`, and that each of them is ours.
    async fn verified(&self, base: u64, total: usize, acknowledged: usize, last: u64) -> Result<usize> {
        let known = base + acknowledged as u64;
        ensure!(last >= known, "stream {} went back from {known} to {last}", self.stream);
        ensure!(
            last <= base + total as u64,
            "stream {} has {last}, more than was published: {NOT_ALONE}",
            self.stream
        );
        let stream = self.jetstream.get_stream_no_info(&self.stream).await?;
        for sequence in known + 1..=last {
            let found = stream.get_raw_message(sequence).await;
            let found = found.with_context(|| format!("reading message {sequence} of {}", self.stream))?;
            let name =
                found.headers.get(async_nats::header::NATS_MESSAGE_ID).map(|value| value.as_str().to_owned());
            ensure!(
                name.as_deref() == Some(self.message_id(sequence - 1).as_str()),
                "message {sequence} of {} has the id {name:?}: {NOT_ALONE}",
                self.stream
            );
        }
        Ok(usize::try_from(last - base)?)
    }

    fn message_id(&self, behind: u64) -> String {
        format!("{}-{behind}", self.stream)
    }

    /// Fills the window and takes the oldest answer.
    async fn step(
        &self,
        base: u64,
        messages: &[Message],
        acknowledged: usize,
        waiting: &mut VecDeque<Acknowledgement>,
    ) -> Result<PublishAck, PublishError> {
        while waiting.len() < WINDOW && acknowledged + waiting.len() < messages.len() {
            let index = acknowledged + waiting.len();
            waiting.push_back(self.send(base, index, &messages[index]).await?);
        }
        // Never empty: there are messages that are not acknowledged, and the window has room for one.
        match waiting.pop_front() {
            Some(answer) => answer.await,
            None => Err(PublishError::new(PublishErrorKind::Other)),
        }
    }

    async fn send(
        &self,
        base: u64,
        index: usize,
        message: &Message,
    ) -> Result<Acknowledgement, PublishError> {
        let place = base + index as u64;
        let publish = PublishMessage::build()
            .payload(message.body.clone().into())
            .message_id(self.message_id(place))
            .expected_last_sequence(place);
        let subject = format!("{}.{}", self.subject, message.key);
        Ok(Box::pin(self.jetstream.send_publish(subject, publish).await?.into_future()))
    }
}

/// What passes: lost answers, lost connections, and what follows from them.
fn worth_a_retry(kind: PublishErrorKind) -> bool {
    matches!(
        kind,
        PublishErrorKind::TimedOut
            | PublishErrorKind::BrokenPipe
            | PublishErrorKind::WrongLastSequence
            | PublishErrorKind::MaxAckPending
            | PublishErrorKind::StreamNotFound
    )
}
