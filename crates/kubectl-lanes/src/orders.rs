//! `kubectl lanes retry` and `skip`: an order is written into the key of a lane, and its outcome waited for. I/O.
//!
//! Written by compare-and-set, and never into the key of a lane that is being handed over: then its successor is waited
//! for. What an order is and who carries it out is `lanekeeper_core::order`.

mod target;
mod text;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use lanekeeper_api::validate::Validated;
use lanekeeper_core::{
    names::SetKey,
    order::{MAX_BY, MAX_REASON, Order, OrderError, OrderOutcome, OrderResult, Verb},
    record::LaneKey,
};
use lanekeeper_nats::{ApiError, KvError};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    arguments::NatsFlags,
    cluster::Cluster,
    look::{LookError, look},
    reach::{ReachError, Reached, reach},
    who,
};
pub(crate) use target::{Asked, Head, Target};
pub(crate) use text::render;

/// How often is looked for the outcome.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Writes that others may be faster with.
const CONFLICTS: usize = 32;

/// A reason that cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReasonError {
    #[error("--reason is {found} characters long: it must have 1 to {MAX_REASON}")]
    Length { found: usize },
    #[error("--reason has a control character: it must be one line of text")]
    Line,
}

/// Why nothing is ordered, or nothing known of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrdersError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Look(#[from] LookError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Bucket(#[from] KvError),
    #[error(transparent)]
    Target(#[from] target::TargetError),
    #[error("partition {partition}: {error}")]
    Full { partition: u32, error: OrderError },
    #[error(
        "partition {partition} is being handed over, and no lane took the order within {}; nothing was ordered",
        seconds(.timeout)
    )]
    HandingOver { partition: u32, timeout: Duration },
    #[error("the key of partition {partition}'s lane is written by others all the time; nothing was ordered")]
    Busy { partition: u32 },
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// What came of an order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    set: String,
    #[serde(flatten)]
    target: Target,
    /// The order's number.
    order: String,
    verb: Verb,
    /// `None`: not carried out in time; it stays ordered.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    result: Option<Said>,
    #[serde(skip)]
    timeout: Duration,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    outcome: OrderOutcome,
    messages: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

impl Answer {
    /// What was wanted was done.
    pub(crate) fn is_good(&self) -> bool {
        let outcome = self.result.as_ref().map(|result| &result.outcome);
        matches!(
            outcome,
            Some(
                OrderOutcome::Skipped
                    | OrderOutcome::Succeeded
                    | OrderOutcome::Released
                    | OrderOutcome::Dropped
            )
        )
    }
}

/// Checks what a person wrote.
pub(crate) fn checked(reason: &str) -> Result<String, ReasonError> {
    let reason = reason.trim();
    let found = reason.chars().count();
    if found == 0 || found > MAX_REASON {
        return Err(ReasonError::Length { found });
    }
    if reason.chars().any(char::is_control) {
        return Err(ReasonError::Line);
    }
    Ok(reason.to_owned())
}

/// Orders, and waits for what comes of it.
pub(crate) async fn give(
    cluster: &Cluster,
    set: &Validated,
    nats: &NatsFlags,
    asked: &Asked,
    timeout: Duration,
) -> Result<Answer, OrdersError> {
    let reached = reach(cluster, set, nats).await?;
    give_at(cluster, set, &reached, asked, timeout).await
}

/// The same through a connection that is there already.
pub(crate) async fn give_at(
    cluster: &Cluster,
    set: &Validated,
    reached: &Reached,
    asked: &Asked,
    timeout: Duration,
) -> Result<Answer, OrdersError> {
    let until = Instant::now() + timeout;
    let mut order = Order {
        id: id(reached),
        verb: asked.verb(),
        key: String::new(),
        sequence: None,
        through: None,
        reason: asked.reason().to_owned(),
        by: who::am_i(cluster.client()).await.chars().take(MAX_BY).collect(),
        at: Timestamp::now().to_string(),
        begun: false,
    };
    let target = loop {
        let seen = look(reached, set).await?;
        let Some(target) = target::find(reached, set, &seen, asked).await? else {
            let partition = asked.partition(set);
            pause(until).await.ok_or(OrdersError::HandingOver { partition, timeout })?;
            continue;
        };
        target.fill(&mut order);
        if write(reached, set, &target, &order).await? {
            break target;
        }
        let partition = target.partition;
        pause(until).await.ok_or(OrdersError::HandingOver { partition, timeout })?;
    };
    let result = wait(reached, set, target.incarnation, &order.id, until).await?;
    let result = result.map(|result| Said {
        outcome: result.outcome,
        messages: result.messages,
        reason: result.reason,
    });
    Ok(Answer { set: set.name.to_string(), target, order: order.id, verb: order.verb, result, timeout })
}

