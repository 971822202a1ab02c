//! Single plans, judged one by one.

use std::collections::BTreeMap;

use lanekeeper_core::{
    order::{Order, Verb},
    plan::{LANES_AT_ONCE, Note, Observed, Refusal, Revisioned, Start, Step, Wait, Wanted, plan},
    record::{Delivery, LaneKey, LaneState, Ownership, Record},
    stream::Retention,
};

use crate::{run::Run, world::World};

/// A world without a set yet.
fn empty() -> World {
    World::new(&Run::new("table", Retention::Limits, &[1]))
}

/// A set with so many partitions, created and opened.
fn settled(partitions: u32) -> World {
    let mut world = empty();
    for _ in 0..10 {
        for step in plan(&world.wanted(partitions), &world.observe()).steps {
            assert!(world.apply(&step).unwrap());
        }
    }
    world
}

fn record(world: &World) -> &Record {
    world.record.as_ref().unwrap()
}

#[test]
fn a_new_set_is_recorded_before_anything_is_created() {
    let world = empty();
    let plan = plan(&world.wanted(1), &world.observe());
    let [Step::PutRecord { expected: None, record }] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert_eq!(record.counter, 1);
    assert_eq!(record.lanes[0].state, LaneState::Created);
}

#[test]
fn a_settled_set_has_one_open_lane_for_each_partition_and_nothing_to_do() {
    let world = settled(3);
    assert!(plan(&world.wanted(3), &world.observe()).is_settled());
    assert_eq!(record(&world).lanes.len(), 3);
    assert!(record(&world).lanes.iter().all(|lane| lane.state == LaneState::Open));
    assert_eq!(world.assignments.len(), 3);
    assert_eq!(world.consumers.len(), 3);
}

#[test]
fn consumers_start_after_what_was_there_when_only_new_messages_are_wanted() {
    let world = empty();
    let wanted = Wanted { start: Start::New, ..world.wanted(1) };
    let observed = Observed { stream_last_sequence: 41, ..world.observe() };
    let plan = plan(&wanted, &observed);
    let [Step::PutRecord { record, .. }] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert_eq!(record.lanes[0].start, 42);
}

#[test]
fn drift_is_repaired_with_the_most_dangerous_field_first() {
    let world = settled(1);
    let mut observed = world.observe();
    let consumer = observed.consumers.get_mut(&1).unwrap();
    consumer.ack_wait_milliseconds = 1;
    consumer.max_ack_pending = 100;
    consumer.metadata.insert("team".into(), "payments".into());
    let plan = plan(&world.wanted(1), &observed);
    let [Step::RepairConsumer { drift, .. }] = plan.steps.as_slice() else { panic!("{plan:?}") };
    let fields: Vec<&str> = drift.iter().map(|one| one.field).collect();
    assert_eq!(fields, ["max_ack_pending", "ack_wait"]);
}

#[test]
fn changed_settings_reach_the_assignments_without_touching_lanes() {
    let world = settled(2);
    let mut wanted = world.wanted(2);
    wanted.settings.paused = true;
    let plan = plan(&wanted, &world.observe());
    assert!(plan.steps.iter().all(|step| matches!(step, Step::PutAssignment { .. })), "{plan:?}");
    assert_eq!(plan.steps.len(), 2);
}

#[test]
fn a_shorter_ack_wait_is_for_a_successor_and_a_longer_one_for_the_lane_itself() {
    let world = settled(1);
    let mut wanted = world.wanted(1);
    wanted.settings.ack_wait_milliseconds -= 1;
    let plan_of = |wanted: &Wanted| plan(wanted, &world.observe()).steps;
    let steps = plan_of(&wanted);
    let Some(Step::PutRecord { record, .. }) = steps.first() else { panic!("{steps:?}") };
    assert_eq!(record.lanes[0].state, LaneState::Retiring);
    assert_eq!(record.partitions, None, "the number of partitions is the same");
    // Together with another number it is a change of that as well.
    let both = Wanted { partitions: 2, ..wanted.clone() };
    let steps = plan_of(&both);
    let Some(Step::PutRecord { record, .. }) = steps.first() else { panic!("{steps:?}") };
    assert_eq!(record.partitions, Some(2));
    wanted.settings.ack_wait_milliseconds += 2;
    let steps = plan_of(&wanted);
    assert!(
        steps.iter().all(|step| matches!(step, Step::PutAssignment { .. } | Step::RepairConsumer { .. })),
        "{steps:?}"
    );
}

