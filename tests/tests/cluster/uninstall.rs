//! The operator goes and comes back: sets stay, messages flow meanwhile, and nothing is taken for new.

use lanekeeper_tests::flights::data::{numbered, numbered_from};
use serde_json::Value;

use crate::{
    machine::{Machine, alone},
    story::Story,
};

#[tokio::test]
async fn an_uninstalled_operator_leaves_crd_sets_and_flow_and_a_new_one_adopts_them() {
    let _alone = alone().await;
    let mut story = Story::begin("uninstall", 2).await;
    story.apply_and_wait().await;
    story.publish(numbered(10, 10)).await;
    story.wait_for_all_in_order().await;
    let before = (uids(&story.workers().await), story.consumer_names().await);

    let gone = Reinstalled(story.machine);
    story.machine.helm.uninstall().unwrap();
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/orderedpartitionsets.lanekeeper.dev";
    assert!(story.kubectl.get(crd).await.unwrap().is_some(), "the definition stays");
    assert!(story.resource().await.is_some(), "the set stays");
    story.publish(numbered_from(10, 11, 20)).await;
    story.wait_for_all_in_order().await;
    drop(gone);

    story.wait_until_ready().await;
    story.publish(numbered_from(10, 21, 30)).await;
    let report = story.wait_for_all_in_order().await;
    assert_eq!((report.handled, report.repeats), (300, 0));
    assert_eq!((uids(&story.workers().await), story.consumer_names().await), before, "nothing was made anew");
}

/// Puts the operator back however the story ends: the others need it.
struct Reinstalled(&'static Machine);

impl Drop for Reinstalled {
    fn drop(&mut self) {
        if let Err(error) = self.0.install_operator() {
            eprintln!("the operator could not be installed again: {error:#}");
        }
    }
}

fn uids(pods: &[Value]) -> Vec<String> {
    let mut uids: Vec<String> = pods.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect();
    uids.sort();
    uids
}
