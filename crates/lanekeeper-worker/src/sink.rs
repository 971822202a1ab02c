//! Where handlers write: side effects that compare the fence. Each is a feature of this crate, off by default.

#[cfg(feature = "postgres")]
pub mod postgres;
