//! The `OrderedPartitionSet` resource: its types, its validation and the words of its status.
//!
//! What a person may write, what each field defaults to, and which rules hold at admission are decided here,
//! once: the CRD, the reference documentation and the operator all use these types. This crate has no client
//! and talks to no server.

pub mod condition;
pub mod crd;
pub mod invalid;
pub mod quantity;
pub mod reason;
pub mod spec;
pub mod status;
pub mod validate;

pub use spec::{OrderedPartitionSet, OrderedPartitionSetSpec};
pub use status::OrderedPartitionSetStatus;
pub use validate::{Validated, validate};
