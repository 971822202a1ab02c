//! What must never be false, defined once: evaluated by property tests, by the model and in production,
//! where a violation is a metric and an error in the log.
//!
//! A monitor keeps its own account of what happened. It must not share state with what it watches.

mod journal;
mod lane;

pub use journal::JournalInvariant;
pub use lane::{LaneInvariant, LaneMonitor};
