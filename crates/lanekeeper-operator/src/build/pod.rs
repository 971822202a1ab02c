//! The pod template of a partition: the user's JSON, with the lane beside it.

use lanekeeper_api::validate::{HANDLER, HandlerKind, LANE};
use serde_json::{Map, Value, json};

use super::{Blueprint, GRACE_SECONDS, container, program};
use crate::labels;

/// The group that owns mounted Secrets, so that the lane can read them without being root.
const SECRETS_GROUP: i64 = 65_532;

/// Merges the template of the specification with what each worker's pod must have.
pub(super) fn template(blueprint: &Blueprint<'_>, partition: u32) -> Value {
    let worker = &blueprint.set.worker;
    let mut template = worker.pod_template.clone();
    let mut metadata = take_object(&mut template, "metadata");
    let mut all_labels = take_object(&mut metadata, "labels");
    all_labels.extend(labels::labels(&blueprint.set.name, partition));
    metadata.insert("labels".into(), Value::Object(all_labels));

    let mut spec = take_object(&mut template, "spec");
    let is = |one: &Map<String, Value>, name: &str| one.get("name") == Some(&json!(name));
    let (handlers, others): (Vec<_>, Vec<_>) =
        take_objects(&mut spec, "containers").into_iter().partition(|one| is(one, HANDLER));
    let (lanes, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|one| is(one, LANE));
    let added = lanes.into_iter().next().unwrap_or_default();
    let mut before: Vec<Value> =
        take_objects(&mut spec, "initContainers").into_iter().map(container::restricted).collect();
    let lane = match &worker.handler {
        HandlerKind::Http { port, .. } => {
            before.extend(handlers.into_iter().map(|one| container::handler(one, *port)));
            container::lane(blueprint, partition, added)
        }
        HandlerKind::Embedded { .. } => container::lane(blueprint, partition, added),
        HandlerKind::Exec { .. } => {
            let handler = handlers.into_iter().next().unwrap_or_default();
            before.insert(0, program::install(blueprint, &handler));
            program::lane(blueprint, partition, handler)
        }
    };
    let beside = others.into_iter().map(container::restricted);
    let containers: Vec<Value> = [lane].into_iter().chain(beside).collect();
    spec.insert("containers".into(), Value::Array(containers));
    if !before.is_empty() {
        spec.insert("initContainers".into(), Value::Array(before));
    }

    let secrets = container::volumes(&blueprint.set.nats);
    let mut security = take_object(&mut spec, "securityContext");
    security.entry("runAsNonRoot").or_insert(json!(true));
    security.entry("seccompProfile").or_insert_with(|| json!({"type": "RuntimeDefault"}));
    if !secrets.is_empty() {
        security.entry("fsGroup").or_insert(json!(SECRETS_GROUP));
    }
    spec.insert("securityContext".into(), Value::Object(security));
    let theirs = take_objects(&mut spec, "volumes").into_iter().map(Value::Object);
    let volumes: Vec<Value> = theirs.chain(secrets).chain(program::volume(&worker.handler)).collect();
    if !volumes.is_empty() {
        spec.insert("volumes".into(), Value::Array(volumes));
    }
    let placed = ["topologySpreadConstraints", "affinity"].iter().any(|field| spec.contains_key(*field));
    if worker.standbys > 0 && !placed {
        // A hint, not a demand: pods on one node are better than none.
        spec.insert(
            "topologySpreadConstraints".into(),
            json!([{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels::selector(&blueprint.set.name, partition)},
            }]),
        );
    }
    spec.insert(
        "terminationGracePeriodSeconds".into(),
        json!(worker.handler.timeout_seconds() + GRACE_SECONDS),
    );
    spec.insert("automountServiceAccountToken".into(), json!(false));
    json!({"metadata": metadata, "spec": spec})
}

fn take_object(parent: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    match parent.remove(key) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn take_objects(parent: &mut Map<String, Value>, key: &str) -> Vec<Map<String, Value>> {
    let Some(Value::Array(values)) = parent.remove(key) else { return Vec::new() };
    values
        .into_iter()
        .filter_map(|value| if let Value::Object(map) = value { Some(map) } else { None })
        .collect()
}