#[test]
fn another_ownership_is_for_successors_and_the_lane_keeps_its_own_to_its_end() {
    let mut world = settled(1);
    let mut wanted = world.wanted(1);
    wanted.settings.ownership = Ownership::Lease;
    // Also where the assignment is gone: the record knows.
    world.assignments.clear();
    let steps = plan(&wanted, &world.observe()).steps;
    let Some(Step::PutRecord { record, .. }) = steps.first() else { panic!("{steps:?}") };
    assert_eq!((record.lanes[0].state, record.lanes[0].ownership), (LaneState::Retiring, Ownership::Pin));
    let mut seen = Vec::new();
    for _ in 0..20 {
        let steps = plan(&wanted, &world.observe()).steps;
        let Some(step) = steps.first() else { break };
        match step {
            Step::CreateConsumer(spec) => seen.push(("consumer", !spec.pinned)),
            Step::PutAssignment { assignment, .. } if !assignment.retiring => {
                seen.push(("assignment", assignment.settings.ownership == Ownership::Lease));
            }
            _ => {}
        }
        for step in steps {
            assert!(world.apply(&step).unwrap());
        }
    }
    assert_eq!(seen, [("consumer", true)], "which is made for a lease");
    let lanes: Vec<_> = world.lanes().iter().map(|lane| (lane.state, lane.ownership)).collect();
    assert_eq!(lanes, [(LaneState::Open, Ownership::Lease)]);
    let given = world.assignments.values().map(|one| one.settings.ownership).collect::<Vec<_>>();
    assert_eq!(given, [Ownership::Lease]);
}

#[test]
fn the_lease_of_a_lane_that_is_forgotten_goes_after_its_key() {
    let world = settled(1);
    let wanted = world.wanted(1);
    let with = |leases: &[u64], keys: &[u64]| {
        let mut observed = world.observe();
        observed.leases = leases.iter().map(|incarnation| (*incarnation, 7)).collect();
        for incarnation in keys {
            let key = Revisioned { revision: 3, value: LaneKey::new() };
            observed.lane_keys.insert(*incarnation, key);
        }
        plan(&wanted, &observed).steps
    };
    let open = world.lanes()[0].incarnation;
    assert_eq!(with(&[open, 99], &[]), [], "that of a lane in use, and of one that is newer than the record");
    assert_eq!(with(&[0], &[]), [Step::DeleteLease { incarnation: 0, expected: 7 }]);
    assert_eq!(with(&[0], &[0]), [Step::DeleteLaneKey { incarnation: 0, expected: 3 }], "the key first");
}

