//! The plugin against a real API server, real NATS servers and a running operator, called as a person calls it.
//!
//! There are no nodes here, so a forwarded port is the whole cluster's business.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests fail by panicking, as tests do")]

#[allow(dead_code, reason = "shared with the tests of the operator, which ask for more")]
#[path = "../../../../tests/tests/operator/rig.rs"]
mod rig;

mod audit;
mod calling;
mod dlq;
mod keys;
mod orders;
mod parked;
mod plan;
mod reach;
mod watch;
mod workers;
