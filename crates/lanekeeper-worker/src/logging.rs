//! Logs: one JSON object per line on standard error, with set and partition under `span`.

use tracing_subscriber::EnvFilter;

/// Sets up logging for the process. `RUST_LOG` chooses what is logged; the default is `info`.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,async_nats=warn"));
    // A second call in one process changes nothing.
    let _ = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}
