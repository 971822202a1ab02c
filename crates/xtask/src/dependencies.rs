//! The dependency rule: what each crate may know.
//!
//! Read from `cargo metadata`, so that what is checked is what is built. Dependencies of tests are not bound by
//! it: they may start the real thing.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::files;

/// Which of our crates each may depend on.
const INTERNAL: &[(&str, &[&str])] = &[
    ("lanekeeper-core", &[]),
    ("lanekeeper-api", &["lanekeeper-core"]),
    ("lanekeeper-nats", &["lanekeeper-core"]),
    ("lanekeeper-worker", &["lanekeeper-core", "lanekeeper-nats"]),
    ("lanekeeper-operator", &["lanekeeper-api", "lanekeeper-core", "lanekeeper-nats"]),
    ("kubectl-lanes", &["lanekeeper-api", "lanekeeper-core", "lanekeeper-nats"]),
    ("xtask", &["lanekeeper-api"]),
];

/// The crate of end-to-end tests, which may know everything.
const TESTS: &str = "lanekeeper-tests";

/// What must not be anywhere below `lanekeeper-core`.
const NOT_IN_CORE: &[&str] =
    &["tokio", "async-nats", "kube", "kube-core", "kube-client", "k8s-openapi", "hyper", "rustls"];

/// The one crate that imports the NATS client.
const NATS_CLIENT_OWNER: &str = "lanekeeper-nats";

/// Crates with a Kubernetes client.
const KUBE_CLIENT_OWNERS: &[&str] = &["lanekeeper-operator", "kubectl-lanes"];

/// Features of `kube` that bring no client.
const KUBE_FEATURES_WITHOUT_CLIENT: &[&str] = &["derive", "cel", "jsonpatch", "admission"];

/// What cargo knows of the workspace.
pub(crate) fn metadata() -> anyhow::Result<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(files::root())
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout).context("cargo metadata wrote no JSON")
}

/// Every dependency that must not be.
pub(crate) fn violations(metadata: &Value) -> anyhow::Result<Vec<String>> {
    let workspace = Workspace::read(metadata)?;
    let mut found = Vec::new();
    for (name, dependencies) in &workspace.members {
        if name == TESTS {
            continue;
        }
        let Some((_, allowed)) = INTERNAL.iter().find(|(known, _)| known == name) else {
            found.push(format!("{name} is not in the dependency rule: say what it may depend on"));
            continue;
        };
        for dependency in dependencies {
            let to = dependency.name.as_str();
            let internal = workspace.members.contains_key(to);
            if internal && !allowed.contains(&to) {
                found.push(format!("{name} depends on {to}, which it must not know"));
            }
            if to == "async-nats" && name != NATS_CLIENT_OWNER {
                found.push(format!("{name} depends on async-nats; only {NATS_CLIENT_OWNER} may"));
            }
            if !KUBE_CLIENT_OWNERS.contains(&name.as_str()) {
                found.extend(dependency.kube_client().map(|how| {
                    format!(
                        "{name} has a Kubernetes client ({how}); only {} may",
                        KUBE_CLIENT_OWNERS.join(" and ")
                    )
                }));
            }
        }
    }
    for chain in workspace.reached_from("lanekeeper-core", NOT_IN_CORE) {
        found.push(format!(
            "lanekeeper-core must not know {}: {}",
            chain.last().map_or("", |it| it),
            chain.join(" -> ")
        ));
    }
    Ok(found)
}

struct Dependency {
    name: String,
    features: Vec<String>,
    default_features: bool,
}

impl Dependency {
    /// How this dependency brings a Kubernetes client, if it does.
    fn kube_client(&self) -> Option<String> {
        match self.name.as_str() {
            "kube-client" | "kube-runtime" => Some(self.name.clone()),
            "kube" if self.default_features => Some("kube with default features".to_owned()),
            "kube" => {
                let without = |feature: &&String| !KUBE_FEATURES_WITHOUT_CLIENT.contains(&feature.as_str());
                self.features.iter().find(without).map(|feature| format!("kube with feature {feature}"))
            }
            _ => None,
        }
    }
}

struct Workspace {
    /// What each member declares, tests aside.
    members: BTreeMap<String, Vec<Dependency>>,
    /// What each package is built from, tests aside, by id.
    graph: BTreeMap<String, Vec<String>>,
    names: BTreeMap<String, String>,
}

impl Workspace {
    fn read(metadata: &Value) -> anyhow::Result<Self> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let members: BTreeSet<String> = list(&metadata["workspace_members"]).iter().map(text).collect();
        ensure!(!members.is_empty(), "cargo metadata names no workspace member");
        let mut workspace = Self { members: BTreeMap::new(), graph: BTreeMap::new(), names: BTreeMap::new() };
        for package in list(&metadata["packages"]) {
            let (id, name) = (text(&package["id"]), text(&package["name"]));
            if members.contains(&id) {
                let declared = list(&package["dependencies"]);
                let shipped = declared.iter().filter(|dependency| dependency["kind"].as_str() != Some("dev"));
                let read = |dependency: &Value| Dependency {
                    name: text(&dependency["name"]),
                    features: list(&dependency["features"]).iter().map(text).collect(),
                    default_features: dependency["uses_default_features"].as_bool().unwrap_or(true),
                };
                workspace.members.insert(name.clone(), shipped.map(read).collect());
            }
            workspace.names.insert(id, name);
        }
        for node in list(&metadata["resolve"]["nodes"]) {
            let shipped = |edge: &Value| {
                list(&edge["dep_kinds"]).iter().any(|kind| kind["kind"].as_str() != Some("dev"))
            };
            let edges = list(&node["deps"]);
            let targets = edges.iter().filter(|edge| shipped(edge)).map(|edge| text(&edge["pkg"])).collect();
            workspace.graph.insert(text(&node["id"]), targets);
        }
        ensure!(!workspace.graph.is_empty(), "cargo metadata has no resolved graph");
        Ok(workspace)
    }

    /// For each of the named packages that is below `from`, a shortest way to it, by names.
    fn reached_from(&self, from: &str, forbidden: &[&str]) -> Vec<Vec<String>> {
        let start = self.names.iter().filter(|(_, name)| *name == from).map(|(id, _)| vec![id.clone()]);
        let mut waiting: std::collections::VecDeque<Vec<String>> = start.collect();
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        while let Some(way) = waiting.pop_front() {
            let Some(id) = way.last().filter(|id| seen.insert((*id).clone())) else { continue };
            let name = self.names.get(id).map_or("", String::as_str);
            if forbidden.contains(&name) {
                found.push(way.iter().map(|id| self.names.get(id).unwrap_or(id).clone()).collect());
                continue;
            }
            for next in self.graph.get(id).into_iter().flatten() {
                waiting.push_back(way.iter().cloned().chain([next.clone()]).collect());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