#[test]
fn another_mode_is_for_successors_and_another_window_for_the_lanes_themselves() {
    let mut world = settled(2);
    let wanted_with = |world: &World, delivery: Delivery| {
        let mut wanted = world.wanted(2);
        wanted.settings.delivery = delivery;
        wanted
    };
    let mut change = |delivery: Delivery, incarnations: [u64; 2]| {
        let wanted = wanted_with(&world, delivery);
        let mut notes = Vec::new();
        for _ in 0..20 {
            let plan = plan(&wanted, &world.observe());
            notes.extend(plan.notes);
            for step in plan.steps {
                assert!(world.apply(&step).unwrap());
            }
        }
        assert!(plan(&wanted, &world.observe()).is_settled());
        assert!(notes.is_empty(), "nothing was lost: {notes:?}");
        let lanes: Vec<u64> = record(&world).lanes.iter().map(|lane| lane.incarnation).collect();
        assert_eq!(lanes, incarnations, "{delivery:?}");
        for found in world.observe().consumers.values() {
            assert_eq!(found.max_ack_pending, i64::from(delivery.most_out()));
        }
        for assignment in world.assignments.values() {
            assert_eq!(assignment.settings.delivery, delivery);
        }
    };
    change(Delivery::Pipelined { window: 64 }, [3, 4]);
    change(Delivery::Serial, [5, 6]);
    change(Delivery::Pipelined { window: 64 }, [7, 8]);
    for step in plan(&wanted_with(&world, Delivery::Pipelined { window: 8 }), &world.observe()).steps {
        match step {
            Step::PutAssignment { assignment, .. } => {
                assert_eq!(assignment.settings.delivery, Delivery::Pipelined { window: 8 });
            }
            Step::RepairConsumer { drift, .. } => {
                assert_eq!(drift.iter().map(|one| one.field).collect::<Vec<_>>(), ["max_ack_pending"]);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_set_made_again_adopts_its_record_and_a_stranger_is_refused() {
    let world = settled(1);
    let mut wanted = world.wanted(1);
    wanted.owner.uid = "another".into();
    let adopted = plan(&wanted, &world.observe());
    let puts = |step: &Step| matches!(step, Step::PutRecord { record, .. } if record.owner.uid == "another");
    assert!(adopted.steps.iter().any(puts), "{adopted:?}");

    wanted.owner.cluster = "elsewhere".into();
    let refused = plan(&wanted, &world.observe());
    assert!(matches!(refused.refusal, Some(Refusal::OwnedElsewhere(_))));
    assert!(refused.steps.is_empty());
}

#[test]
fn positions_retained_in_another_stream_are_not_touched() {
    let world = settled(1);
    let mut wanted = world.wanted(1);
    wanted.mapping.stream = "T".into();
    let plan = plan(&wanted, &world.observe());
    assert_eq!(plan.refusal, Some(Refusal::OfAnotherStream("S".into())));
    assert!(plan.steps.is_empty());
}

#[test]
fn a_lane_that_is_ready_opens_while_another_cannot_be_created() {
    let mut world = settled(2);
    // Both lanes are handed over; the consumer of one successor can be created, that of the other is refused.
    for _ in 0..12 {
        for step in plan(&world.wanted(4), &world.observe()).steps {
            let refused = matches!(&step, Step::CreateConsumer(spec) if spec.name.starts_with("lk_n_s_3_"));
            if refused || !world.apply(&step).unwrap() {
                break;
            }
        }
    }
    let open: Vec<u32> = record(&world)
        .lanes
        .iter()
        .filter(|lane| lane.state == LaneState::Open)
        .map(|lane| lane.share.partition())
        .collect();
    assert_eq!(open, [0, 2]);
}

#[test]
fn a_replaced_stream_starts_a_new_incarnation_and_applies_no_old_position() {
    let world = settled(2);
    let observed = Observed { stream_created: "now".into(), consumers: BTreeMap::new(), ..world.observe() };
    let plan = plan(&world.wanted(2), &observed);
    let [Step::PutRecord { record, .. }] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert_eq!(record.stream_incarnation, 2);
    assert!(record.lanes.iter().all(|lane| lane.state == LaneState::Retiring && lane.start == 1));
    assert!(matches!(plan.notes.as_slice(), [Note::StreamReplaced { .. }]));
}

#[test]
fn a_consumer_deleted_by_somebody_is_succeeded_and_never_made_again() {
    let mut world = settled(1);
    let mut wanted = world.wanted(1);
    wanted.settings.ack_wait_milliseconds = 15_000;
    world.consumers.clear();
    let plan = plan(&wanted, &world.observe());
    assert!(matches!(plan.notes.as_slice(), [Note::ConsumerLost { partition: 0, incarnation: 1, .. }]));
    assert!(plan.steps.iter().all(|step| !matches!(step, Step::CreateConsumer(_))));
    let Step::PutRecord { record, .. } = &plan.steps[0] else { panic!("{plan:?}") };
    assert_eq!(record.lanes[0].state, LaneState::Retiring);
}

#[test]
fn a_lost_record_is_rebuilt_only_after_the_longest_deadline_of_the_set() {
    let mut world = settled(1);
    world.record = None;
    let waiting = plan(&world.wanted(1), &world.observe());
    assert_eq!((waiting.steps.len(), waiting.waits), (0, vec![Wait::RecordLost]));
    world.fence_elapsed.insert(0);
    let plan = plan(&world.wanted(1), &world.observe());
    assert_eq!(plan.notes, [Note::RecordRebuilt { lanes: 1 }]);
    let [Step::PutRecord { expected: None, record }] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert!(record.lanes[0].fenced && record.lanes[0].state == LaneState::Retiring);
}

#[test]
fn a_consumer_made_again_by_hand_at_another_position_is_not_ours() {
    let world = settled(1);
    let mut observed = world.observe();
    let consumer = observed.consumers.get_mut(&1).unwrap();
    consumer.start = Some(500);
    consumer.deliver_policy = "by_start_sequence".into();
    let plan = plan(&world.wanted(1), &observed);
    assert!(matches!(plan.notes.as_slice(), [Note::ConsumerLost { .. }]), "{plan:?}");
}

#[test]
fn an_orphan_is_deleted_only_when_the_record_could_have_named_it() {
    let world = settled(1);
    let mut observed = world.observe();
    let template = observed.consumers[&1].clone();
    for incarnation in [0, 7] {
        observed.consumers.insert(incarnation, template.clone());
    }
    let plan = plan(&world.wanted(1), &observed);
    let [Step::DeleteConsumer { incarnation: 0, .. }] = plan.steps.as_slice() else { panic!("{plan:?}") };
}

#[test]
fn a_floor_that_moved_is_worth_a_checkpoint_but_no_step() {
    let world = settled(1);
    let mut observed = world.observe();
    observed.consumers.get_mut(&1).unwrap().floor = 9;
    let plan = plan(&world.wanted(1), &observed);
    assert!(plan.is_settled());
    let Some(Step::PutRecord { record, .. }) = plan.checkpoint else { panic!("no checkpoint") };
    assert_eq!(record.lanes[0].checkpoint, 9);
}

#[test]
fn what_was_ordered_of_a_key_goes_with_it_to_the_successor_of_its_lane() {
    let mut world = settled(1);
    let order = |id: &str, key: &str| Order {
        id: id.into(),
        verb: Verb::Skip,
        key: key.into(),
        sequence: Some(5),
        through: None,
        reason: String::new(),
        by: String::new(),
        at: String::new(),
        begun: false,
    };
    let orders: Vec<Order> = ["a", "b", "c", "d", "e"].map(|key| order(key, key)).into();
    world.lane_keys.get_mut(&1).unwrap().orders.clone_from(&orders);
    for _ in 0..20 {
        for step in plan(&world.wanted(2), &world.observe()).steps {
            assert!(world.apply(&step).unwrap());
        }
    }
    let open = record(&world).lanes.iter().filter(|lane| lane.state == LaneState::Open);
    let mut found = Vec::new();
    for lane in open {
        let inherited = &world.lane_keys[&lane.incarnation].orders;
        assert!(
            !inherited.is_empty() && inherited.iter().all(|order| lane.share.contains_hash(order.hash()))
        );
        found.extend(inherited.clone());
    }
    found.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!(found, orders);
    assert!(!world.lane_keys.contains_key(&1));
}

/// The partitions whose lanes the next step retires.
fn retiring(world: &World, partitions: u32, lanes_at_once: usize) -> Vec<u32> {
    let wanted = Wanted { lanes_at_once, ..world.wanted(partitions) };
    let plan = plan(&wanted, &world.observe());
    let Some(Step::PutRecord { record, .. }) = plan.steps.first() else { return Vec::new() };
    let retiring = record.lanes.iter().filter(|lane| lane.state == LaneState::Retiring);
    retiring.map(|lane| lane.share.partition()).collect()
}

#[test]
fn one_partition_more_leaves_the_others_alone() {
    assert_eq!(retiring(&settled(3), 4, LANES_AT_ONCE), [1]);
}

#[test]
fn a_change_of_many_lanes_goes_through_them_a_few_at_a_time_and_splits_no_group() {
    let world = settled(2);
    // One lane and its two successors.
    assert_eq!(retiring(&world, 4, 3), [0]);
    assert_eq!(retiring(&world, 4, 5), [0]);
    assert_eq!(retiring(&world, 4, 6), [0, 1]);
    // However large a group is, one goes.
    assert_eq!(retiring(&world, 4, 0), [0]);
    // What overlaps with one successor ends together: its floors count only together.
    assert_eq!(retiring(&settled(4), 1, 1), [0, 1, 2, 3]);
}

#[test]
fn a_number_that_comes_in_the_middle_takes_along_what_its_lanes_overlap() {
    let mut world = settled(2);
    let wanted = Wanted { lanes_at_once: 1, ..world.wanted(4) };
    for step in plan(&wanted, &world.observe()).steps {
        assert!(world.apply(&step).unwrap());
    }
    // Partition 0 retires, 1 is open: one partition needs both, at once.
    assert_eq!(retiring(&world, 1, 1), [0, 1]);
}
