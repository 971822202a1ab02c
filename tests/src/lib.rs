//! The harness of the end-to-end tests: real servers and what stands between them and a client.
//!
//! Every server, proxy and store here belongs to one test and ends with it. Nothing here replaces a real
//! component, and a component that is missing fails the test: it never skips one. Tests wait for conditions
//! with a deadline ([`wait_until`]); they do not sleep, and no timing decides one.

#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a harness fails its test by panicking")]

pub mod binary;
pub mod cluster;
pub mod controlplane;
pub mod demo;
pub mod flights;
pub mod helm;
pub mod images;
pub mod journal;
pub mod kubectl;
pub mod lane;
pub mod postgres;
pub mod proxy;
pub mod server;
pub mod soak;
pub mod stranger;
pub mod trio;
mod waiting;

pub use postgres::Postgres;
pub use proxy::{Direction, Flow, TcpProxy};
pub use server::{NatsServer, ServerBuilder};
pub use stranger::Stranger;
pub use trio::NatsTrio;
pub use waiting::{Probe, TooLate, wait_for, wait_until};

/// The server versions that everything must work with, the oldest first.
pub const VERSIONS: [&str; 3] = ["2.11", "2.12", "2.15"];

/// A version that is too old.
pub const TOO_OLD: &str = "2.10";

/// The version that tests use when the version is not what they are about.
pub const LATEST: &str = "2.15";
