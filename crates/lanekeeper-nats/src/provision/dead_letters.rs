//! The stream of a set's dead letters, where the operator makes it.

use lanekeeper_core::{
    dead_letter::{DeadLetters, metadata_of},
    stream::{StreamOwner, StreamSpec},
};
use serde_json::Value;

use super::{ProvisionError, merge_metadata};
use crate::{
    api::ApiError,
    connection::Connection,
    observe::{self, Object},
};

/// How long a dead letter that comes again is recognised.
const DUPLICATE_WINDOW_NANOSECONDS: u64 = 3600 * 1_000_000_000;

/// Creates it: stored and copied as the set's own stream, without limits.
pub async fn create_dead_letters(
    connection: &Connection,
    letters: &DeadLetters,
    set: &StreamSpec,
    owner: &StreamOwner,
) -> Result<(), ProvisionError> {
    let mut config = Object::new();
    config.insert("name".into(), letters.stream.clone().into());
    config.insert("storage".into(), set.storage.wire().into());
    config.insert("retention".into(), "limits".into());
    config.insert("discard".into(), "old".into());
    for limit in ["max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject"] {
        config.insert(limit.into(), (-1).into());
    }
    config.insert("max_age".into(), 0.into());
    config.insert("duplicate_window".into(), DUPLICATE_WINDOW_NANOSECONDS.into());
    // People take dead letters out again.
    config.insert("deny_delete".into(), false.into());
    config.insert("allow_direct".into(), true.into());
    send(connection, "CREATE", letters, set, owner, config).await
}

/// Gives it back what drifted; everything else stays as it is.
pub async fn repair_dead_letters(
    connection: &Connection,
    letters: &DeadLetters,
    set: &StreamSpec,
    owner: &StreamOwner,
) -> Result<(), ProvisionError> {
    let info = observe::stream_info(connection, &letters.stream).await;
    let info = info.map_err(|error| failed(letters, error))?;
    let info = info.ok_or_else(|| ProvisionError::Missing { object: object(letters) })?;
    send(connection, "UPDATE", letters, set, owner, info.config).await
}

async fn send(
    connection: &Connection,
    operation: &str,
    letters: &DeadLetters,
    set: &StreamSpec,
    owner: &StreamOwner,
    mut config: Object,
) -> Result<(), ProvisionError> {
    config.insert("subjects".into(), vec![letters.subject.clone()].into());
    config.insert("num_replicas".into(), set.replicas.into());
    config.insert("no_ack".into(), false.into());
    merge_metadata(&mut config, &metadata_of(letters, owner));
    let operation = format!("STREAM.{operation}.{}", letters.stream);
    let answer = connection.api::<Value>(&operation, &config).await;
    answer.map(drop).map_err(|error| failed(letters, error))
}

fn failed(letters: &DeadLetters, error: ApiError) -> ProvisionError {
    ProvisionError::Api { object: object(letters), error }
}

fn object(letters: &DeadLetters) -> String {
    format!("stream '{}'", letters.stream)
}
