//! Publishes the departures while the handlers work, and shows how far both are.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use async_nats::jetstream;
use lanekeeper_core::names::SetName;
use tokio::time::MissedTickBehavior;

use super::Teller;
use crate::{
    cluster::Cluster,
    flights::{
        NAMESPACE, SET, STREAM, SUBJECT, data::Message, journals::Journals, lag, publish::Publisher,
        reach::Reach,
    },
    journal::Entry,
    kubectl::Kubectl,
};

const TICK: Duration = Duration::from_secs(1);
/// Nothing handled for so long, although something waits: more than a dead worker's message needs (about 45 s).
const STALLED: Duration = Duration::from_secs(120);

/// What happened.
pub(super) struct Outcome {
    /// All handlings of what was published.
    pub(super) entries: Vec<Entry>,
    /// Why it ended before everything was handled.
    pub(super) trouble: Option<String>,
}

/// From the first message to the last handling.
pub(super) async fn run(
    teller: &Teller,
    cluster: &Cluster,
    kubectl: &Kubectl,
    selector: &str,
    messages: &[Message],
) -> Result<Outcome> {
    let reach = Reach::nats(cluster, kubectl, NAMESPACE).await?;
    let client = reach.connect().await?;
    let context = jetstream::new(client);
    let publisher = Publisher::new(context.clone(), STREAM, SUBJECT);
    let base = publisher.last_sequence().await?;
    let mut journals = Journals::follow(kubectl, NAMESPACE, selector, base).await?;
    teller.say(
        "flow",
        &format!("publishing {} departures to {}", grouped(messages.len() as u64), reach.address()),
    );

    let acknowledged = AtomicUsize::new(0);
    let publishing = async {
        publisher.publish(base, messages, |count| acknowledged.store(count, Ordering::Relaxed)).await?;
        Ok::<(), anyhow::Error>(())
    };
    let watching = watch(teller, &context, &mut journals, messages.len(), &acknowledged);
    // An error of the publisher ends both at once: what it did not publish nobody will handle.
    let ((), trouble) = tokio::try_join!(publishing, watching)?;
    Ok(Outcome { entries: journals.entries().to_vec(), trouble })
}

/// Tells how it goes until everything was handled, or nothing moves any more.
async fn watch(
    teller: &Teller,
    context: &jetstream::Context,
    journals: &mut Journals,
    total: usize,
    acknowledged: &AtomicUsize,
) -> Result<Option<String>> {
    let name = SetName::new(NAMESPACE, SET);
    let mut ticks = tokio::time::interval(TICK);
    // A slow machine gets fewer lines, not a burst of them.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut moved = (Instant::now(), 0);
    loop {
        ticks.tick().await;
        let before = journals.handled();
        let unread = journals.read_on().await.err();
        let handled = journals.handled();
        let published = acknowledged.load(Ordering::Relaxed);
        let lag = lag::by_partition(context, STREAM, &name).await.context("asking for the lag")?;
        teller.say("flow", &line(published, handled, handled - before, &lag));
        if handled == total {
            return Ok(None);
        }
        if handled > moved.1 {
            moved = (Instant::now(), handled);
        }
        let done = published == total && lag.values().all(|count| *count == 0);
        // With nothing left before the lanes only an unread journal can still bring something.
        if done && unread.is_none() && handled == before {
            return Ok(Some(format!(
                "the lanes have nothing left, but only {handled} of {total} are in the journals"
            )));
        }
        if moved.0.elapsed() > STALLED {
            let words = unread.map(|error| format!("; {error:#}")).unwrap_or_default();
            return Ok(Some(format!("nothing was handled for {} s{words}", STALLED.as_secs())));
        }
    }
}

fn line(published: usize, handled: usize, rate: usize, lag: &BTreeMap<u32, u64>) -> String {
    let lag: Vec<String> =
        lag.iter().map(|(partition, count)| format!("{partition}:{}", grouped(*count))).collect();
    format!(
        "published {:>7}   handled {:>7} ({:>5}/s)   lag {}",
        grouped(published as u64),
        grouped(handled as u64),
        grouped(rate as u64),
        lag.join("  "),
    )
}

/// 1234567 as 1,234,567.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (328_521, "328,521"), (1_000_000, "1,000,000")]
        {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_line_has_the_lag_of_each_partition() {
        let text = line(20_000, 1_200, 300, &BTreeMap::from([(0, 5_000), (1, 0)]));
        assert!(text.contains("published  20,000") && text.contains("lag 0:5,000  1:0"), "{text}");
    }
}
