//! What handles the messages: the pods of the lanes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::crd::{quantities, raw_object, rule};

/// The pods of the lanes.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rule(
    "!has(self.handler.embedded) || has(self.image)",
    "spec.worker.image: must be given with spec.worker.handler.embedded; it is the image that runs the lane"
))]
pub struct Worker {
    /// How a message is handed over. Exactly one of its fields.
    #[x_kube(validation = rule(
        "[has(self.http), has(self.exec), has(self.embedded)].filter(given, given).size() == 1",
        "spec.worker.handler: must have exactly one of http, exec and embedded"
    ))]
    pub handler: Handler,

    /// The image of the lane's container; the operator's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: Option<String>,

    /// Further pods for each lane. They stand by and take over when the lane's worker ends or is not heard of any more.
    #[serde(default)]
    #[schemars(range(min = 0, max = 4))]
    pub standbys: i32,

    /// Resources of the lane's container; with `exec` of your container `handler`, unless that names its own.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,

    /// Each handling is published, for `kubectl lanes audit` or for you. Nothing is published when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<Journal>,

    /// A pod template (`metadata` and `spec`) for the lanes' pods. With `http` and `exec`, its container `handler` is yours.
    // The default keeps the hand-made schema from being required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "raw_object")]
    pub pod_template: Option<Value>,
}

/// How a message is handed over. A struct of options and a rule rather than a Rust enum: the API server's own
/// words for a broken one-of help nobody, and it lets an omission pass.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Handler {
    /// An HTTP server in a container of yours beside the lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// A program in a container of yours, which the lane starts there: one JSON object per line in, one out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<Exec>,
    /// Your image runs the lane itself, with the worker crate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedded: Option<Embedded>,
}

/// An HTTP handler: each message is one POST.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Http {
    /// The port that the handler listens on, in the pod.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65_535))]
    #[x_kube(validation = rule(
        "self != 9797",
        "spec.worker.handler.http.port: must not be 9797, which the lane's own container listens on"
    ))]
    pub port: i32,
    /// The path that is posted to.
    #[serde(default = "default_path")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^/[^\s#]*$"))]
    pub path: String,
    /// The longest that one message may take; then it counts as failed.
    #[serde(default = "default_timeout_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: i32,
}

impl Default for Http {
    fn default() -> Self {
        Self { port: default_port(), path: default_path(), timeout_seconds: default_timeout_seconds() }
    }
}

/// A program that handles messages by lines: it is started once, and gets each message as one line.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Exec {
    /// The program and its arguments, as they are: there is no shell, and no variable is replaced.
    #[schemars(length(min = 1, max = 64), inner(length(max = 1024)))]
    #[x_kube(validation = rule(
        "self.size() == 0 || self[0].size() > 0",
        "spec.worker.handler.exec.command: must begin with a program, which is not empty"
    ))]
    pub command: Vec<String>,
    /// The longest that one message may take; then it counts as failed, and the program is killed.
    #[serde(default = "default_timeout_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: i32,
}

/// A handler inside the lane's own process.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Embedded {
    /// The longest that one message may take; then it counts as failed.
    #[serde(default = "default_timeout_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: i32,
}

impl Default for Embedded {
    fn default() -> Self {
        Self { timeout_seconds: default_timeout_seconds() }
    }
}

/// Where handlings are published.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// The subject, without wildcards. Partition 3 publishes to it with `.3` behind it; a stream of yours may keep
    /// what is published, but not the set's own.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(
        validation = rule(
            "self.matches('^[^.*>\\\\s]+([.][^.*>\\\\s]+)*$')",
            "spec.worker.journal.subject: must be tokens joined by dots, without wildcards, white space or empty tokens"
        ),
        validation = rule(
            "!self.startsWith('$') && self != 'lanes' && !self.startsWith('lanes.')",
            "spec.worker.journal.subject: must not begin with 'lanes.' or '$', which are reserved"
        )
    )]
    pub subject: String,
}

/// Compute resources of a container.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the scheduler sets aside.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub requests: BTreeMap<String, IntOrString>,
    /// What the container cannot exceed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub limits: BTreeMap<String, IntOrString>,
}

impl Resources {
    /// Nothing was given.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }
}

fn default_port() -> i32 {
    8080
}

fn default_path() -> String {
    "/".to_owned()
}

fn default_timeout_seconds() -> i32 {
    300
}
