//! What must hold between the rules of the definition and the checks in Rust, for specifications that nobody wrote.

// The helpers of tests may fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod rule;
mod tables;

use std::sync::LazyLock;

use lanekeeper_api::OrderedPartitionSet;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use rule::{rules, schema};
use tables::{changed, good};

/// Subjects of few different tokens, so that patterns often match, overlap, or are no patterns at all.
fn subject() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        4 => Just("a"), 3 => Just("b+c"), 6 => Just("*"), 2 => Just(">"),
        1 => Just("lanes"), 1 => Just("ORDERS"), 1 => Just("$x"), 1 => Just("a*"), 1 => Just(""), 1 => Just("a b"),
    ];
    prop::collection::vec(token, 1..4).prop_map(|tokens| tokens.join("."))
}

/// A pattern, and one of the stream's that may be wider than it.
fn pattern_and_cover() -> impl Strategy<Value = (String, String)> {
    let token = prop::sample::select(vec!["a", "b+c", "*", "*"]);
    let wider = prop::sample::select(vec![0, 0, 1, 2]);
    prop::collection::vec((token, wider), 1..5).prop_map(|tokens| {
        let pattern: Vec<&str> = tokens.iter().map(|(token, _)| *token).collect();
        let mut cover = Vec::new();
        for (index, (token, wider)) in tokens.iter().enumerate() {
            match wider {
                0 => cover.push(*token),
                1 => cover.push("*"),
                _ => {
                    cover.push(if index == 0 { token } else { ">" });
                    if index > 0 {
                        break;
                    }
                }
            }
        }
        (pattern.join("."), cover.join("."))
    })
}

fn change() -> impl Strategy<Value = Value> {
    let subjects = prop_oneof![1 => (subject(), subject()), 3 => pattern_and_cover()];
    (
        subjects,
        prop::collection::vec(subject(), 0..2),
        prop::collection::vec(1..3, 1..3),
        1..10,
        prop::sample::select(vec![1, 2, 3, 8, 256]),
        prop::sample::select(vec!["Limits", "Interest", "WorkQueue"]),
        (1..3, 1..3, prop::sample::select(vec!["All", "New"])),
    )
        .prop_map(
            |((subject, cover), others, tokens, partitions, most, retention, (replicas, copies, start))| {
                let subjects: Vec<String> = others.into_iter().chain([cover]).collect();
                json!({"spec": {
                    "partitions": partitions,
                    "stream": {"subjects": subjects, "retention": retention, "replicas": replicas},
                    "mapping": {"subject": subject, "keyTokens": tokens, "maxPartitions": most},
                    "consumer": {"replicas": copies, "start": start},
                }})
            },
        )
}

/// Any JSON of which some parts look like a pod template.
fn json_like_a_template() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(vec!["handler", "lane", "", "é", "lanekeeper-x", "a:1"]).prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "metadata",
        "spec",
        "labels",
        "annotations",
        "containers",
        "initContainers",
        "volumes",
        "name",
        "image",
        "ports",
        "containerPort",
        "restartPolicy",
        "lanekeeper.dev/set",
    ]);
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let fields = prop::collection::vec((names.clone(), inner.clone()), 0..6);
        let object = fields.prop_map(|fields| {
            Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>(),
            )
        });
        prop_oneof![2 => object, 1 => prop::collection::vec(inner, 0..4).prop_map(Value::Array)]
    })
}

static BASE: LazyLock<Value> = LazyLock::new(|| good().base);
static SCHEMA: LazyLock<Value> = LazyLock::new(schema);

fn parsed(set: &Value) -> OrderedPartitionSet {
    serde_json::from_value(set.clone()).unwrap()
}

proptest! {
    // Most of what is generated is refused; of what is not there must be enough.
    #![proptest_config(ProptestConfig { cases: 100, max_global_rejects: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn admission_never_refuses_what_the_operator_could_carry_out(change in change()) {
        let set = changed(&BASE, &change);
        prop_assume!(lanekeeper_api::validate(&parsed(&set)).is_ok());
        prop_assert_eq!(rules(&SCHEMA, &set, None), Vec::<String>::new());
    }

    #[test]
    fn what_is_valid_stores_each_mapped_subject_under_the_filter_of_its_partition(change in change()) {
        let valid = lanekeeper_api::validate(&parsed(&changed(&BASE, &change)));
        prop_assume!(valid.is_ok());
        let valid = valid.unwrap();
        let mapping = &valid.stream.mapping;
        prop_assert!(valid.partitions <= mapping.max_partitions);
        let original = mapping.source.as_str().replace('*', "k").replace('>', "r.s");
        let stored = mapping.stored_subject(&original);
        prop_assert_eq!(stored.as_deref().and_then(|stored| mapping.original_subject(stored)), Some(original.as_str()));
    }
}

proptest! {
    #[test]
    fn any_pod_template_is_accepted_or_refused_with_reasons(template in json_like_a_template()) {
        let mut set = parsed(&BASE);
        set.spec.worker.pod_template = Some(template);
        if let Err(invalid) = lanekeeper_api::validate(&set) {
            prop_assert!(!invalid.is_empty());
            for one in invalid {
                prop_assert!(one.field.starts_with("spec.worker.podTemplate"), "{}", one);
                prop_assert!(one.allowed.starts_with("must"), "{}", one);
            }
        }
    }
}
