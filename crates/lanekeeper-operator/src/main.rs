//! The operator's process: flags, logs, signals; everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use lanekeeper_operator::{Settings, run};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let settings = Settings::parse();
    let filter = match EnvFilter::try_new(&settings.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("lanekeeper-operator: --log {}: {error}", settings.log);
            return ExitCode::from(2);
        }
    };
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if settings.log_format == "json" {
        logs.json().flatten_event(true).init();
    } else {
        logs.init();
    }
    match run::until(settings, run::signalled()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the operator ends");
            ExitCode::FAILURE
        }
    }
}
