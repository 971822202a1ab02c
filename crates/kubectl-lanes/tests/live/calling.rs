//! Calling the plugin.

use std::path::Path;

use serde_json::Value;
use tokio::process::Command;

use crate::rig::Rig;

/// What it answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    pub(crate) fn text(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.text()).expect("the answer is JSON")
    }

    /// The one line that says why not.
    pub(crate) fn refusal(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(self.err.starts_with("error: "), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        self.err
    }
}

/// A command that calls it in the namespace of a test.
pub(crate) fn command(rig: &Rig, kubeconfig: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-lanes"));
    command.args(["-n", &rig.namespace]).args(arguments.split(' ')).env("KUBECONFIG", kubeconfig);
    command.kill_on_drop(true);
    command
}

/// Calls it with all rights.
pub(crate) async fn plugin(rig: &Rig, arguments: &str) -> Answer {
    plugin_as(rig, rig.control.kubeconfig(), arguments).await
}

/// Calls it as whom a kubeconfig names.
pub(crate) async fn plugin_as(rig: &Rig, kubeconfig: &Path, arguments: &str) -> Answer {
    let output = command(rig, kubeconfig, arguments).output().await.expect("the plugin can be started");
    Answer {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
