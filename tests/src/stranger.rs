//! Somebody who is no worker and holds a lane's message with a client of their own, as any tool can.

use std::{future::Future, time::Duration};

use futures::StreamExt;
use serde_json::json;
use tokio::task::JoinHandle;

/// How often the message is kept alive: several times within the shortest deadline that tests use.
const OFTEN: Duration = Duration::from_millis(200);
/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Holds one message until it is told to let go.
#[derive(Debug)]
pub struct Stranger {
    /// The stream sequence of the message that it holds.
    pub sequence: u64,
    ack: async_nats::Subject,
    client: async_nats::Client,
    keeping: JoinHandle<()>,
}

impl Stranger {
    /// Takes the next message of a pinned consumer, which `publish` stores, and keeps it alive. The pull names the
    /// consumer's `group`; the pin is taken away from whoever has it, or the pull would wait.
    pub async fn take(
        client: async_nats::Client,
        stream: &str,
        consumer: &str,
        group: &str,
        publish: impl Future<Output = ()>,
    ) -> Self {
        let pull = json!({"batch": 1, "expires": 30_000_000_000_u64, "group": group});
        // The message comes under its own subject, so a request would not take it for its answer.
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(inbox.clone()).await.expect("an inbox");
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        client.publish_with_reply(next, inbox, pull.to_string().into()).await.expect("the pull is sent");
        let unpin = format!("$JS.API.CONSUMER.UNPIN.{stream}.{consumer}");
        client.request(unpin, json!({"group": group}).to_string().into()).await.expect("it is answered");
        publish.await;
        let message = tokio::time::timeout(PATIENCE, answers.next()).await.expect("the stranger is served");
        let message = message.expect("the inbox stays open");
        let ack = message
            .reply
            .unwrap_or_else(|| panic!("no message: {:?} {:?}", message.status, message.description));
        let sequence =
            ack.split('.').rev().nth(3).and_then(|token| token.parse().ok()).expect("an ack subject");
        let (keeper, subject) = (client.clone(), ack.clone());
        let keeping = tokio::spawn(async move {
            let mut beat = tokio::time::interval(OFTEN);
            loop {
                beat.tick().await;
                if keeper.publish(subject.clone(), "+WPI".into()).await.is_err() {
                    return;
                }
            }
        });
        Self { sequence, ack, client, keeping }
    }

    /// Gives the message back.
    pub async fn release(self) {
        self.keeping.abort();
        let _ = self.keeping.await;
        self.client.request(self.ack, "-NAK".into()).await.expect("the message is given back");
    }
}
