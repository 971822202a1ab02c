//! A program that runs a lane, as a pod would run it.

use std::path::Path;

use lanekeeper_core::names::SetName;
use tokio::process::Command;

/// `program` with the environment of a pod of partition 0, and with nothing of this process's own. It is killed when what it
/// becomes is dropped.
pub fn program(program: &Path, set: &SetName, pod: &str, stream: &str, servers: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("LANEKEEPER_NAMESPACE", &set.namespace)
        .env("LANEKEEPER_SET", &set.name)
        .env("LANEKEEPER_PARTITION", "0")
        .env("LANEKEEPER_POD", pod)
        .env("LANEKEEPER_STREAM", stream)
        .env("LANEKEEPER_NATS_SERVERS", servers)
        .kill_on_drop(true);
    command
}
