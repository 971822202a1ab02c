//! The Helm chart: what it renders, compared with committed files, and what must hold for it whatever they say.
//!
//! After a wanted change: `LANEKEEPER_GOLDEN=write cargo test -p xtask --test chart`, and look at the difference.

// The helpers of tests may fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;
use serde_json::Value;

/// Helm, built or found by the repository's own tools. Tests without it fail; they are not skipped.
static HELM: LazyLock<PathBuf> = LazyLock::new(|| {
    let output = Command::new("python3")
        .args(["tests/cluster/cluster.py", "path", "helm"])
        .current_dir(root())
        .output();
    let output = output.expect("python3 runs");
    assert!(output.status.success(), "helm cannot be had: {}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
});

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn helm(arguments: &[&str]) -> Output {
    Command::new(&*HELM).args(arguments).current_dir(root()).env("HELM_NO_PLUGINS", "1").output().unwrap()
}

fn template(values: &[&str]) -> Result<String, String> {
    let mut arguments =
        vec!["template", "lk", "charts/lanekeeper", "--namespace", "lanekeeper", "--kube-version", "1.33.0"];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    let output = helm(&arguments);
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn objects(rendered: &str) -> Vec<Value> {
    let documents = serde_yaml::Deserializer::from_str(rendered);
    documents.map(|document| Value::deserialize(document).unwrap()).filter(|value| !value.is_null()).collect()
}

fn rendered(values: &[&str]) -> Vec<Value> {
    objects(&template(values).unwrap())
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn golden(name: &str, values: &[&str]) {
    let values: Vec<&str> = values.iter().copied().chain(["crds.install=false"]).collect();
    let found = template(&values).unwrap();
    let file = root().join("crates/xtask/tests/chart").join(name);
    if env::var_os("LANEKEEPER_GOLDEN").is_some_and(|word| word == "write") {
        fs::write(&file, &found).unwrap();
    }
    let wanted = fs::read_to_string(&file).unwrap_or_default();
    for (number, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(found, wanted, "{name}, line {}", number + 1);
    }
    assert_eq!(found.lines().count(), wanted.lines().count(), "{name}");
}

#[test]
fn the_chart_passes_helms_own_checks() {
    let output = helm(&["lint", "--strict", "charts/lanekeeper"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_defaults_render_as_committed() {
    golden("defaults.yaml", &[]);
}

#[test]
fn every_value_renders_as_committed() {
    golden(
        "everything.yaml",
        &[
            "fullnameOverride=keeper",
            "commonLabels.team=shop",
            "image.tag=dev",
            "worker.image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "worker.image.pullPolicy=Never",
            "imagePullSecrets[0].name=registry",
            "watchNamespaces={shop,billing}",
            "bucket=keeper",
            "resyncSeconds=0.5",
            "concurrency=2",
            "log.filter=debug",
            "log.format=text",
            "extraEnv[0].name=TZ",
            "extraEnv[0].value=UTC",
            "serviceAccount.annotations.example\\.com/role=keeper",
            "metrics.service.port=80",
            "metrics.service.annotations.example\\.com/scrape=yes",
            "metrics.podMonitor.enabled=true",
            "metrics.podMonitor.labels.release=prometheus",
            "podAnnotations.example\\.com/note=one",
            "podLabels.tier=control",
            "priorityClassName=system-cluster-critical",
            "nodeSelector.kubernetes\\.io/os=linux",
            "tolerations[0].key=dedicated",
            "tolerations[0].operator=Exists",
            "affinity.nodeAffinity.x=y",
            "terminationGracePeriodSeconds=60",
        ],
    );
}

#[test]
fn what_is_switched_off_is_not_rendered() {
    let objects = rendered(&[
        "crds.install=false",
        "serviceAccount.create=false",
        "serviceAccount.name=mine",
        "rbac.create=false",
        "metrics.service.enabled=false",
    ]);
    let kinds: Vec<&str> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    assert_eq!(kinds, ["Deployment"]);
    assert_eq!(objects[0]["spec"]["template"]["spec"]["serviceAccountName"], "mine");
}

#[test]
fn an_unknown_or_impossible_value_is_refused_by_name() {
    for (value, words) in [
        ("bogus=1", "bogus"),
        ("image.repo=x", "repo"),
        ("resyncSeconds=0", "resyncSeconds"),
        ("concurrency=0", "concurrency"),
        ("watchNamespaces={UPPER}", "watchNamespaces"),
        ("image.digest=sha256:12", "digest"),
        ("log.format=xml", "format"),
        ("replicas=2", "replicas"),
    ] {
        let error = template(&[value]).expect_err(value);
        assert!(error.contains(words), "{value}: {error}");
    }
    assert!(
        template(&["serviceAccount.create=false"]).unwrap_err().contains("serviceAccount.name must be given")
    );
}

#[test]
fn the_definition_is_whole_and_kept_unless_told_otherwise() {
    let committed = fs::read_to_string(root().join("crds/lanekeeper.dev_orderedpartitionsets.yaml")).unwrap();
    let committed: CustomResourceDefinition = serde_yaml::from_str(&committed).unwrap();
    for (values, kept) in [(&[][..], true), (&["crds.keep=false"][..], false)] {
        let objects = rendered(values);
        let definition = of_kind(&objects, "CustomResourceDefinition").next().unwrap();
        let policy = &definition["metadata"]["annotations"]["helm.sh/resource-policy"];
        assert_eq!(policy == "keep", kept, "{values:?}");
        let rendered: CustomResourceDefinition = serde_json::from_value(definition.clone()).unwrap();
        assert_eq!(rendered.spec, committed.spec);
        assert_eq!(rendered.metadata.name, committed.metadata.name);
    }
}

#[test]
fn the_operator_is_one_and_runs_without_any_privilege() {
    let objects = rendered(&[]);
    let deployment = of_kind(&objects, "Deployment").next().unwrap();
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    for container in list(&pod["containers"]) {
        let security = &container["securityContext"];
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["capabilities"]["drop"], serde_json::json!(["ALL"]));
        assert!(container["resources"]["requests"]["memory"].is_string());
        assert!(container["resources"]["limits"]["memory"].is_string());
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    }
}

fn verbs(rule: &Value) -> BTreeSet<&str> {
    list(&rule["verbs"]).filter_map(Value::as_str).collect()
}

#[test]
fn rights_have_no_wildcard_and_secrets_are_never_listed() {
    for values in [&[][..], &["watchNamespaces={shop}"][..]] {
        let objects = rendered(values);
        let all = of_kind(&objects, "ClusterRole").chain(of_kind(&objects, "Role"));
        let rules: Vec<&Value> = all.flat_map(|role| list(&role["rules"])).collect();
        assert!(rules.len() > 5);
        for rule in rules {
            for part in ["apiGroups", "resources", "verbs"] {
                assert!(list(&rule[part]).all(|word| !word.as_str().unwrap().contains('*')), "{rule}");
            }
            if list(&rule["resources"]).any(|resource| resource == "secrets") {
                assert_eq!(verbs(rule), BTreeSet::from(["get"]), "{rule}");
            }
        }
    }
}

#[test]
fn with_namespaces_given_nothing_is_allowed_elsewhere() {
    let objects = rendered(&["watchNamespaces={shop,billing}", "rbac.aggregate=false"]);
    let cluster: Vec<&Value> =
        of_kind(&objects, "ClusterRole").flat_map(|role| list(&role["rules"])).collect();
    // Nodes have no namespace; everything else is named.
    let named: Vec<Vec<&str>> = cluster
        .iter()
        .map(|rule| {
            assert_eq!(verbs(rule), BTreeSet::from(["get"]), "{rule}");
            let of = |part: &str| list(&rule[part]).filter_map(Value::as_str).collect::<Vec<_>>();
            [of("resources"), of("resourceNames")].concat()
        })
        .collect();
    let expected: [&[&str]; 3] = [
        &["customresourcedefinitions", "orderedpartitionsets.lanekeeper.dev"],
        &["namespaces", "kube-system", "shop", "billing"],
        &["nodes"],
    ];
    assert_eq!(named, expected);
    for kind in ["Role", "RoleBinding"] {
        let namespaces: Vec<&str> =
            of_kind(&objects, kind).filter_map(|role| role["metadata"]["namespace"].as_str()).collect();
        assert_eq!(namespaces, ["shop", "billing"], "{kind}");
    }
}
