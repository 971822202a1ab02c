//! Changes of the number of partitions on bare servers, under load, while everything fails that can.
//!
//! Each story draws what happens from a seed, which it prints with its figures and with its failure;
//! `LANEKEEPER_SOAK_SEED` repeats one, `LANEKEEPER_SOAK_MINUTES` goes on for about so long. The verdict is the journal
//! checker's: nothing out of order, nothing lost, and no repeat without a failure that explains it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests fail by panicking, as tests do")]

mod one_server;
mod oracle;
mod parked;
mod place;
mod poison;
mod processes;
mod rolling;
mod story;
mod three_servers;
mod troubles;

use std::time::Duration;

/// Long enough for a busy machine; nothing is decided by it but a failure.
const DEADLINE: Duration = Duration::from_secs(60);
