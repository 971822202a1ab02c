use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use lanekeeper_api::{OrderedPartitionSet, status::LaneAttention};
use lanekeeper_core::share::Share;
use serde_json::json;

use super::*;
use crate::{
    lane::Position,
    status::{Nats, report},
};

fn condition(status: &str, reason: &str) -> Condition {
    serde_json::from_value(json!({
        "type": "Rescaling", "status": status, "reason": reason, "message": "words",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }))
    .unwrap()
}

/// A set with `wanted` partitions of which the status has `in_force`, and what NATS says.
fn changing(in_force: i32, wanted: i32, rescaling: &str, nats: impl Into<Option<Nats>>) -> Report {
    let set: OrderedPartitionSet = serde_json::from_value(json!({
        "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "OrderedPartitionSet",
        "metadata": {"name": "orders", "namespace": "shop", "generation": 2},
        "spec": {
            "partitions": wanted,
            "nats": {"servers": ["nats://nats:4222"]},
            "stream": {"name": "ORDERS", "subjects": ["orders.*"]},
            "mapping": {"subject": "orders.*", "keyTokens": [1]},
            "worker": {"handler": {"http": {}}},
        },
        "status": {"observedGeneration": 2, "partitions": in_force, "lanes": {"open": in_force}},
    }))
    .unwrap();
    let mut report = report(&set, &[], nats.into());
    report.conditions = vec![condition(if rescaling == "Settled" { "False" } else { "True" }, rescaling)];
    report
}

fn lane(modulus: u32, partition: u32, state: LaneState, holders: &[&str]) -> Lane {
    Lane {
        partition,
        share: Share::new(modulus, partition).unwrap(),
        incarnation: u64::from(modulus + partition),
        state,
        opened: true,
        position: Some(Position { floor: 1, waiting: 2, in_hand: 1 }),
        holders: holders.iter().map(ToString::to_string).collect(),
        blocked: None,
        stalled: None,
    }
}

fn reached(lanes: Vec<Lane>) -> Nats {
    Nats { reached: true, why: None, lanes }
}

fn halfway() -> Report {
    let lanes = vec![
        lane(4, 0, LaneState::Open, &["orders-0-a"]),
        lane(2, 1, LaneState::Retiring, &["orders-1-a"]),
        lane(4, 2, LaneState::Open, &[]),
    ];
    changing(2, 4, "HandingOver", reached(lanes))
}

#[test]
fn a_line_has_the_numbers_and_the_lanes_by_state() {
    assert_eq!(line(&halfway()), "2->4  open 0, 2  retiring 1");
    let without = changing(2, 4, "HandingOver", None);
    assert_eq!(line(&without), "2->4  2 open, 0 handing over, 0 blocked, 0 without worker");
    let mut unseen = changing(4, 4, "Settled", None);
    unseen.up_to_date = false;
    assert!(line(&unseen).ends_with("not seen by the operator yet"));
}

#[test]
fn a_change_has_ended_only_when_everybody_says_so() {
    let four = |state| (0..4).map(|partition| lane(4, partition, state, &[])).collect::<Vec<_>>();
    assert!(is_settled(&changing(4, 4, "Settled", None)));
    assert!(is_settled(&changing(4, 4, "Settled", reached(four(LaneState::Open)))));
    assert!(is_settled(&changing(4, 4, "Settled", Nats::not_reached("x".into()))));
    for (report, why) in [
        (changing(2, 4, "Settled", None), "another number is in force"),
        (changing(4, 4, "HandingOver", None), "the operator is at it"),
        (changing(4, 4, "Settled", reached(four(LaneState::Created))), "lanes are not open"),
        (changing(4, 4, "Settled", reached(vec![lane(2, 0, LaneState::Open, &[])])), "other lanes are open"),
        (Report { up_to_date: false, ..changing(4, 4, "Settled", None) }, "the operator has not seen it"),
    ] {
        assert!(!is_settled(&report), "{why}");
    }
}

#[test]
fn what_is_waited_for_is_told_from_the_record_and_else_from_the_status() {
    let attention = LaneAttention {
        partition: 1,
        reason: "HandingOver".into(),
        sequence: None,
        since: None,
        message: "waits for orders-1-a to settle the message in hand".into(),
    };
    let mut with = halfway();
    with.attention = vec![attention.clone()];
    assert_eq!(waits(&with), ["partition 1: orders-1-a to settle the message in hand and leave"]);
    let mut without = changing(2, 4, "HandingOver", None);
    without.attention = vec![attention];
    assert_eq!(waits(&without), ["partition 1: waits for orders-1-a to settle the message in hand"]);
    assert_eq!(waits(&changing(2, 4, "WorkersStarting", None)), ["WorkersStarting: words"]);
}

#[test]
fn the_time_of_a_wait_counts_from_when_it_was_seen() {
    let at = |text: &str| format!("2026-01-01T00:{text}Z").parse::<Timestamp>().unwrap();
    let mut since = Since::default();
    since.update(&halfway(), at("01:00"), true);
    let words = since.words(at("01:30"));
    assert_eq!(
        words,
        ["partition 1: orders-1-a to settle the message in hand and leave, for 90s"],
        "as old as the change"
    );
    let mut other = halfway();
    other.nats.as_mut().unwrap().lanes[1].holders = vec!["orders-1-b".into()];
    since.update(&other, at("02:00"), false);
    let words = since.words(at("02:05"));
    assert_eq!(words, ["partition 1: orders-1-b to settle the message in hand and leave, for 5s"]);
}

#[test]
fn a_terminal_shows_the_line_the_waits_with_their_time_and_the_whole_status() {
    let now: Timestamp = "2026-01-01T00:01:30.5Z".parse().unwrap();
    let mut since = Since::default();
    since.update(&halfway(), now, true);
    let text = picture(&halfway(), &since, now);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "00:01:30Z  2->4  open 0, 2  retiring 1");
    assert_eq!(lines[1], "  waits for partition 1: orders-1-a to settle the message in hand and leave, for");
    assert_eq!((lines[2].trim(), lines[3]), ("90s", ""));
    assert!(
        text.contains("Set:     shop/orders") && text.contains("retiring   2         1         orders-1-a"),
        "{text}"
    );
}
