//! Changing the number of partitions while messages flow.

use lanekeeper_tests::{flights::data::numbered, wait_until};

use crate::{PODS, machine::beside_others, story::Story};

#[tokio::test]
async fn the_number_of_partitions_changes_while_messages_flow_and_every_key_stays_in_order() {
    let _shared = beside_others().await;
    let mut story = Story::begin("scale", 4).await;
    story.slow_handler("20ms").apply_and_wait().await;
    story.publish(numbered(20, 120)).await;
    let mut seen = 0;
    for partitions in [6, 3] {
        seen += 200;
        story.wait_for_handled(seen).await;
        scale(&story, partitions).await;
    }
    let report = story.wait_for_all_in_order().await;
    println!("changed 4 6 3 under load: {} handled, {} repeats", report.handled, report.repeats);
    story.wait_until_ready().await;
    assert_eq!(story.consumer_names().await.len(), 3);
}

async fn scale(story: &Story, partitions: u64) {
    story.run(&["scale", "ops/flights", &format!("--replicas={partitions}")]);
    wait_until(PODS, &format!("{partitions} partitions in force"), || async {
        let set = story.resource().await.ok_or("there is no set")?;
        let status = &set["status"];
        if status["partitions"] == partitions { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}
