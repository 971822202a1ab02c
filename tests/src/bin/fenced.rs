//! A lane for tests, whose handler writes to PostgreSQL in a task of its own that nothing stops: when the lane gives a
//! message up, the write for it goes on. So does many a program behind HTTP, and every write that is on its way already.
//!
//! `DATABASE_URL` is the database, `FENCED_WAY` how it writes. With `FENCED_GATE` it waits, with everything read and
//! nothing written, until that file is there. It says on stderr what it does, one line of JSON each.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use lanekeeper_worker::{
    Fence, Handler, HandlerError, Message, Worker, logging,
    sink::postgres::{FencedUpsert, Written},
};
use tokio_postgres::{Client, NoTls};

#[derive(Debug, Clone, Copy)]
enum Way {
    /// One conditional statement.
    Upsert,
    /// The same one without its condition: what the fence protects from.
    Unconditional,
    /// First the fence of the key, then a statement without a condition, in one transaction.
    Transaction,
}

#[derive(Debug, Clone)]
struct Fenced {
    database: String,
    gate: Option<PathBuf>,
    way: Way,
    places: FencedUpsert,
    fences: FencedUpsert,
}

/// One message's write.
struct Work {
    fence: Fence,
    key: String,
    place: String,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Fenced {
    async fn write(self, work: Work) -> Result<(), Failure> {
        let (client, connection) = tokio_postgres::connect(&self.database, NoTls).await?;
        tokio::spawn(connection);
        let sequence = work.fence.sequence;
        let written = match self.way {
            Way::Upsert => {
                self.stand_at_the_gate(sequence).await;
                self.places.apply(&client, work.fence, &[&work.key, &work.place]).await?
            }
            Way::Unconditional => {
                self.stand_at_the_gate(sequence).await;
                self.overwrite(&client, &work).await?;
                Written::Applied
            }
            Way::Transaction => {
                client.batch_execute("BEGIN").await?;
                let written = self.fences.apply(&client, work.fence, &[&work.key]).await?;
                self.stand_at_the_gate(sequence).await;
                if written == Written::Applied {
                    self.overwrite(&client, &work).await?;
                }
                client.batch_execute("COMMIT").await?;
                written
            }
        };
        say("wrote", sequence, &format!("{written:?}"));
        Ok(())
    }

    async fn overwrite(&self, client: &Client, work: &Work) -> Result<(), Failure> {
        let (statement, _) = self.places.sql().split_once(" WHERE ").ok_or("there is no condition")?;
        client.execute(statement, &[&work.key, &work.place, &work.fence.to_string()]).await?;
        Ok(())
    }

    async fn stand_at_the_gate(&self, sequence: u64) {
        say("at the gate", sequence, "");
        while self.gate.as_ref().is_some_and(|gate| !gate.exists()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Handler for Fenced {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let work = Work {
            fence: message.fence(),
            key: message.key(),
            place: String::from_utf8_lossy(message.payload()).into_owned(),
        };
        let sequence = message.sequence();
        let this = self.clone();
        let unstoppable = tokio::spawn(async move {
            this.write(work).await.map_err(|error| {
                say("failed", sequence, &error.to_string());
                error.to_string()
            })
        });
        let written = unstoppable.await.map_err(|error| error.to_string());
        written.and_then(|written| written).map_err(HandlerError::retry)
    }
}

fn say(message: &str, sequence: u64, what: &str) {
    eprintln!("{}", serde_json::json!({"message": message, "sequence": sequence, "what": what}));
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    logging::init();
    let way = match std::env::var("FENCED_WAY")?.as_str() {
        "upsert" => Way::Upsert,
        "unconditional" => Way::Unconditional,
        "transaction" => Way::Transaction,
        other => anyhow::bail!("FENCED_WAY is '{other}': it must be upsert, unconditional or transaction"),
    };
    let handler = Fenced {
        database: std::env::var("DATABASE_URL")?,
        gate: std::env::var_os("FENCED_GATE").map(PathBuf::from),
        way,
        places: FencedUpsert::builder("places").key("aircraft").set("place").build()?,
        fences: FencedUpsert::builder("fences").key("key").build()?,
    };
    let worker = Worker::from_environment(std::env::vars())?;
    worker.into_builder().admin(SocketAddr::from(([127, 0, 0, 1], 0))).build().run(handler).await?;
    Ok(())
}
