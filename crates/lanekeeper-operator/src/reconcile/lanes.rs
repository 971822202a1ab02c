//! The lanes: stream and bucket, then look and plan and carry out, until nothing is left to do now.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, runtime::reflector::ObjectRef};
use lanekeeper_api::{reason::Reason, validate::Validated};
use lanekeeper_core::{
    park,
    plan::{self, Note, Plan, Refusal, Wait, Wanted},
    record::{LaneSettings, LaneState, Park, Record, Report},
    share,
    stream::StreamOwner,
};
use lanekeeper_nats::{Bucket, KvError, kv::Wakeups};
use tokio::time::{Instant, timeout};

use super::{
    Pass,
    rescale::{self, Planned, Terms},
};
use crate::{
    aside,
    carry_out::{Target, carry_out},
    children::Children,
    events::News,
    failure::{About, Failure},
    observe::{self, Reported, Seen},
    provision,
    retries::Pace,
    status::Rescale,
    workers,
};

/// Looks in one pass. A change has eight stages, each of which is one look, for each few lanes that go at once.
const ROUNDS: usize = 256;
/// How long one pass waits for workers to leave lanes before it ends and says so.
const PATIENCE: Duration = Duration::from_secs(2);
/// How soon a pass follows that did not come to its end.
const SOON: Duration = Duration::from_millis(500);
/// After this time a handover is not one whose end is near: passes do not wait for it any more. What workers do wakes the
/// next one.
const FRESH_SECONDS: u64 = 10;

