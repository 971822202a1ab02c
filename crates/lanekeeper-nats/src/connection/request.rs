//! One request and its answer, with the truth about a missing answer.

use std::time::Duration;

use async_nats::{
    HeaderMap, Message, Request, StatusCode, Subscriber, client::RequestErrorKind, connection::State,
};
use bytes::Bytes;
use futures::StreamExt;
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{Instant, timeout_at},
};

use super::{Connection, ConnectionEvent, Violation};
use crate::cause::Cause;

/// Why there is no answer to a request.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum RequestError {
    /// Not sent: there is no connection.
    #[error("not connected to {servers}: {why}")]
    NotConnected { servers: String, why: String, cause: Cause },
    /// The server denied it.
    #[error("{}", .0.text)]
    Denied(Violation),
    /// Nobody listens there.
    #[error("nobody answers on this subject")]
    NoResponders,
    /// Sent, perhaps received, perhaps carried out.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The client refused to send it.
    #[error("{0}")]
    Client(String),
}

impl Connection {
    /// Sends a request and waits for its answer. A denial by the server ends the wait at once.
    pub(crate) async fn request(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, RequestError> {
        let deadline = Instant::now() + self.request_timeout();
        self.wait_connected(deadline).await?;
        let mut events = self.events();
        let mut request = Request::new().payload(payload).timeout(Some(self.request_timeout()));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let answer = self.client().send_request(subject.to_owned(), request);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer.map_err(|error| match error.kind() {
                    RequestErrorKind::NoResponders => RequestError::NoResponders,
                    RequestErrorKind::TimedOut => RequestError::TimedOut(self.request_timeout()),
                    RequestErrorKind::InvalidSubject
                    | RequestErrorKind::MaxPayloadExceeded
                    | RequestErrorKind::Other => RequestError::Client(error.to_string()),
                }),
                event = events.recv() => match event {
                    Ok(ConnectionEvent::Violation(violation)) if is_about(&violation, subject) => {
                        return Err(RequestError::Denied(violation));
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    // The monitor lives as long as this connection.
                    Err(RecvError::Closed) => return Err(RequestError::Client("the connection was closed".into())),
                },
            }
        }
    }

    /// Sends a request that has many answers.
    pub(crate) async fn request_many(&self, subject: &str, payload: Bytes) -> Result<Answers, RequestError> {
        let deadline = Instant::now() + self.request_timeout();
        self.wait_connected(deadline).await?;
        let events = self.events();
        let inbox = self.client().new_inbox();
        let cannot = |error: &dyn std::error::Error| RequestError::Client(error.to_string());
        let subscriber = self.client().subscribe(inbox.clone()).await.map_err(|error| cannot(&error))?;
        let sent = self.client().publish_with_reply(subject.to_owned(), inbox, payload).await;
        sent.map_err(|error| cannot(&error))?;
        Ok(Answers {
            subscriber,
            events,
            subject: subject.to_owned(),
            deadline,
            timeout: self.request_timeout(),
        })
    }

    /// Waits until connected: a request that is sent later than anybody waits for it is worse than none.
    pub(crate) async fn wait_connected(&self, deadline: Instant) -> Result<(), RequestError> {
        if self.client().connection_state() == State::Connected {
            return Ok(());
        }
        let mut health = self.watch_health();
        let connected = tokio::time::timeout_at(deadline, health.wait_for(|now| now.connected)).await;
        if matches!(connected, Ok(Ok(_))) {
            return Ok(());
        }
        let now = self.health();
        Err(RequestError::NotConnected {
            servers: self.servers().to_owned(),
            why: now.last_error.clone().unwrap_or_else(|| "no attempt has ended yet".into()),
            cause: now.cause(),
        })
    }
}

/// The answers to one request.
pub(crate) struct Answers {
    subscriber: Subscriber,
    events: broadcast::Receiver<ConnectionEvent>,
    subject: String,
    deadline: Instant,
    timeout: Duration,
}

impl Answers {
    /// The next one. A denial by the server ends the wait at once.
    pub(crate) async fn next(&mut self) -> Result<Message, RequestError> {
        let closed = || RequestError::Client("the connection was closed".into());
        loop {
            tokio::select! {
                biased;
                message = timeout_at(self.deadline, self.subscriber.next()) => return match message {
                    Ok(Some(message)) if message.status == Some(StatusCode::NO_RESPONDERS) => {
                        Err(RequestError::NoResponders)
                    }
                    Ok(message) => message.ok_or_else(closed),
                    Err(_) => Err(RequestError::TimedOut(self.timeout)),
                },
                event = self.events.recv() => match event {
                    Ok(ConnectionEvent::Violation(violation)) if is_about(&violation, &self.subject) => {
                        return Err(RequestError::Denied(violation));
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(closed()),
                },
            }
        }
    }
}

/// Denied was this publish, or the subscription to the inbox that its answer would come to.
fn is_about(violation: &Violation, subject: &str) -> bool {
    if violation.subscription {
        violation.subject.starts_with("_INBOX.")
    } else {
        violation.subject == subject
    }
}
