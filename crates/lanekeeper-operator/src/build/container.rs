//! The containers of a worker's pod: the lane's own, and the user's handler as a native sidecar.

use lanekeeper_api::validate::{ADMIN_PORT, LANE, LaneResources, NatsAccess};
use lanekeeper_core::names::DEFAULT_BUCKET;
use serde_json::{Map, Value, json};

use super::Blueprint;

/// Where the credentials file is mounted, in the lane's container only.
const AUTH_DIR: &str = "/var/run/lanekeeper/auth";
/// Where `ca.crt`, `tls.crt` and `tls.key` are mounted.
const TLS_DIR: &str = "/var/run/lanekeeper/tls";
/// The volume of [`AUTH_DIR`].
const AUTH_VOLUME: &str = "lanekeeper-auth";
/// The volume of [`TLS_DIR`].
const TLS_VOLUME: &str = "lanekeeper-tls";
/// The file in [`AUTH_DIR`].
const CREDENTIALS_FILE: &str = "user.creds";
/// Readable for the pod's group.
const SECRET_MODE: i32 = 0o440;

/// The container that runs the lane, with what the template adds to it.
pub(super) fn lane(blueprint: &Blueprint<'_>, partition: u32, added: Map<String, Value>) -> Value {
    let mut container = in_any_image(blueprint, partition);
    with_image(blueprint, &mut container);
    container["securityContext"] = security();
    let resources = resources(&blueprint.set.worker.resources);
    if !resources.is_empty() {
        container["resources"] = Value::Object(resources);
    }
    merge(&mut container, added);
    container
}

/// The lane's image, and when it is pulled.
pub(super) fn with_image(blueprint: &Blueprint<'_>, container: &mut Value) {
    let own = blueprint.set.worker.image.as_deref();
    container["image"] = json!(own.unwrap_or(blueprint.worker_image));
    if own.is_none() {
        container["imagePullPolicy"] = json!(blueprint.worker_pull_policy);
    }
}

/// What the operator's own programs may do.
pub(super) fn security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