impl Pass<'_> {
    /// Makes the NATS side of the set what it must be.
    pub(super) async fn lanes(
        &mut self,
        validated: &Validated,
        wanted: &Wanted,
        deployments: &Children<'_>,
    ) -> Result<(), Failure> {
        let (connection, facts) = self.reach(validated).await?;
        let bucket = Bucket::new(connection, &self.scope.context.settings.bucket);
        self.check_moved(&bucket, validated, wanted, deployments).await?;
        let known = deployments.known();
        let known_before =
            !known.is_empty() || self.set.status.as_ref().is_some_and(|status| status.partitions > 0);
        if !known_before {
            self.check_namespace(&wanted.set.namespace).await?;
        }
        bucket.ensure(validated.stream.replicas).await.map_err(|error| {
            let words = provision::copies(error.cause(), validated.stream.replicas, &error.to_string());
            provision::failure(About::Lanes, error.cause(), words)
        })?;
        let stream =
            provision::stream(self.scope, &bucket, validated, wanted, known_before, &mut self.news).await?;
        self.findings.stream = Some(stream.name.clone());
        self.findings.degraded = provision::troubles(validated);
        let owner = StreamOwner::from(&wanted.owner);
        let trouble = aside::check(bucket.connection(), validated, &owner, &mut self.news).await;
        self.findings.degraded.extend(trouble);

        let workers = workers::workers(&wanted.set, &self.uid, wanted.partitions, &known, &self.pods());
        self.scope.context.watches.keep(&self.uid, &wanted.set, &bucket).await;
        let terms = Terms {
            handover: self.scope.context.settings.handover,
            minimum_interval_seconds: validated.minimum_interval_seconds,
            now_seconds: wanted.now_seconds,
            retention: wanted.retention,
            room: facts.max_consumers.map(|most| most.saturating_sub(facts.consumers)),
        };
        let mut wakeups: Option<Wakeups> = None;
        let end = Instant::now() + PATIENCE;
        for _ in 0..ROUNDS {
            let seen = observe::lanes(self.scope, &bucket, wanted, &stream, known_before).await?;
            let record = seen.observed.record.as_ref().map(|found| found.value.clone());
            let planned = rescale::planned(record.as_ref(), wanted.partitions, terms, &workers);
            let told = seen.observed.assignments.values().map(|found| &found.value.settings);
            let park = park::kept(wanted.settings.park.as_ref(), told);
            let settings = LaneSettings { park: park.clone(), ..wanted.settings.clone() };
            let plan = plan::plan(
                &Wanted { partitions: planned.partitions, settings, ..wanted.clone() },
                &seen.observed,
            );
            if let Some(refusal) = &plan.refusal {
                return Err(refused(refusal, wanted, bucket.name()));
            }
            self.findings.record.clone_from(&record);
            self.findings.reports =
                seen.reports.iter().map(|one| (one.partition, one.report.clone())).collect();
            self.findings.waits.clone_from(&plan.waits);
            self.findings.rescale = doing(record.as_ref(), planned, &plan);
            notes(&plan.notes, &mut self.news);
            if !plan.steps.is_empty() {
                let target = Target { set: &wanted.set, stream: &stream.name, bucket: &bucket };
                let metrics = &self.scope.context.metrics;
                match carry_out(target, record.as_ref(), plan.steps, metrics, &mut self.news).await {
                    Ok(()) => {}
                    Err(error) if error.is_worth_another_look() => tracing::debug!(%error, "looking again"),
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            let holders = plan.waits.iter().any(|wait| matches!(wait, Wait::Holders { .. }));
            let fresh = record
                .as_ref()
                .and_then(|record| record.changed_seconds)
                .is_some_and(|changed| wanted.now_seconds.saturating_sub(changed) < FRESH_SECONDS);
            if holders && fresh && Instant::now() < end {
                woken(&bucket, wanted, &mut wakeups, end).await;
                continue;
            }
            self.findings.reports = self.living_reports(&bucket, &wanted.set.namespace, &seen).await;
            self.parked(&bucket, wanted, park.as_ref()).await;
            self.checkpoint(&bucket, wanted, plan.checkpoint).await;
            if let Some(Rescale::Delayed { until, .. }) = planned.held_back {
                self.again = Some(Duration::from_secs(until.saturating_sub(wanted.now_seconds)));
            }
            if !plan.waits.is_empty() {
                self.again = Some(self.next_look(holders));
            }
            return Ok(());
        }
        // Somebody works against us, or a very long plan: what is left is for the next pass.
        self.again = Some(SOON);
        Ok(())
    }

    /// What is parked, for people. What is in force is the lanes' matter, so nothing here ends the pass.
    async fn parked(&mut self, bucket: &Bucket, wanted: &Wanted, park: Option<&Park>) {
        self.findings.degraded.extend(aside::kept_park(wanted.settings.park.as_ref(), park));
        let Some(park) = park else { return };
        match aside::parked_keys(bucket.connection(), &wanted.mapping, park).await {
            Ok(keys) => self.findings.parked = keys,
            Err(error) => tracing::warn!(set = %wanted.set, %error, "it is not known which keys are parked"),
        }
    }

    /// When to look at what is waited for. Workers that leave wake a pass, so looking without a reason becomes rare.
    fn next_look(&self, holders: bool) -> Duration {
        let context = &self.scope.context;
        let fence = context.fences.next(&self.uid, std::time::Instant::now());
        if !holders {
            return fence.unwrap_or(SOON);
        }
        let later = context.retries.failed(&self.uid, Pace::Transient, context.settings.resync);
        fence.map_or(later, |fence| fence.min(later))
    }

    /// Reports of pods that live; those of pods that are gone are forgotten.
    async fn living_reports(&mut self, bucket: &Bucket, namespace: &str, seen: &Seen) -> Vec<(u32, Report)> {
        let mut living = Vec::new();
        for one in &seen.reports {
            if self.lives(namespace, &one.pod).await {
                self.scope.context.given_up.tell(&self.uid, one, &mut self.news);
                living.push((one.partition, one.report.clone()));
            } else {
                forget(bucket, one).await;
            }
        }
        living
    }

    /// What is not known to be gone lives.
    async fn lives(&self, namespace: &str, pod: &str) -> bool {
        if self.scope.caches.pods.get(&ObjectRef::new(pod).within(namespace)).is_some() {
            return true;
        }
        let pods: Api<Pod> = Api::namespaced(self.scope.context.client.clone(), namespace);
        !matches!(pods.get_metadata_opt(pod).await, Ok(None))
    }

    /// Floors are recorded for the case that somebody deletes a consumer: once in a resync, never for its own sake.
    async fn checkpoint(&self, bucket: &Bucket, wanted: &Wanted, step: Option<plan::Step>) {
        let context = &self.scope.context;
        let Some(plan::Step::PutRecord { expected, record }) = step else { return };
        if !context.checkpoints.is_due(&self.uid, context.settings.resync) {
            return;
        }
        match bucket.put_json(&wanted.set.record_key(), &record, expected).await {
            Ok(_) | Err(KvError::Conflict { .. }) => {}
            Err(error) => tracing::warn!(set = %wanted.set, %error, "floors could not be recorded"),
        }
    }
}

/// Why nothing is done with a record that was found.
fn refused(refusal: &Refusal, wanted: &Wanted, bucket: &str) -> Failure {
    let whose = match refusal {
        Refusal::OwnedElsewhere(owner) => {
            format!("belongs to set {}/{} of cluster {}", owner.namespace, owner.name, owner.cluster)
        }
        Refusal::OfAnotherStream(stream) => format!(
            "holds the positions that an earlier set of this name retained in stream {stream}; spec.stream.name is {}: name the set otherwise, or delete the key {} if those positions are not needed",
            wanted.mapping.stream,
            wanted.set.record_key()
        ),
    };
    let message = format!("the record of {} in bucket {bucket} {whose}; nothing was changed", wanted.set);
    Failure::new(About::Lanes, Reason::OwnedElsewhere, message)
}

/// Waits until a lane's key changed, or a moment.
async fn woken(bucket: &Bucket, wanted: &Wanted, wakeups: &mut Option<Wakeups>, end: Instant) {
    if wakeups.is_none() {
        // What changed before the subscription is seen by the look that follows it.
        *wakeups = bucket.wakeups(&format!("{}lane.*", wanted.set.key_prefix())).await.ok();
        return;
    }
    let moment = SOON.min(end.saturating_duration_since(Instant::now()));
    if let Some(wakeups) = wakeups {
        let _ = timeout(moment, wakeups.next()).await;
    }
}

async fn forget(bucket: &Bucket, one: &Reported) {
    match bucket.delete(&one.key, one.revision).await {
        Ok(()) | Err(KvError::Conflict { .. }) => {}
        Err(error) => {
            tracing::warn!(key = one.key, %error, "the report of a pod that is gone could not be forgotten");
        }
    }
}

/// How a change of the number of partitions is doing.
fn doing(record: Option<&Record>, planned: Planned, plan: &Plan) -> Rescale {
    if let Some(held_back) = planned.held_back {
        return held_back;
    }
    let open = |share: &share::Share| {
        let lanes = record.into_iter().flat_map(|record| &record.lanes);
        lanes.into_iter().any(|lane| lane.state == LaneState::Open && lane.share == *share)
    };
    let complete = share::shares(planned.partitions).iter().all(open);
    if complete && plan.is_settled() { Rescale::Settled } else { Rescale::HandingOver }
}

fn notes(notes: &[Note], news: &mut News) {
    for note in notes {
        match note {
            Note::StreamReplaced { before, now } => news.warn(
                Reason::StreamReplaced,
                format!("the stream created at {before} was replaced by one created at {now}; positions start anew"),
            ),
            Note::ConsumerLost { partition, incarnation, found } => news.warn(
                Reason::ConsumerConflict,
                format!(
                    "partition {partition}: there is {found} in the place of incarnation {incarnation}; a new one succeeds it after its last known position"
                ),
            ),
            Note::RecordRebuilt { lanes } => news.warn(
                Reason::RecordUnreadable,
                format!("the set's record was lost and is rebuilt from {lanes} consumers"),
            ),
            Note::LaneKeyLost { partition, incarnation } => news.warn(
                Reason::HolderUnreachable,
                format!(
                    "partition {partition}: somebody deleted the key of incarnation {incarnation}; a new one succeeds it after one ackWait"
                ),
            ),
        }
    }
}
