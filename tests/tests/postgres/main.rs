//! Writes that compare the fence, in a real PostgreSQL: the worker crate's and those of the documents.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests fail by panicking, as tests do")]

mod documents;
mod names;
mod races;
mod writes;

use std::time::Duration;

use lanekeeper_tests::Postgres;
use lanekeeper_worker::{Fence, sink::postgres::FencedUpsert};
use tokio_postgres::Client;

/// Long enough for a busy machine; nothing is decided by it but a failure.
const DEADLINE: Duration = Duration::from_secs(60);

const PLACES: &str =
    r#"CREATE TABLE places (aircraft text PRIMARY KEY, place text, fence text COLLATE "C" NOT NULL)"#;

/// A server with the table of places, a client, and the write to it.
async fn places() -> (Postgres, Client, FencedUpsert) {
    let server = Postgres::start().await;
    let client = server.client().await;
    client.batch_execute(PLACES).await.unwrap();
    (server, client, FencedUpsert::builder("places").key("aircraft").set("place").build().unwrap())
}

fn fence(stream_incarnation: u32, sequence: u64) -> Fence {
    Fence { stream_incarnation, sequence }
}

async fn place(client: &Client, aircraft: &str) -> String {
    let sql = "SELECT place || ' ' || fence FROM places WHERE aircraft = $1";
    client.query_one(sql, &[&aircraft]).await.unwrap().get(0)
}
