//! What a lane sends.

use std::{fmt::Write as _, time::Duration};

use async_nats::{Subject, SubscribeError, connection::State};
use bytes::Bytes;
use lanekeeper_core::{
    consumer::GROUP,
    lane::{PullRequest, Renewal},
};

use super::LaneLink;

const ACK: Bytes = Bytes::from_static(b"+ACK");
const PROGRESS: Bytes = Bytes::from_static(b"+WPI");

impl LaneLink {
    /// Whether the connection is up now.
    pub fn connected(&self) -> bool {
        self.connection.client().connection_state() == State::Connected
    }

    /// Asks for messages.
    pub async fn pull(&mut self, stream: &str, consumer: &str, request: PullRequest) {
        if let Some(reply) = self.slot(request.id, request.batch).await {
            let subject = format!("{}.CONSUMER.MSG.NEXT.{stream}.{consumer}", self.api);
            self.send(subject.into(), reply, request.to_string().into()).await;
        }
    }

    /// Says that the holder of the pin is there; the answer comes as the end of a pull of this number.
    pub async fn renew(&mut self, stream: &str, consumer: &str, renewal: &Renewal) {
        if let Some(reply) = self.slot(renewal.id, 1).await {
            let subject = format!("{}.CONSUMER.MSG.NEXT.{stream}.{consumer}", self.api);
            self.send(subject.into(), reply, renewal.to_string().into()).await;
        }
    }

    /// Takes the consumer's pin away from whoever has it. Whether that was done does not matter: it lapses.
    pub async fn unpin(&self, stream: &str, consumer: &str) {
        let subject = format!("{}.CONSUMER.UNPIN.{stream}.{consumer}", self.api);
        // Nobody waits for token 0.
        self.send(subject.into(), self.answer_to(0), format!(r#"{{"group":"{GROUP}"}}"#).into()).await;
    }

    /// Acknowledges a message; the answer comes with the token.
    pub async fn ack(&self, ack: &Subject, token: u64) {
        self.send(ack.clone(), self.answer_to(token), ACK).await;
    }

    /// Acknowledges a message without an answer; that to a later one says that this one arrived.
    pub async fn ack_quietly(&self, ack: &Subject) {
        if self.connected()
            && let Err(error) = self.connection.client().publish(ack.clone(), ACK).await
        {
            tracing::warn!(%error, "could not be sent");
        }
    }

    /// Acknowledges a message and asks for the next one, both in one. The server does not confirm such an ack by
    /// itself; the message that answers the pull does.
    pub async fn ack_and_pull(&mut self, ack: &Subject, token: u64, request: PullRequest) {
        match self.slot(request.id, request.batch).await {
            Some(reply) => {
                let body = self.riding(request);
                self.send(ack.clone(), reply, body).await;
            }
            None => self.ack(ack, token).await,
        }
    }

    fn riding(&mut self, request: PullRequest) -> Bytes {
        if let Some((last, body)) = &mut self.ridden {
            last.id = request.id;
            if *last == request {
                return body.clone();
            }
        }
        let body = Bytes::from(format!("+NXT {request}"));
        self.ridden = Some((request, body.clone()));
        body
    }

    /// Gives a message back: it comes again after the delay.
    pub async fn nak(&self, ack: &Subject, token: u64, delay: Duration) {
        let body = if delay.is_zero() {
            Bytes::from_static(b"-NAK")
        } else {
            format!(r#"-NAK {{"delay":{}}}"#, delay.as_nanos()).into()
        };
        self.send(ack.clone(), self.answer_to(token), body).await;
    }

    /// Says that the message is still worked on; the answer comes with the token.
    pub async fn progress(&self, ack: &Subject, token: u64) {
        self.send(ack.clone(), self.answer_to(token), PROGRESS).await;
    }

    fn answer_to(&self, token: u64) -> Subject {
        let mut address = String::with_capacity(self.inbox.len() + 24);
        // Writing to a string cannot fail.
        let _ = write!(address, "{}.a.{token}", self.inbox);
        address.into()
    }

    async fn slot(&mut self, pull: u64, messages: u32) -> Option<Subject> {
        // A slot that is taken for nothing would be lost.
        if !self.connected() {
            return None;
        }
        let taken: Result<Subject, SubscribeError> = self.slots.take(pull, messages).await;
        taken.inspect_err(|error| tracing::warn!(%error, "a pull cannot be subscribed")).ok()
    }

    /// Sends now or never. Whatever did not go out is asked for again by the lane when it is due.
    async fn send(&self, subject: Subject, reply: Subject, payload: Bytes) {
        if !self.connected() {
            return;
        }
        if let Err(error) = self.connection.client().publish_with_reply(subject, reply, payload).await {
            tracing::warn!(%error, "could not be sent");
        }
    }
}
