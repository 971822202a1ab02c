//! The real program in front of a handler behind HTTP: how much memory it takes, how large it is.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use lanekeeper_tests::wait_until;
use tokio::net::TcpListener;

use crate::setting::{STREAM, Setting};

/// Payload of the messages that it is fed with.
const PAYLOAD: usize = 1024;
const MIB: f64 = 1_048_576.0;

/// What was measured.
pub(crate) struct Footprint {
    /// MiB after the messages were handled.
    pub(crate) rss: f64,
    /// MiB at most.
    pub(crate) peak: f64,
    /// MiB of the file.
    pub(crate) binary: f64,
    /// Messages per second through HTTP.
    pub(crate) rate: f64,
}

pub(crate) fn build() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "-p", "lanekeeper-worker", "--bin", "lanekeeper-worker"])
        .current_dir(&root)
        .status()?;
    if !built.success() {
        bail!("lanekeeper-worker could not be built");
    }
    Ok(root.join("target/release/lanekeeper-worker").canonicalize()?)
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts are far below 2^52")]
pub(crate) async fn footprint(setting: &mut Setting, program: &Path, messages: u64) -> Result<Footprint> {
    let first = publish(setting, messages).await?;
    let consumer = setting.open_lane(Some(first)).await?;
    let handled = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/", post(handle)).with_state(Arc::clone(&handled));
    let handler = tokio::spawn(async move { axum::serve(listener, router).await });
    let begin = Instant::now();
    let mut child = tokio::process::Command::new(program)
        .args(["--admin-address", "127.0.0.1:0"])
        .env_clear()
        .env("LANEKEEPER_NAMESPACE", &setting.set.namespace)
        .env("LANEKEEPER_SET", &setting.set.name)
        .env("LANEKEEPER_PARTITION", "0")
        .env("LANEKEEPER_POD", "bench")
        .env("LANEKEEPER_STREAM", STREAM)
        .env("LANEKEEPER_NATS_SERVERS", setting.url())
        .env("LANEKEEPER_HANDLER_URL", format!("http://{address}/"))
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    wait_until(Duration::from_secs(120), "the program to handle everything", || async {
        let handled = handled.load(Ordering::Relaxed);
        (handled >= messages).then_some(()).ok_or(format!("{handled} of {messages}"))
    })
    .await;
    let rate = messages as f64 / begin.elapsed().as_secs_f64();
    setting.close_lane(&consumer).await?;
    let pid = child.id().context("the program ended by itself")?;
    let footprint = Footprint {
        rss: memory(pid, "VmRSS")?,
        peak: memory(pid, "VmHWM")?,
        binary: std::fs::metadata(program)?.len() as f64 / MIB,
        rate,
    };
    child.kill().await?;
    handler.abort();
    Ok(footprint)
}

async fn handle(State(handled): State<Arc<AtomicU64>>, body: Bytes) -> StatusCode {
    if body.len() != PAYLOAD {
        return StatusCode::BAD_REQUEST;
    }
    handled.fetch_add(1, Ordering::Relaxed);
    StatusCode::NO_CONTENT
}

/// The first sequence.
async fn publish(setting: &Setting, messages: u64) -> Result<u64> {
    let payload = bytes::Bytes::from(vec![b'x'; PAYLOAD]);
    let mut first = None;
    for number in 0..messages {
        let subject = format!("bench.k{}", number % 100);
        let stored = setting.connection.context().publish(subject, payload.clone()).await?.await?;
        first.get_or_insert(stored.sequence);
    }
    first.context("nothing was published")
}

/// One line of the kernel's account of a process, in MiB.
fn memory(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with(name)).context("the kernel does not say")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kilobytes / 1024.0)
}
