//! The operator: makes NATS and Kubernetes what an `OrderedPartitionSet` asks for.
//!
//! One pass over a set reads as a story of pure and impure steps, one module each: observe (I/O: [`secrets`],
//! [`connections`], [`observe`]) -> validate (pure, `lanekeeper_api`) -> plan (pure, `lanekeeper_core`) -> build
//! (pure: [`build`]) -> apply (I/O: [`provision`], [`carry_out`], [`deployments`]) -> status (pure: [`status`]).
//! [`reconcile`] tells the story, [`controller`] decides when.
//!
//! What decides about order is in `lanekeeper_core`; this crate must not decide about lanes, only look and do.

pub mod admin;
pub mod aside;
pub mod build;
pub mod carry_out;
pub mod children;
pub mod compare;
pub mod connections;
pub mod context;
pub mod controller;
pub mod deletion;
pub mod digest;
pub mod events;
pub mod failure;
pub mod fences;
pub mod holders;
pub mod labels;
pub mod metrics;
pub mod observe;
pub mod preflight;
pub mod provision;
pub mod reconcile;
pub mod retries;
pub mod run;
pub mod secrets;
pub mod settings;
pub mod status;
pub mod watches;
pub mod workers;

pub use settings::Settings;
