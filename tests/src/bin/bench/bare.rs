//! A loop without any lane over the same client: what the lane's own work costs beside it.
//!
//! It asks for the next message with the ack of the one before, on the same kind of consumer and with the same requests as
//! a lane, and does nothing else: it survives nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use async_nats::Message;
use futures::StreamExt;
use lanekeeper_core::{lane::PullRequest, record::Delivery};
use lanekeeper_nats::lane::AckSubject;

use crate::setting::{STREAM, Setting};

/// Far longer than a measurement takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Messages per second over all messages.
pub(crate) async fn measure(setting: &mut Setting, messages: u64) -> Result<f64> {
    let consumer = setting.consumer(None, Delivery::Serial).await?;
    let client = async_nats::connect(setting.url()).await?;
    let inbox = async_nats::Subject::from(client.new_inbox());
    let mut answers = client.subscribe(inbox.clone()).await?;
    let mut request =
        PullRequest { id: 1, batch: 1, expires: PATIENCE, heartbeat: PATIENCE / 2, grouped: true, pin: None };
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer}");
    client.publish_with_reply(next, inbox.clone(), request.to_string().into()).await?;
    let (mut first, mut last) = (None, 0);
    for number in 1..=messages {
        let message = answers.next().await.context("the connection ended")?;
        first.get_or_insert_with(Instant::now);
        let ack = message.reply.clone().with_context(|| format!("no message: {:?}", message.status))?;
        let sequence = AckSubject::parse(&ack)?.sequence;
        if sequence <= last {
            bail!("message {sequence} came after message {last}");
        }
        last = sequence;
        if request.pin.is_none() {
            request.pin = Some(pin(&message)?);
        }
        let body = if number < messages { format!("+NXT {request}") } else { "+ACK".into() };
        client.publish_with_reply(ack, inbox.clone(), body.into()).await?;
    }
    let elapsed = first.context("there are no messages")?.elapsed();
    client.flush().await?;
    setting.close_lane(&consumer).await?;
    // One interval less than messages.
    #[expect(clippy::cast_precision_loss, reason = "a number of messages is far below 2^52")]
    let intervals = (messages - 1) as f64;
    Ok(intervals / elapsed.as_secs_f64())
}

fn pin(message: &Message) -> Result<Arc<str>> {
    let headers = message.headers.as_ref().context("a message without headers has no pin")?;
    Ok(headers.get("Nats-Pin-Id").context("a message without a pin")?.as_str().into())
}
