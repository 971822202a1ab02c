//! The pods of the lanes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Map, Value};

use super::pod_template;
use crate::{
    invalid::{Findings, Invalid},
    quantity,
    spec::{Handler, Resources, Worker},
};

/// The port of the lane's container, in every pod.
pub const ADMIN_PORT: u16 = 9797;

const HANDLER: &str = "spec.worker.handler";

/// A handler's command.
const MOST_WORDS: usize = 64;
const LONGEST_WORD: usize = 1024;

/// The pods of the lanes, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSettings {
    /// How messages are handed over.
    pub handler: HandlerKind,
    /// The lane's image; always given with an embedded handler.
    pub image: Option<String>,
    /// Further pods for each lane.
    pub standbys: u32,
    /// Resources of the lane's container.
    pub resources: LaneResources,
    /// `metadata` and `spec` as they were written, without any field that the operator owns.
    pub pod_template: Map<String, Value>,
}

/// How messages are handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerKind {
    /// By HTTP to a container of the same pod.
    Http {
        /// Its port.
        port: u16,
        /// The path, beginning with `/`.
        path: String,
        /// The longest that one message may take.
        timeout_seconds: u64,
    },
    /// By lines to a program that the lane starts, in a container of a person's image.
    Exec {
        /// The program and its arguments.
        command: Vec<String>,
        /// The longest that one message may take.
        timeout_seconds: u64,
    },
    /// Inside the lane's process.
    Embedded {
        /// The longest that one message may take.
        timeout_seconds: u64,
    },
}

impl HandlerKind {
    /// The longest that one message may take.
    pub fn timeout_seconds(&self) -> u64 {
        match self {
            Self::Http { timeout_seconds, .. }
            | Self::Exec { timeout_seconds, .. }
            | Self::Embedded { timeout_seconds } => *timeout_seconds,
        }
    }

    /// The same in the unit of assignments.
    pub fn timeout_milliseconds(&self) -> u64 {
        self.timeout_seconds() * 1000
    }

    /// Where the lane posts messages to; `None` when it needs not.
    pub fn url(&self) -> Option<String> {
        match self {
            Self::Http { port, path, .. } => Some(format!("http://127.0.0.1:{port}{path}")),
            Self::Exec { .. } | Self::Embedded { .. } => None,
        }
    }

    /// The program that the lane starts; `None` when it starts none.
    pub fn command(&self) -> Option<&[String]> {
        match self {
            Self::Exec { command, .. } => Some(command),
            Self::Http { .. } | Self::Embedded { .. } => None,
        }
    }
}

/// Resources of a container, as Kubernetes quantities.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneResources {
    /// What the scheduler sets aside.
    pub requests: BTreeMap<String, String>,
    /// What the container cannot exceed.
    pub limits: BTreeMap<String, String>,
}

pub(super) fn check(worker: &Worker, findings: &mut Findings) -> WorkerSettings {
    let handler = check_handler(&worker.handler, findings);
    let image = worker.image.clone();
    match &image {
        Some(image) => {
            findings.bound_text("spec.worker.image", image, 512);
            let right = !image.contains(char::is_whitespace);
            findings.require_text(right, "spec.worker.image", image, "must not have white space");
        }
        None if matches!(handler, HandlerKind::Embedded { .. }) => {
            let allowed =
                "must be given with spec.worker.handler.embedded: it is the image that runs the lane";
            findings.add(Invalid::missing("spec.worker.image", allowed));
        }
        None => {}
    }
    let pod_template = pod_template::check(worker.pod_template.as_ref(), &handler, findings);
    let standbys = findings.bound("spec.worker.standbys", i64::from(worker.standbys), 0, 4);
    let resources = check_resources(&worker.resources, findings);
    WorkerSettings { handler, image, standbys, resources, pod_template }
}

fn check_handler(handler: &Handler, findings: &mut Findings) -> HandlerKind {
    let timeout = |name: &str, seconds: i32, findings: &mut Findings| {
        findings.bound(&format!("{HANDLER}.{name}.timeoutSeconds"), i64::from(seconds), 1, 86_400)
    };
    let exactly_one = "must have exactly one of http, exec and embedded";
    match (&handler.http, &handler.exec, &handler.embedded) {
        (None, None, Some(embedded)) => {
            return HandlerKind::Embedded {
                timeout_seconds: timeout("embedded", embedded.timeout_seconds, findings),
            };
        }
        (None, Some(exec), None) => {
            check_command(&exec.command, findings);
            return HandlerKind::Exec {
                command: exec.command.clone(),
                timeout_seconds: timeout("exec", exec.timeout_seconds, findings),
            };
        }
        (Some(_), None, None) => {}
        (None, None, None) => findings.add(Invalid::value(HANDLER, "empty", exactly_one)),
        _ => findings.add(Invalid::value(HANDLER, "more than one", exactly_one)),
    }
    let http = handler.http.clone().unwrap_or_default();
    let port = findings.bound(&format!("{HANDLER}.http.port"), i64::from(http.port), 1, 65_535);
    if port == ADMIN_PORT {
        let allowed = format!("must not be {ADMIN_PORT}, which the lane's own container listens on");
        findings.add(Invalid::value(format!("{HANDLER}.http.port"), port, allowed));
    }
    let path = &http.path;
    findings.bound_text(&format!("{HANDLER}.http.path"), path, 512);
    let right = path.starts_with('/') && !path.contains(|c: char| c.is_whitespace() || c == '#');
    let allowed = "must begin with '/', without white space or '#'";
    findings.require_text(right, &format!("{HANDLER}.http.path"), path, allowed);
    HandlerKind::Http {
        port,
        path: path.clone(),
        timeout_seconds: timeout("http", http.timeout_seconds, findings),
    }
}

fn check_command(command: &[String], findings: &mut Findings) {
    let field = format!("{HANDLER}.exec.command");
    let words = command.len();
    if !(1..=MOST_WORDS).contains(&words) {
        let allowed = format!("must have 1 to {MOST_WORDS}: a program and its arguments");
        findings.add(Invalid::value(&field, format!("a list of {words} entries"), allowed));
    }
    if command.first().is_some_and(String::is_empty) {
        let allowed = "must be a program, which is not empty";
        findings.add(Invalid::text(format!("{field}[0]"), "", allowed));
    }
    for (index, word) in command.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let length = word.chars().count();
        let allowed = format!("must have at most {LONGEST_WORD} characters, not {length}");
        findings.require_text(length <= LONGEST_WORD, &field, word, &allowed);
        findings.require_text(!word.contains('\0'), &field, word, "must not have a NUL character");
    }
}

fn check_resources(given: &Resources, findings: &mut Findings) -> LaneResources {
    let mut amounts = |kind: &str, given: &BTreeMap<String, IntOrString>| {
        let text = |(name, amount): (&String, &IntOrString)| {
            let amount = match amount {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(text) => text.clone(),
            };
            let field = format!("spec.worker.resources.{kind}.{name}");
            let right = quantity::is_quantity(&amount);
            findings.require_text(right, &field, &amount, "must be an amount such as 500m, 2 or 64Mi");
            (name.clone(), amount)
        };
        given.iter().map(text).collect()
    };
    LaneResources { requests: amounts("requests", &given.requests), limits: amounts("limits", &given.limits) }
}
