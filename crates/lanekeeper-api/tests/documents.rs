//! What the documents show is true: sets are accepted, objects are known to the API server, programs run, names exist.

// The helpers of tests may fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod control_plane;
mod document;
mod tables;

use std::{fs, path::Path};

use control_plane::{ControlPlane, root};
use document::{Document, all, read};
use lanekeeper_api::{OrderedPartitionSet, condition::ConditionType, invalid, reason::Reason, validate};
use lanekeeper_core::record::StallKind;
use serde_json::{Value, json};
use tables::changed;

/// Groups of other projects, whose definitions are not installed here.
const OTHERS: [&str; 2] = ["keda.sh", "monitoring.coreos.com"];

fn sets() -> Vec<(String, Value)> {
    let objects = all(&root()).iter().flat_map(Document::objects).collect::<Vec<_>>();
    objects.into_iter().filter(|(_, object)| object["kind"] == "OrderedPartitionSet").collect()
}

/// Asks the API server without storing anything; unknown fields are errors.
fn accepted(place: &str, object: &Value) {
    let namespaced = !matches!(object["kind"].as_str(), Some("Namespace"));
    let here = json!({"metadata": {"namespace": "default"}});
    let object = if namespaced { changed(object, &here) } else { object.clone() };
    let arguments = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
    let answer = ControlPlane::with_definition().kubectl(&arguments, Some(&object));
    assert!(answer.succeeded, "{place}: {}", answer.err);
}

#[test]
fn every_set_in_the_documents_is_accepted() {
    let sets = sets();
    for path in ["README.md", "docs/getting-started.md", "examples/flights/orderedpartitionset.yaml"] {
        assert!(sets.iter().any(|(place, _)| place.starts_with(path)), "{path} has no set");
    }
    for (place, object) in &sets {
        accepted(place, object);
        let in_namespace = changed(&json!({"metadata": {"namespace": "default"}}), object);
        let set: OrderedPartitionSet =
            serde_json::from_value(in_namespace).unwrap_or_else(|error| panic!("{place}: {error}"));
        if let Err(found) = validate(&set) {
            panic!("{place}: {}", invalid::summary(&found));
        }
    }
}

#[test]
fn every_pod_template_in_the_documents_is_one() {
    let mut templates = 0;
    for (place, set) in sets() {
        let Some(template) = set["spec"]["worker"].get("podTemplate") else { continue };
        templates += 1;
        let labels = json!({"metadata": {"labels": {"of": "documents"}}});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "template"},
            "spec": {"selector": {"matchLabels": {"of": "documents"}}, "template": changed(template, &labels)},
        });
        accepted(&place, &deployment);
    }
    assert!(templates > 2, "only {templates} were found");
}

#[test]
fn every_other_object_in_the_documents_is_known_to_the_api_server() {
    for (place, object) in all(&root()).iter().flat_map(Document::objects) {
        let group = object["apiVersion"].as_str().unwrap_or_default().split('/').next().unwrap_or_default();
        if object["kind"] != "OrderedPartitionSet" && !OTHERS.contains(&group) {
            accepted(&place, &object);
        }
    }
}

#[test]
fn the_autoscaler_in_the_documents_changes_the_number_of_partitions() {
    let of_kind = |path: &str, kind: &str| {
        let objects = read(&root(), path).objects();
        objects.into_iter().map(|(_, object)| object).find(|object| object["kind"] == kind).unwrap()
    };
    // Another name: what is stored must not be in the way of tests that only try.
    let here = json!({"metadata": {"name": "scaled", "namespace": "default"}});
    let set = changed(&of_kind("README.md", "OrderedPartitionSet"), &here);
    let set = changed(&set, &json!({"spec": {"partitions": 1}}));
    let autoscaler = changed(&of_kind("docs/operations.md", "HorizontalPodAutoscaler"), &here);
    let autoscaler = changed(&autoscaler, &json!({"spec": {"scaleTargetRef": {"name": "scaled"}}}));
    let plane = ControlPlane::with_definition();
    for object in [&set, &autoscaler] {
        plane.kubectl(&["create", "--validate=strict", "-f", "-"], Some(object)).expect();
    }
    let least = autoscaler["spec"]["minReplicas"].as_i64().unwrap();
    assert!(least > 1, "it would change nothing");
    let wanted = format!("--for=jsonpath={{.spec.partitions}}={least}");
    plane.kubectl(&["-n", "default", "wait", &wanted, "ops/scaled", "--timeout=180s"], None).expect();
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_in_it() {
    for document in all(&root()) {
        let folder = root().join(Path::new(&document.path).parent().unwrap());
        for link in
            document.links().into_iter().filter(|link| !link.contains("://") && !link.starts_with('#'))
        {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = folder.join(file);
            assert!(target.exists(), "{}: there is no {link}", document.path);
            let there = || headings(&fs::read_to_string(&target).unwrap()).any(|one| one == heading);
            assert!(heading.is_empty() || there(), "{}: there is no heading {link}", document.path);
        }
    }
}

/// Headings as links name them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == ' ' || c == '-';
    text.lines().filter(|line| line.starts_with('#')).map(move |line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        words.chars().filter(|c| plain(*c)).collect::<String>().replace(' ', "-")
    })
}

