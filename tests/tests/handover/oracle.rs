//! The stories can fail: an operator that breaks the rule of the handover is found by the same verdict.

use std::{sync::Arc, time::Duration};

use lanekeeper_core::stream::Retention;
use lanekeeper_tests::{LATEST, soak::chance};

use crate::{
    place::Place,
    story::{Outline, Story},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_does_not_wait_for_those_who_hold_a_message_is_found() {
    let outline = Outline {
        most: 4,
        // Longer than a change takes that waits for nobody.
        behaviour: Arc::new(|_, _| (Duration::from_millis(400), true)),
        flow: 4,
        backlog: 40,
        ..Outline::new("an operator that does not wait", Retention::Limits, &[])
    };
    let mut story = Story::begin(&outline, Place::one(LATEST).await, chance::seed()).await;
    for partition in 0..outline.most {
        // It is told that they have ended, and they are at work.
        let pod = story.pool.name(partition).unwrap().to_owned();
        story.desk.fates.terminated(&pod);
    }
    for partitions in [4, 1, 4, 1, 4] {
        let asked = story.desk.want(partitions);
        story.settled(asked).await;
        story.flows().await;
    }
    let (verdict, _) = story.verdict().await;
    // Whether two handlers of a key also meet depends on where its next worker is; that a message in hand comes again
    // does not. This is what every story demands.
    assert!(!verdict.is_clean() && verdict.unexplained > 0, "{verdict}");
}
