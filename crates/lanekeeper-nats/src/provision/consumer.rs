//! The consumers of lanes.

use lanekeeper_core::consumer::{ConsumerFound, ConsumerSpec, Drift, GROUP, OFF, PIN, drift};
use serde_json::{Value, json};

use super::{ProvisionError, merge_metadata};
use crate::{
    api::{ApiError, Code},
    connection::Connection,
    observe::{self, ConsumerInfo, Object},
};

const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

/// Creates a consumer. One that exists is never changed: the same is fine, another is an error.
pub async fn create_consumer(
    connection: &Connection,
    stream: &str,
    spec: &ConsumerSpec,
) -> Result<ConsumerFound, ProvisionError> {
    let mut config = Object::new();
    config.insert("durable_name".into(), spec.name.clone().into());
    config.insert("name".into(), spec.name.clone().into());
    config.insert("ack_policy".into(), "explicit".into());
    config.insert("replay_policy".into(), "instant".into());
    config.insert("deliver_policy".into(), "all".into());
    if let Some(start) = spec.start {
        config.insert("deliver_policy".into(), "by_start_sequence".into());
        config.insert("opt_start_seq".into(), start.into());
    }
    apply(&mut config, spec);
    let info = send(connection, stream, &spec.name, config, "create").await;
    let info = info.map_err(|error| ProvisionError::Api { object: object(stream, &spec.name), error })?;
    as_asked(stream, spec, info.found())
}

/// Gives a consumer back what drifted, and returns what that was. With a fresh look: nothing is done when there is no
/// drift any more.
pub async fn repair_consumer(
    connection: &Connection,
    stream: &str,
    spec: &ConsumerSpec,
) -> Result<Vec<Drift>, ProvisionError> {
    let failed = |error| ProvisionError::Api { object: object(stream, &spec.name), error };
    let missing = || ProvisionError::Missing { object: object(stream, &spec.name) };
    let info = observe::consumer_info(connection, stream, &spec.name).await.map_err(failed)?;
    let info = info.ok_or_else(missing)?;
    let mut config = info.config.clone();
    let differences = drift(spec, &info.found());
    if differences.is_empty() {
        return Ok(differences);
    }
    if differences.iter().any(|one| !one.repairable) {
        return Err(ProvisionError::Unrepairable { object: object(stream, &spec.name), differences });
    }
    let drifted = |field: &str| differences.iter().any(|one| one.field == field);
    // An update that carries the pause pauses again.
    config.remove("pause_until");
    if drifted("max_ack_pending") {
        // First and alone: while it is wrong messages overtake each other, and another field may be refused.
        config.insert("max_ack_pending".into(), spec.delivery.most_out().into());
        let mut only = config.clone();
        merge_metadata(&mut only, []);
        send(connection, stream, &spec.name, only, "update").await.map_err(failed)?;
    }
    apply(&mut config, spec);
    send(connection, stream, &spec.name, config, "update").await.map_err(failed)?;
    if drifted("pause_until") {
        resume(connection, stream, &spec.name).await.map_err(failed)?;
    }
    let found = observe::consumer(connection, stream, &spec.name).await.map_err(failed)?;
    as_asked(stream, spec, found.ok_or_else(missing)?)?;
    Ok(differences)
}

/// Deletes a consumer. Whether it was there.
pub async fn delete_consumer(
    connection: &Connection,
    stream: &str,
    name: &str,
) -> Result<bool, ProvisionError> {
    let deleted: Result<Value, _> =
        connection.api(&format!("CONSUMER.DELETE.{stream}.{name}"), &Value::Null).await;
    match deleted {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.code(), Some(Code::ConsumerMissing | Code::StreamMissing)) => Ok(false),
        Err(error) => Err(ProvisionError::Api { object: object(stream, name), error }),
    }
}

/// Opens a paused consumer: an empty body is the only thing that does.
async fn resume(connection: &Connection, stream: &str, name: &str) -> Result<(), ApiError> {
    let resumed: Value = connection.api(&format!("CONSUMER.PAUSE.{stream}.{name}"), &Value::Null).await?;
    drop(resumed);
    Ok(())
}

async fn send(
    connection: &Connection,
    stream: &str,
    name: &str,
    config: Object,
    action: &str,
) -> Result<ConsumerInfo, ApiError> {
    let body = json!({ "stream_name": stream, "config": config, "action": action });
    connection.api(&format!("CONSUMER.CREATE.{stream}.{name}"), &body).await
}

/// Sets what a lane needs and what servers can change; all that must be off is left out.
fn apply(config: &mut Object, spec: &ConsumerSpec) {
    for field in
        OFF.into_iter().chain(PIN).chain(["backoff", "filter_subjects", "headers_only", "inactive_threshold"])
    {
        config.remove(field);
    }
    let wait = spec.ack_wait_milliseconds.saturating_mul(NANOSECONDS_PER_MILLISECOND);
    config.insert("ack_wait".into(), wait.into());
    config.insert("filter_subject".into(), spec.filter.clone().into());
    config.insert("max_ack_pending".into(), spec.delivery.most_out().into());
    config.insert("max_deliver".into(), (-1).into());
    if spec.pinned {
        config.insert("priority_groups".into(), json!([GROUP]));
        config.insert("priority_policy".into(), "pinned_client".into());
        config.insert("priority_timeout".into(), wait.into());
    }
    if let Some(replicas) = spec.replicas {
        config.insert("num_replicas".into(), replicas.into());
    }
    merge_metadata(config, &spec.metadata);
}

fn as_asked(
    stream: &str,
    spec: &ConsumerSpec,
    found: ConsumerFound,
) -> Result<ConsumerFound, ProvisionError> {
    let differences = drift(spec, &found);
    if differences.is_empty() {
        Ok(found)
    } else {
        Err(ProvisionError::NotAsAsked { object: object(stream, &spec.name), differences })
    }
}

fn object(stream: &str, name: &str) -> String {
    format!("consumer '{name}' of stream '{stream}'")
}
