//! Three servers, three copies of everything, and leaders that step down.

use lanekeeper_core::stream::Retention;
use lanekeeper_tests::LATEST;

use crate::{
    place::Place,
    story::{Outline, tell},
    troubles::{EVERYWHERE, Trouble},
};

async fn changes(retention: Retention) {
    let mut troubles = EVERYWHERE.to_vec();
    // More of what only three servers have.
    troubles
        .extend([Trouble::StreamStepsDown, Trouble::ConsumersStepDown, Trouble::BucketStepsDown].repeat(3));
    troubles.push(Trouble::ServerKilled);
    let name = format!("{retention:?} on three servers");
    let outline = Outline { most: 16, changes: 10, ..Outline::new(name, retention, &troubles) };
    tell(outline, || Place::three(LATEST)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_with_leaders_that_step_down_keep_a_limits_stream_in_order() {
    changes(Retention::Limits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_with_leaders_that_step_down_keep_an_interest_stream_in_order() {
    changes(Retention::Interest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_with_leaders_that_step_down_keep_a_work_queue_in_order() {
    changes(Retention::WorkQueue).await;
}
