//! A handler in the lane's own process: no HTTP, no second container.

use lanekeeper_worker::{Handler, HandlerError, Message, Worker, logging};

struct Orders;

impl Handler for Orders {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let text = std::str::from_utf8(message.payload())
            .map_err(|error| HandlerError::permanent(format!("the payload is no text: {error}")))?;
        store(&message.key(), &message.fence().to_string(), text)
            .await
            .map_err(|error| HandlerError::retry(error.to_string()))
    }
}

/// Stands for your database.
fn store(key: &str, fence: &str, text: &str) -> impl Future<Output = std::io::Result<()>> {
    println!("{key} {fence} {text}");
    std::future::ready(Ok(()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    logging::init();
    let worker = Worker::from_environment(std::env::vars())?;
    // The pod's probes ask on this port.
    let worker = worker.into_builder().admin(([0, 0, 0, 0], 9797).into()).build();
    worker.run(Orders).await?;
    Ok(())
}
