//! Safety rules broken on purpose. Those of the operator lie to the plan about what is observed, or change what it says;
//! the plan itself is the production one.

use lanekeeper_core::{
    plan::{self, Observed, Step, Wanted},
    record::LaneState,
    stream::Retention,
};

use crate::{
    model::check,
    run::{Failure, Mutant, Run},
};

/// What a mutant operator does.
pub(crate) fn plan(
    mutant: Mutant,
    wanted: &Wanted,
    mut observed: Observed,
    early_floors: &[(u64, u64)],
) -> Vec<Step> {
    match mutant {
        Mutant::IgnoresHolders => {
            for key in observed.lane_keys.values_mut() {
                key.value.holders.clear();
            }
        }
        Mutant::DoesNotFence => {
            let gone =
                observed.record.iter().flat_map(|record| &record.value.lanes).map(|lane| lane.incarnation);
            observed.fence_elapsed.extend(gone);
            observed.fence_elapsed.insert(0);
        }
        Mutant::FloorsReadEarly => {
            for (incarnation, floor) in early_floors {
                if let Some(consumer) = observed.consumers.get_mut(incarnation) {
                    consumer.floor = *floor;
                }
            }
        }
        Mutant::FloorsNotInherited => {
            for lane in observed.record.iter_mut().flat_map(|record| &mut record.value.lanes) {
                if lane.state != LaneState::Created {
                    lane.floors.clear();
                }
            }
        }
        Mutant::NameReused => {
            if let Some(steps) = create_again(wanted, &observed) {
                return steps;
            }
        }
        Mutant::RetiringRevoked => {
            if let Some(steps) = revoke(wanted, &observed) {
                return steps;
            }
        }
        _ => {}
    }
    let mut steps = plan::plan(wanted, &observed).steps;
    if mutant == Mutant::OrphansKept {
        let named = |incarnation: u64| {
            observed
                .record
                .iter()
                .flat_map(|record| &record.value.lanes)
                .any(|lane| lane.incarnation == incarnation)
        };
        steps
            .retain(|step| !matches!(step, Step::DeleteConsumer { incarnation, .. } if !named(*incarnation)));
    }
    steps
}

/// The consumer of an open lane is missing: the same again, from its beginning.
fn create_again(wanted: &Wanted, observed: &Observed) -> Option<Vec<Step>> {
    let record = &observed.record.as_ref()?.value;
    let missing = record
        .lanes
        .iter()
        .find(|lane| lane.state == LaneState::Open && !observed.consumers.contains_key(&lane.incarnation))?;
    // What the plan would create for a lane that was never opened, with this lane's name and start.
    let mut pretended = observed.clone();
    for lane in &mut pretended.record.as_mut()?.value.lanes {
        if lane.incarnation == missing.incarnation {
            lane.state = LaneState::Created;
        }
    }
    Some(
        plan::plan(wanted, &pretended)
            .steps
            .into_iter()
            .filter(|step| matches!(step, Step::CreateConsumer(_)))
            .collect(),
    )
}

/// A lane that retires but is wanted (again) is simply opened again.
fn revoke(wanted: &Wanted, observed: &Observed) -> Option<Vec<Step>> {
    let record = observed.record.as_ref()?;
    let shares = lanekeeper_core::share::shares(wanted.partitions);
    let index = record.value.lanes.iter().position(|lane| {
        lane.state == LaneState::Retiring
            && lane.opened
            && shares.contains(&lane.share)
            && observed.consumers.contains_key(&lane.incarnation)
            && record.value.lanes.iter().all(|other| {
                other.incarnation == lane.incarnation
                    || !other.share.overlaps(lane.share)
                    || matches!(other.state, LaneState::Retiring)
            })
    })?;
    let mut changed = record.value.clone();
    changed.lanes[index].state = LaneState::Open;
    let incarnation = changed.lanes[index].incarnation;
    let mut steps = vec![Step::PutRecord { expected: Some(record.revision), record: changed }];
    if let Some(key) = observed.lane_keys.get(&incarnation) {
        let mut value = key.value.clone();
        value.retiring = false;
        steps.push(Step::PutLaneKey { incarnation, expected: Some(key.revision), key: value });
    }
    Some(steps)
}

/// The smallest run in which each mutant goes wrong.
fn runs() -> Vec<Run> {
    let run = |partitions: &[u32]| Run::new("mutant", Retention::Limits, partitions);
    let flap = || run(&[2, 1, 2]).messages(&[0, 1, 0, 1]);
    vec![
        run(&[1, 2]).messages(&[1, 1]).mutant(Mutant::PullsWithoutJoining),
        run(&[1, 2]).messages(&[1, 1]).mutant(Mutant::JoinsRetiring),
        run(&[1, 2]).messages(&[1, 1]).mutant(Mutant::LeavesBeforeSettling),
        run(&[2, 1]).messages(&[0, 0]).mutant(Mutant::TrustsFloorsTooMuch),
        run(&[2, 1]).messages(&[0, 1]).mutant(Mutant::IgnoresFloors),
        run(&[1, 2]).messages(&[1, 1]).mutant(Mutant::IgnoresHolders),
        run(&[1, 2])
            .pods(&[0, 0, 1])
            .messages(&[1, 1])
            .failing(Failure::NodeUnreachable, 1)
            .mutant(Mutant::DoesNotFence),
        flap().mutant(Mutant::FloorsNotInherited),
        run(&[2, 1]).messages(&[0, 1, 0, 1]).mutant(Mutant::FloorsReadEarly),
        run(&[1, 2, 1]).messages(&[1, 1]).mutant(Mutant::RetiringRevoked),
        run(&[1])
            .pods(&[0, 0])
            .messages(&[1, 1])
            .failing(Failure::ConsumerDeleted, 1)
            .mutant(Mutant::NameReused),
        run(&[1, 2, 1]).messages(&[1]).failing(Failure::LateStep, 1).mutant(Mutant::OrphansKept),
    ]
}

#[test]
fn each_broken_rule_is_found() {
    for run in runs() {
        let found = check(&run);
        println!(
            "{:?}: {} states, {:?}",
            run.mutant,
            found.states,
            found.violation.as_ref().map(|story| story.last())
        );
        assert!(found.violation.is_some(), "{:?} went unnoticed in {} states", run.mutant, found.states);
    }
}
