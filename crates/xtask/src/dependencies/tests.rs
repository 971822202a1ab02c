use serde_json::json;

use super::*;

#[test]
fn this_workspace_keeps_the_rule() {
    assert_eq!(violations(&metadata().unwrap()).unwrap(), Vec::<String>::new());
}

/// A package of a planted workspace: name, and what it depends on as (name, kind, features).
type Planted<'a> = (&'a str, &'a [(&'a str, Option<&'a str>, &'a [&'a str])]);

fn planted(members: &[&str], packages: &[Planted<'_>]) -> Value {
    let declared: Vec<Value> = packages
        .iter()
        .map(|(name, dependencies)| {
            let dependencies: Vec<Value> = dependencies
                .iter()
                .map(|(name, kind, features)| {
                    json!({"name": name, "kind": kind, "features": features, "uses_default_features": false})
                })
                .collect();
            json!({"id": name, "name": name, "dependencies": dependencies})
        })
        .collect();
    let nodes: Vec<Value> = packages
        .iter()
        .map(|(name, dependencies)| {
            let deps: Vec<Value> = dependencies
                .iter()
                .map(|(name, kind, _)| json!({"pkg": name, "dep_kinds": [{"kind": kind}]}))
                .collect();
            json!({"id": name, "deps": deps})
        })
        .collect();
    json!({"workspace_members": members, "packages": declared, "resolve": {"nodes": nodes}})
}

fn found(members: &[&str], packages: &[Planted<'_>]) -> Vec<String> {
    violations(&planted(members, packages)).unwrap()
}

#[test]
fn a_runtime_deep_below_core_is_found_with_the_way_to_it() {
    let packages: &[Planted<'_>] =
        &[("lanekeeper-core", &[("helper", None, &[])]), ("helper", &[("tokio", None, &[])]), ("tokio", &[])];
    let way = "lanekeeper-core must not know tokio: lanekeeper-core -> helper -> tokio";
    assert_eq!(found(&["lanekeeper-core"], packages), [way]);
}

#[test]
fn what_only_tests_need_is_allowed() {
    let packages: &[Planted<'_>] = &[
        ("lanekeeper-core", &[("tokio", Some("dev"), &[])]),
        ("lanekeeper-worker", &[("async-nats", Some("dev"), &[])]),
        ("tokio", &[]),
        ("async-nats", &[]),
    ];
    assert_eq!(found(&["lanekeeper-core", "lanekeeper-worker"], packages), Vec::<String>::new());
}

#[test]
fn a_second_user_of_the_nats_client_is_found() {
    let packages: &[Planted<'_>] =
        &[("lanekeeper-worker", &[("async-nats", None, &[])]), ("async-nats", &[])];
    let violations = found(&["lanekeeper-worker"], packages);
    assert_eq!(violations, ["lanekeeper-worker depends on async-nats; only lanekeeper-nats may"]);
}

#[test]
fn a_kubernetes_client_is_found_however_it_comes() {
    for (dependency, features) in
        [("kube", ["derive", "client"]), ("kube", ["derive", "runtime"]), ("kube-client", ["", ""])]
    {
        let packages: &[Planted<'_>] = &[("lanekeeper-api", &[(dependency, None, &features)])];
        let violations = found(&["lanekeeper-api"], packages);
        assert_eq!(violations.len(), 1, "{dependency} {features:?}: {violations:?}");
        assert!(violations[0].contains("has a Kubernetes client"), "{violations:?}");
    }
    let packages: &[Planted<'_>] = &[
        ("lanekeeper-api", &[("kube", None, &["derive"])]),
        ("lanekeeper-operator", &[("kube", None, &["client"])]),
    ];
    assert_eq!(found(&["lanekeeper-api", "lanekeeper-operator"], packages), Vec::<String>::new());
}

#[test]
fn an_arrow_against_the_architecture_is_found() {
    let packages: &[Planted<'_>] =
        &[("lanekeeper-nats", &[("lanekeeper-api", None, &[])]), ("lanekeeper-api", &[])];
    let violations = found(&["lanekeeper-nats", "lanekeeper-api"], packages);
    assert_eq!(violations, ["lanekeeper-nats depends on lanekeeper-api, which it must not know"]);
}

#[test]
fn a_crate_without_a_rule_is_found() {
    let violations = found(&["lanekeeper-new"], &[("lanekeeper-new", &[])]);
    assert_eq!(violations, ["lanekeeper-new is not in the dependency rule: say what it may depend on"]);
}

#[test]
fn an_empty_answer_of_cargo_is_an_error_and_no_success() {
    assert!(violations(&json!({})).is_err());
}
