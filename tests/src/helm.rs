//! Helm, as a user calls it.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    binary,
    cluster::{Cluster, repository},
    images::Images,
};

/// The release of the operator, and its namespace.
pub const RELEASE: &str = "lanekeeper";
/// Where it is installed.
pub const NAMESPACE: &str = "lanekeeper-system";

/// Helm for one cluster.
#[derive(Debug, Clone)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: String,
}

impl Helm {
    /// Helm, built when it is missing.
    pub fn new(cluster: &Cluster) -> Self {
        Self { program: binary::tool("helm"), kubeconfig: cluster.kubeconfig.clone() }
    }

    /// Installs or upgrades the operator with the given images and waits until it runs.
    pub fn install(&self, images: &Images, values: &[&str]) -> Result<String> {
        let chart = repository().join("charts/lanekeeper");
        let (operator, operator_tag) = images.operator.parts();
        let (worker, worker_tag) = images.worker.parts();
        let mut command =
            vec!["upgrade".to_owned(), "--install".into(), RELEASE.into(), chart.display().to_string()];
        command.extend(
            ["--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m"].map(String::from),
        );
        let images = [
            format!("image.repository={operator}"),
            format!("image.tag={operator_tag}"),
            format!("worker.image.repository={worker}"),
            format!("worker.image.tag={worker_tag}"),
        ];
        for value in images.into_iter().chain(values.iter().map(ToString::to_string)) {
            command.extend(["--set".to_owned(), value]);
        }
        self.run(&command)
    }

    /// Removes the operator.
    pub fn uninstall(&self) -> Result<String> {
        self.run(&["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "2m"])
    }

    /// Whether the operator is installed.
    pub fn is_installed(&self) -> Result<bool> {
        let found = self.run(&["list", "--namespace", NAMESPACE, "--short", "--filter", "^lanekeeper$"])?;
        Ok(!found.trim().is_empty())
    }

    /// One call; its standard output.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .output()
            .context("starting helm")?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
            bail!("helm {} failed: {}{told}", words.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(told)
    }
}
