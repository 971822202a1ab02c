use serde_json::{Value, json};

use super::*;

fn set(name: &str, status: &Value) -> OrderedPartitionSet {
    serde_json::from_value(json!({
        "apiVersion": "lanekeeper.dev/v1alpha1",
        "kind": "OrderedPartitionSet",
        "metadata": {"name": name, "namespace": "shop", "generation": 2},
        "spec": {
            "partitions": 3,
            "nats": {"servers": ["nats://nats:4222"]},
            "stream": {"name": "ORDERS", "subjects": ["orders.*.*"]},
            "mapping": {"subject": "orders.*.*", "keyTokens": [2, 1]},
            "worker": {"handler": {"http": {}}},
        },
        "status": status,
    }))
    .unwrap()
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    let since = "2026-01-01T00:00:00Z";
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
}

fn blocked() -> OrderedPartitionSet {
    set(
        "orders",
        &json!({
            "observedGeneration": 2,
            "partitions": 3,
            "lanes": {"open": 2, "blocked": 1},
            "attention": [{
                "partition": 1, "reason": "AttemptsExhausted", "sequence": 42, "message": "handler said 500: no stock",
            }],
            // In another order than they are shown in.
            "conditions": [
                condition("Blocked", "True", "AttemptsExhausted", "partition 1 stands at 42"),
                condition("Ready", "False", "AttemptsExhausted", "partition 1 stands at 42"),
            ],
        }),
    )
}

fn deployment(name: &str, ready: i32) -> Deployment {
    let value = json!({"metadata": {"name": name}, "spec": {"replicas": 1, "selector": {}, "template": {}}, "status": {"readyReplicas": ready}});
    serde_json::from_value(value).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:05:00Z".parse().unwrap()
}

#[test]
fn one_set_is_shown_with_conditions_partitions_and_what_it_waits_for() {
    let report = report(&blocked(), &[deployment("orders-0", 1), deployment("orders-1", 0)], None);
    assert_eq!(
        render_one(&report, now()),
        "\
Set:     shop/orders
Stream:  ORDERS, subjects orders.*.*, key made of '*' number 2, 1
Lanes:   3 wanted, 3 in force: 2 open, 0 handing over, 1 blocked, 0 without worker

CONDITION   STATUS   SINCE   REASON              MESSAGE
Ready       False    5m      AttemptsExhausted   partition 1 stands at 42
Blocked     True     5m      AttemptsExhausted   partition 1 stands at 42

PARTITION   KEYS   DEPLOYMENT   PODS READY
0           1/4    orders-0     1/1
1           1/2    orders-1     0/1
2           1/4    orders-2     missing

WAITS FOR PARTITION   REASON              SEQUENCE   MESSAGE
1                     AttemptsExhausted   42         handler said 500: no stock
"
    );
}

#[test]
fn how_long_a_lane_stands_still_is_shown() {
    let set = set(
        "orders",
        &json!({"observedGeneration": 2, "attention": [{
            "partition": 1, "reason": "LaneStalled", "sequence": 42, "since": "2026-01-01T00:02:00Z",
            "message": "ConsumerPaused: somebody paused its consumer",
        }]}),
    );
    let text = render_one(&report(&set, &[], None), now());
    let line = "1                     LaneStalled   42         ConsumerPaused: somebody paused its consumer, for 3m\n";
    assert!(text.ends_with(line), "{text}");
}

#[test]
fn sets_are_listed_one_a_line() {
    let reports = [report(&set("new", &Value::Null), &[], None), report(&blocked(), &[], None)];
    assert_eq!(
        render_all(&reports, false, "shop", now()),
        "\
NAME     PARTITIONS   OPEN   READY   REASON              SINCE   WAITS FOR
new      3            0      -       -                   -
orders   3            2      False   AttemptsExhausted   5m      AttemptsExhausted of partition 1 at 42
"
    );
    let everywhere = render_all(&reports, true, "shop", now());
    assert!(everywhere.starts_with("NAMESPACE   NAME "), "{everywhere}");
    assert!(everywhere.contains("\nshop        orders "), "{everywhere}");
}

#[test]
fn no_sets_are_said_in_words() {
    assert_eq!(render_all(&[], false, "shop", now()), "There are no sets in namespace shop.\n");
    assert_eq!(render_all(&[], true, "shop", now()), "There are no sets in any namespace.\n");
}

#[test]
fn a_change_under_way_shows_both_numbers() {
    let changing = set("orders", &json!({"partitions": 2, "observedGeneration": 2}));
    assert_eq!(numbers(&report(&changing, &[], None)), "2->3");
}

#[test]
fn a_status_of_an_earlier_specification_is_said_to_be_one() {
    for (status, note) in
        [(json!({"observedGeneration": 1}), true), (json!({"observedGeneration": 2}), false)]
    {
        let text = render_one(&report(&set("orders", &status), &[], None), now());
        assert_eq!(text.contains("has not seen this specification"), note, "{text}");
    }
}

#[test]
fn programs_get_the_same_facts_as_people() {
    let value = serde_json::to_value(report(&blocked(), &[deployment("orders-0", 1)], None)).unwrap();
    assert_eq!(value["lanes"]["blocked"], 1);
    assert_eq!(value["attention"][0]["sequence"], 42);
    assert_eq!(value["partitions"][0]["pods"], json!({"ready": 1, "wanted": 1}));
    assert_eq!(value["partitions"][1]["modulus"], 2);
    assert_eq!(value["conditions"][0]["type"], "Blocked");
}
