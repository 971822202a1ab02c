//! The end of a pass: status, Events, and when to look again.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::controller::Action,
};
use lanekeeper_api::{
    OrderedPartitionSet, OrderedPartitionSetStatus,
    condition::{self, ConditionType, Status},
    reason::Reason,
    status::LaneAttention,
};
use serde_json::json;

use super::Pass;
use crate::{
    failure::words,
    labels,
    metrics::{KubernetesWrite, PassResult},
    retries::Pace,
    status,
};

impl Pass<'_> {
    pub(crate) async fn finish(mut self) -> (PassResult, Action) {
        let written = self.write_status().await;
        self.publish().await;
        let context = &self.scope.context;
        for failure in &self.findings.failures {
            context.metrics.failure(failure.reason);
        }
        let resync = context.settings.resync;
        let failure = self.findings.failures.first();
        if let Some(failure) = failure {
            tracing::warn!(
                set = %format_args!("{}/{}", self.set.namespace().unwrap_or_default(), self.set.name_any()),
                reason = failure.reason.as_str(),
                "{failure}"
            );
        }
        let pace = match failure {
            Some(failure) => failure.pace(),
            None if written => {
                // What is waited for is asked for less and less often.
                if self.findings.waits.is_empty() {
                    context.retries.forget(&self.uid);
                }
                let result = if self.again.is_some() { PassResult::Waiting } else { PassResult::Settled };
                let next = self.again.map_or_else(|| spread(resync), |again| again.min(resync));
                return (result, Action::requeue(next));
            }
            None => Some(Pace::Transient),
        };
        let action = match pace {
            None => Action::await_change(),
            Some(pace) => {
                let longest = match pace {
                    Pace::Transient => resync * 2,
                    Pace::Slow => resync * 4,
                };
                Action::requeue(context.retries.failed(&self.uid, pace, longest))
            }
        };
        (PassResult::Failed, action)
    }

    /// Writes the status if its meaning changed. Whether that went well.
    pub(crate) async fn write_status(&mut self) -> bool {
        let previous = self.set.status.as_ref();
        let status = status::status(previous, &self.findings, &Time(Timestamp::now()));
        let context = &self.scope.context;
        let ready =
            condition::find(&status.conditions, ConditionType::Ready).map(|ready| ready.status.as_str());
        let ready = match ready {
            Some("True") => Status::True,
            Some("False") => Status::False,
            _ => Status::Unknown,
        };
        context.metrics.ready(&self.uid, Some(ready));
        self.warn_of_news(previous, &status);
        self.warn_of_stalls(previous, &status);
        if previous == Some(&status) {
            return true;
        }
        let sets: Api<OrderedPartitionSet> =
            Api::namespaced(context.client.clone(), &self.set.namespace().unwrap_or_default());
        let patch = json!({
            "apiVersion": "lanekeeper.dev/v1alpha1",
            "kind": "OrderedPartitionSet",
            "metadata": {"name": self.set.name_any(), "uid": self.uid},
            "status": status,
        });
        let parameters = PatchParams::apply(labels::FIELD_MANAGER).force();
        context.metrics.write(KubernetesWrite::Status);
        match sets.patch_status(&self.set.name_any(), &parameters, &Patch::Apply(&patch)).await {
            Ok(_) => true,
            Err(kube::Error::Api(answer)) if answer.code == 404 => true,
            Err(error) => {
                tracing::warn!(
                    set = self.set.name_any(),
                    error = words(&error),
                    "a status could not be written"
                );
                false
            }
        }
    }

    /// What went wrong is an Event when it is news: the condition did not say it before.
    fn warn_of_news(
        &mut self,
        previous: Option<&OrderedPartitionSetStatus>,
        status: &OrderedPartitionSetStatus,
    ) {
        let said = |condition: ConditionType| {
            previous.and_then(|previous| condition::find(&previous.conditions, condition)).cloned()
        };
        let before = said(ConditionType::Ready);
        for failure in &self.findings.failures {
            let known = before
                .as_ref()
                .is_some_and(|one| one.reason == failure.reason.as_str() && one.status == "False");
            if !known && failure.reason != Reason::Progressing {
                self.news.warn(failure.reason, failure.message.clone());
            }
        }
        for (condition, bad) in [
            (ConditionType::Blocked, "True"),
            (ConditionType::Degraded, "True"),
            (ConditionType::WorkersReady, "False"),
        ] {
            let now = condition::find(&status.conditions, condition).filter(|one| one.status == bad);
            let Some(now) = now else { continue };
            let known = said(condition).is_some_and(|one| one.status == bad && one.reason == now.reason);
            let reason = Reason::ALL.iter().find(|reason| reason.as_str() == now.reason);
            if let Some(reason) = reason.filter(|reason| !known && !is_usual(**reason)) {
                self.news.warn(*reason, now.message.clone());
            }
        }
    }

    /// Each lane that began to stand still since the status was written last.
    fn warn_of_stalls(
        &mut self,
        previous: Option<&OrderedPartitionSetStatus>,
        status: &OrderedPartitionSetStatus,
    ) {
        let of_stalls = |lane: &&LaneAttention| lane.reason == Reason::LaneStalled.as_str();
        let known = |lane: &LaneAttention| {
            let mut before = previous.iter().flat_map(|previous| &previous.attention).filter(of_stalls);
            before.any(|one| (one.partition, &one.since) == (lane.partition, &lane.since))
        };
        for lane in status.attention.iter().filter(of_stalls).filter(|lane| !known(lane)) {
            let at = lane.sequence.unwrap_or_default();
            let message = format!(
                "messages of partition {} wait from sequence {at} on; {}",
                lane.partition, lane.message
            );
            self.news.warn(Reason::LaneStalled, message);
        }
    }

    pub(crate) async fn publish(&mut self) {
        let news = std::mem::take(&mut self.news);
        self.scope.context.events.publish(news, &self.reference, &self.scope.context.metrics).await;
    }
}

/// What workers go through when all is well: a start, a rollout. And what is said elsewhere: by failures, for each lane.
fn is_usual(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::WorkersStarting
            | Reason::WorkerNotReady
            | Reason::Progressing
            | Reason::DeploymentConflict
            | Reason::DeploymentRefused
            | Reason::DisruptionBudgetConflict
            | Reason::DisruptionBudgetRefused
            | Reason::KubernetesApiError
            | Reason::LaneStalled
    )
}

/// Sets that were made together are not looked at together for ever.
fn spread(resync: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 1000;
    resync.mul_f64(0.9 + 0.1 * f64::from(u32::try_from(random).unwrap_or_default()) / 1000.0)
}
