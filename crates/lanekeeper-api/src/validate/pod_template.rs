//! What a person's pod template may hold.
//!
//! The template stays raw JSON: a typed one would drop misspelt fields silently, while the API server names them
//! when the Deployment is applied. Only what the operator itself owns is refused here, by name.

use serde_json::{Map, Value};

use super::worker::{ADMIN_PORT, HandlerKind};
use crate::invalid::{Findings, Invalid};

/// The container of the operator's that runs the lane.
pub const LANE: &str = "lane";

/// The container of a person's that handles the messages.
pub const HANDLER: &str = "handler";

/// What a template may add to the lane's own container.
pub const LANE_FIELDS: [&str; 4] = ["env", "envFrom", "volumeMounts", "imagePullPolicy"];

/// Besides, when the lane's image is a person's own.
pub const EMBEDDED_FIELDS: [&str; 2] = ["command", "args"];

/// With `exec` the container `handler` runs the lane, which starts its program. These are the operator's then.
pub const EXEC_REFUSED_FIELDS: [(&str, &str); 6] = [
    ("command", "the lane runs first and starts spec.worker.handler.exec.command"),
    ("args", "the lane runs first and starts spec.worker.handler.exec.command"),
    ("restartPolicy", "the container of a lane always restarts"),
    ("startupProbe", "the lane is asked, and knows how its program is"),
    ("readinessProbe", "the lane is asked, and knows how its program is"),
    ("livenessProbe", "the lane is asked, and knows how its program is"),
];

/// The init container of the operator's that brings the lane's program, with `exec`.
pub const INSTALL: &str = "lane-install";

/// Variables of the lane's container that begin so are the operator's.
pub const RESERVED_VARIABLE_PREFIX: &str = "LANEKEEPER_";

/// Labels and annotations that begin so are the operator's.
pub const RESERVED_PREFIX: &str = "lanekeeper.dev/";

/// Other labels that the operator sets and finds its pods by.
pub const RESERVED_LABELS: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/managed-by"];

/// Volumes whose names begin so are the operator's.
pub const RESERVED_VOLUME_PREFIX: &str = "lanekeeper-";

const TEMPLATE: &str = "spec.worker.podTemplate";

/// Fields of the pod's `spec` that the operator owns, each with the reason.
pub const REFUSED_POD_FIELDS: &[(&str, &str)] = &[
    ("restartPolicy", "pods of a Deployment always restart"),
    ("terminationGracePeriodSeconds", "follows from the handler's timeoutSeconds"),
    ("activeDeadlineSeconds", "a lane runs until it is retired"),
    (
        "automountServiceAccountToken",
        "lanes have no business with the API server; mount a projected token into your own container",
    ),
    ("hostNetwork", "the lanes of one node would compete for their ports"),
    ("hostname", "pods of one lane must stay distinct"),
    ("nodeName", "a lane must be able to move to another node; use nodeSelector or affinity"),
];

/// The template as an object, checked.
pub(super) fn check(
    given: Option<&Value>,
    handler: &HandlerKind,
    findings: &mut Findings,
) -> Map<String, Value> {
    let template = object(TEMPLATE, given, findings).cloned().unwrap_or_default();
    only(TEMPLATE, &template, &["metadata", "spec"], findings);
    let metadata = format!("{TEMPLATE}.metadata");
    if let Some(fields) = object(&metadata, template.get("metadata"), findings) {
        only(&metadata, fields, &["labels", "annotations"], findings);
        for kind in ["labels", "annotations"] {
            let path = format!("{metadata}.{kind}");
            let names = object(&path, fields.get(kind), findings).into_iter().flat_map(Map::keys);
            for name in names {
                let reserved = kind == "labels" && RESERVED_LABELS.contains(&name.as_str());
                if reserved || name.starts_with(RESERVED_PREFIX) {
                    let allowed = "must not be set: it is the operator's";
                    findings.add(Invalid::forbidden(format!("{path}['{name}']"), allowed));
                }
            }
        }
    }
    let path = format!("{TEMPLATE}.spec");
    let empty = Map::new();
    let spec = object(&path, template.get("spec"), findings).unwrap_or(&empty);
    for (field, why) in REFUSED_POD_FIELDS {
        if spec.contains_key(*field) {
            findings.add(Invalid::forbidden(format!("{path}.{field}"), format!("must not be set: {why}")));
        }
    }
    check_volumes(&path, spec, findings);
    check_containers(&path, spec, handler, findings);
    template
}

