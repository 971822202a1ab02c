//! A backlog, and how fast it goes down before and after a change from 4 to 16 partitions.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::time::sleep;

use crate::{fleet::Fleet, report::Report};

const KEYS: u64 = 1_000;
const HANDLING: Duration = Duration::from_millis(5);
/// The rates before and after are taken over so long.
const LONG: Duration = Duration::from_secs(5);
/// The rate in between is taken over so long.
const SHORT: Duration = Duration::from_millis(500);
const EVERY: Duration = Duration::from_millis(50);

pub(crate) async fn measure(report: &mut Report, backlog: u64) -> Result<()> {
    eprintln!("drain: {backlog} messages");
    let mut fleet = Fleet::start(4, 16, HANDLING).await?;
    let client = fleet.client().await?;
    for number in 0..backlog {
        client.publish(format!("orders.k{}", number % KEYS), "x".repeat(128).into()).await?;
        if number % 500 == 0 {
            // The server stores no faster than this.
            client.flush().await?;
        }
    }
    client.flush().await?;
    lanekeeper_tests::wait_for(Duration::from_secs(60), "the backlog to be stored", || async {
        let stored = fleet.stored().await.map_err(|error| error.to_string())?;
        (stored == backlog).then_some(()).ok_or(format!("{stored} of {backlog}"))
    })
    .await?;
    fleet.work(0..16).await?;
    sleep(Duration::from_secs(1)).await;
    let before = over(&fleet, LONG).await;
    let asked = Instant::now();
    let asking = fleet.desk.want(16);
    let mut counts = vec![(asked.elapsed(), fleet.noting.handled())];
    while asked.elapsed() < 2 * LONG {
        sleep(EVERY).await;
        counts.push((asked.elapsed(), fleet.noting.handled()));
    }
    let settled = fleet.desk.settled(asking, LONG).await.map_err(anyhow::Error::msg);
    settled?;
    if fleet.noting.handled() >= backlog {
        bail!("a backlog of {backlog} does not last long enough; BENCH_BACKLOG makes it larger");
    }
    let after = between(&counts, LONG, 2 * LONG);
    let reached = counts.iter().map(|(at, _)| *at).find(|at| {
        // 0.9 of it: the rate over a short time scatters.
        *at + SHORT <= 2 * LONG && between(&counts, *at, *at + SHORT) >= 0.9 * after
    });
    fleet.noting.take()?;
    fleet.stop().await?;
    report.alone("drain_4", before, "msg/s");
    report.add("drain_16", after, "msg/s", "drain_4", before);
    report.alone("drain_seconds_until_new_rate", reached.map_or(f64::NAN, |at| at.as_secs_f64()), "s");
    Ok(())
}

/// Messages per second over the next time.
async fn over(fleet: &Fleet, time: Duration) -> f64 {
    let (begin, first) = (Instant::now(), fleet.noting.handled());
    sleep(time).await;
    rate(fleet.noting.handled() - first, begin.elapsed())
}

/// Messages per second from one moment to another.
fn between(counts: &[(Duration, u64)], from: Duration, until: Duration) -> f64 {
    let at = |moment: Duration| counts.iter().find(|(at, _)| *at >= moment).or(counts.last());
    match (at(from), at(until)) {
        (Some(first), Some(last)) if last.0 > first.0 => {
            rate(last.1 - first.1, last.0.saturating_sub(first.0))
        }
        _ => 0.0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of messages are far below 2^52")]
fn rate(messages: u64, time: Duration) -> f64 {
    messages as f64 / time.as_secs_f64()
}
