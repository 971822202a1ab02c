//! The tables of `rules/`, judged by the definition's CEL rules and by the checks in Rust.
//!
//! CEL alone does not know the bounds of the schema: rows marked `schema` are judged by a real API server
//! (`admission.rs`), which reads the same tables.

// The helpers of tests may fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod rule;
mod tables;

use kube::core::cel::apply_defaults;
use lanekeeper_api::{OrderedPartitionSet, invalid::Invalid, validate};
use serde_json::Value;

use rule::{rules, schema};
use tables::{Judge, bad, changed, good, updates};

fn checks(set: &Value) -> Result<validate::Validated, Vec<Invalid>> {
    let set: OrderedPartitionSet = serde_json::from_value(set.clone()).unwrap();
    lanekeeper_api::validate(&set)
}

#[test]
fn what_is_right_is_accepted_by_rules_and_by_checks() {
    let (good, schema) = (good(), schema());
    for case in &good.cases {
        let set = changed(&good.base, &case.change);
        assert_eq!(rules(&schema, &set, None), Vec::<String>::new(), "{}", case.name);
        if let Err(invalid) = checks(&set) {
            panic!("{}: {}", case.name, lanekeeper_api::invalid::summary(&invalid));
        }
    }
}

#[test]
fn what_the_rules_refuse_is_refused_in_words_that_name_the_field() {
    let (good, schema) = (good(), schema());
    for case in bad() {
        let set = changed(&good.base, &case.change);
        let words = rules(&schema, &set, None);
        let named = words.iter().any(|words| words.starts_with(&format!("{}: must", case.field)));
        match case.by {
            Judge::Rule => assert!(named, "{}: {words:?}", case.name),
            Judge::Operator => assert!(words.is_empty(), "{}: the rules see it too: {words:?}", case.name),
            Judge::Schema => {}
        }
    }
}

#[test]
fn the_checks_refuse_everything_that_the_api_server_does_and_name_field_and_bounds() {
    let good = good();
    for case in bad() {
        let set = changed(&good.base, &case.change);
        let Ok(set) = serde_json::from_value::<OrderedPartitionSet>(set) else {
            assert!(case.by == Judge::Schema, "{}: is no set at all", case.name);
            continue;
        };
        let Err(invalid) = lanekeeper_api::validate(&set) else { panic!("{}: was accepted", case.name) };
        let found = invalid.iter().find(|invalid| invalid.field.starts_with(&case.field));
        let found = found.unwrap_or_else(|| panic!("{}: {invalid:?}", case.name));
        assert!(found.allowed.starts_with("must"), "{}: {found}", case.name);
        assert!(!found.value.is_empty(), "{}: {found}", case.name);
    }
}

#[test]
fn what_is_immutable_cannot_be_changed_and_the_rest_can() {
    let (good, schema) = (good(), schema());
    for case in updates() {
        let old = changed(&good.base, &case.from);
        let new = changed(&good.base, &case.to);
        let words = rules(&schema, &new, Some(&old));
        match case.field {
            None => assert!(words.is_empty(), "{}: {words:?}", case.name),
            Some(field) => {
                let named = words.iter().any(|words| words.starts_with(&format!("{field}: is immutable")));
                assert!(named, "{}: {words:?}", case.name);
            }
        }
    }
}

#[test]
fn defaults_in_the_schema_and_in_the_types_are_the_same() {
    let (good, schema) = (good(), schema());
    for case in &good.cases {
        let written = changed(&good.base, &case.change);
        let as_stored: OrderedPartitionSet =
            serde_json::from_value(apply_defaults(&schema, &written)).unwrap();
        let as_written: OrderedPartitionSet = serde_json::from_value(written).unwrap();
        assert_eq!(as_stored, as_written, "{}", case.name);
    }
    let least =
        apply_defaults(&schema, &changed(&good.base, &serde_json::json!({"spec": {"partitions": null}})));
    assert_eq!(least["spec"]["partitions"], 1);
    assert_eq!(least["spec"]["mapping"]["maxPartitions"], 256);
    assert_eq!(
        least["spec"]["consumer"],
        serde_json::json!({"ackWaitSeconds": 15, "ownership": "Pin", "start": "All"})
    );
    assert_eq!(least["spec"]["deletionPolicy"], "Retain");
    assert_eq!(least["spec"]["worker"]["handler"]["http"]["port"], 8080);
}

#[test]
fn subjects_that_reach_no_lane_are_named() {
    let good = good();
    let change = serde_json::json!({"spec": {"stream": {"subjects": ["orders.>", "orders2.*"]}}});
    let validated = checks(&changed(&good.base, &change)).unwrap();
    assert_eq!(validated.uncovered_subjects(), ["orders.>", "orders2.*"]);
    let validated = checks(&good.base).unwrap();
    assert_eq!(validated.uncovered_subjects(), Vec::<&str>::new());
}

/// The schema of every field, with its path.
fn every_field<'a>(path: &str, schema: &'a Value, visit: &mut impl FnMut(&str, &'a Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        every_field(&format!("{path}.{name}"), property, visit);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            every_field(&format!("{path}[]"), &schema[inner], visit);
        }
    }
}

#[test]
fn every_field_of_the_specification_is_bounded_and_described() {
    let schema = schema();
    let mut fields = 0;
    every_field("spec", &schema["properties"]["spec"], &mut |path, field| {
        fields += 1;
        assert!(field["nullable"].is_null(), "{path}");
        if !path.ends_with("[]") {
            assert!(field["description"].as_str().is_some_and(|text| !text.is_empty()), "{path}: no words");
        }
        let bounded = match field["type"].as_str() {
            Some("integer") => {
                assert!(!field["format"].as_str().unwrap_or_default().starts_with('u'), "{path}");
                field["minimum"].is_number() && field["maximum"].is_number()
            }
            Some("string") => field["maxLength"].is_number() || field["enum"].is_array(),
            Some("array") => field["maxItems"].is_number(),
            _ => true,
        };
        assert!(bounded, "{path}: without bounds: {field}");
    });
    assert!(fields > 40, "only {fields} fields were looked at");
}