fn check_volumes(path: &str, spec: &Map<String, Value>, findings: &mut Findings) {
    for (field, _, name) in named(path, "volumes", spec, findings) {
        let allowed = format!("must not begin with '{RESERVED_VOLUME_PREFIX}', which is the operator's");
        findings.require_text(
            !name.starts_with(RESERVED_VOLUME_PREFIX),
            &format!("{field}.name"),
            &name,
            &allowed,
        );
    }
}

fn check_containers(path: &str, spec: &Map<String, Value>, handler: &HandlerKind, findings: &mut Findings) {
    for (field, _, name) in named(path, "initContainers", spec, findings) {
        let right = name != LANE && name != HANDLER;
        let allowed = format!("must not be '{LANE}' or '{HANDLER}', which the operator places itself");
        findings.require_text(right, &format!("{field}.name"), &name, &allowed);
        check_not_install(&field, &name, handler, findings);
    }
    let containers = named(path, "containers", spec, findings);
    for (field, container, name) in &containers {
        check_ports(field, container, findings);
        check_not_install(field, name, handler, findings);
        if name == LANE {
            check_lane(field, container, handler, findings);
        }
    }
    if containers.iter().filter(|(_, _, name)| name == LANE).count() > 1 {
        let field = format!("{path}.containers");
        findings.add(Invalid::value(field, format!("with several '{LANE}'"), "must have one of that name"));
    }
    let handlers: Vec<_> = containers.iter().filter(|(_, _, name)| name == HANDLER).collect();
    let field = format!("{path}.containers");
    match (handler, handlers.as_slice()) {
        (HandlerKind::Embedded { .. }, [(field, ..), ..]) => {
            let allowed = "must not be there with spec.worker.handler.embedded: the lane's own image handles the messages";
            findings.add(Invalid::text(format!("{field}.name"), HANDLER, allowed));
        }
        (HandlerKind::Embedded { .. }, []) => {}
        (HandlerKind::Http { .. }, [(field, container, _)]) => {
            check_image(field, container, findings);
            if container.contains_key("restartPolicy") {
                let allowed = "must not be set: the handler always restarts, beside its lane";
                findings.add(Invalid::forbidden(format!("{field}.restartPolicy"), allowed));
            }
        }
        (HandlerKind::Exec { .. }, [(field, container, _)]) => {
            check_image(field, container, findings);
            check_with_program(field, container, findings);
        }
        (HandlerKind::Http { .. } | HandlerKind::Exec { .. }, []) => {
            let kind = if handler.command().is_some() { "exec" } else { "http" };
            let allowed = format!("must have a container named 'handler' with spec.worker.handler.{kind}");
            findings.add(Invalid::value(field, format!("without '{HANDLER}'"), allowed));
        }
        (HandlerKind::Http { .. } | HandlerKind::Exec { .. }, _) => {
            findings.add(Invalid::value(
                field,
                format!("with several '{HANDLER}'"),
                "must have one of that name",
            ));
        }
    }
}

fn check_image(field: &str, container: &Map<String, Value>, findings: &mut Findings) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    if image.is_empty() {
        findings.add(Invalid::missing(format!("{field}.image"), "must be given"));
    }
}

/// A person's container in which the lane runs and starts its program.
fn check_with_program(field: &str, container: &Map<String, Value>, findings: &mut Findings) {
    for (refused, why) in EXEC_REFUSED_FIELDS {
        if container.contains_key(refused) {
            let allowed = format!("must not be set with spec.worker.handler.exec: {why}");
            findings.add(Invalid::forbidden(format!("{field}.{refused}"), allowed));
        }
    }
    check_reserved(field, container, findings);
}

