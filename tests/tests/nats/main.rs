//! What Lanekeeper relies on, against real NATS servers of every supported version.

mod common;
mod connection;
mod consumer_drift;
mod consumers;
mod harness;
mod identity;
mod kv;
mod leaf;
mod no_jetstream;
mod stream_drift;
mod streams;
mod subjects;
