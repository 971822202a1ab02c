//! The chart on a real API server: install, upgrade, uninstall, and others writing the same field.
//!
//! Pods do not run here; what they do is the whole-cluster tests' business.

// The helpers of tests may fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../lanekeeper-api/tests/control_plane/mod.rs"]
mod control_plane;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::{Mutex, MutexGuard, PoisonError},
};

use control_plane::{ControlPlane, root};
use serde_json::{Value, json};

const CHART: &str = "charts/lanekeeper";
const DEFINITION: &str = "crd/orderedpartitionsets.lanekeeper.dev";

/// The definition is one for the whole API server: one story at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    kubectl(&["delete", DEFINITION, "--ignore-not-found"]);
    turn
}

fn kubectl(arguments: &[&str]) -> String {
    ControlPlane::bare().kubectl(arguments, None).expect()
}

fn helm(arguments: &[&str]) -> String {
    ControlPlane::bare().helm(arguments).expect()
}

fn set(partitions: Option<i32>) -> Value {
    let mut set = json!({
        "apiVersion": "lanekeeper.dev/v1alpha1",
        "kind": "OrderedPartitionSet",
        "metadata": {"name": "orders", "namespace": "default"},
        "spec": {
            "nats": {"servers": ["nats://nats:4222"]},
            "stream": {"name": "ORDERS", "subjects": ["orders.*"]},
            "mapping": {"subject": "orders.*", "keyTokens": [1]},
            "worker": {
                "handler": {"http": {}},
                "podTemplate": {"spec": {"containers": [{"name": "handler", "image": "a:1"}]}},
            },
        },
    });
    if let Some(partitions) = partitions {
        set["spec"]["partitions"] = partitions.into();
    }
    set
}

fn apply(set: &Value) {
    kubectl(&["wait", "--for=condition=Established", DEFINITION, "--timeout=60s"]);
    ControlPlane::bare().kubectl(&["apply", "--validate=strict", "-f", "-"], Some(set)).expect();
}

fn field(path: &str) -> String {
    kubectl(&["get", "ops", "orders", "-o", &format!("jsonpath={{{path}}}")])
}

/// A chart of one's own, removed at the end.
struct OwnChart(PathBuf);