fn check_not_install(field: &str, name: &str, handler: &HandlerKind, findings: &mut Findings) {
    if handler.command().is_some() {
        let allowed = format!("must not be '{INSTALL}', which the operator places itself");
        findings.require_text(name != INSTALL, &format!("{field}.name"), name, &allowed);
    }
}

/// What is the operator's in the lane's container stays so: a wrong probe or variable would stop the lane.
fn check_lane(field: &str, container: &Map<String, Value>, handler: &HandlerKind, findings: &mut Findings) {
    if handler.command().is_some() {
        let allowed =
            "must not be there with spec.worker.handler.exec: the lane runs in your container 'handler'";
        findings.add(Invalid::text(format!("{field}.name"), LANE, allowed));
        return;
    }
    let embedded = matches!(handler, HandlerKind::Embedded { .. });
    let mut may: Vec<&str> = LANE_FIELDS.to_vec();
    may.extend(EMBEDDED_FIELDS.iter().filter(|_| embedded));
    for other in container.keys().filter(|key| *key != "name" && !may.contains(&key.as_str())) {
        let allowed = format!(
            "must not be set: of the container '{LANE}' only {} may be (its image is spec.worker.image, its resources are spec.worker.resources)",
            may.join(", ")
        );
        findings.add(Invalid::forbidden(format!("{field}.{other}"), allowed));
    }
    check_reserved(field, container, findings);
}

/// Variables and mounts of the container in which the lane runs.
fn check_reserved(field: &str, container: &Map<String, Value>, findings: &mut Findings) {
    for (entry, _, name) in named(field, "env", container, findings) {
        let allowed = format!("must not begin with '{RESERVED_VARIABLE_PREFIX}', which is the operator's");
        let right = !name.starts_with(RESERVED_VARIABLE_PREFIX);
        findings.require_text(right, &format!("{entry}.name"), &name, &allowed);
    }
    for (entry, _, name) in named(field, "volumeMounts", container, findings) {
        let allowed = format!("must not begin with '{RESERVED_VOLUME_PREFIX}', which is the operator's");
        let right = !name.starts_with(RESERVED_VOLUME_PREFIX);
        findings.require_text(right, &format!("{entry}.name"), &name, &allowed);
    }
}

fn check_ports(field: &str, container: &Map<String, Value>, findings: &mut Findings) {
    let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
    if ports.into_iter().any(|port| port.get("containerPort") == Some(&Value::from(ADMIN_PORT))) {
        let allowed = format!("must not have {ADMIN_PORT}, which the lane's own container listens on");
        findings.add(Invalid::value(format!("{field}.ports"), ADMIN_PORT, allowed));
    }
}

/// The entries of a list of named objects, each with its path and name; what is no such list is noted.
fn named<'a>(
    path: &str,
    list: &str,
    spec: &'a Map<String, Value>,
    findings: &mut Findings,
) -> Vec<(String, &'a Map<String, Value>, String)> {
    let path = format!("{path}.{list}");
    let entries = match spec.get(list) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(entries)) => entries,
        Some(other) => {
            findings.add(Invalid::value(path, kind(other), "must be a list"));
            return Vec::new();
        }
    };
    let mut found = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(fields) = object(&path, Some(entry), findings) else { continue };
        match fields.get("name").and_then(Value::as_str) {
            Some(name) => found.push((path, fields, name.to_owned())),
            None => findings.add(Invalid::missing(format!("{path}.name"), "must be given")),
        }
    }
    found
}

fn object<'a>(
    path: &str,
    value: Option<&'a Value>,
    findings: &mut Findings,
) -> Option<&'a Map<String, Value>> {
    match value? {
        Value::Null => None,
        Value::Object(fields) => Some(fields),
        other => {
            findings.add(Invalid::value(path, kind(other), "must be an object"));
            None
        }
    }
}

fn only(path: &str, fields: &Map<String, Value>, allowed: &[&str], findings: &mut Findings) {
    for field in fields.keys().filter(|field| !allowed.contains(&field.as_str())) {
        let allowed = format!("must not be set: only {} may be", allowed.join(" and "));
        findings.add(Invalid::forbidden(format!("{path}.{field}"), allowed));
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
