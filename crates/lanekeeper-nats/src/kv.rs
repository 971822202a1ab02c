//! The KV bucket of the records: reading, and writing by compare-and-set.
//!
//! Written by the wire protocol of NATS KV (<https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-8.md>),
//! because the client's own KV needs rights that workers do not have (it asks for the stream first, and its watches
//! create consumers). [`Bucket::get`] needs the right to publish to
//! `$JS.API.DIRECT.GET.KV_<bucket>.$KV.<bucket>.<key>` only.
//!
//! What a failed write means is exact: [`KvError::Conflict`] and the others: nothing was written;
//! [`KvError::Unknown`]: it may have been. This module must not know what is stored.

mod ensure;
mod error;
mod load;
mod read;
mod wakeups;
mod write;

use std::sync::Arc;

use crate::connection::Connection;
pub use error::KvError;
pub use wakeups::Wakeups;

/// The value of a key at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key, without the bucket's prefix.
    pub key: String,
    /// Which write it was: rises with every write to the bucket.
    pub revision: u64,
    /// The value; `None` when the key was deleted.
    pub value: Option<bytes::Bytes>,
}

/// One bucket over one connection; clones share both.
#[derive(Debug, Clone)]
pub struct Bucket {
    connection: Connection,
    name: Arc<str>,
}

impl Bucket {
    /// A bucket by its name. Nothing is asked of the server.
    pub fn new(connection: Connection, name: &str) -> Self {
        Self { connection, name: name.into() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The stream behind it.
    pub fn stream(&self) -> String {
        format!("KV_{}", self.name)
    }

    /// The subject under which a key (or a pattern of keys) is stored.
    pub fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name)
    }

    /// The subject to publish a key to: in a domain the API's prefix comes before it.
    fn write_subject(&self, key: &str) -> String {
        match self.connection.domain() {
            Some(_) => format!("{}.{}", self.connection.api_prefix(), self.subject(key)),
            None => self.subject(key),
        }
    }

    fn key_of<'a>(&self, subject: &'a str) -> Option<&'a str> {
        subject.strip_prefix("$KV.")?.strip_prefix(&*self.name)?.strip_prefix('.')
    }
}
