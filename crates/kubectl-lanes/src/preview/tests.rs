//! Previews from lanes that the real plan made.

use lanekeeper_api::OrderedPartitionSet;
use lanekeeper_core::{
    plan::{Step, plan},
    record::{Holder, Owner},
};
use serde_json::{Value, json};

use super::*;
use crate::look::Reported;
use lanekeeper_core::record::{Blocked, Report};

fn set(partitions: u32, change: impl FnOnce(&mut Value)) -> Validated {
    let mut set = json!({
        "apiVersion": "lanekeeper.dev/v1alpha1",
        "kind": "OrderedPartitionSet",
        "metadata": {"name": "orders", "namespace": "shop"},
        "spec": {
            "partitions": partitions,
            "nats": {"servers": ["nats://nats:4222"]},
            "stream": {"name": "ORDERS", "subjects": ["orders.*"]},
            "mapping": {"subject": "orders.*", "keyTokens": [1], "maxPartitions": 16},
            "worker": {
                "handler": {"http": {}},
                "podTemplate": {"spec": {"containers": [{"name": "handler", "image": "a:1"}]}},
            },
        },
    });
    change(&mut set);
    let set: OrderedPartitionSet = serde_json::from_value(set).unwrap();
    lanekeeper_api::validate(&set).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:05:00Z".parse().unwrap()
}

fn all_wanted(set: &Validated, partitions: u32) -> Wanted {
    let owner =
        Owner { cluster: "c".into(), namespace: "shop".into(), name: "orders".into(), uid: "u".into() };
    let nobodys = Record {
        v: 1,
        owner,
        stream: "ORDERS".into(),
        stream_created: "t".into(),
        stream_incarnation: 1,
        counter: 0,
        lanes: Vec::new(),
        partitions: None,
        changed_seconds: None,
    };
    wanted(set, &Revisioned { revision: 0, value: nobodys }, partitions)
}

/// What NATS holds of a set at rest, made by the real plan.
fn at_rest(set: &Validated) -> Seen {
    let nothing = Observed {
        stream_created: "t".into(),
        stream_last_sequence: 0,
        record: None,
        known_before: false,
        lane_keys: BTreeMap::new(),
        leases: BTreeMap::new(),
        assignments: BTreeMap::new(),
        consumers: BTreeMap::new(),
        terminated: BTreeSet::new(),
        unreachable: BTreeSet::new(),
        fence_elapsed: BTreeSet::new(),
    };
    seen(outcome::outcome(&all_wanted(set, set.partitions), nothing).unwrap().observed)
}

fn seen(observed: Observed) -> Seen {
    Seen {
        stream: None,
        record: observed.record,
        lane_keys: observed.lane_keys,
        assignments: observed.assignments,
        reports: Vec::new(),
        consumers: observed.consumers,
    }
}

/// Carries out the real plan for another number until it waits.
fn begun(set: &Validated, from: &Seen, partitions: u32) -> Seen {
    let mut now = observed(from, from.record.as_ref().unwrap());
    loop {
        let steps: Vec<Step> = plan(&all_wanted(set, partitions), &now).steps;
        if steps.is_empty() {
            return seen(now);
        }
        for step in steps {
            outcome::carry_out(step, &mut now);
        }
    }
}

/// Gives the lane of a partition a position and a worker.
fn place(seen: &mut Seen, partition: u32, (floor, waiting, in_hand): (u64, u64, u64)) {
    let lanes = &seen.record.as_ref().unwrap().value.lanes;
    let incarnation = lanes.iter().rfind(|lane| lane.share.partition() == partition).unwrap().incarnation;
    let consumer = seen.consumers.get_mut(&incarnation).unwrap();
    (consumer.floor, consumer.pending, consumer.ack_pending) = (floor, waiting, in_hand);
    let holder = Holder { pod: format!("orders-{partition}-a"), instance: "1".into() };
    seen.lane_keys.get_mut(&incarnation).unwrap().value.holders.push(holder);
}

fn of(set: &Validated, seen: Option<&Seen>, partitions: u32) -> Preview {
    let facts = Facts { set, in_force: set.partitions, conditions: &[], seen, room: None, now: now() };
    preview(facts, partitions).unwrap()
}

