//! What is still before the lanes, by partition: what consumers say of themselves.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use async_nats::jetstream::Context;
use futures::TryStreamExt;
use lanekeeper_core::names::SetName;

/// Messages waiting or in hand, by partition, summed over a partition's incarnations.
pub async fn by_partition(jetstream: &Context, stream: &str, set: &SetName) -> Result<BTreeMap<u32, u64>> {
    let stream = jetstream.get_stream(stream).await.with_context(|| format!("looking up stream {stream}"))?;
    let mut lag = BTreeMap::new();
    let mut consumers = stream.consumers();
    while let Some(consumer) = consumers.try_next().await.context("listing consumers")? {
        if let Some((partition, _)) = set.parse_consumer(&consumer.name) {
            *lag.entry(partition).or_default() += consumer.num_pending + consumer.num_ack_pending as u64;
        }
    }
    Ok(lag)
}
