//! `lanekeeper-worker`: one partition's lane in front of a handler behind HTTP or of a program. All of it is in the library.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use lanekeeper_worker::{Worker, install, logging};

/// Serves one partition of an ordered partition set, in order.
///
/// What it serves comes from LANEKEEPER_… variables, which the operator sets; everything about the lane from its
/// assignment in NATS.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, default_value = "0.0.0.0:9797", value_name = "ADDRESS")]
    admin_address: SocketAddr,
    /// How long what is in hand may take after SIGTERM; default: the handler timeout and 10 seconds.
    #[arg(long, value_name = "SECONDS")]
    grace_seconds: Option<u64>,
    #[command(subcommand)]
    instead: Option<Instead>,
}

/// What is done instead of serving.
#[derive(Debug, Subcommand)]
enum Instead {
    /// Copies this program into a folder, for a container of another image to start it there.
    Install {
        /// The folder; it must be there.
        folder: PathBuf,
    },
}

// One lane does one thing at a time, so one thread is enough and the fastest.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::init();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "cannot run");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(Instead::Install { folder }) = &arguments.instead {
        let path = install::install(folder)?;
        tracing::info!(path = %path.display(), "copied");
        return Ok(());
    }
    let worker = Worker::from_environment(std::env::vars())?;
    let handler = worker.pod_handler()?;
    let mut builder = worker.into_builder().admin(arguments.admin_address);
    if let Some(seconds) = arguments.grace_seconds {
        builder = builder.grace(Duration::from_secs(seconds));
    }
    builder.build().run_batches(handler).await?;
    Ok(())
}
