use serde_json::json;

use super::*;

fn set(subject: &str, key_tokens: &[i32], partitions: i32, in_force: i32) -> OrderedPartitionSet {
    serde_json::from_value(json!({
        "apiVersion": "lanekeeper.dev/v1alpha1",
        "kind": "OrderedPartitionSet",
        "metadata": {"name": "orders.v2", "namespace": "shop"},
        "spec": {
            "partitions": partitions,
            "nats": {"servers": ["nats://nats:4222"]},
            "stream": {"name": "ORDERS", "subjects": [subject]},
            "mapping": {"subject": subject, "keyTokens": key_tokens, "maxPartitions": 8},
            "worker": {
                "handler": {"http": {}},
                "podTemplate": {"spec": {"containers": [{"name": "handler", "image": "a:1"}]}},
            },
        },
        "status": {"partitions": in_force},
    }))
    .unwrap()
}

#[test]
fn a_key_and_its_subject_go_to_the_same_partition() {
    let set = set("orders.*", &[1], 4, 4);
    let by_key = find(&set, Asked::Either("N10156")).unwrap();
    let by_subject = find(&set, Asked::Either("orders.N10156")).unwrap();
    assert_eq!(by_key.partition, by_subject.partition);
    assert_eq!(by_key.partition, by_key.hash % 4);
    assert_eq!(by_key.deployment, format!("orders.v2-{}", by_key.partition));
    assert_eq!(by_key.consumer_prefix, format!("lk_shop_orders=v2_{}_", by_key.partition));
    let stored = by_subject.stored_subject.unwrap();
    assert!(stored.ends_with(".orders.N10156"), "{stored}");
    assert!(stored.starts_with(by_key.filter.trim_end_matches('>')), "{stored} {}", by_key.filter);
}

#[test]
fn the_order_of_key_tokens_is_the_order_of_the_hash() {
    let forth = find(&set("ci.runs.*.*.*.*", &[3, 4], 3, 3), Asked::Either("ci.runs.a.b.c.d")).unwrap();
    let back = find(&set("ci.runs.*.*.*.*", &[4, 3], 3, 3), Asked::Either("ci.runs.a.b.c.d")).unwrap();
    assert_eq!(forth.key, ["c", "d"]);
    assert_eq!(back.key, ["d", "c"]);
    assert_ne!(forth.hash, back.hash);
    assert_eq!(find(&set("ci.runs.*.*.*.*", &[3, 4], 3, 3), Asked::Either("c.d")).unwrap().hash, forth.hash);
}

#[test]
fn a_change_that_is_not_done_shows_both_numbers() {
    let place = find(&set("orders.*", &[1], 8, 4), Asked::Either("7")).unwrap();
    assert_eq!(place.partitions, 4);
    let wanted = place.wanted.as_ref().unwrap();
    assert_eq!((wanted.partitions, wanted.partition), (8, place.hash % 8));
    assert!(render(&place).contains("Changing to:  partition "), "{}", render(&place));
}

#[test]
fn a_set_that_the_operator_has_not_seen_yet_is_answered_by_its_specification() {
    assert_eq!(find(&set("orders.*", &[1], 4, 0), Asked::Either("7")).unwrap().partitions, 4);
}

#[test]
fn what_is_neither_key_nor_subject_is_refused_with_what_is_expected() {
    let set = set("orders.*.*", &[1, 2], 4, 4);
    for (text, words) in [
        ("a", "a key has 2 tokens (keyTokens [1, 2]), not 1"),
        ("a.b.c", "is no subject of 'orders.*.*'"),
        ("orders.*.b", "has wildcards"),
        ("a..b", "empty token"),
        ("", "empty"),
        ("a b.c", "character"),
    ] {
        let error = find(&set, Asked::Either(text)).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let error = find(&set, Asked::Subject("invoices.a.b")).unwrap_err().to_string();
    assert!(error.contains("such messages reach no lane"), "{error}");
}

#[test]
fn a_text_that_could_be_both_is_refused_unless_both_go_to_one_partition() {
    let set = set("*.*", &[2, 1], 8, 8);
    let answers: Vec<_> = ["a.b", "b.a", "c.d", "x.y", "1.2", "q.r"]
        .iter()
        .map(|text| (find(&set, Asked::Either(text)), find(&set, Asked::Subject(text)).unwrap()))
        .collect();
    assert!(answers.iter().any(|(either, _)| matches!(either, Err(PlaceError::Ambiguous { .. }))));
    for (either, subject) in answers {
        match either {
            Ok(either) => assert_eq!(either.partition, subject.partition),
            Err(PlaceError::Ambiguous { as_subject, as_key, .. }) => {
                assert_eq!(as_subject, subject.partition);
                assert_ne!(as_key, as_subject);
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn an_invalid_set_is_answered_with_what_is_wrong_with_it() {
    let error = find(&set("orders.>", &[1], 4, 4), Asked::Either("7")).unwrap_err().to_string();
    assert!(error.contains("spec.mapping.subject"), "{error}");
}

#[test]
fn the_answer_for_people_has_one_fact_a_line() {
    let place = find(&set("orders.*", &[1], 4, 4), Asked::Either("orders.a")).unwrap();
    assert_eq!(
        render(&place),
        "Key:         a\n\
         Hash:        3826002220\n\
         Partition:   0 of 4\n\
         Share:       1/4 of all keys (hash mod 4 = 0)\n\
         Deployment:  orders.v2-0\n\
         Stream:      ORDERS\n\
         Filter:      lanes.ORDERS.0.0.>\n\
         Consumer:    lk_shop_orders=v2_0_* (*: `incarnation` in kubectl lanes status -o json)\n\
         Stored as:   lanes.ORDERS.0.0.4.orders.a\n"
    );
}
