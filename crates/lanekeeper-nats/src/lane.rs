//! The pull and ack protocol of a lane, over raw requests.
//!
//! The client's own helpers are not used: a lane must know which pull a message answers (the sending of the pull is
//! where the message's deadline begins), its acks are confirmed without a subscription each, and the next pull
//! rides on the ack (`+NXT`), so that one message costs one round trip.
//!
//! A server delivers a message under its own subject, so only the subscription tells which pull it answers. Each
//! pull that is out therefore has a subscription to itself, a [`slots`] entry; a busy lane uses one over and over.
//!
//! Nothing is sent while the connection is down: the client would keep it and send it after a reconnect, when it may
//! be too late. This module must not decide when what is sent.

mod ack;
mod arrivals;
mod consumer;
mod requests;
mod slots;

pub use ack::{AckError, AckSubject};
pub use arrivals::{Arrival, Delivery};
pub use consumer::{ConsumerState, InspectError, Inspector};

use async_nats::{SubscribeError, Subscriber};
use bytes::Bytes;
use lanekeeper_core::lane::PullRequest;

use crate::connection::Connection;
use slots::Slots;

/// One lane's traffic over one connection.
pub struct LaneLink {
    connection: Connection,
    inbox: String,
    api: String,
    answers: Subscriber,
    slots: Slots,
    /// What rode on an ack last, as it was sent: the next one usually differs by nothing but its number.
    ridden: Option<(PullRequest, Bytes)>,
}

/// Why an inbox could not be subscribed.
#[derive(Debug, thiserror::Error)]
#[error("cannot subscribe to '{subject}': {error}")]
pub struct LinkError {
    subject: String,
    #[source]
    error: SubscribeError,
}

impl LaneLink {
    /// Subscribes an inbox of its own. Works without the server being reachable; the client subscribes again at
    /// each connect.
    pub async fn open(connection: &Connection) -> Result<Self, LinkError> {
        let inbox = connection.client().new_inbox();
        let subject = format!("{inbox}.a.*");
        let answers = connection.client().subscribe(subject.clone()).await;
        Ok(Self {
            answers: answers.map_err(|error| LinkError { subject, error })?,
            slots: Slots::new(connection.client().clone(), format!("{inbox}.p")),
            api: connection.api_prefix(),
            connection: connection.clone(),
            inbox,
            ridden: None,
        })
    }
}
