//! Processes of pods, which on this node are processes of this machine.

use std::fs;

/// The process whose environment has all of these variables and whose name begins with this (the kernel keeps 15
/// characters of it).
pub(crate) fn find(variables: &[String], name: &str) -> Option<u32> {
    let is_it = |pid: u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has: Vec<_> = environment.split(|byte| *byte == 0).collect();
        comm.starts_with(name) && variables.iter().all(|one| has.contains(&one.as_bytes()))
    };
    let entries = fs::read_dir("/proc").expect("/proc can be read");
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(|pid| is_it(*pid))
}

/// Ends a process at once. One that has ended by itself is as good.
pub(crate) fn kill(pid: u32) {
    let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
}