#[test]
fn every_page_is_in_the_index() {
    let index = read(&root(), "docs/README.md");
    for document in all(&root()) {
        let Some(page) = document.path.strip_prefix("docs/") else { continue };
        let listed =
            page == "README.md" || page.starts_with("adr/") || index.links().iter().any(|link| link == page);
        assert!(listed, "docs/README.md does not name {page}");
    }
}

/// A metric in a document, without what the text format adds.
fn metric(word: &str) -> Option<(&'static str, String)> {
    let name = word.split('{').next().unwrap_or_default();
    let rest = |prefix: &str| name.strip_prefix(prefix).map(str::to_owned);
    let (program, rest) = match rest("lanekeeper_lane_") {
        Some(rest) => ("lanekeeper-worker", rest),
        None => ("lanekeeper-operator", rest("lanekeeper_operator_")?),
    };
    let endings = ["_total", "_bucket", "_sum", "_count"];
    let bare = endings.iter().find_map(|ending| rest.strip_suffix(ending)).unwrap_or(&rest);
    Some((program, bare.to_owned()))
}

#[test]
fn every_metric_in_the_documents_exists_and_every_metric_is_documented() {
    let source =
        |program: &str| fs::read_to_string(root().join(format!("crates/{program}/src/metrics.rs"))).unwrap();
    let mut found = 0;
    for document in all(&root()) {
        let names = document.text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for (program, name) in names.filter_map(metric).filter(|(_, name)| !name.is_empty()) {
            found += 1;
            let known = source(program).contains(&format!("\"{name}\""));
            assert!(known, "{}: {program} has no metric {name}", document.path);
        }
    }
    assert!(found > 20, "only {found} were found");
    let page = read(&root(), "docs/metrics.md");
    for (program, prefix) in
        [("lanekeeper-worker", "lanekeeper_lane"), ("lanekeeper-operator", "lanekeeper_operator")]
    {
        let source = source(program);
        let source = source.split("#[cfg(test)]").next().unwrap();
        let calls =
            ["register(", "counter("].iter().flat_map(|call| source.match_indices(call)).map(|(at, call)| {
                let rest = source[at + call.len()..].trim_start();
                rest.strip_prefix('"').and_then(|rest| rest.split('"').next()).unwrap_or_default()
            });
        for name in calls.filter(|name| !name.is_empty()) {
            let named = page.text.contains(&format!("`{prefix}_{name}"));
            assert!(named, "docs/metrics.md does not name {prefix}_{name}");
        }
    }
}

#[test]
fn every_reason_in_the_failure_modes_is_one() {
    let page = read(&root(), "docs/failure-modes.md");
    let camel = |word: &&str| {
        let capitals = word.chars().filter(char::is_ascii_uppercase).count();
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && capitals > 1
            && word.chars().all(|c| c.is_ascii_alphabetic())
    };
    let mut found = 0;
    for word in page.words().into_iter().filter(camel) {
        let known = Reason::ALL.iter().any(|reason| reason.as_str() == word)
            || ConditionType::ALL.iter().any(|one| one.as_str() == word)
            || StallKind::ALL.iter().any(|kind| kind.name() == word)
            || ["OrderedPartitionSet", "ResourceQuota", "SIGKILL"].contains(&word);
        assert!(known, "{word} is no reason and no condition");
        found += 1;
    }
    assert!(found > 20, "only {found} were found");
}

#[test]
fn the_embedded_handler_in_the_documents_is_the_example_that_is_compiled() {
    let example = fs::read_to_string(root().join("crates/lanekeeper-worker/examples/embedded.rs")).unwrap();
    assert_eq!(read(&root(), "docs/handlers.md").only("rust"), example);
}
