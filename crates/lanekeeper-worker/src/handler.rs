//! What handles the messages.

use std::{future::Future, slice, sync::Arc, time::Duration};

use crate::message::Message;

/// How a handling failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandlerError {
    /// An attempt failed; the message is tried again in its place.
    #[error("failed: {reason}")]
    Retry {
        /// What went wrong.
        reason: String,
        /// When to try again; otherwise the set's backoff decides.
        after: Option<Duration>,
    },
    /// It will never work: no further attempt before the set's policy.
    #[error("will never work: {reason}")]
    Permanent {
        /// What is wrong with the message.
        reason: String,
    },
    /// Not now; this was no attempt.
    #[error("asked to wait {after:?}: {reason}")]
    Wait {
        /// Why.
        reason: String,
        /// When to try again.
        after: Duration,
    },
    /// The handler was not there; this was no attempt.
    #[error("not reachable: {reason}")]
    Unreachable {
        /// Why.
        reason: String,
    },
}

impl HandlerError {
    /// An attempt that failed, to be repeated by the set's backoff.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry { reason: reason.into(), after: None }
    }

    /// A message that will never work.
    pub fn permanent(reason: impl Into<String>) -> Self {
        Self::Permanent { reason: reason.into() }
    }
}

/// Handles messages, one at a time and in order.
///
/// Delivery is at least once: after a crash the same message comes again, and [`Message::fence`] tells it from a newer
/// one. The future is dropped when the handling takes too long, when the lane lost the message, or when a shutdown
/// cannot wait; side effects that it leaves behind must not overwrite what a later message of the key did.
/// It must not block the thread: in-progress acks are sent from the same one.
pub trait Handler: Send + Sync + 'static {
    /// Handles one message.
    fn handle(&self, message: &Message) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Whether the handler could be called now; asked for readiness only.
    fn reachable(&self) -> impl Future<Output = Result<(), String>> + Send {
        async { Ok(()) }
    }

    /// Called once, after the last handling; for what must end in an orderly way.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// A shared handler is one.
impl<H: Handler> Handler for Arc<H> {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        H::handle(self, message).await
    }

    async fn reachable(&self) -> Result<(), String> {
        H::reachable(self).await
    }

    async fn close(&self) {
        H::close(self).await;
    }
}

/// A handler that takes several messages at once, in order, where the set's `delivery.mode` is `Batch`. In the other modes
/// it gets them one at a time by [`Handler::handle`], which may well call [`BatchHandler::handle_batch`] with one message.
///
/// What is said of [`Handler`] is true here too. The messages succeed or fail together: after an error all of them come
/// again, as the same batch, so the handler does all or nothing (a transaction), or recognises what it has done by
/// [`Message::fence`]. The messages of a batch without attempts left come once more, in batches of one.
pub trait BatchHandler: Handler {
    /// Handles these messages; there is at least one.
    fn handle_batch(&self, messages: &[Message]) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// A shared handler is one.
impl<H: BatchHandler> BatchHandler for Arc<H> {
    async fn handle_batch(&self, messages: &[Message]) -> Result<(), HandlerError> {
        H::handle_batch(self, messages).await
    }
}

/// A handler that knows no batches, for a lane that is told so.
#[derive(Debug)]
pub(crate) struct OneByOne<H>(pub(crate) H);

impl<H: Handler> Handler for OneByOne<H> {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        self.0.handle(message).await
    }

    async fn reachable(&self) -> Result<(), String> {
        self.0.reachable().await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

impl<H: Handler> BatchHandler for OneByOne<H> {
    async fn handle_batch(&self, messages: &[Message]) -> Result<(), HandlerError> {
        for message in messages {
            self.0.handle(message).await?;
        }
        Ok(())
    }
}

/// A handler from a function.
pub fn handler<F, R>(function: F) -> impl Handler
where
    F: Fn(Arc<Message>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send,
{
    Function(function)
}

struct Function<F>(F);

impl<F, R> Handler for Function<F>
where
    F: Fn(Arc<Message>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send,
{
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        (self.0)(Arc::new(message.clone())).await
    }
}

/// A handler of batches from a function.
pub fn batch_handler<F, R>(function: F) -> impl BatchHandler
where
    F: Fn(Vec<Message>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send,
{
    BatchFunction(function)
}

struct BatchFunction<F>(F);

impl<F, R> Handler for BatchFunction<F>
where
    F: Fn(Vec<Message>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send,
{
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        self.handle_batch(slice::from_ref(message)).await
    }
}

impl<F, R> BatchHandler for BatchFunction<F>
where
    F: Fn(Vec<Message>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send,
{
    async fn handle_batch(&self, messages: &[Message]) -> Result<(), HandlerError> {
        (self.0)(messages.to_vec()).await
    }
}
