//! The worker against real servers: order, failures, deadlines, shutdowns and everything that breaks.
//!
//! Waits are short by default; `LANEKEEPER_CASES=full` runs the long ones at full length.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests fail by panicking, as tests do")]

mod adversity;
mod aside;
mod audited;
mod batch;
mod clocks;
mod dead_letters;
mod deadlines;
mod exec;
mod failing;
mod following;
mod http;
mod journal;
mod leases;
mod order;
mod orders;
mod owners;
mod parked;
mod pins;
mod pipelined;
mod process;
mod reconnect;
mod release;
mod rig;
mod shutdown;
mod stalled;
mod standbys;
mod vanishing;
mod zombies;

use std::time::Duration;

/// Long enough for a busy machine; nothing is decided by it but a failure.
const DEADLINE: Duration = Duration::from_secs(60);

/// Whether waits have the length that the cases name.
fn full_length() -> bool {
    std::env::var("LANEKEEPER_CASES").is_ok_and(|value| value == "full")
}
