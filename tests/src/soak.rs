//! Random runs: what is published, who handles it, what changes and fails meanwhile, and the verdict.
//!
//! Everything of a run that is chosen comes from one seed ([`chance`]). A run on bare servers has a [`conductor`] in the
//! operator's place: the same looking, planning and carrying out, without Kubernetes; and a [`pool`] of real workers.
//! A run on a cluster uses the rest: [`numbers`], [`publisher`], [`failures`], [`history`] and [`verdict`].

pub mod chance;
pub mod conductor;
pub mod failures;
pub mod ground;
pub mod history;
pub mod numbers;
pub mod pool;
pub mod publisher;
pub mod verdict;
