//! Carries out the steps of a plan on NATS, in order, and stops at the first that fails: I/O.
//!
//! Whatever stops it, the next look decides what is left to do.

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
    for step in steps {
        one(target, &step).await?;
        metrics.step(&step);
        tell(target.set, record, &step, news);
    }
    Ok(())
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
        | Step::DeleteAssignment { .. } => {}
    }
}
