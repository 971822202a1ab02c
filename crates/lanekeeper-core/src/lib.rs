//! The rules of Lanekeeper, without I/O.
//!
//! Everything that decides about order is here and is a pure function or a state machine: the operator and the
//! worker drive it with real servers, property tests and the model checker with every state they can think of.
//! This crate knows no runtime, no Kubernetes client and no NATS client (checked by `make check`).

pub mod aside;
pub mod consumer;
pub mod fence;
pub mod hash;
pub mod hot_keys;
pub mod invariants;
pub mod journal;
pub mod lane;
pub mod lease;
pub mod mapping;
pub mod names;
pub mod order;
pub mod park;
pub mod plan;
pub mod record;
pub mod release;
pub mod retry;
pub mod share;
pub mod stream;
pub mod subject;
