//! The operator against a real API server and real NATS servers.
//!
//! One control plane serves all tests of this file; each test has namespaces, a NATS server and an operator of its own.
//! There are no nodes, so Deployments never become available here: what pods do is the whole cluster's business.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests fail by panicking, as tests do")]

mod accounts;
mod budgets;
mod create;
mod cut_off;
mod dead_letters;
mod deletion;
mod documents;
mod drift;
mod drift_nats;
mod flow;
mod flow_injuries;
mod flowing;
mod groups;
mod idle;
mod mapping;
mod moved;
mod neighbours;
mod ownership;
mod parked;
mod reach;
mod rescale;
mod rig;
mod scale;
mod specs;
mod stalled;
mod takeover;
mod unreadable;
