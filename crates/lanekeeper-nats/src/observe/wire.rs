//! Answers of the API as they are on the wire, and what of them matters.
//!
//! The configuration is kept as it came: it is changed in place and sent back, so that nothing that this code does
//! not know is lost.

use std::collections::BTreeMap;

use lanekeeper_core::{
    consumer::{ConsumerFound, OFF, PIN},
    stream::StreamFound,
};
use serde::Deserialize;
use serde_json::{Map, Value};

const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// An object of JSON.
pub(crate) type Object = Map<String, Value>;

#[derive(Debug, Deserialize)]
pub(crate) struct StreamInfo {
    pub(crate) config: Object,
    created: String,
    state: StreamState,
}

#[derive(Debug, Deserialize)]
struct StreamState {
    #[serde(default)]
    messages: u64,
    #[serde(default)]
    first_seq: u64,
    #[serde(default)]
    last_seq: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConsumerInfo {
    pub(crate) name: String,
    pub(crate) config: Object,
    #[serde(default)]
    delivered: Position,
    #[serde(default)]
    ack_floor: Position,
    #[serde(default)]
    num_ack_pending: u64,
    #[serde(default)]
    num_pending: u64,
    #[serde(default)]
    paused: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Position {
    #[serde(default)]
    stream_seq: u64,
}

impl StreamInfo {
    /// What matters of it.
    pub(crate) fn found(self) -> StreamFound {
        let config = &self.config;
        let transform = config.get("subject_transform").and_then(Value::as_object);
        let transform = transform.map(|transform| (text(transform, "src"), text(transform, "dest")));
        let limits = config.get("consumer_limits").and_then(Value::as_object);
        let limits = limits
            .filter(|limits| !limits.is_empty())
            .map(|limits| Value::Object(limits.clone()).to_string());
        let has = |field: &str| config.get(field).is_some_and(|value| !is_off(value));
        StreamFound {
            name: text(config, "name"),
            subjects: strings(config.get("subjects")),
            transform,
            replicas: u32::try_from(unsigned(config, "num_replicas")).unwrap_or(u32::MAX),
            storage: text(config, "storage"),
            retention: text(config, "retention"),
            max_age_seconds: unsigned(config, "max_age").div_ceil(NANOSECONDS_PER_SECOND),
            max_bytes: limit(config, "max_bytes"),
            max_messages: limit(config, "max_msgs"),
            max_messages_per_subject: limit(config, "max_msgs_per_subject"),
            no_ack: has("no_ack"),
            sealed: has("sealed"),
            consumer_limits: limits.unwrap_or_default(),
            duplicate_window_seconds: unsigned(config, "duplicate_window").div_ceil(NANOSECONDS_PER_SECOND),
            sourced: has("mirror") || has("sources"),
            metadata: metadata(config),
            created: self.created,
            first_sequence: self.state.first_seq,
            last_sequence: self.state.last_seq,
            messages: self.state.messages,
        }
    }
}

impl ConsumerInfo {
    /// What matters of it.
    pub(crate) fn found(self) -> ConsumerFound {
        let config = &self.config;
        let mut filters = strings(config.get("filter_subjects"));
        filters.extend(Some(text(config, "filter_subject")).filter(|filter| !filter.is_empty()));
        let milliseconds = |field: &str| unsigned(config, field).div_ceil(NANOSECONDS_PER_MILLISECOND);
        let backoff = config.get("backoff").and_then(Value::as_array).into_iter().flatten();
        let set = OFF.into_iter().chain(PIN).filter_map(|field| {
            let value = config.get(field).filter(|value| !is_off(value))?;
            Some((field, value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        });
        ConsumerFound {
            filters,
            deliver_policy: text(config, "deliver_policy"),
            start: config.get("opt_start_seq").and_then(Value::as_u64).filter(|start| *start > 0),
            ack_policy: text(config, "ack_policy"),
            push: !text(config, "deliver_subject").is_empty(),
            max_ack_pending: limit(config, "max_ack_pending"),
            max_deliver: limit(config, "max_deliver"),
            ack_wait_milliseconds: milliseconds("ack_wait"),
            backoff_milliseconds: backoff
                .filter_map(|one| Some(one.as_u64()?.div_ceil(NANOSECONDS_PER_MILLISECOND)))
                .collect(),
            inactive_threshold_milliseconds: milliseconds("inactive_threshold"),
            headers_only: config.get("headers_only").is_some_and(|value| !is_off(value)),
            replay_policy: text(config, "replay_policy"),
            set: set.collect(),
            paused: self.paused,
            replicas: u32::try_from(unsigned(config, "num_replicas")).unwrap_or(u32::MAX),
            metadata: metadata(config),
            floor: self.ack_floor.stream_seq,
            delivered: self.delivered.stream_seq,
            ack_pending: self.num_ack_pending,
            pending: self.num_pending,
            name: self.name,
        }
    }
}

/// Whether a value is one that servers write (or leave out) for "not set".
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_i64().is_some_and(|number| number <= 0),
        Value::String(text) => text.is_empty() || text == "none",
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn text(object: &Object, field: &str) -> String {
    object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn unsigned(object: &Object, field: &str) -> u64 {
    object.get(field).and_then(Value::as_u64).unwrap_or(0)
}

/// Servers leave out, or write 0 or -1 for, a limit that there is none of.
fn limit(object: &Object, field: &str) -> i64 {
    object.get(field).and_then(Value::as_i64).filter(|limit| *limit > 0).unwrap_or(-1)
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn metadata(config: &Object) -> BTreeMap<String, String> {
    let metadata = config.get("metadata").and_then(Value::as_object).into_iter().flatten();
    metadata.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
