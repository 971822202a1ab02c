//! Carries out the steps of a plan on NATS, in order, and stops where one fails: I/O.
//!
//! The record is written alone: what comes after it rests on it. Between two such writes the steps of one lane come in
//! their order and those of different lanes at the same time, because no lane's steps rest on another's: a change of
//! many partitions takes little longer than one of a few. Whatever stops it, the next look decides what is left to do.

use futures::{StreamExt, stream};
use lanekeeper_api::reason::Reason;
use lanekeeper_core::{
    names::SetName,
    plan::Step,
    record::{LaneState, Record},
};
use lanekeeper_nats::{Bucket, Cause, KvError, provision};

use crate::{
    events::News,
    failure::{About, Failure},
    metrics::Metrics,
    provision::failure,
};

/// Lanes whose steps are under way at the same time.
const AT_ONCE: usize = 32;

/// Why a step was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The bucket.
    #[error(transparent)]
    Bucket(#[from] KvError),
    /// A consumer.
    #[error(transparent)]
    Consumer(#[from] provision::ProvisionError),
}

impl StepError {
    fn cause(&self) -> Cause {
        match self {
            Self::Bucket(error) => error.cause(),
            Self::Consumer(error) => error.cause(),
        }
    }

    /// Somebody else was faster, or nobody knows: looking again at once is right.
    pub fn is_worth_another_look(&self) -> bool {
        matches!(self.cause(), Cause::Raced | Cause::OutcomeUnknown)
    }
}

impl From<StepError> for Failure {
    fn from(error: StepError) -> Self {
        failure(About::Lanes, error.cause(), error.to_string())
    }
}

/// The NATS side of one set.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The set.
    pub set: &'a SetName,
    /// The stream's name.
    pub stream: &'a str,
    /// The records.
    pub bucket: &'a Bucket,
}