impl OwnChart {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("lanekeeper-chart-{}-{name}", process::id()));
        fs::create_dir_all(folder.join("templates")).unwrap();
        Self(folder)
    }

    /// A chart that holds one set.
    fn with_set(set: &Value) -> Self {
        let chart = Self::new("set");
        fs::write(chart.0.join("Chart.yaml"), "apiVersion: v2\nname: shop\nversion: 1.0.0\n").unwrap();
        chart.write_set(set);
        chart
    }

    fn write_set(&self, set: &Value) {
        fs::write(self.0.join("templates/set.yaml"), set.to_string()).unwrap();
    }

    /// Ours, as it was before a field was added to the definition.
    fn without_field(field: &str) -> Self {
        let chart = Self::new("old");
        copy(&root().join(CHART), &chart.0);
        let file = chart.0.join("templates/crd.yaml");
        let text = fs::read_to_string(&file).unwrap();
        let older = without(&text, field);
        assert!(older.len() < text.len(), "{field} is in the definition");
        fs::write(file, older).unwrap();
        chart
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for OwnChart {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// YAML without one field and what is below it.
fn without(text: &str, field: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut kept = String::new();
    let mut inside = None;
    for line in text.lines() {
        if inside.is_some_and(|outer| indent(line) > outer) {
            continue;
        }
        inside = (line.trim_end() == format!("{}{field}:", " ".repeat(indent(line)))).then(|| indent(line));
        if inside.is_none() {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[test]
fn an_upgrade_brings_the_new_fields_of_the_definition() {
    let _turn = turn();
    let old = OwnChart::without_field("jetStreamDomain");
    helm(&["install", "lanekeeper", old.path(), "--namespace", "lanekeeper", "--create-namespace"]);
    apply(&set(None));
    let with_domain = r#"{"spec":{"nats":{"jetStreamDomain":"hub"}}}"#;
    kubectl(&["patch", "ops", "orders", "--type=merge", "-p", with_domain]);
    assert_eq!(field(".spec.nats.jetStreamDomain"), "", "the old definition does not know it");

    helm(&["upgrade", "lanekeeper", CHART, "--namespace", "lanekeeper"]);
    kubectl(&["patch", "ops", "orders", "--type=merge", "-p", with_domain]);
    assert_eq!(field(".spec.nats.jetStreamDomain"), "hub");
    helm(&["uninstall", "lanekeeper", "--namespace", "lanekeeper"]);
}

#[test]
fn uninstalling_leaves_definition_and_sets_in_place_and_the_same_release_can_come_back() {
    let _turn = turn();
    let install = ["install", "lanekeeper", CHART, "--namespace", "lanekeeper", "--create-namespace"];
    helm(&install);
    apply(&set(Some(3)));
    helm(&["uninstall", "lanekeeper", "--namespace", "lanekeeper"]);
    assert_eq!(field(".spec.partitions"), "3");
    let left = kubectl(&[
        "get",
        "deployments,clusterroles,serviceaccounts",
        "-A",
        "-l",
        "app.kubernetes.io/name=lanekeeper",
        "-o",
        "name",
    ]);
    assert_eq!(left, "", "only the definition stays");
    helm(&install);
    assert_eq!(field(".spec.partitions"), "3");
    helm(&["uninstall", "lanekeeper", "--namespace", "lanekeeper"]);
}

#[test]
fn without_keep_the_definition_goes_with_the_release() {
    let _turn = turn();
    let install = [
        "install",
        "lanekeeper",
        CHART,
        "--namespace",
        "lanekeeper",
        "--create-namespace",
        "--set",
        "crds.keep=false",
    ];
    helm(&install);
    helm(&["uninstall", "lanekeeper", "--namespace", "lanekeeper"]);
    kubectl(&["wait", "--for=delete", DEFINITION, "--timeout=60s"]);
}

#[test]
fn a_release_that_leaves_the_number_out_keeps_what_was_scaled_and_one_that_names_it_sets_it_back() {
    let _turn = turn();
    kubectl(&["apply", "--server-side", "-f", "crds/"]);
    kubectl(&["wait", "--for=condition=Established", DEFINITION, "--timeout=60s"]);
    let chart = OwnChart::with_set(&set(None));
    helm(&["install", "shop", chart.path()]);
    kubectl(&["scale", "ops/orders", "--replicas=6"]);
    let other = json!({"spec": {"consumer": {"ackWaitSeconds": 20}}});
    let mut changed = set(None);
    changed["spec"]["consumer"] = other["spec"]["consumer"].clone();
    chart.write_set(&changed);
    helm(&["upgrade", "shop", chart.path()]);
    assert_eq!(field(".spec.consumer.ackWaitSeconds"), "20");
    assert_eq!(field(".spec.partitions"), "6");

    chart.write_set(&set(Some(4)));
    helm(&["upgrade", "shop", chart.path()]);
    assert_eq!(field(".spec.partitions"), "4");
    helm(&["uninstall", "shop"]);
}

#[test]
fn a_server_side_apply_of_another_number_than_was_scaled_is_a_conflict_and_changes_nothing() {
    let _turn = turn();
    kubectl(&["apply", "--server-side", "-f", "crds/"]);
    kubectl(&["wait", "--for=condition=Established", DEFINITION, "--timeout=60s"]);
    let plane = ControlPlane::bare();
    let arguments = ["apply", "--server-side", "--field-manager=release", "-f", "-"];
    plane.kubectl(&arguments, Some(&set(Some(4)))).expect();
    kubectl(&["scale", "ops/orders", "--replicas=6"]);
    let mut changed = set(Some(4));
    changed["spec"]["paused"] = true.into();
    let refusal = plane.kubectl(&arguments, Some(&changed)).refusal();
    assert!(refusal.contains("conflict") && refusal.contains(".spec.partitions"), "{refusal}");
    assert_eq!((field(".spec.partitions"), field(".spec.paused")), ("6".into(), "false".into()));

    changed["spec"].as_object_mut().unwrap().remove("partitions");
    plane.kubectl(&arguments, Some(&changed)).expect();
    assert_eq!((field(".spec.partitions"), field(".spec.paused")), ("6".into(), "true".into()));
}