/// What the lane's container has whatever image it is of.
pub(super) fn in_any_image(blueprint: &Blueprint<'_>, partition: u32) -> Value {
    let mut container = json!({
        "name": LANE,
        "env": environment(blueprint, partition),
        "ports": [{"name": "lane-admin", "containerPort": ADMIN_PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/healthz", 10, 6),
        "readinessProbe": probe("/readyz", 2, 3),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    let mounts = mounts(&blueprint.set.nats);
    if !mounts.is_empty() {
        container["volumeMounts"] = Value::Array(mounts);
    }
    container
}

/// Adds what a person has written to a container of the operator's.
pub(super) fn merge(container: &mut Value, added: Map<String, Value>) {
    for (field, value) in added.into_iter().filter(|(field, _)| field != "name") {
        // Lists are continued: what the operator has put in comes first.
        match (container[&field].as_array_mut(), value) {
            (Some(ours), Value::Array(theirs)) => ours.extend(theirs),
            (_, value) => container[&field] = value,
        }
    }
}

/// The user's container: an init container that keeps running (native sidecar), so that the lane starts after it
/// answers and ends before it.
pub(super) fn handler(mut container: Map<String, Value>, port: u16) -> Value {
    container.insert("restartPolicy".into(), json!("Always"));
    container.entry("startupProbe").or_insert_with(|| {
        // Ten minutes for the slowest of runtimes; the kubelet restarts it then.
        json!({"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 600})
    });
    restricted(container)
}

/// A person's container, with the defaults of the `restricted` pod security standard where it says nothing else.
pub(super) fn restricted(container: Map<String, Value>) -> Value {
    Value::Object(restricted_fields(container))
}

/// The fields of [`restricted`].
pub(super) fn restricted_fields(mut container: Map<String, Value>) -> Map<String, Value> {
    let context = container.entry("securityContext").or_insert_with(|| json!({}));
    if let Some(context) = context.as_object_mut()
        // The server allows neither beside a privileged container.
        && context.get("privileged") != Some(&json!(true))
    {
        context.entry("allowPrivilegeEscalation").or_insert(json!(false));
        context.entry("capabilities").or_insert_with(|| json!({"drop": ["ALL"]}));
    }
    container
}

/// The contract's variables, exactly: nothing about the lane itself is among them.
fn environment(blueprint: &Blueprint<'_>, partition: u32) -> Vec<Value> {
    let set = blueprint.set;
    let variable = |name: &str, value: &str| json!({"name": format!("LANEKEEPER_{name}"), "value": value});
    let pod = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}});
    let mut all = vec![
        variable("NAMESPACE", &set.name.namespace),
        variable("SET", &set.name.name),
        variable("PARTITION", &partition.to_string()),
        json!({"name": "LANEKEEPER_POD", "valueFrom": pod}),
        variable("STREAM", &set.stream.mapping.stream),
        variable("NATS_SERVERS", &set.nats.servers.join(",")),
    ];
    let mut optional = |name: &str, value: Option<&str>| all.extend(value.map(|value| variable(name, value)));
    optional("NATS_DOMAIN", set.nats.domain.as_deref());
    optional("NATS_AUTH_DIR", set.nats.worker_credentials.as_ref().map(|_| AUTH_DIR));
    optional("TLS_DIR", set.nats.tls.as_ref().map(|_| TLS_DIR));
    optional("HANDLER_URL", set.worker.handler.url().as_deref());
    let command = set.worker.handler.command().map(|command| without_references(&json!(command).to_string()));
    optional("HANDLER_EXEC", command.as_deref());
    optional("BUCKET", (blueprint.bucket != DEFAULT_BUCKET).then_some(blueprint.bucket));
    all
}

/// The kubelet replaces `$(NAME)` in values of variables, and takes `$$` for one `$`.
fn without_references(value: &str) -> String {
    value.replace('$', "$$")
}

/// Volumes with the Secrets. Whole volumes rather than `subPath`: only those follow a rotation.
pub(super) fn volumes(nats: &NatsAccess) -> Vec<Value> {
    let mut volumes = Vec::new();
    if let Some(secret) = &nats.worker_credentials {
        let items = json!([{"key": secret.key, "path": CREDENTIALS_FILE}]);
        let source = json!({"secretName": secret.name, "items": items, "defaultMode": SECRET_MODE});
        volumes.push(json!({"name": AUTH_VOLUME, "secret": source}));
    }
    if let Some(tls) = &nats.tls {
        let mut sources = Vec::new();
        if let Some(ca) = &tls.ca_secret_ref {
            sources.push(json!({"secret": {"name": ca.name, "items": [{"key": ca.key, "path": "ca.crt"}]}}));
        }
        if let Some(client) = &tls.client_secret_ref {
            let file = |name: &str| json!({"key": name, "path": name});
            let items = json!([file("tls.crt"), file("tls.key")]);
            sources.push(json!({"secret": {"name": client.name, "items": items}}));
        }
        let projected = json!({"sources": sources, "defaultMode": SECRET_MODE});
        volumes.push(json!({"name": TLS_VOLUME, "projected": projected}));
    }
    volumes
}

fn mounts(nats: &NatsAccess) -> Vec<Value> {
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    let auth = nats.worker_credentials.as_ref().map(|_| mount(AUTH_VOLUME, AUTH_DIR));
    let tls = nats.tls.as_ref().map(|_| mount(TLS_VOLUME, TLS_DIR));
    auth.into_iter().chain(tls).collect()
}

fn probe(path: &str, period: u32, failures: u32) -> Value {
    json!({
        "httpGet": {"path": path, "port": ADMIN_PORT, "scheme": "HTTP"},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 2,
    })
}

pub(super) fn resources(wanted: &LaneResources) -> Map<String, Value> {
    [("requests", &wanted.requests), ("limits", &wanted.limits)]
        .into_iter()
        .filter(|(_, amounts)| !amounts.is_empty())
        .map(|(kind, amounts)| (kind.to_owned(), json!(amounts)))
        .collect()
}
