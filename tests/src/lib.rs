//! Harness of the end-to-end tests: real servers, real control planes, the journal checker.

pub mod journal;