/// `split 0 > 0 4`, for each group, and how many lanes go on.
fn shape(preview: &Preview) -> (Vec<String>, usize) {
    let group = |group: &Group| {
        let before: Vec<String> = group.before.iter().map(|one| one.lane.partition.to_string()).collect();
        let after: Vec<String> = group.after.iter().map(|one| one.partition.to_string()).collect();
        format!("{:?} {} > {}", group.kind, before.join(" "), after.join(" "))
    };
    (preview.groups.iter().map(group).collect(), preview.untouched.len())
}

#[test]
fn the_way_of_delivery_makes_no_difference_to_what_a_change_does() {
    for delivery in [json!({"mode": "Pipelined"}), json!({"mode": "Batch", "window": 128, "maxBatch": 50})] {
        let set = set(2, |set| set["spec"]["delivery"] = delivery.clone());
        let seen = at_rest(&set);
        assert_eq!(shape(&of(&set, Some(&seen), 5)), shape(&of(&set, None, 5)), "{delivery}");
        assert_eq!(shape(&of(&set, Some(&seen), 2)), (Vec::new(), 2), "{delivery}: nothing changes");
    }
}

#[test]
fn groups_are_those_of_linear_hashing_with_nats_and_without() {
    for (from, to, groups, untouched) in [
        (4, 8, &["Split 0 > 0 4", "Split 1 > 1 5", "Split 2 > 2 6", "Split 3 > 3 7"][..], 0),
        (8, 4, &["Merge 0 4 > 0", "Merge 1 5 > 1", "Merge 2 6 > 2", "Merge 3 7 > 3"], 0),
        (4, 6, &["Split 0 > 0 4", "Split 1 > 1 5"], 2),
        (6, 3, &["Merge 0 4 > 0", "Merge 1 3 5 > 1"], 1),
        (1, 1, &[], 1),
        (3, 16, &["Split 0 > 0 4 8 12", "Split 1 > 1 3 5 7 9 11 13 15", "Split 2 > 2 6 10 14"], 0),
    ] {
        let set = set(from, |_| {});
        let seen = at_rest(&set);
        for seen in [None, Some(&seen)] {
            let (found, rest) = shape(&of(&set, seen, to));
            assert_eq!(
                (found, rest),
                (groups.iter().map(ToString::to_string).collect(), untouched),
                "{from} {to}"
            );
        }
    }
}

#[test]
fn what_the_lane_ahead_settled_is_asked_for_and_no_more() {
    let set = set(2, |_| {});
    let mut seen = at_rest(&set);
    place(&mut seen, 0, (30, 5, 0));
    place(&mut seen, 1, (100, 7, 1));
    let mut preview = of(&set, Some(&seen), 1);
    let share = |modulus, residue| Share::new(modulus, residue).unwrap();
    let ahead = Range { share: share(2, 1), after: 30, up_to: Some(100) };
    assert_eq!(preview.questions(), [ahead]);
    preview.answer(&BTreeMap::from([(ahead, Count::exactly(9))]));
    let after = &preview.groups[0].after[0];
    assert_eq!(after.skipped, Some(Count::exactly(9)));
    assert_eq!(after.waiting, Some(Count::exactly(13)));
    // Of those, the ones of partition 1.
    assert_eq!((preview.moved, preview.skipped), (Some(Count::exactly(8)), Some(Count::exactly(9))));
    let busy = Waits { partition: 1, pods: vec!["orders-1-a".into()], in_hand: 1 };
    assert!(preview.waits_for.contains(&busy), "{:?}", preview.waits_for);
    // Without counts there are bounds, and they are called so.
    preview.answer(&BTreeMap::new());
    let after = &preview.groups[0].after[0];
    assert_eq!((after.skipped, after.waiting), (Some(Count::at_most(70)), Some(Count::exactly(13))));
}

#[test]
fn a_split_asks_for_each_part_and_moves_what_leaves_the_partition() {
    let set = set(1, |_| {});
    let mut seen = at_rest(&set);
    place(&mut seen, 0, (10, 20, 0));
    let mut preview = of(&set, Some(&seen), 2);
    let part = |residue| Range { share: Share::new(2, residue).unwrap(), after: 10, up_to: None };
    assert_eq!(preview.questions(), [part(0), part(1)]);
    preview.answer(&BTreeMap::from([(part(0), Count::exactly(12)), (part(1), Count::exactly(8))]));
    assert_eq!((preview.moved, preview.skipped), (Some(Count::exactly(8)), Some(Count::exactly(0))));
    let waiting: Vec<_> = preview.groups[0].after.iter().map(|one| one.waiting.unwrap().messages).collect();
    assert_eq!(waiting, [12, 8]);
}

