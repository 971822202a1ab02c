//! One server of each version, each retention.

use lanekeeper_core::{record::Delivery, stream::Retention};

use crate::{
    place::Place,
    story::{Outline, tell},
    troubles::{EVERYWHERE, Trouble},
};

async fn changes(version: &str, retention: Retention) {
    let mut troubles = EVERYWHERE.to_vec();
    troubles.extend([Trouble::ConnectionsCut, Trouble::AnswersHeld, Trouble::NatsRestarts]);
    // With interest retention the messages that only this consumer wanted go with it.
    if retention != Retention::Interest {
        troubles.push(Trouble::ConsumerDeleted);
    }
    let name = format!("{retention:?} on one server {version}");
    tell(Outline::new(name, retention, &troubles), || Place::one(version)).await;
}

/// Lanes that are serial, or have windows of several sizes, and change from one to another with everything else.
async fn modes(version: &str, retention: Retention) {
    let mut troubles = EVERYWHERE.to_vec();
    troubles.extend([Trouble::ConnectionsCut, Trouble::AnswersHeld, Trouble::NatsRestarts]);
    let mut outline = Outline::new(format!("modes on one server {version}"), retention, &troubles);
    outline.changes = 20;
    outline.most = 16;
    outline.deliveries =
        vec![Delivery::Serial, Delivery::Pipelined { window: 4 }, Delivery::Pipelined { window: 64 }];
    tell(outline, || Place::one(version)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_changes_of_number_and_mode_with_failures_keep_the_order_on_2_11() {
    modes("2.11", Retention::Interest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_changes_of_number_and_mode_with_failures_keep_the_order_on_2_15() {
    modes("2.15", Retention::Limits).await;
}

macro_rules! stories {
    ($($name:ident: $version:literal, $retention:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                changes($version, Retention::$retention).await;
            }
        )*
    };
}

stories! {
    thirty_changes_with_failures_keep_a_limits_stream_in_order_on_2_11: "2.11", Limits;
    thirty_changes_with_failures_keep_a_limits_stream_in_order_on_2_12: "2.12", Limits;
    thirty_changes_with_failures_keep_a_limits_stream_in_order_on_2_15: "2.15", Limits;
    thirty_changes_with_failures_keep_an_interest_stream_in_order_on_2_11: "2.11", Interest;
    thirty_changes_with_failures_keep_an_interest_stream_in_order_on_2_12: "2.12", Interest;
    thirty_changes_with_failures_keep_an_interest_stream_in_order_on_2_15: "2.15", Interest;
    thirty_changes_with_failures_keep_a_work_queue_in_order_on_2_11: "2.11", WorkQueue;
    thirty_changes_with_failures_keep_a_work_queue_in_order_on_2_12: "2.12", WorkQueue;
    thirty_changes_with_failures_keep_a_work_queue_in_order_on_2_15: "2.15", WorkQueue;
}
