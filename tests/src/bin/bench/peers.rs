//! nats.go, by the program in bench/peers.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::setting::{SHARE, STREAM, Setting};

/// What it measures, as it names it.
pub(crate) const NAMES: &[&str] = &[
    "ping_pong",
    "nats_go_consume_ack",
    "nats_go_consume_double_ack",
    "nats_go_fetch1_ack",
    "nats_go_fetch1_double_ack",
    "nats_go_consume_ack_all_64",
    GROUPS,
];

/// A group of one member.
const GROUPS: &str = "orbit_pcgroups_consume";
/// How long such a group stands when its member dies, in milliseconds.
pub(crate) const GROUP_FAILOVER: &str = "orbit_pcgroups_failover";

/// The program, built.
pub(crate) struct Peers {
    program: PathBuf,
}

#[derive(Deserialize)]
struct Measurement {
    name: String,
    value: f64,
}

impl Peers {
    pub(crate) fn build() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folder = root.join("target/bench");
        std::fs::create_dir_all(&folder)?;
        let program = folder.canonicalize()?.join("peers");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(root.join("bench/peers"))
            .status()
            .context("go is needed to build bench/peers")?;
        if !built.success() {
            bail!("bench/peers could not be built");
        }
        Ok(Self { program })
    }

    /// Stores the messages that everybody drains.
    pub(crate) fn publish(&self, url: &str, messages: u64) -> Result<()> {
        let messages = messages.to_string();
        self.run(&[
            "-url", url, "-stream", STREAM, "-publish", &messages, "-subject", "bench.*", "-only", "none",
        ])?;
        Ok(())
    }

    pub(crate) fn measure(&self, setting: &Setting, name: &str, messages: u64) -> Result<f64> {
        let messages = messages.to_string();
        let url = &setting.url();
        // Groups have to be told where the key is.
        let filter = match name {
            GROUPS | GROUP_FAILOVER => setting.pattern(),
            _ => setting.mapping.filter(SHARE),
        };
        let output =
            self.run(&["-url", url, "-stream", STREAM, "-filter", &filter, "-n", &messages, "-only", name])?;
        let measurements: Vec<Measurement> =
            output.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let found = measurements.into_iter().find(|measurement| measurement.name == name);
        Ok(found.with_context(|| format!("peers did not measure {name}"))?.value)
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program).args(arguments).stderr(Stdio::piped()).output()?;
        if !output.status.success() {
            bail!("peers {arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}
