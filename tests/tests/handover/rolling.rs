//! Three servers that are restarted one after another, as an upgrade of NATS does, under a lane at work (P07).

use lanekeeper_core::stream::Retention;
use lanekeeper_nats::observe;
use lanekeeper_tests::{LATEST, soak::ground::STREAM, wait_for};

use crate::{
    DEADLINE,
    place::Place,
    story::{Outline, Story},
};

/// Handled before, between and after the restarts: 500 in all.
const FLOW: u64 = 125;

/// No repeat is excused: the worker lives on, so it knows what it has completed, whatever became of its acks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_of_three_servers_costs_no_order_and_no_repeat() {
    let outline =
        Outline { most: 1, flow: FLOW, ..Outline::new("a rollout of NATS", Retention::Limits, &[]) };
    let mut story = Story::begin(&outline, Place::three(LATEST).await, 7).await;
    story.flows().await;
    for node in 0..3 {
        story.say(&format!("server {node} is restarted"));
        let Place::Three(trio) = &mut story.place else { unreachable!("it was made with three") };
        trio.nodes[node].restart().await;
        // As the readiness of a pod would say before the next one is restarted.
        let led = wait_for(DEADLINE, "every consumer to have a leader", || async {
            observe::consumers(&story.judge, STREAM).await
        })
        .await;
        story.right(led);
        story.flows().await;
    }
    story.finish().await;
}
