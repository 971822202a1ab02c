//! NATS for Lanekeeper: the only crate that imports the NATS client.
//!
//! What operator and worker call, from the bottom up:
//! - [`connection`]: `Connection::connect(settings)` (fails with the reason) or `Connection::start(settings)` (connects
//!   in the background); both reconnect for ever and read credentials again at each connect. `health()` and
//!   `events()` say what the server said; `client()` and `context()` give the client itself.
//! - [`api`]: `connection.api(operation, body)`: one JetStream API request, with the server's code and words, or with
//!   what is known when there is no answer.
//! - [`kv`]: `Bucket`: `ensure`, `get`, `load` (all of a set), `create`, `update`, `delete` by compare-and-set, JSON values, and
//!   `wakeups`. A lost answer to a write is `KvError::Unknown`, never a guess.
//! - [`observe`]: servers, account, stream and all consumers of it, as `lanekeeper_core` sees them.
//! - [`provision`]: creating and repairing streams and consumers, strictly: what came back is compared with what was
//!   asked for.
//! - [`lane`]: the pull and ack protocol of one lane.
//! - [`lease`]: keeping a lease in a bucket.
//! - [`store`]: publishing one message so that it is known to be stored.
//! - [`cause`]: the closed list of causes, for conditions, Events and metrics.
//!
//! This crate must not decide anything about lanes, and must not know Kubernetes.

pub mod api;
pub mod cause;
pub mod connection;
pub mod files;
pub mod kv;
pub mod lane;
pub mod lease;
pub mod observe;
pub mod provision;
pub mod release;
pub mod store;

pub use api::{ApiError, Refusal};
pub use async_nats;
pub use cause::Cause;
pub use connection::{ConnectError, ConnectSettings, Connection, ConnectionEvent, Health};
pub use files::Files;
pub use kv::{Bucket, Entry, KvError};
pub use provision::ProvisionError;
