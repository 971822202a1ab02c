//! The real program in front of a handler behind HTTP: its overhead, its memory, its size.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use lanekeeper_core::record::Delivery;
use lanekeeper_tests::{lane, wait_until};
use tokio::process::{Child, Command};

use crate::{
    handler::{Handled, HttpHandler},
    report::{Report, quantile},
    setting::{STREAM, Setting},
};

/// Payload of the messages that it is fed with.
const PAYLOAD: usize = 1024;
const MIB: f64 = 1_048_576.0;
/// The pod, where there is but one.
const POD: &str = "pod";
/// Stored, handled and removed at once while memory is measured.
const PORTION: u64 = 100_000;

/// The program as `cargo build --release` makes it.
pub(crate) struct Program {
    file: PathBuf,
}

impl Program {
    pub(crate) async fn build() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--release", "--quiet", "-p", "lanekeeper-worker", "--bin", "lanekeeper-worker"])
            .current_dir(&root)
            .status()
            .await?;
        if !built.success() {
            bail!("lanekeeper-worker could not be built");
        }
        Ok(Self { file: root.join("target/release/lanekeeper-worker").canonicalize()? })
    }

    /// Ends with the value.
    pub(crate) fn start(&self, setting: &Setting, pod: &str, handler: &HttpHandler) -> Result<Child> {
        let child = lane::program(&self.file, &setting.set, pod, STREAM, &setting.url())
            .args(["--admin-address", "127.0.0.1:0"])
            .env("LANEKEEPER_HANDLER_URL", handler.url(pod))
            .stderr(Stdio::null())
            .spawn()?;
        Ok(child)
    }
}

/// Rows of the program in front of a handler that answers at once. `round_trip` in microseconds.
#[expect(clippy::cast_precision_loss, reason = "sizes and counts are far below 2^52")]
pub(crate) async fn measure(
    setting: &mut Setting,
    program: &Program,
    messages: u64,
    round_trip: f64,
    report: &mut Report,
) -> Result<()> {
    let first = setting.publish(messages, PAYLOAD).await?;
    let consumer = setting.open_lane(Some(first), Delivery::Serial).await?;
    let handler = HttpHandler::start(Duration::ZERO).await?;
    let begin = Instant::now();
    let mut child = program.start(setting, POD, &handler)?;
    wait_handled(&handler, messages).await;
    report.alone("worker_http", messages as f64 / begin.elapsed().as_secs_f64(), "msg/s");
    setting.close_lane(&consumer).await?;
    let pid = child.id().context("the program ended by itself")?;
    let overheads = overheads(&handler.take(false)?);
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let name = format!("worker_http_overhead_{name}");
        report.add(&name, quantile(&overheads, part), "us", "round_trip", round_trip);
    }
    report.add("worker_rss", memory(pid, "VmRSS")?, "MiB", "aim", 15.0);
    report.add("worker_rss_peak", memory(pid, "VmHWM")?, "MiB", "aim", 15.0);
    let size = std::fs::metadata(&program.file)?.len() as f64 / MIB;
    report.add("worker_binary", size, "MiB", "aim", 12.0);
    child.kill().await?;
    Ok(())
}

/// Microseconds from the end of each handling to the beginning of the next.
fn overheads(handled: &[Handled]) -> Vec<f64> {
    let pairs = handled.iter().zip(handled.iter().skip(1));
    pairs.filter_map(|(one, next)| Some((next.begun - one.ended?).as_secs_f64() * 1e6)).collect()
}

/// Whether memory stays flat over many messages.
pub(crate) async fn memory_over_many(
    setting: &mut Setting,
    program: &Program,
    messages: u64,
    report: &mut Report,
) -> Result<()> {
    let handler = HttpHandler::start(Duration::ZERO).await?;
    let mut child = program.start(setting, POD, &handler)?;
    let pid = child.id().context("the program ended by itself")?;
    let first = setting.publish(PORTION.min(messages), PAYLOAD).await?;
    let consumer = setting.open_lane(Some(first), Delivery::Serial).await?;
    let mut sizes = Vec::new();
    let mut done = 0;
    loop {
        let portion = PORTION.min(messages - done);
        wait_handled(&handler, portion).await;
        setting.wait_settled(&consumer).await?;
        handler.take(false)?;
        setting.purge().await?;
        done += portion;
        sizes.push(memory(pid, "VmRSS")?);
        eprintln!("memory: {done} of {messages} messages, {:.1} MiB", sizes[sizes.len() - 1]);
        if done >= messages {
            break;
        }
        setting.publish(PORTION.min(messages - done), PAYLOAD).await?;
    }
    report.alone("worker_rss_first_portion", sizes[0], "MiB");
    let last = sizes[sizes.len() - 1];
    report.add("worker_rss_last_portion", last, "MiB", "worker_rss_first_portion", sizes[0]);
    report.add("worker_rss_peak_over_all", memory(pid, "VmHWM")?, "MiB", "aim", 15.0);
    setting.close_lane(&consumer).await?;
    child.kill().await?;
    Ok(())
}

async fn wait_handled(handler: &HttpHandler, messages: u64) {
    wait_until(Duration::from_secs(300), "the program to handle everything", || async {
        let handled = handler.count();
        (handled >= messages).then_some(()).ok_or(format!("{handled} of {messages}"))
    })
    .await;
}

/// One line of the kernel's account of a process, in MiB.
fn memory(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with(name)).context("the kernel does not say")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kilobytes / 1024.0)
}
