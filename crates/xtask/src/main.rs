//! Work on the repository itself: generates committed files, and checks them and the dependency rule.
//!
//! `cargo xtask generate` writes, `cargo xtask check` and `cargo xtask deps` only look. Nothing here is part of
//! what is shipped.

mod dependencies;
mod difference;
mod files;
mod manifests;
mod reasons;
mod reference;

use anyhow::bail;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Work on the repository itself")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the generated files: definition, its copy in the chart, reference.
    Generate,
    /// Fail when a generated file is not what would be generated.
    Check,
    /// Fail when a crate knows what it must not know.
    Deps,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Generate => files::write(),
        Task::Check => report(&files::stale()?, "run `cargo xtask generate` and commit the result"),
        Task::Deps => report(
            &dependencies::violations(&dependencies::metadata()?)?,
            "see the dependency rule in ARCHITECTURE.md",
        ),
    }
}

fn report(findings: &[String], remedy: &str) -> anyhow::Result<()> {
    for finding in findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{} found; {remedy}", findings.len())
}
