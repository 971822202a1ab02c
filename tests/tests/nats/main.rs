//! What Lanekeeper relies on, against real NATS servers of every supported version.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests fail by panicking, as tests do")]

mod common;
mod connection;
mod consumer_drift;
mod consumers;
mod harness;
mod identity;
mod kv;
mod leaf;
mod leases;
mod no_jetstream;
mod stored;
mod stream_drift;
mod streams;
mod subjects;