/// Carries out all steps. `record` is the one that the plan was made from.
pub async fn carry_out(
    target: Target<'_>,
    record: Option<&Record>,
    steps: Vec<Step>,
    metrics: &Metrics,
    news: &mut News,
) -> Result<(), StepError> {
    for lanes in stages(steps) {
        let mut under_way =
            stream::iter(lanes.into_iter().map(|steps| in_order(target, steps))).buffer_unordered(AT_ONCE);
        let mut failed = None;
        // What is under way is waited for: its outcome would be unknown otherwise.
        while let Some((done, result)) = under_way.next().await {
            for step in &done {
                metrics.step(step);
                tell(target.set, record, step, news);
            }
            failed = failed.or(result.err());
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// The steps one stage after another; in a stage, each lane's own.
fn stages(steps: Vec<Step>) -> Vec<Vec<Vec<Step>>> {
    let mut stages: Vec<Vec<(Subject, Vec<Step>)>> = Vec::new();
    let mut open = false;
    for step in steps {
        let subject = Subject::of(&step);
        if subject == Subject::Record || !open {
            stages.push(Vec::new());
        }
        open = subject != Subject::Record;
        let Some(stage) = stages.last_mut() else { continue };
        match stage.iter_mut().find(|(of, _)| *of == subject) {
            Some((_, steps)) => steps.push(step),
            None => stage.push((subject, vec![step])),
        }
    }
    stages.into_iter().map(|stage| stage.into_iter().map(|(_, steps)| steps).collect()).collect()
}

/// What a step is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Record,
    Lane(u64),
    Consumer(String),
    /// Whose lane is over.
    Partition(u32),
}

impl Subject {
    fn of(step: &Step) -> Self {
        match step {
            Step::PutRecord { .. } => Self::Record,
            Step::PutLaneKey { incarnation, .. }
            | Step::DeleteLaneKey { incarnation, .. }
            | Step::DeleteLease { incarnation, .. }
            | Step::DeleteConsumer { incarnation, .. } => Self::Lane(*incarnation),
            Step::PutAssignment { assignment, .. } => Self::Lane(assignment.incarnation),
            Step::CreateConsumer(spec) | Step::RepairConsumer { spec, .. } => {
                Self::Consumer(spec.name.clone())
            }
            Step::DeleteAssignment { partition, .. } => Self::Partition(*partition),
        }
    }
}

/// The steps of one lane, up to the first that fails; those that were done.
async fn in_order(target: Target<'_>, steps: Vec<Step>) -> (Vec<Step>, Result<(), StepError>) {
    let mut done = Vec::with_capacity(steps.len());
    for step in steps {
        match one(target, &step).await {
            Ok(()) => done.push(step),
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

async fn one(target: Target<'_>, step: &Step) -> Result<(), StepError> {
    let Target { set, stream, bucket } = target;
    let connection = bucket.connection();
    match step {
        Step::PutRecord { expected, record } => {
            bucket.put_json(&set.record_key(), record, *expected).await?;
        }
        Step::PutLaneKey { incarnation, expected, key } => {
            bucket.put_json(&set.lane_key(*incarnation), key, *expected).await?;
        }
        Step::PutAssignment { partition, expected, assignment } => {
            bucket.put_json(&set.assignment_key(*partition), assignment.as_ref(), *expected).await?;
        }
        Step::CreateConsumer(spec) => {
            provision::create_consumer(connection, stream, spec).await?;
        }
        Step::RepairConsumer { spec, .. } => {
            provision::repair_consumer(connection, stream, spec).await?;
        }
        Step::DeleteConsumer { name, .. } => {
            provision::delete_consumer(connection, stream, name).await?;
        }
        Step::DeleteLaneKey { incarnation, expected } => {
            bucket.delete(&set.lane_key(*incarnation), *expected).await?;
        }
        Step::DeleteLease { incarnation, expected } => {
            bucket.delete(&set.lease_key(*incarnation), *expected).await?;
        }
        Step::DeleteAssignment { partition, expected } => {
            bucket.delete(&set.assignment_key(*partition), *expected).await?;
        }
    }
    Ok(())
}

/// What a person should read of a step.
fn tell(set: &SetName, before: Option<&Record>, step: &Step, news: &mut News) {
    match step {
        Step::PutRecord { record, .. } => {
            let was = |incarnation: u64| {
                before?.lanes.iter().find(|lane| lane.incarnation == incarnation).map(|lane| lane.state)
            };
            for lane in record.lanes.iter().filter(|lane| was(lane.incarnation) != Some(lane.state)) {
                let consumer = set.consumer(lane.share.partition(), lane.incarnation);
                match lane.state {
                    LaneState::Created | LaneState::Retiring => {}
                    LaneState::Open => news.done(
                        Reason::LaneOpened,
                        format!(
                            "partition {}: consumer {consumer} from sequence {}",
                            lane.share.partition(),
                            lane.start
                        ),
                    ),
                    LaneState::Settled => news.done(
                        Reason::LaneClosed,
                        format!(
                            "partition {}: consumer {consumer} at sequence {}",
                            lane.share.partition(),
                            lane.checkpoint
                        ),
                    ),
                }
            }
        }
        Step::RepairConsumer { spec, drift } => {
            let fields: Vec<String> = drift.iter().map(ToString::to_string).collect();
            news.warn(Reason::ConsumerRepaired, format!("consumer {}: {}", spec.name, fields.join("; ")));
        }
        Step::DeleteConsumer { incarnation, name } => {
            let named =
                before.is_some_and(|record| record.lanes.iter().any(|lane| lane.incarnation == *incarnation));
            if !named {
                news.warn(Reason::OrphanDeleted, format!("consumer {name}"));
            }
        }
        Step::CreateConsumer(_)
        | Step::PutLaneKey { .. }
        | Step::PutAssignment { .. }
        | Step::DeleteLaneKey { .. }
        | Step::DeleteLease { .. }
        | Step::DeleteAssignment { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::record::LaneKey;
    use serde_json::json;

    use super::*;

    fn record() -> Step {
        let record = serde_json::from_value(json!({
            "owner": {"cluster": "c", "namespace": "n", "name": "s", "uid": "u"},
            "stream": "S", "streamCreated": "", "streamIncarnation": 1, "counter": 0, "lanes": [],
        }));
        Step::PutRecord { expected: None, record: record.unwrap() }
    }

    fn key(incarnation: u64) -> Step {
        Step::PutLaneKey { incarnation, expected: None, key: LaneKey::new() }
    }

    fn delete(incarnation: u64) -> Step {
        Step::DeleteConsumer { incarnation, name: incarnation.to_string() }
    }

    #[test]
    fn nothing_is_at_the_same_time_as_the_record_and_a_lanes_own_steps_keep_their_order() {
        let steps = vec![key(1), key(2), delete(1), record(), delete(3), record(), record()];
        let expected = vec![
            vec![vec![key(1), delete(1)], vec![key(2)]],
            vec![vec![record()]],
            vec![vec![delete(3)]],
            vec![vec![record()]],
            vec![vec![record()]],
        ];
        assert_eq!(stages(steps), expected);
        assert!(stages(Vec::new()).is_empty());
    }
}
