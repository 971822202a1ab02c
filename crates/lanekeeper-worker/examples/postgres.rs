//! A handler in the lane's own process that keeps its result in PostgreSQL: neither a repeat nor a write that comes too
//! late changes anything.
//!
//! ```sql
//! CREATE TABLE places (aircraft text PRIMARY KEY, place text NOT NULL, fence text COLLATE "C" NOT NULL);
//! ```

use std::sync::Arc;

use lanekeeper_worker::{
    Handler, HandlerError, Message, Worker, logging,
    sink::postgres::{
        FencedUpsert, Written, reason,
        tokio_postgres::{self, Client, NoTls},
    },
};
use tokio::sync::Mutex;

struct Places {
    database: String,
    client: Mutex<Option<Arc<Client>>>,
    upsert: FencedUpsert,
}

impl Places {
    /// The connection, made again when it broke.
    async fn client(&self) -> Result<Arc<Client>, tokio_postgres::Error> {
        let mut kept = self.client.lock().await;
        if let Some(client) = kept.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let (client, connection) = tokio_postgres::connect(&self.database, NoTls).await?;
        tokio::spawn(connection);
        Ok(Arc::clone(kept.insert(Arc::new(client))))
    }
}

impl Handler for Places {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let place = std::str::from_utf8(message.payload())
            .map_err(|error| HandlerError::permanent(format!("the payload is no text: {error}")))?;
        // Without a database nothing is wrong with the message: that is no attempt.
        let client =
            self.client().await.map_err(|error| HandlerError::Unreachable { reason: reason(&error) })?;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&message.key(), &place];
        match self.upsert.apply(&*client, message.fence(), &values).await {
            // Stale: this message, or a later one of its key, was applied before. There is nothing left to do.
            Ok(Written::Applied | Written::Stale) => Ok(()),
            // Perhaps it was applied and the answer is lost: the next attempt finds out.
            Err(error) => Err(HandlerError::retry(error.to_string())),
        }
    }

    async fn reachable(&self) -> Result<(), String> {
        self.client().await.map(drop).map_err(|error| reason(&error))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    logging::init();
    let places = Places {
        database: std::env::var("DATABASE_URL").map_err(|error| format!("DATABASE_URL: {error}"))?,
        client: Mutex::default(),
        upsert: FencedUpsert::builder("places").key("aircraft").set("place").build()?,
    };
    // The pod's probes ask on port 9797; another address can be the program's argument.
    let admin = std::env::args().nth(1).unwrap_or_else(|| "0.0.0.0:9797".to_owned()).parse()?;
    let worker = Worker::from_environment(std::env::vars())?;
    worker.into_builder().admin(admin).build().run(places).await?;
    Ok(())
}
