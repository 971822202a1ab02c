//! `make bench`: one lane against nats.go, orbit.go and the round trip; what its program takes; how long a lane stands when
//! its worker goes away; what a change of the number of partitions costs. Real servers, in one run.
//!
//! Everything is measured several times, taking turns, because other work on the machine comes and goes; the median
//! counts. The names of the rows are documented in docs/benchmarks.md and do not change.

mod bare;
mod drain;
mod failover;
mod fleet;
mod handler;
mod handover;
mod lane;
mod peers;
mod program;
mod report;
mod setting;

use anyhow::{Result, bail};
use lanekeeper_core::record::Delivery;
use tokio::runtime::Builder;

use report::{Report, median};
use setting::Setting;

/// Messages of one measurement.
const MESSAGES: u64 = 20_000;
const ROUNDS: usize = 5;
/// Windows of a pipelined lane.
const WINDOWS: [u32; 2] = [64, 256];
/// Messages over which memory must stay flat.
const MEMORY: u64 = 1_000_000;
/// Messages that wait when the number of partitions is raised.
const BACKLOG: u64 = 100_000;

fn main() -> Result<()> {
    let messages = number("BENCH_MESSAGES", MESSAGES)?;
    let rounds = usize::try_from(number("BENCH_ROUNDS", ROUNDS as u64)?)?;
    let backlog = number("BENCH_BACKLOG", BACKLOG)?;
    let memory = number("BENCH_MEMORY", MEMORY)?;
    let parts = Part::wanted()?;
    let mut report = Report::default();
    // The program runs on one thread, so what is measured does too.
    let alone = Builder::new_current_thread().enable_all().build()?;
    // Many programs at once, which have the machine's cores.
    let many = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for part in parts {
        match part {
            Part::Lane => alone.block_on(one_lane(&mut report, messages, rounds))?,
            Part::Failover => alone.block_on(failover::measure(&mut report, rounds))?,
            Part::Memory => alone.block_on(memory_over_many(&mut report, memory))?,
            Part::Handover => many.block_on(handover::measure(&mut report, rounds))?,
            Part::Drain => many.block_on(drain::measure(&mut report, backlog))?,
        }
    }
    report.print();
    report.write()
}

/// What can be measured by itself.
#[derive(Debug, Clone, Copy)]
enum Part {
    Lane,
    Failover,
    Memory,
    Handover,
    Drain,
}

impl Part {
    const ALL: [(&str, Self); 5] = [
        ("lane", Self::Lane),
        ("failover", Self::Failover),
        ("memory", Self::Memory),
        ("handover", Self::Handover),
        ("drain", Self::Drain),
    ];

    /// What `BENCH_ONLY` asks for.
    fn wanted() -> Result<Vec<Self>> {
        let only = std::env::var("BENCH_ONLY").unwrap_or_default();
        let chosen = Self::ALL.iter().filter(|(name, _)| only.is_empty() || *name == only);
        let parts: Vec<Self> = chosen.map(|(_, part)| *part).collect();
        if parts.is_empty() {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            bail!("BENCH_ONLY is '{only}': it must be one of {names}, or not be set");
        }
        Ok(parts)
    }
}

async fn one_lane(report: &mut Report, messages: u64, rounds: usize) -> Result<()> {
    let peers = peers::Peers::build()?;
    let program = program::Program::build().await?;
    let mut setting = Setting::start().await?;
    peers.publish(&setting.url(), messages)?;
    let (mut lanes, mut bare) = (Vec::new(), Vec::new());
    let mut pipelined = WINDOWS.map(|window| (window, Vec::new()));
    let mut measured: Vec<(&str, Vec<f64>)> = peers::NAMES.iter().map(|name| (*name, Vec::new())).collect();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for (name, values) in &mut measured {
            values.push(peers.measure(&setting, name, messages)?);
        }
        bare.push(bare::measure(&mut setting, messages).await?);
        lanes.push(lane::measure(&mut setting, messages, Delivery::Serial).await?);
        for (window, values) in &mut pipelined {
            let delivery = Delivery::Pipelined { window: *window };
            values.push(lane::measure(&mut setting, messages, delivery).await?);
        }
    }
    let peer = |wanted: &str| {
        let values = measured.iter().find(|(name, _)| *name == wanted);
        values.map_or(f64::NAN, |(_, values)| median(values))
    };
    let (lane, bare) = (median(&lanes), median(&bare));
    for against in ["nats_go_consume_ack", "nats_go_fetch1_double_ack", "orbit_pcgroups_consume", "ping_pong"]
    {
        report.add(&format!("lane_serial_vs_{against}"), lane, "msg/s", against, peer(against));
    }
    report.add("lane_serial_vs_bare_loop", lane, "msg/s", "bare_loop", bare);
    for (window, values) in &pipelined {
        let (name, value) = (format!("lane_pipelined_{window}"), median(values));
        report.add(&format!("{name}_vs_lane_serial"), value, "msg/s", "lane_serial", lane);
        let against = "nats_go_consume_ack_all_64";
        report.add(&format!("{name}_vs_{against}"), value, "msg/s", against, peer(against));
    }
    report.add("bare_loop", bare, "msg/s", "ping_pong", peer("ping_pong"));
    for name in peers::NAMES {
        report.alone(name, peer(name), if *name == "ping_pong" { "round trips/s" } else { "msg/s" });
    }
    let round_trip = 1e6 / peer("ping_pong");
    program::measure(&mut setting, &program, messages.min(5_000), round_trip, report).await
}

async fn memory_over_many(report: &mut Report, messages: u64) -> Result<()> {
    let program = program::Program::build().await?;
    let mut setting = Setting::start().await?;
    program::memory_over_many(&mut setting, &program, messages, report).await
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
