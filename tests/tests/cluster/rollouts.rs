//! Two pods of one lane while its Deployment is rolled out (P20).

use lanekeeper_tests::{flights::data::numbered, wait_until};

use crate::{FLOW, machine::beside_others, story::Story};

/// The old lane cannot end before its message is done, which is long after the new pod is there.
const WORK: &str = "8s";
/// One in work when the rollout begins, the others waiting.
const KEYS: u64 = 2;
const EACH: u64 = 2;

#[tokio::test]
async fn of_two_pods_during_a_rollout_one_handles_and_the_other_waits_whatever_the_strategy() {
    let _shared = beside_others().await;
    let mut story = Story::begin("rollout", 1).await;
    story.slow_handler(WORK).apply_and_wait().await;
    let old = story.worker(0).await;
    let by_hand = r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":"100%","maxUnavailable":0}}}}"#;
    story.run(&["patch", "deployment", "flights-0", "--type=merge", "-p", by_hand]);
    story.publish(numbered(KEYS, EACH)).await;
    // Journals have what is done: it is the second message that the old lane has in hand now.
    story.wait_for_handled(1).await;
    let changed = story.handler_variable("ROLLOUT", "1").set.clone();
    story.kubectl.apply(&[changed]).unwrap();
    wait_until(FLOW, "the new pod to wait beside the old one", || async {
        let names: Vec<String> =
            story.workers().await.iter().map(|pod| pod["metadata"]["name"].to_string()).collect();
        if names.len() == 2 { Ok(()) } else { Err(format!("there are {names:?}")) }
    })
    .await;
    story.wait_for_all_in_order().await;
    let mut entries = story.entries();
    entries.sort_by_key(|one| one.start);
    assert!(entries.iter().any(|one| one.pod == old), "the old pod handled something");
    assert!(entries.iter().any(|one| one.pod != old), "the new pod handled something");
    for pair in entries.windows(2) {
        assert!(pair[0].end <= pair[1].start, "two handlers at once: {pair:#?}");
    }
    story.wait_until_ready().await;
}
