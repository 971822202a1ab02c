//! The tables of `rules/` and the scale subresource, judged by a real API server.

// The helpers of tests may fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod control_plane;
mod tables;

use control_plane::{Answer, ControlPlane};
use serde_json::{Value, json};
use tables::{Judge, bad, changed, good, updates};

const NAMESPACE: &str = "default";

fn plane() -> &'static ControlPlane {
    ControlPlane::with_definition()
}

fn in_namespace(set: &Value) -> Value {
    changed(set, &json!({"metadata": {"namespace": NAMESPACE}}))
}

fn named(set: &Value, name: &str) -> Value {
    changed(set, &json!({"metadata": {"name": name, "namespace": NAMESPACE}}))
}

/// Asks the API server without storing anything.
fn tried(set: &Value) -> Answer {
    plane().kubectl(&["create", "--dry-run=server", "--validate=strict", "-f", "-"], Some(&in_namespace(set)))
}

fn created(set: &Value) {
    plane().kubectl(&["create", "--validate=strict", "-f", "-"], Some(&in_namespace(set))).expect();
}

fn read(arguments: &[&str]) -> Value {
    let arguments: Vec<&str> =
        ["-n", NAMESPACE, "get", "-o", "json"].iter().chain(arguments).copied().collect();
    serde_json::from_str(&plane().kubectl(&arguments, None).expect()).unwrap()
}

#[test]
fn what_is_right_is_accepted_by_the_api_server_without_a_warning() {
    let good = good();
    for case in &good.cases {
        let answer = tried(&changed(&good.base, &case.change));
        assert_eq!(answer.err, "", "{}", case.name);
        assert!(answer.succeeded, "{}", case.name);
    }
}

#[test]
fn what_is_wrong_is_refused_by_the_api_server_in_words_that_name_the_field() {
    let good = good();
    for case in bad() {
        let answer = tried(&changed(&good.base, &case.change));
        if case.by == Judge::Operator {
            assert!(answer.succeeded, "{}: the API server sees it too: {}", case.name, answer.err);
        } else {
            assert!(!answer.succeeded, "{}: was accepted", case.name);
            assert!(answer.err.contains(&case.field), "{}: {}", case.name, answer.err);
        }
    }
}

#[test]
fn a_misspelt_field_is_refused_and_not_dropped() {
    let refusal = tried(&changed(&good().base, &json!({"spec": {"partitons": 4}}))).refusal();
    assert!(refusal.contains("unknown field \"spec.partitons\""), "{refusal}");
}

#[test]
fn what_is_immutable_stays_as_it_is_in_the_api_server() {
    let base = good().base;
    for (number, case) in updates().iter().enumerate() {
        let name = format!("update-{number}");
        created(&named(&changed(&base, &case.from), &name));
        let after = named(&changed(&base, &case.to), &name);
        let answer = plane().kubectl(&["replace", "-f", "-"], Some(&after));
        match &case.field {
            None => assert!(answer.succeeded, "{}: {}", case.name, answer.err),
            Some(field) => {
                let refusal = answer.refusal();
                assert!(refusal.contains(&format!("{field}: is immutable")), "{}: {refusal}", case.name);
            }
        }
    }
}

#[test]
fn a_set_is_scaled_through_its_subresource() {
    // Without a number: the default makes scale readable at once.
    let set = changed(&named(&good().base, "scaled"), &json!({"spec": {"partitions": null}}));
    created(&set);
    let scale = read(&["--subresource=scale", "ops", "scaled"]);
    assert_eq!(scale["spec"]["replicas"], 1);

    plane().kubectl(&["-n", NAMESPACE, "scale", "ops/scaled", "--replicas=6"], None).expect();
    assert_eq!(read(&["ops", "scaled"])["spec"]["partitions"], 6);
    let refusal =
        plane().kubectl(&["-n", NAMESPACE, "scale", "ops/scaled", "--replicas=257"], None).refusal();
    assert!(refusal.contains("spec.partitions: must be at most spec.mapping.maxPartitions"), "{refusal}");

    let status = json!({"status": {"partitions": 6, "selector": "lanekeeper.dev/set=scaled"}}).to_string();
    let patch =
        ["-n", NAMESPACE, "patch", "ops", "scaled", "--subresource=status", "--type=merge", "-p", &status];
    plane().kubectl(&patch, None).expect();
    let scale = read(&["--subresource=scale", "ops", "scaled"]);
    assert_eq!(scale["spec"]["replicas"], 6);
    assert_eq!(scale["status"], json!({"replicas": 6, "selector": "lanekeeper.dev/set=scaled"}));
}

#[test]
fn columns_show_what_a_person_asks_first() {
    created(&named(&good().base, "columns"));
    let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let conditions =
        [condition("Ready", "False", "Progressing"), condition("Rescaling", "True", "HandingOver")];
    let status = json!({"status": {"lanes": {"open": 3}, "conditions": conditions}}).to_string();
    let patch =
        ["-n", NAMESPACE, "patch", "ops", "columns", "--subresource=status", "--type=merge", "-p", &status];
    plane().kubectl(&patch, None).expect();
    let table = plane().kubectl(&["-n", NAMESPACE, "get", "ops", "columns", "-o", "wide"], None).expect();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
        .collect();
    assert_eq!(rows[0], ["NAME", "PARTITIONS", "READY LANES", "READY", "RESCALING", "REASON", "AGE"]);
    assert_eq!(rows[1][..6], ["columns", "4", "3", "False", "True", "Progressing"]);
}
