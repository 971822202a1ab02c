//! Stories on a whole cluster: Helm, kubectl, pods of the real images, a real NATS server in each story.
//!
//! All stories share one cluster and one operator; each has a namespace, a NATS server and a set of its own, made of
//! the manifests of `examples/flights`. What a story claims about order is judged by the journals that the handlers
//! keep. Needs root, as the cluster does; what is missing fails the stories, it never skips them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests fail by panicking, as tests do")]

mod changes;
mod deletion;
mod drift;
mod idle;
mod injuries;
mod install;
mod machine;
mod nats_down;
mod plugin;
mod process;
mod programs;
mod rig;
mod rollouts;
mod siblings;
mod soak;
mod story;
mod uninstall;

use std::time::Duration;

/// Pods of local images start in seconds; a busy machine of two cores needs more.
const PODS: Duration = Duration::from_secs(120);
/// From the last publish to the last handling, an expired message included.
const FLOW: Duration = Duration::from_secs(180);

/// Whether the cases run at full length (`make cases`).
fn full_length() -> bool {
    std::env::var("LANEKEEPER_CASES").is_ok_and(|value| value == "full")
}
