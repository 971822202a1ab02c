//! What happens to order when workers die in the middle of the flow (P13 without a standby).

use std::time::Duration;

use lanekeeper_tests::{flights::data::numbered, journal::Entry, wait_until};

use crate::{PODS, machine::beside_others, process, story::Story};

/// Four lanes with 20 keys: about 12 s of work.
const EACH: u64 = 60;
const WORK: &str = "40ms";

async fn flowing(name: &str) -> Story {
    let mut story = Story::begin(name, 4).await;
    story.slow_handler(WORK).apply_and_wait().await;
    story.publish(numbered(20, EACH)).await;
    story.wait_for_handled(100).await;
    story
}

#[tokio::test]
async fn a_worker_pod_that_is_gone_at_once_costs_no_order_and_no_message() {
    let _shared = beside_others().await;
    let story = flowing("pod-killed").await;
    let victim = story.worker(0).await;
    story.run(&["delete", "pod", &victim, "--grace-period=0", "--force"]);
    let report = story.wait_for_all_in_order().await;
    let entries = story.entries();
    let by_successor = entries.iter().filter(|one| one.partition == 0 && one.pod != victim).count();
    assert!(by_successor > 0, "another pod went on with partition 0");
    println!(
        "pod killed: {} repeats, longest pause of a partition {:?}",
        report.repeats,
        longest_pause(&entries)
    );
    story.wait_until_ready().await;
}

#[tokio::test]
async fn a_lane_process_killed_in_the_middle_goes_on_in_its_pod() {
    let _shared = beside_others().await;
    let story = flowing("lane-killed").await;
    let victim = story.worker(1).await;
    let variables = [format!("LANEKEEPER_POD={victim}"), format!("LANEKEEPER_NAMESPACE={}", story.namespace)];
    process::kill(process::find(&variables, "lanekeeper-work").expect("the pod has a lane"));
    wait_until(PODS, "the lane to be started again", || async {
        let restarts = story.restarts_of_lane(&victim).await;
        if restarts > 0 { Ok(()) } else { Err("it was not") }
    })
    .await;
    let report = story.wait_for_all_in_order().await;
    assert_eq!(story.worker(1).await, victim, "the pod stays");
    let pause = longest_pause(&story.entries());
    println!("lane killed: {} repeats, longest pause of a partition {pause:?}", report.repeats);
    story.wait_until_ready().await;
}

#[tokio::test]
async fn a_worker_deployment_deleted_by_hand_comes_back_and_nothing_is_lost() {
    let _shared = beside_others().await;
    let story = flowing("deployment-deleted").await;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/flights-2", story.namespace);
    let before = story.kubectl.get(&path).await.unwrap().unwrap()["metadata"]["uid"].clone();
    story.run(&["delete", "deployment", "flights-2"]);
    wait_until(PODS, "the Deployment to come back", || async {
        let found = story.kubectl.get(&path).await.map_err(|error| error.to_string())?;
        let uid = found.map(|one| one["metadata"]["uid"].clone());
        if uid.as_ref().is_some_and(|uid| *uid != before) { Ok(()) } else { Err(format!("uid {uid:?}")) }
    })
    .await;
    let report = story.wait_for_all_in_order().await;
    println!("deployment deleted: {} repeats", report.repeats);
    story.wait_until_ready().await;
}

/// The longest time in which a partition that had work handled nothing.
fn longest_pause(entries: &[Entry]) -> Duration {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|one| (one.partition, one.start));
    let pauses = sorted.windows(2).filter(|pair| pair[0].partition == pair[1].partition);
    let longest = pauses.map(|pair| pair[1].start - pair[0].end).max().unwrap_or_default();
    Duration::from_nanos(u64::try_from(longest).unwrap_or_default())
}
