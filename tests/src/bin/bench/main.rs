//! `make bench`: one serial lane against nats.go and against the round trip; what a change of the number of partitions
//! costs; one server, in one run.
//!
//! Everything is measured several times, taking turns, because other work on the machine comes and goes; the median
//! counts. The names of the rows are documented in docs/benchmarks.md and do not change.

mod drain;
mod fleet;
mod handover;
mod lane;
mod peers;
mod program;
mod report;
mod setting;

use anyhow::{Result, bail};
use tokio::runtime::Builder;

use report::{Report, median};
use setting::Setting;

/// Messages of one measurement.
const MESSAGES: u64 = 20_000;
const ROUNDS: usize = 5;
/// Messages that wait when the number of partitions is raised.
const BACKLOG: u64 = 100_000;

fn main() -> Result<()> {
    let messages = number("BENCH_MESSAGES", MESSAGES)?;
    let rounds = usize::try_from(number("BENCH_ROUNDS", ROUNDS as u64)?)?;
    let backlog = number("BENCH_BACKLOG", BACKLOG)?;
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let (lane, handover, drain) = match only.as_str() {
        "" => (true, true, true),
        "lane" => (true, false, false),
        "handover" => (false, true, false),
        "drain" => (false, false, true),
        other => bail!("BENCH_ONLY is '{other}': it must be lane, handover or drain, or not be set"),
    };
    let mut report = Report::default();
    if lane {
        // The program runs on one thread, so what is measured does too.
        Builder::new_current_thread().enable_all().build()?.block_on(one_lane(
            &mut report,
            messages,
            rounds,
        ))?;
    }
    // Many programs at once, which have the machine's cores.
    let many = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if handover {
        many.block_on(handover::measure(&mut report, rounds))?;
    }
    if drain {
        many.block_on(drain::measure(&mut report, backlog))?;
    }
    report.print();
    report.write()
}

async fn one_lane(report: &mut Report, messages: u64, rounds: usize) -> Result<()> {
    let peers = peers::Peers::build()?;
    let program = program::build()?;
    let mut setting = Setting::start().await?;
    peers.publish(&setting.url(), messages)?;
    let mut lanes = Vec::new();
    let mut measured: Vec<(&str, Vec<f64>)> = peers::NAMES.iter().map(|name| (*name, Vec::new())).collect();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for (name, values) in &mut measured {
            values.push(peers.measure(&setting.url(), name, messages)?);
        }
        lanes.push(lane::measure(&mut setting, messages).await?);
    }
    let peer = |wanted: &str| {
        let values = measured.iter().find(|(name, _)| *name == wanted);
        values.map_or(f64::NAN, |(_, values)| median(values))
    };
    let lane = median(&lanes);
    for against in ["nats_go_consume_ack", "nats_go_fetch1_double_ack", "ping_pong"] {
        report.add(&format!("lane_serial_vs_{against}"), lane, "msg/s", against, peer(against));
    }
    for name in peers::NAMES {
        report.alone(name, peer(name), if *name == "ping_pong" { "round trips/s" } else { "msg/s" });
    }
    let footprint = program::footprint(&mut setting, &program, messages.min(5_000)).await?;
    report.alone("worker_http", footprint.rate, "msg/s");
    report.add("worker_rss", footprint.rss, "MiB", "aim", 15.0);
    report.add("worker_rss_peak", footprint.peak, "MiB", "aim", 15.0);
    report.add("worker_binary", footprint.binary, "MiB", "aim", 12.0);
    Ok(())
}

fn number(variable: &str, otherwise: u64) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(|| anyhow::anyhow!("{variable} is '{text}': it must be a number from 1 up")),
        Err(_) => Ok(otherwise),
    }
}
