//! Each rule of the lane broken on purpose: by what stands between it and the world, the lane is the production one.

use super::{
    model::check,
    run::{Failure, Mutant, Run},
};

/// The smallest run in which each goes wrong.
fn runs() -> Vec<Run> {
    let run =
        |mutant, partitions: &[u32], messages: &[u32]| Run::new(partitions, messages, &[0, 1]).mutant(mutant);
    vec![
        run(Mutant::PullsWithoutJoining, &[1, 2], &[1, 1]),
        // As long as the pin is its predecessor's, nothing comes of it.
        run(Mutant::JoinsRetiring, &[1, 2], &[1, 1])
            .failing(Failure::StaleAssignment, 1)
            .failing(Failure::PinTaken, 1),
        run(Mutant::ServesRetiring, &[1, 2], &[1]),
        run(Mutant::LeavesBeforeSettling, &[1, 2], &[1, 1]),
        run(Mutant::TrustsItsAcks, &[1, 2], &[1]).under_way(),
        Run::new(&[1], &[1, 1], &[0, 0])
            .failing(Failure::LongHandling, 4)
            .failing(Failure::MessageVanishes, 1)
            .mutant(Mutant::TrustsItsRenewals),
        Run::new(&[1], &[1, 1], &[0, 0]).failing(Failure::Stall, 1).mutant(Mutant::ClockStops),
        run(Mutant::IgnoresFloors, &[2, 1], &[0, 1]),
        run(Mutant::TrustsFloorsTooMuch, &[2, 1], &[0, 0]),
        Run::new(&[1], &[1], &[0]).failing(Failure::LongHandling, 4).mutant(Mutant::SaysNothing),
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
