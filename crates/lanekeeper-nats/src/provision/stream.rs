//! The stream of a set.

use lanekeeper_core::{
    consumer::Drift,
    stream::{StreamFound, StreamOwner, StreamSpec, drift, metadata_of},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ProvisionError, merge_metadata};
use crate::{
    api::{ApiError, Code},
    connection::Connection,
    observe::{self, Object, StreamInfo},
};

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// A stream after a request to create it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// Whether it was not there before; otherwise it was there, and the same.
    pub new: bool,
    /// What the server states.
    pub stream: StreamFound,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(flatten)]
    info: StreamInfo,
}

/// Creates the stream with its transform and metadata in one request: no message is ever stored without them.
pub async fn create_stream(
    connection: &Connection,
    spec: &StreamSpec,
    owner: &StreamOwner,
) -> Result<Created, ProvisionError> {
    let name = &spec.mapping.stream;
    // Servers answer `did_create` also for a stream that was there, so look first.
    let before = observe::stream_info(connection, name).await;
    let before = before.map_err(|error| ProvisionError::Api { object: object(name), error })?;
    let mut config = Object::new();
    config.insert("name".into(), name.clone().into());
    config.insert("storage".into(), spec.storage.wire().into());
    config.insert("retention".into(), spec.retention.wire().into());
    config.insert("discard".into(), "old".into());
    config.insert("max_consumers".into(), (-1).into());
    // So that what waits in a share can be counted without a consumer. Nothing of ours depends on it, so it is no drift.
    config.insert("allow_direct".into(), true.into());
    apply(&mut config, spec, owner);
    let answer: Result<Answer, _> = connection.api(&format!("STREAM.CREATE.{name}"), &config).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Err(explained(connection, spec, error).await),
    };
    let stream = answer.info.found();
    let differences = drift(spec, owner, &stream);
    if differences.is_empty() {
        Ok(Created { new: before.is_none(), stream })
    } else {
        Err(ProvisionError::NotAsAsked { object: object(name), differences })
    }
}

/// Gives the stream back what drifted, and returns what that was. With a fresh look: nothing is done when there is no
/// drift any more.
pub async fn repair_stream(
    connection: &Connection,
    spec: &StreamSpec,
    owner: &StreamOwner,
) -> Result<Vec<Drift>, ProvisionError> {
    let name = &spec.mapping.stream;
    let failed = |error| ProvisionError::Api { object: object(name), error };
    let info = observe::stream_info(connection, name).await.map_err(failed)?;
    let info = info.ok_or_else(|| ProvisionError::Missing { object: object(name) })?;
    let mut config = info.config.clone();
    let differences = drift(spec, owner, &info.found());
    if differences.is_empty() {
        return Ok(differences);
    }
    if differences.iter().any(|one| !one.repairable) {
        return Err(ProvisionError::Unrepairable { object: object(name), differences });
    }
    apply(&mut config, spec, owner);
    let answer: Result<Answer, _> = connection.api(&format!("STREAM.UPDATE.{name}"), &config).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Err(explained(connection, spec, error).await),
    };
    let left = drift(spec, owner, &answer.info.found());
    if left.is_empty() {
        Ok(differences)
    } else {
        Err(ProvisionError::NotAsAsked { object: object(name), differences: left })
    }
}

/// Sets what a set asks for and what servers can change.
fn apply(config: &mut Object, spec: &StreamSpec, owner: &StreamOwner) {
    let age = spec.max_age_seconds.unwrap_or(0).saturating_mul(NANOSECONDS_PER_SECOND);
    let mut set = |field: &str, value: Value| config.insert(field.to_owned(), value);
    set("subjects", json!(spec.subjects));
    set(
        "subject_transform",
        json!({ "src": spec.mapping.source.as_str(), "dest": spec.mapping.destination() }),
    );
    set("num_replicas", spec.replicas.into());
    set("max_age", age.into());
    set("max_bytes", spec.max_bytes.unwrap_or(-1).into());
    set("max_msgs", spec.max_messages.unwrap_or(-1).into());
    set("max_msgs_per_subject", (-1).into());
    set("no_ack", false.into());
    set("consumer_limits", json!({}));
    if let Some(window) = spec.duplicate_window_seconds {
        set("duplicate_window", window.saturating_mul(NANOSECONDS_PER_SECOND).into());
    } else if age > 0
        && config.get("duplicate_window").and_then(Value::as_u64).is_some_and(|window| window > age)
    {
        // Nobody asked for a window, and servers refuse one that is longer than messages live.
        config.insert("duplicate_window".into(), age.into());
    }
    merge_metadata(config, &metadata_of(spec, owner));
}

/// Who has the subjects, when that is why the server refused.
async fn explained(connection: &Connection, spec: &StreamSpec, error: ApiError) -> ProvisionError {
    let object = object(&spec.mapping.stream);
    if error.code() == Some(Code::SubjectsOverlap) {
        let others = observe::streams_taking(connection, &spec.subjects, &spec.mapping.stream).await;
        if let Ok(others) = others
            && !others.is_empty()
        {
            return ProvisionError::SubjectsTaken { object, others, error };
        }
    }
    ProvisionError::Api { object, error }
}

fn object(name: &str) -> String {
    format!("stream '{name}'")
}
