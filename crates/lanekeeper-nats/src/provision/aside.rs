//! The stream of the messages of a set that are put aside (dead aside, or parked), where the operator makes it.

use lanekeeper_core::{
    aside::{Aside, Kind, metadata_of},
    stream::{StreamOwner, StreamSpec},
};
use serde_json::Value;

use super::{ProvisionError, merge_metadata};
use crate::{
    api::ApiError,
    connection::Connection,
    observe::{self, Object},
};

/// How long a message that comes again is recognised.
const DUPLICATE_WINDOW_NANOSECONDS: u64 = 3600 * 1_000_000_000;

/// Creates it: stored and copied as the set's own stream, without limits.
pub async fn create_aside(
    connection: &Connection,
    aside: &Aside,
    set: &StreamSpec,
    owner: &StreamOwner,
) -> Result<(), ProvisionError> {
    let mut config = Object::new();
    config.insert("name".into(), aside.stream.clone().into());
    config.insert("storage".into(), set.storage.wire().into());
    config.insert("retention".into(), "limits".into());
    config.insert("max_consumers".into(), (-1).into());
    without_limits(&mut config);
    // Should a person give it limits: a dead letter less is better than a lane that stands, a parked message less is a key
    // that is unlocked.
    let discard = if aside.kind == Kind::Parked { "new" } else { "old" };
    config.insert("discard".into(), discard.into());
    config.insert("duplicate_window".into(), DUPLICATE_WINDOW_NANOSECONDS.into());
    // Single messages are taken out again.
    config.insert("deny_delete".into(), false.into());
    config.insert("allow_direct".into(), true.into());
    send(connection, "CREATE", aside, set, owner, config).await
}

/// Gives it back what drifted; everything else stays as it is.
pub async fn repair_aside(
    connection: &Connection,
    aside: &Aside,
    set: &StreamSpec,
    owner: &StreamOwner,
) -> Result<(), ProvisionError> {
    let info = observe::stream_info(connection, &aside.stream).await;
    let info = info.map_err(|error| failed(aside, error))?;
    let info = info.ok_or_else(|| ProvisionError::Missing { object: object(aside) })?;
    send(connection, "UPDATE", aside, set, owner, info.config).await
}

fn without_limits(config: &mut Object) {
    for limit in ["max_msgs", "max_bytes", "max_msgs_per_subject"] {
        config.insert(limit.into(), (-1).into());
    }
    config.insert("max_age".into(), 0.into());
}

async fn send(
    connection: &Connection,
    operation: &str,
    aside: &Aside,
    set: &StreamSpec,
    owner: &StreamOwner,
    mut config: Object,
) -> Result<(), ProvisionError> {
    config.insert("subjects".into(), vec![aside.subject.clone()].into());
    config.insert("num_replicas".into(), set.replicas.into());
    config.insert("no_ack".into(), false.into());
    if aside.kind == Kind::Parked {
        without_limits(&mut config);
    }
    merge_metadata(&mut config, &metadata_of(aside, owner));
    let operation = format!("STREAM.{operation}.{}", aside.stream);
    let answer = connection.api::<Value>(&operation, &config).await;
    answer.map(drop).map_err(|error| failed(aside, error))
}

fn failed(aside: &Aside, error: ApiError) -> ProvisionError {
    ProvisionError::Api { object: object(aside), error }
}

fn object(aside: &Aside) -> String {
    format!("stream '{}'", aside.stream)
}
