//! The images of the product and of the example, built by `images/build.py` and put into a cluster.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cluster::{Cluster, repository};

/// The variable that names images built before.
const GIVEN: &str = "LANEKEEPER_IMAGES";

/// Which images there are; each tag names the content.
#[derive(Debug, Clone, Deserialize)]
pub struct Images {
    /// The operator.
    pub operator: Image,
    /// The lane.
    pub worker: Image,
    /// The handler of the flights.
    pub flights: Image,
    /// NATS.
    pub nats: Image,
    /// The kubectl plugin, which is no image.
    pub plugin: Program,
}

/// A program for this machine.
#[derive(Debug, Clone, Deserialize)]
pub struct Program {
    /// Where it is.
    pub program: PathBuf,
}

/// One image.
#[derive(Debug, Clone, Deserialize)]
pub struct Image {
    /// Its whole name.
    pub image: String,
    /// Where it is as a file.
    pub archive: PathBuf,
}

impl Image {
    /// The name without the tag, and the tag.
    pub fn parts(&self) -> (&str, &str) {
        self.image.rsplit_once(':').unwrap_or((&self.image, "latest"))
    }
}

impl Images {
    /// Builds what changed. Compilers tell their troubles on standard error.
    ///
    /// `LANEKEEPER_IMAGES` names a file with what `images/build.py` printed before: then nothing is built.
    pub fn build() -> Result<Self> {
        if let Some(file) = std::env::var_os(GIVEN).filter(|file| !file.is_empty()) {
            let file = PathBuf::from(file);
            let text = fs::read(&file).with_context(|| format!("reading {GIVEN}={}", file.display()))?;
            return serde_json::from_slice(&text)
                .with_context(|| format!("reading {GIVEN}={}", file.display()));
        }
        let script = repository().join("images/build.py");
        let output = Command::new(&script)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("starting {}: is Python 3.11 on PATH?", script.display()))?;
        if !output.status.success() {
            bail!("the images could not be built; the reason is above");
        }
        serde_json::from_slice(&output.stdout).context("reading what images/build.py made")
    }

    /// All archives.
    pub fn archives(&self) -> Vec<PathBuf> {
        self.all().map(|image| image.archive.clone()).to_vec()
    }

    /// Puts them where the cluster finds them; in a cluster elsewhere only its user can, and is told how.
    pub fn deliver(&self, cluster: &Cluster) -> Result<()> {
        if cluster.mode != "current" {
            return cluster.load(&self.archives());
        }
        let pushes: Vec<String> = self
            .all()
            .iter()
            .map(|one| {
                format!("  docker load --input {} && docker push {}", one.archive.display(), one.image)
            })
            .collect();
        eprintln!(
            "Your cluster pulls these images; push them unless they are there already:\n{}",
            pushes.join("\n")
        );
        Ok(())
    }

    fn all(&self) -> [&Image; 4] {
        [&self.operator, &self.worker, &self.flights, &self.nats]
    }
}
