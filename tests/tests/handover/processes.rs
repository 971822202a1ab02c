//! The real program as processes, killed with SIGKILL, and stopped beyond their deadlines.

use lanekeeper_core::stream::Retention;
use lanekeeper_tests::{LATEST, binary, soak::pool::Bodies};

use crate::{
    place::Place,
    story::{Outline, tell},
    troubles::Trouble,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_killed_or_stopped_while_lanes_change_break_no_order() {
    let troubles = [
        Trouble::WorkerCrashes,
        Trouble::PodReplaced,
        Trouble::PodRolled,
        Trouble::WorkerFrozen,
        Trouble::OperatorKilled,
        Trouble::BackAndForth,
    ];
    let outline = Outline {
        most: 6,
        changes: 12,
        bodies: Bodies::Processes(binary::worker().to_owned()),
        ..Outline::new("Limits with processes", Retention::Limits, &troubles)
    };
    tell(outline, || Place::one(LATEST)).await;
}
