//! The handover under every failure: the production plan in a world that is checked exhaustively and walked at random.
//!
//! - [`world`]: what is true, and what each effect does to it; [`actions`]: everything that can happen next, failures
//!   within a budget; [`run`]: which messages, partitions, pods and failures a run has.
//! - `model`: every reachable state of small runs (stateright); `walks`: random walks through larger ones.
//! - `mutants`: each safety rule broken on purpose, to prove that these would notice.
//! - `tables`: single plans, judged one by one.
//! - [`lanes`]: the same world with the production lane in each pod.
//!
//! What must never happen, checked at every step: a handler starts before every earlier message of its key has completed;
//! something is acknowledged, skipped or removed that never completed; two handlers of one key inside their deadlines;
//! with no failures, a message handled twice. And from every state the wanted lanes are reached once failures stop.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking; the helpers of these are not tests themselves"
)]

mod actions;
mod calm;
mod lanes;
mod model;
mod mutants;
mod run;
mod tables;
mod walks;
mod world;
