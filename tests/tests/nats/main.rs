//! What Lanekeeper relies on, against real NATS servers of every supported version.

mod common;
mod connection;
mod harness;
mod kv;
