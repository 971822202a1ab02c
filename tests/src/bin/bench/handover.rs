//! The pause that a key sees when the number of partitions changes under load.
//!
//! Each key gets a message every few milliseconds, and each message says when it was stored: how late the latest of a
//! key's messages around a change came to its handler is the pause that the key saw.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use anyhow::{Result, bail};
use lanekeeper_core::{
    hash::fnv1a32,
    share::{Share, partition_of},
};
use lanekeeper_tests::wait_for;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    fleet::{Fleet, Sample},
    report::Report,
};

const KEYS: usize = 100;
/// Between two messages of a key.
const EVERY: Duration = Duration::from_millis(20);
/// Around a change.
const QUIET: Duration = Duration::from_secs(1);

/// Pauses in milliseconds, one for each key and change.
#[derive(Default)]
struct Pauses {
    changed: Vec<f64>,
    bystanders: Vec<f64>,
    changes: Vec<f64>,
}

pub(crate) async fn measure(report: &mut Report, rounds: usize) -> Result<()> {
    let mut usual = Vec::new();
    let few = changes(4, &[8, 9, 8, 4], 16, rounds, &mut usual).await?;
    let many = changes(64, &[128, 64], 128, rounds, &mut Vec::new()).await?;
    for (name, pauses) in
        [("4_to_8", &few[&(4, 8)]), ("8_to_4", &few[&(8, 4)]), ("64_to_128", &many[&(64, 128)])]
    {
        report.alone(&format!("handover_{name}_pause_p50"), at(&pauses.changed, 0.5), "ms");
        report.add(&format!("handover_{name}_pause_p99"), at(&pauses.changed, 0.99), "ms", "aim", 250.0);
        report.alone(&format!("handover_{name}_pause_max"), at(&pauses.changed, 1.0), "ms");
        report.alone(&format!("handover_{name}_change"), at(&pauses.changes, 0.5), "ms");
    }
    let bystanders = &few[&(8, 9)].bystanders;
    for (name, part) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        report.alone(&format!("handover_usual_{name}"), at(&usual, part), "ms");
        let (name, usually) = (format!("handover_8_to_9_bystanders_{name}"), at(&usual, part));
        report.add(&name, at(bystanders, part), "ms", "usual", usually);
    }
    Ok(())
}

/// The changes from `first` through `numbers`, again and again.
async fn changes(
    first: u32,
    numbers: &[u32],
    most: u32,
    rounds: usize,
    usual: &mut Vec<f64>,
) -> Result<BTreeMap<(u32, u32), Pauses>> {
    let mut fleet = Fleet::start(first, most, Duration::ZERO).await?;
    fleet.work(0..most).await?;
    let (stop, publisher) = publish(fleet.client().await?);
    let mut found: BTreeMap<(u32, u32), Pauses> = BTreeMap::new();
    let mut now = first;
    for round in 1..=rounds {
        eprintln!("handover from {first}: round {round} of {rounds}");
        for &next in numbers {
            sleep(QUIET).await;
            fleet.noting.take()?;
            sleep(QUIET).await;
            usual.extend(latest(&fleet.noting.take()?, |_| true));
            let began = SystemTime::now();
            let took = fleet.change(next).await?;
            // What was stored until then is handled a moment later.
            sleep(QUIET).await;
            let samples: Vec<Sample> = fleet.noting.take()?;
            let around: Vec<Sample> = samples.into_iter().filter(|one| one.stored + EVERY >= began).collect();
            let changes = |key: &str| share(key, now) != share(key, next);
            let pauses = found.entry((now, next)).or_default();
            pauses.changed.extend(latest(&around, changes));
            pauses.bystanders.extend(latest(&around, |key| !changes(key)));
            pauses.changes.push(took.as_secs_f64() * 1_000.0);
            now = next;
        }
    }
    let _ = stop.send(());
    let published = publisher.await??;
    wait_for(Duration::from_secs(30), "everything to be handled", || async {
        let handled = fleet.noting.handled();
        (handled == published).then_some(()).ok_or(format!("{handled} of {published}"))
    })
    .await?;
    if fleet.stored().await? != published {
        bail!("not everything that was published was stored");
    }
    fleet.noting.take()?;
    fleet.stop().await?;
    Ok(found)
}

/// Of each of these keys the message that came latest, in milliseconds.
fn latest(samples: &[Sample], which: impl Fn(&str) -> bool) -> Vec<f64> {
    let mut latest: BTreeMap<&str, Duration> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| which(&sample.key)) {
        let known = latest.entry(&sample.key).or_default();
        *known = sample.late.max(*known);
    }
    latest.into_values().map(|late| late.as_secs_f64() * 1_000.0).collect()
}

fn share(key: &str, partitions: u32) -> Option<Share> {
    Share::of_partition(partition_of(fnv1a32([key.as_bytes()]), partitions), partitions)
}

/// Every key in turn, each as often as the others. How many there were.
fn publish(client: async_nats::Client) -> (oneshot::Sender<()>, JoinHandle<Result<u64>>) {
    let (stop, mut stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let mut count = 0;
        let mut turn = interval(EVERY / 20);
        turn.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            turn.tick().await;
            for _ in 0..KEYS / 20 {
                let key = usize::try_from(count)? % KEYS;
                client.publish(format!("orders.k{key}"), "x".repeat(128).into()).await?;
                count += 1;
            }
            client.flush().await?;
        }
        Ok(count)
    });
    (stop, task)
}

/// The value below which a part of them is.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index is far below 2^52 and not negative"
)]
fn at(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() as f64 * part) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
