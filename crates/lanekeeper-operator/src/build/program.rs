//! The pod of a handler that is a program: the lane runs in the user's own image, where the program is.
//!
//! The lane's program is static, so it runs in any image. An init container of the lane's image copies it into a volume
//! that both share; images of the lane have no shell, so the program does that itself.

use lanekeeper_api::validate::{HandlerKind, INSTALL};
use serde_json::{Map, Value, json};

use super::{Blueprint, container};

/// The volume with the lane's program.
const VOLUME: &str = "lanekeeper-program";
/// Where it is mounted, in both containers.
const FOLDER: &str = "/var/run/lanekeeper/program";
/// What the lane's program is called there.
const PROGRAM: &str = "/var/run/lanekeeper/program/lanekeeper-worker";
/// Several times the program's size.
const SIZE: &str = "128Mi";

/// The init container that brings the lane's program.
pub(super) fn install(blueprint: &Blueprint<'_>, handler: &Map<String, Value>) -> Value {
    let mut install = json!({
        "name": INSTALL,
        "args": ["install", FOLDER],
        "volumeMounts": [{"name": VOLUME, "mountPath": FOLDER}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container::security(),
    });
    container::with_image(blueprint, &mut install);
    // It runs before the other, so the same amounts cost nothing, and quotas ask each container for some.
    if let Some(resources) = resources(blueprint, handler) {
        install["resources"] = resources;
    }
    install
}

/// The user's container, in which the lane starts their program. It has the lane's name: that is what its end, its log
/// and its health are asked by.
pub(super) fn lane(blueprint: &Blueprint<'_>, partition: u32, handler: Map<String, Value>) -> Value {
    let mut lane = container::in_any_image(blueprint, partition);
    lane["command"] = json!([PROGRAM]);
    let mount = json!({"name": VOLUME, "mountPath": FOLDER, "readOnly": true});
    match lane["volumeMounts"].as_array_mut() {
        Some(mounts) => mounts.push(mount),
        None => lane["volumeMounts"] = json!([mount]),
    }
    if let Some(resources) = resources(blueprint, &handler) {
        lane["resources"] = resources;
    }
    container::merge(&mut lane, container::restricted_fields(handler));
    lane
}

/// The volume, where there is a program.
pub(super) fn volume(handler: &HandlerKind) -> Option<Value> {
    handler.command().map(|_| json!({"name": VOLUME, "emptyDir": {"sizeLimit": SIZE}}))
}

/// Those of the user's container, or else of the set.
fn resources(blueprint: &Blueprint<'_>, handler: &Map<String, Value>) -> Option<Value> {
    let of_set = container::resources(&blueprint.set.worker.resources);
    let of_set = (!of_set.is_empty()).then_some(Value::Object(of_set));
    handler.get("resources").cloned().or(of_set)
}
