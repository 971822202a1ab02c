//! The flights example as a rig: its manifests, its messages, a publisher, its journals, and the lag of its lanes.
//!
//! Everything here does what a user could do from outside: it applies manifests, publishes to NATS, reads what
//! handlers serve and what consumers say. It must not use the product's own code to decide whether the product
//! works; the verdict comes from [`crate::journal`].

pub mod data;
pub mod journals;
pub mod lag;
pub mod manifests;
pub mod publish;
pub mod reach;

/// The namespace of the example's manifests.
pub const NAMESPACE: &str = "flights";
/// The name of the example's set.
pub const SET: &str = "flights";
/// The stream that it makes.
pub const STREAM: &str = "FLIGHTS";
/// What its subjects begin with; the key follows.
pub const SUBJECT: &str = "flights";
/// The port on which handlers serve their journal.
pub const HANDLER_PORT: u16 = 8080;