#[test]
fn on_a_work_queue_nothing_is_skipped() {
    let set = set(2, |set| set["spec"]["stream"]["retention"] = json!("WorkQueue"));
    let mut seen = at_rest(&set);
    place(&mut seen, 0, (30, 5, 0));
    place(&mut seen, 1, (100, 7, 1));
    let mut preview = of(&set, Some(&seen), 1);
    assert_eq!(preview.questions(), []);
    preview.answer(&BTreeMap::new());
    assert_eq!(preview.groups[0].after[0].waiting, Some(Count::exactly(13)));
    assert_eq!((preview.moved, preview.skipped), (Some(Count::exactly(8)), Some(Count::exactly(0))));
    assert!(render(&preview).contains("a work queue holds only what is not settled"));
}

#[test]
fn a_change_under_way_goes_on_from_where_it_stands() {
    let set = set(8, |_| {});
    let four = Validated { partitions: 4, ..set.clone() };
    let mut seen = at_rest(&four);
    place(&mut seen, 2, (50, 3, 1));
    // Three groups are done; the fourth waits for its worker.
    let seen = begun(&set, &seen, 8);
    let facts = Facts { set: &set, in_force: 4, conditions: &[], seen: Some(&seen), room: None, now: now() };
    let on = preview(facts, 8).unwrap();
    assert_eq!(shape(&on), (vec!["Split 2 > 2 6".to_owned()], 6));
    assert!(on.notes[0].starts_with("A change to 8 is under way."), "{:?}", on.notes);
    let back = preview(facts, 4).unwrap();
    let groups = ["Merge 0 4 > 0", "Merge 1 5 > 1", "Succeed 2 > 2", "Merge 3 7 > 3"];
    assert_eq!(shape(&back), (groups.map(str::to_owned).to_vec(), 0));
}

#[test]
fn what_a_person_should_know_is_said() {
    let paused = set(2, |set| {
        set["spec"]["paused"] = json!(true);
        set["spec"]["rescale"] = json!({"minimumIntervalSeconds": 600});
    });
    let mut seen = at_rest(&paused);
    let minutes_ago = u64::try_from(now().as_second()).unwrap() - 300;
    seen.record.as_mut().unwrap().value.changed_seconds = Some(minutes_ago);
    place(&mut seen, 1, (10, 5, 0));
    let mut report = Report::new(2);
    report.blocked = Some(Blocked::new(11, "no stock"));
    seen.reports.push(Reported { partition: 1, pod: "orders-1-a".into(), report });
    let condition: Condition = serde_json::from_value(json!({
        "type": "Rescaling", "status": "True", "reason": "RescaleNotSupported", "message": "switched off",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }))
    .unwrap();
    let facts = Facts {
        set: &paused,
        in_force: 2,
        conditions: &[condition],
        seen: Some(&seen),
        room: None,
        now: now(),
    };
    let notes = preview(facts, 4).unwrap().notes.join("\n");
    for words in [
        "Partitions 2, 3 are started first",
        "The operator holds changes back (RescaleNotSupported): switched off.",
        "The set is paused",
        "It would begin at 2026-01-01T00:10:00Z: spec.rescale.minimumIntervalSeconds is 600,",
        "Blocked: partition 1 at message 11.",
    ] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
    let notes = preview(facts, 2).unwrap().notes.join("\n");
    assert!(notes.contains("2 is the number in force: nothing would change."), "{notes}");
}

#[test]
fn a_change_for_whose_consumers_the_account_has_no_room_is_said_not_to_begin() {
    // 4 to 6: two lanes become four; on a work queue each pair comes in the place of one.
    for (retention, needed) in [("Limits", 4), ("WorkQueue", 2)] {
        let set = set(4, |set| set["spec"]["stream"]["retention"] = json!(retention));
        let seen = at_rest(&set);
        for (room, said) in [(None, false), (Some(needed), false), (Some(needed - 1), true)] {
            let facts =
                Facts { set: &set, in_force: 4, conditions: &[], seen: Some(&seen), room, now: now() };
            let notes = preview(facts, 6).unwrap().notes.join("\n");
            let words = format!("needs {needed} more consumers");
            assert_eq!(
                notes.contains("It would not begin") && notes.contains(&words),
                said,
                "{room:?}: {notes}"
            );
        }
    }
}

