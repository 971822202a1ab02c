//! A handler of batches in the lane's own process, for a set with `delivery.mode: Batch`.

use std::slice;

use lanekeeper_worker::{BatchHandler, Handler, HandlerError, Message, Worker, logging};

struct Orders;

impl Handler for Orders {
    // For the other delivery modes.
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        self.handle_batch(slice::from_ref(message)).await
    }
}

impl BatchHandler for Orders {
    async fn handle_batch(&self, messages: &[Message]) -> Result<(), HandlerError> {
        let mut rows = Vec::with_capacity(messages.len());
        for message in messages {
            let text = std::str::from_utf8(message.payload()).map_err(|error| {
                HandlerError::permanent(format!("the payload of {} is no text: {error}", message.sequence()))
            })?;
            rows.push((message.key(), message.fence().to_string(), text));
        }
        store(&rows).await.map_err(|error| HandlerError::retry(error.to_string()))
    }
}

/// Stands for your database: all rows in one transaction, or none.
fn store(rows: &[(String, String, &str)]) -> impl Future<Output = std::io::Result<()>> {
    for (key, fence, text) in rows {
        println!("{key} {fence} {text}");
    }
    std::future::ready(Ok(()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    logging::init();
    let worker = Worker::from_environment(std::env::vars())?;
    // The pod's probes ask on this port.
    let worker = worker.into_builder().admin(([0, 0, 0, 0], 9797).into()).build();
    worker.run_batches(Orders).await?;
    Ok(())
}
