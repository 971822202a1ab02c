//! PostgreSQL: writes that are applied only when their fence is newer than the one stored.
//!
//! A [`FencedUpsert`] is one statement that inserts or updates one row. It changes the row, or, when this message or a
//! later one of its key was applied before, nothing ([`Written`]). So a repeat changes nothing, and neither does a
//! worker that woke up long after its message was somebody else's.
//!
//! ```no_run
//! use lanekeeper_worker::{
//!     HandlerError, Message,
//!     sink::postgres::{FencedUpsert, Written, tokio_postgres::Client},
//! };
//!
//! async fn arrived(client: &Client, places: &FencedUpsert, message: &Message) -> Result<(), HandlerError> {
//!     let place = String::from_utf8_lossy(message.payload()).into_owned();
//!     match places.apply(client, message.fence(), &[&message.key(), &place]).await {
//!         // Both are done: an older write has nothing to add.
//!         Ok(Written::Applied | Written::Stale) => Ok(()),
//!         Err(error) => Err(HandlerError::retry(error.to_string())),
//!     }
//! }
//!
//! # fn table() -> Result<(), Box<dyn std::error::Error>> {
//! // CREATE TABLE places (aircraft text PRIMARY KEY, place text NOT NULL, fence text COLLATE "C" NOT NULL)
//! let places = FencedUpsert::builder("places").key("aircraft").set("place").build()?;
//! # Ok(())
//! # }
//! ```
//!
//! Fences rise for the messages of one lane key, and compare nothing between two. So **a row must be written by one
//! lane key only**: its key columns are the lane's key, or that and more. Several rows or tables, sums, events, deletions:
//! `docs/fencing.md`.
//!
//! This module must not decide what a handler answers, nor keep connections.

mod columns;

use std::error::Error;

pub use columns::{Builder, InvalidColumns};
use lanekeeper_core::fence::Fence;
pub use tokio_postgres;
use tokio_postgres::{GenericClient, types::ToSql};

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "in a transaction, a stale write means that nothing else of it may be applied either"]
pub enum Written {
    /// The row is this message's now.
    Applied,
    /// Nothing was changed: this message, or a later one of its key, was applied before.
    Stale,
}

/// Why it is not known that a write was applied. It may have been, when the answer was lost: the same write again is
/// [`Written::Stale`] then.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Not a value for each column.
    #[error("{given} values were given for {table}: it must be {expected}, the key columns first")]
    Values {
        /// The table.
        table: String,
        /// How many it must be.
        expected: usize,
        /// How many there were.
        given: usize,
    },
    /// The server, or the way to it.
    #[error("the write to {table} failed: {}", reason(error))]
    Postgres {
        /// The table.
        table: String,
        /// What it said.
        #[source]
        error: tokio_postgres::Error,
    },
}

/// What the server, or the way to it, said, on one line: the client's own text is no more than "db error". Details of the
/// server are left out, because they quote values, and a handler's reason is shown in logs and in the set's status.
pub fn reason(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} ({})", said.message(), said.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// One statement: insert a row, or update it if the fence is newer than the row's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedUpsert {
    table: String,
    values: usize,
    sql: String,
}

impl FencedUpsert {
    /// Begins with the table's name, exactly as the database has it (`places`, not `"places"`).
    pub fn builder(table: &str) -> Builder {
        Builder::new(table)
    }

    /// Writes one row: the values are those of the key columns, then of the others, each in the order of the builder.
    ///
    /// What else the message writes belongs into one transaction with this, and this first: go on only when it was
    /// [`Written::Applied`]. A fence that is committed without its work makes the repeat look done. A row that another
    /// transaction is writing is waited for.
    pub async fn apply(
        &self,
        client: &(impl GenericClient + Sync),
        fence: Fence,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Written, WriteError> {
        if values.len() != self.values {
            let (table, given) = (self.table.clone(), values.len());
            return Err(WriteError::Values { table, expected: self.values, given });
        }
        let fence = fence.to_string();
        let mut parameters = values.to_vec();
        parameters.push(&fence);
        let rows = client
            .execute(&self.sql, &parameters)
            .await
            .map_err(|error| WriteError::Postgres { table: self.table.clone(), error })?;
        Ok(if rows == 0 { Written::Stale } else { Written::Applied })
    }

    /// The statement, for who prepares it: the values in the same order, the fence's text last. No row means
    /// [`Written::Stale`].
    pub fn sql(&self) -> &str {
        &self.sql
    }
}
