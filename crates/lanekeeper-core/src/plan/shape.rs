//! What a lane's consumer and assignment must look like; the same at creation and when drift is looked for.

use std::collections::BTreeMap;

use super::{Context, Step};
use crate::{
    consumer::{ConsumerSpec, metadata},
    record::{Assignment, Floor, LaneRecord, LaneSettings, Ownership, VERSION},
    stream::Retention,
};

/// The consumer of a lane. `predecessors` matters only at creation.
pub(super) fn consumer_spec(context: &Context<'_>, lane: &LaneRecord, predecessors: &[u64]) -> ConsumerSpec {
    let wanted = context.wanted;
    let joined = |values: Vec<String>| values.join(",");
    let mut ours = BTreeMap::from([
        (metadata::SET.to_owned(), wanted.set.to_string()),
        (metadata::UID.to_owned(), wanted.owner.uid.clone()),
        (metadata::PARTITION.to_owned(), lane.share.partition().to_string()),
        (metadata::MODULUS.to_owned(), lane.share.modulus.to_string()),
        (metadata::INCARNATION.to_owned(), lane.incarnation.to_string()),
        (metadata::START.to_owned(), lane.start.to_string()),
    ]);
    if !lane.floors.is_empty() {
        let text =
            |floor: &Floor| format!("{}:{}:{}", floor.share.modulus, floor.share.residue, floor.sequence);
        ours.insert(metadata::FLOORS.to_owned(), joined(lane.floors.iter().map(text).collect()));
    }
    if !predecessors.is_empty() {
        ours.insert(
            metadata::PREDECESSORS.to_owned(),
            joined(predecessors.iter().map(u64::to_string).collect()),
        );
    }
    ConsumerSpec {
        name: wanted.set.consumer(lane.share.partition(), lane.incarnation),
        filter: wanted.mapping.filter(lane.share),
        // A work queue holds unsettled messages only and knows no other policy than delivering all.
        start: (lane.start > 1 && wanted.retention != Retention::WorkQueue).then_some(lane.start),
        delivery: wanted.settings.delivery,
        ack_wait_milliseconds: wanted.settings.ack_wait_milliseconds,
        pinned: lane.ownership == Ownership::Pin,
        replicas: wanted.consumer_replicas,
        metadata: ours,
    }
}

/// The assignment of an open lane.
pub(super) fn assignment(context: &Context<'_>, lane: &LaneRecord) -> Assignment {
    Assignment {
        v: VERSION,
        consumer: context.wanted.set.consumer(lane.share.partition(), lane.incarnation),
        incarnation: lane.incarnation,
        share: lane.share,
        filter: context.wanted.mapping.filter(lane.share),
        mapping: context.wanted.mapping.clone(),
        stream_incarnation: context.record.value.stream_incarnation,
        floors: lane.floors.clone(),
        retiring: false,
        // The lane's own: a change of it is for its successor.
        settings: LaneSettings { ownership: lane.ownership, ..context.wanted.settings.clone() },
    }
}

pub(super) fn put_assignment(context: &Context<'_>, lane: &LaneRecord) -> Step {
    let partition = lane.share.partition();
    let expected = context.observed.assignments.get(&partition).map(|assignment| assignment.revision);
    Step::PutAssignment { partition, expected, assignment: Box::new(assignment(context, lane)) }
}
