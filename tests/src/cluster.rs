//! The Kubernetes cluster of the demo and of the whole-cluster tests, as `tests/cluster/cluster.py` gives it.
//!
//! Which cluster it is, is the user's choice (`LANEKEEPER_CLUSTER`) and `cluster.py`'s business; this module
//! starts and asks that program and must not know how a cluster is made.

use std::{
    ffi::OsStr,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// A running cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// For `KUBECONFIG`; a list of files where that variable was one.
    pub kubeconfig: String,
    /// The folder of our own cluster; empty for any other.
    #[serde(rename = "dir")]
    pub folder: PathBuf,
    /// `full` is our own, whose node is this machine; else `kind` or `current`.
    pub mode: String,
    /// Where a cluster that is not of this machine pulls images from.
    pub image_prefix: Option<String>,
}

impl Cluster {
    /// The cluster that the user chose, started when it is ours and not running.
    pub fn chosen() -> Result<Self> {
        Self::of("use", &[])
    }

    /// A whole cluster that ends, with its folder, when this process does.
    pub fn owned(folder: &Path, audit_log: &Path) -> Result<Self> {
        let owner = std::process::id().to_string();
        let arguments: [&OsStr; 6] = [
            "--dir".as_ref(),
            folder.as_os_str(),
            "--audit-log".as_ref(),
            audit_log.as_os_str(),
            "--until-pid".as_ref(),
            owner.as_ref(),
        ];
        Self::of("start", &arguments)
    }

    /// Builds or fetches tools that are missing, with progress on standard error.
    pub fn prepare_tools(names: &[&str]) -> Result<()> {
        let status = Command::new(script()).arg("tools").args(names).stdout(Stdio::null()).status();
        let status =
            status.with_context(|| format!("starting {}: is Python 3.11 on PATH?", script().display()))?;
        if !status.success() {
            bail!("a tool is missing ({}); the reason is above", names.join(", "));
        }
        Ok(())
    }

    /// Whether the machine's default cluster runs already.
    pub fn default_runs() -> bool {
        let status =
            Command::new(script()).arg("status").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// Whether pods are processes of this machine, and its Services reachable from it.
    pub fn is_this_machine(&self) -> bool {
        self.mode == "full"
    }

    /// Puts image archives into the cluster.
    pub fn load(&self, archives: &[PathBuf]) -> Result<()> {
        let mut command = Command::new(script());
        command.arg("load");
        if self.is_this_machine() {
            command.arg("--dir").arg(&self.folder);
        }
        let output =
            command.args(archives).stderr(Stdio::piped()).output().context("starting cluster.py load")?;
        if !output.status.success() {
            bail!(
                "the images could not be loaded into the cluster:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    fn of(command: &str, arguments: &[&OsStr]) -> Result<Self> {
        let output = Command::new(script())
            .arg(command)
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("starting {}: is Python 3.11 on PATH?", script().display()))?;
        Self::read(&output).with_context(|| format!("cluster.py {command}"))
    }

    fn read(output: &Output) -> Result<Self> {
        if !output.status.success() {
            bail!("there is no cluster; what is missing is said above");
        }
        serde_json::from_slice(&output.stdout).context("the answer is not what was expected")
    }
}

/// One demo or test run at a time uses the machine's one whole cluster; freed when the value is dropped, and by
/// the kernel when the process dies.
#[derive(Debug)]
pub struct Reservation(#[expect(dead_code, reason = "held, not used")] File);

/// Takes the cluster, and says once when it has to wait for that.
pub fn reserve(say: impl FnOnce(&str)) -> Result<Reservation> {
    let folder = cache_folder().join("locks");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let path = folder.join("whole-cluster");
    let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            say("another demo or test run uses the cluster; waiting for it to end");
            file.lock().with_context(|| format!("locking {}", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("locking {}", path.display()));
        }
    }
    Ok(Reservation(file))
}

/// The cache folder of `cluster.py`.
pub fn cache_folder() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("LANEKEEPER_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("lanekeeper")))
        .unwrap_or_else(|| variable("HOME").unwrap_or_default().join(".cache/lanekeeper"))
}

/// The repository's folder.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/cluster.py")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cluster_py_prints_is_read_for_each_kind_of_cluster() {
        let ours = r#"{"kubeconfig": "/c/kubeconfig", "dir": "/c", "mode": "full"}"#;
        let cluster: Cluster = serde_json::from_str(ours).unwrap();
        assert!(cluster.is_this_machine() && cluster.image_prefix.is_none());
        let current = r#"{"kubeconfig": "/a:/b", "dir": "", "mode": "current", "context": "x", "imagePrefix": "r.example.com"}"#;
        let cluster: Cluster = serde_json::from_str(current).unwrap();
        assert!(!cluster.is_this_machine());
        assert_eq!(cluster.image_prefix.as_deref(), Some("r.example.com"));
    }
}
