//! What fails in the middle of a change.

use std::time::Duration;

use lanekeeper_tests::{
    flights::STREAM,
    helm,
    soak::{
        chance::Chance,
        failures::{Failures, Whose},
    },
    wait_until,
};
use serde_json::{Value, json};

use super::servers::SERVERS;
use crate::{PODS, process, story::Story};

/// After a pod's end was asked for, until nothing of it is at work: its grace period.
const ANSWER: Duration = Duration::from_secs(5);

/// One kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    Nothing,
    OperatorKilled,
    WorkerDeleted,
    WorkerForced,
    LaneKilled,
    ServerDeleted,
    StreamStepsDown,
    ConsumersStepDown,
}

impl Trouble {
    pub(super) const ALL: [Self; 8] = [
        Self::Nothing,
        Self::OperatorKilled,
        Self::WorkerDeleted,
        Self::WorkerForced,
        Self::LaneKilled,
        Self::ServerDeleted,
        Self::StreamStepsDown,
        Self::ConsumersStepDown,
    ];
}

/// Makes trouble, and notes whom it may have made repeat something.
pub(super) struct Troubles<'a> {
    story: &'a Story,
    failures: &'a Failures,
}

impl<'a> Troubles<'a> {
    pub(super) fn new(story: &'a Story, failures: &'a Failures) -> Self {
        Self { story, failures }
    }

    pub(super) async fn make(&mut self, trouble: Trouble, chance: &mut Chance) {
        match trouble {
            Trouble::Nothing => {}
            Trouble::OperatorKilled => {
                self.failures.moment("an operator killed", Whose::Nobodys);
                let pods =
                    self.story.kubectl.pods(helm::NAMESPACE, "app.kubernetes.io/name=lanekeeper").await;
                // It may be between two starts.
                for pod in pods.unwrap().iter().filter_map(|pod| pod["metadata"]["name"].as_str()) {
                    if let Some(pid) = process::find(&[format!("HOSTNAME={pod}")], "lanekeeper-oper") {
                        process::kill(pid);
                    }
                    // The kubelet waits longer and longer before it starts a container again that was killed often.
                    let delete =
                        ["-n", helm::NAMESPACE, "delete", "pod", pod, "--wait=false", "--ignore-not-found"];
                    self.story.kubectl.run(&delete).unwrap();
                }
            }
            Trouble::WorkerDeleted => {
                if let Some(pod) = self.any_worker(chance).await {
                    self.failures.moment("a worker's pod deleted", Whose::Nobodys);
                    self.story.run(&["delete", "pod", &pod, "--wait=false", "--ignore-not-found"]);
                }
            }
            Trouble::WorkerForced => {
                if let Some(pod) = self.any_worker(chance).await {
                    let lasting =
                        self.failures.begin("a worker's pod deleted by force", Whose::Pod(pod.clone()));
                    self.story.run(&[
                        "delete",
                        "pod",
                        &pod,
                        "--grace-period=0",
                        "--force",
                        "--ignore-not-found",
                    ]);
                    wait_until(PODS, "the pod's lane to have ended", || async {
                        lane_of(self.story, &pod).is_none()
                    })
                    .await;
                    lasting.end();
                }
            }
            Trouble::LaneKilled => {
                if let Some(pod) = self.any_worker(chance).await
                    && let Some(pid) = lane_of(self.story, &pod)
                {
                    let lasting = self.failures.begin("a lane's process killed", Whose::Pod(pod));
                    process::kill(pid);
                    // Its handler ends what it was asked for before somebody looks the next time.
                    wait_until(PODS, "the lane's process to be gone", || async {
                        !std::path::Path::new(&format!("/proc/{pid}")).exists()
                    })
                    .await;
                    lasting.end();
                }
            }
            Trouble::ServerDeleted => self.delete_a_server(chance).await,
            Trouble::StreamStepsDown => {
                self.failures.moment("the stream's leader stepped down", Whose::Everybodys);
                self.ask(&format!("STREAM.LEADER.STEPDOWN.{STREAM}")).await;
            }
            Trouble::ConsumersStepDown => {
                let lasting = self.failures.begin("consumers' leaders stepped down", Whose::Everybodys);
                for consumer in self.story.consumer_names().await {
                    self.ask(&format!("CONSUMER.LEADER.STEPDOWN.{STREAM}.{consumer}")).await;
                }
                lasting.end();
            }
        }
    }

    /// One of three goes, and comes back with its files. The next trouble waits until it has.
    async fn delete_a_server(&self, chance: &mut Chance) {
        let lasting = self.failures.begin("a NATS server ended", Whose::Everybodys);
        let number = chance.below(SERVERS as u64);
        self.story.run(&["delete", "pod", &format!("nats-{number}"), "--wait=true"]);
        let path = format!("/apis/apps/v1/namespaces/{}/statefulsets/nats", self.story.namespace);
        wait_until(PODS, "all NATS servers to be ready", || async {
            let found = self.story.kubectl.get(&path).await.map_err(|error| error.to_string())?;
            let ready = found.unwrap_or_default()["status"]["readyReplicas"].as_u64().unwrap_or_default();
            if ready == SERVERS as u64 { Ok(()) } else { Err(format!("{ready} are")) }
        })
        .await;
        lasting.end();
    }

    /// The pod of some partition, if it has one that is not ending.
    async fn any_worker(&self, chance: &mut Chance) -> Option<String> {
        let pods = self.story.workers().await;
        let living: Vec<&str> = pods
            .iter()
            .filter(|pod| {
                pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running"
            })
            .filter_map(|pod| pod["metadata"]["name"].as_str())
            .collect();
        (!living.is_empty()).then(|| (*chance.pick(&living)).to_owned())
    }

    /// A request whose answer does not matter: there may be no leader to ask just now.
    async fn ask(&self, operation: &str) {
        let body = json!({});
        let request = self.story.jetstream.request::<_, _, Value>(operation.to_owned(), &body);
        let _ = tokio::time::timeout(ANSWER, request).await;
    }
}

/// The process of a pod's lane.
fn lane_of(story: &Story, pod: &str) -> Option<u32> {
    process::find(
        &[format!("LANEKEEPER_POD={pod}"), format!("LANEKEEPER_NAMESPACE={}", story.namespace)],
        "lanekeeper-work",
    )
}