#[test]
fn a_lane_that_somebody_took_the_consumer_of_is_renewed_and_said_to_be() {
    let set = set(2, |_| {});
    let mut seen = at_rest(&set);
    place(&mut seen, 1, (10, 5, 0));
    seen.consumers.remove(&1);
    let preview = of(&set, Some(&seen), 2);
    assert_eq!(shape(&preview), (vec!["Succeed 0 > 0".to_owned()], 1));
    let notes = preview.notes.join("\n");
    assert!(notes.contains("Partition 0: there is no consumer in the place of its consumer"), "{notes}");
}

#[test]
fn a_number_out_of_range_is_refused_with_what_is_allowed() {
    let set = set(2, |_| {});
    for given in [0, -1, 17, i64::MAX] {
        let words = number(given, &set).unwrap_err().to_string();
        let expected =
            format!("--partitions is {given}: must be from 1 to spec.mapping.maxPartitions, which is 16");
        assert_eq!(words, expected);
    }
    assert_eq!(number(16, &set), Ok(16));
}

#[test]
fn people_see_bars_in_eighty_columns() {
    let set = set(3, |_| {});
    let mut seen = at_rest(&set);
    place(&mut seen, 0, (30, 120, 0));
    place(&mut seen, 1, (900, 7, 1));
    place(&mut seen, 2, (40, 3, 0));
    let mut preview = of(&set, Some(&seen), 2);
    let counted = |range: Range| (range, Count::exactly(if range.up_to.is_some() { 44 } else { 167 }));
    let counted = preview.questions().into_iter().map(counted).collect();
    preview.answer(&counted);
    let text = render(&preview);
    assert_eq!(
        text,
        "\
Set:         shop/orders
Stream:      ORDERS, limits retention
Partitions:  3 in force, 2 planned (at most 16)

         BEFORE          KEYS      WAITING     AFTER           KEYS      WAITING
merge      0 █████      1/4           120  ->    0 ██████████ 1/2           123
           2 █████      1/4             3
1 partition is not part of the change: its lane goes on without a pause.

Moves:      3 messages of 123 that are not settled go to another partition.
Skips:      44 messages that the lane ahead has settled will be acknowledged
            once more, without the handler (44 in 0).
In hand:    nothing at this moment.
Waits for:  the workers of partitions 0, 2, to leave; nothing is in hand.
Pause:      each key of these partitions, once: until the message in hand of its
            group is settled (handling may take up to 300 s), and then a few
            round trips to NATS. Other keys: none. A worker that cannot be
            asked, because its node is gone, costs one ackWait more (15 s).

Do it:  kubectl -n shop scale ops/orders --replicas 2
"
    );
}

#[test]
fn the_largest_previews_stay_within_eighty_columns() {
    for (from, to) in [(1, 16), (16, 1), (5, 11), (16, 3)] {
        let set = set(from, |_| {});
        let mut seen = at_rest(&set);
        for partition in 0..from {
            place(&mut seen, partition, (u64::from(partition), 1_000_000_000, 1));
        }
        let mut preview = of(&set, Some(&seen), to);
        preview.answer(&BTreeMap::new());
        let text = render(&preview);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn programs_get_numbers() {
    let set = set(2, |_| {});
    let mut seen = at_rest(&set);
    place(&mut seen, 0, (30, 5, 0));
    let mut preview = of(&set, Some(&seen), 4);
    let counted = preview.questions().into_iter().map(|range| (range, Count::exactly(1))).collect();
    preview.answer(&counted);
    let value = serde_json::to_value(&preview).unwrap();
    assert_eq!(value["partitions"], json!({"inForce": 2, "wanted": 2, "planned": 4, "max": 16}));
    assert_eq!(value["groups"][0]["kind"], "split");
    assert_eq!(value["groups"][0]["before"][0]["modulus"], 2);
    assert_eq!(value["groups"][0]["after"][1]["partition"], 2);
    assert_eq!(value["groups"][0]["after"][1]["arriving"], json!({"messages": 1, "exact": true}));
}
