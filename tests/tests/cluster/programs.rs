//! Handlers that are programs below the lane, in its own container: killed there, their lanes go on.

use lanekeeper_tests::{flights::data::numbered, wait_until};
use serde_json::json;

use crate::{PODS, machine::beside_others, process, story::Story};

/// Two lanes with 10 keys: about 8 s of work.
const EACH: u64 = 40;
const WORK: &str = "40ms";
const KILLS: usize = 3;

#[tokio::test]
async fn a_program_that_is_killed_again_and_again_in_its_pod_costs_no_order_no_message_and_no_container() {
    let _shared = beside_others().await;
    let mut story = Story::begin("program", 2).await;
    let exec = json!({"exec": {"command": ["/handler", "lines"], "timeoutSeconds": 30}});
    story.put("/spec/worker/handler", exec).slow_handler(WORK).apply_and_wait().await;
    story.publish(numbered(10, EACH)).await;
    story.wait_for_handled(20).await;
    let victim = story.worker(0).await;
    let variables = [format!("POD={victim}")];
    let mut killed = Vec::new();
    for _ in 0..KILLS {
        let program = wait_until(PODS, "the program to run, or another one", || async {
            process::find(&variables, "handler").filter(|pid| !killed.contains(pid)).ok_or("none runs")
        })
        .await;
        process::kill(program);
        killed.push(program);
        let before = story.handled();
        story.wait_for_handled(before + 20).await;
    }
    let report = story.wait_for_all_in_order().await;
    println!("program killed {KILLS} times: {} repeats", report.repeats);
    assert!(report.repeats <= KILLS, "at most what was in hand each time: {report}");
    let entries = story.entries();
    let of_victim: Vec<_> = entries.iter().filter(|one| one.partition == 0).collect();
    assert!(of_victim.iter().all(|one| one.pod == victim), "the pod went on with its partition");
    assert!(of_victim.iter().any(|one| one.attempt > 1), "a message was in hand when the program was killed");
    assert_eq!(story.worker(0).await, victim, "the pod stays");
    assert_eq!(story.restarts_of_lane(&victim).await, 0, "and so does the lane's container");
    story.wait_until_ready().await;
}