/// Something that no other order has.
fn id(reached: &Reached) -> String {
    let inbox = reached.connection.client().new_inbox();
    inbox.rsplit('.').next().unwrap_or_default().to_owned()
}

/// A moment, if there is time for one.
async fn pause(until: Instant) -> Option<()> {
    (Instant::now() < until).then_some(())?;
    tokio::time::sleep(LOOK_EVERY).await;
    Some(())
}

/// Whether the lane has the order now; not when it is being handed over.
async fn write(
    reached: &Reached,
    set: &Validated,
    target: &Target,
    order: &Order,
) -> Result<bool, OrdersError> {
    let key = set.name.lane_key(target.incarnation);
    for _ in 0..CONFLICTS {
        let Some(mut found) = reached.bucket.get_json::<LaneKey>(&key).await? else { return Ok(false) };
        match found.value.add_order(order.clone()) {
            Ok(()) => {}
            Err(OrderError::Retiring) => return Ok(false),
            Err(error @ OrderError::Full) => {
                return Err(OrdersError::Full { partition: target.partition, error });
            }
        }
        match reached.bucket.put_json(&key, &found.value, Some(found.revision)).await {
            Ok(_) => return Ok(true),
            // An answer that was lost is found out by reading again: the same order is added once.
            Err(error) if error.is_conflict() || matches!(error, KvError::Unknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(OrdersError::Busy { partition: target.partition })
}

/// What came of the order, in whichever lane it was carried out; `None` when it was not in time.
async fn wait(
    reached: &Reached,
    set: &Validated,
    incarnation: u64,
    id: &str,
    until: Instant,
) -> Result<Option<OrderResult>, OrdersError> {
    let own = set.name.lane_key(incarnation);
    loop {
        let found = reached.bucket.get_json::<LaneKey>(&own).await?.map(|found| found.value);
        let result = found.as_ref().and_then(|key| result_in(key, id));
        if result.is_some() {
            return Ok(result);
        }
        let waits = found.is_some_and(|key| !key.retiring && key.orders.iter().any(|order| order.id == id));
        if !waits && let Some(result) = elsewhere(reached, set, id).await? {
            return Ok(Some(result));
        }
        if pause(until).await.is_none() {
            return Ok(None);
        }
    }
}

/// A lane that is handed over leaves its orders to its successor.
async fn elsewhere(reached: &Reached, set: &Validated, id: &str) -> Result<Option<OrderResult>, KvError> {
    let mut void = None;
    for entry in reached.bucket.load(&format!("{}lane.", set.name.key_prefix())).await? {
        if !matches!(set.name.parse_key(&entry.key), Some(SetKey::Lane(_))) {
            continue;
        }
        let Some(found) = reached.bucket.parse::<LaneKey>(&entry)? else { continue };
        match result_in(&found.value, id) {
            // The lane before may have done it.
            Some(result) if result.outcome == OrderOutcome::Void => void = Some(result),
            Some(result) => return Ok(Some(result)),
            None => {}
        }
    }
    Ok(void)
}

fn result_in(key: &LaneKey, id: &str) -> Option<OrderResult> {
    key.results.iter().find(|result| result.id == id).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_text_of_bounded_length() {
        assert_eq!(checked(" a duplicate ").unwrap(), "a duplicate");
        for (bad, words) in [
            ("", "--reason is 0 characters long: it must have 1 to 256"),
            (" ", "--reason is 0 characters long"),
            (&*"x".repeat(257), "--reason is 257 characters long"),
            ("two\nlines", "--reason has a control character"),
        ] {
            let error = checked(bad).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
