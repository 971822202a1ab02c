//! The rules of the specification once more, in Rust, yielding typed values.
//!
//! The API server checks most of them at admission. They are repeated because a definition of an older or newer
//! version may have let a set through, because the rules there cannot see everything, and because the rest of
//! the operator should get values that cannot be wrong. Pure: nothing is asked of any server.

mod delivery;
mod exhausted;
mod journal;
mod mapping;
mod nats;
mod pod_template;
mod stream;
mod worker;

use lanekeeper_core::{
    aside::Aside,
    names::{MAX_SET_NAME_BYTES, SetName},
    record::{self, LaneSettings},
    stream::StreamSpec,
    subject::SubjectPattern,
};

pub use self::{
    nats::NatsAccess,
    pod_template::{
        EMBEDDED_FIELDS, EXEC_REFUSED_FIELDS, HANDLER, INSTALL, LANE, LANE_FIELDS, REFUSED_POD_FIELDS,
        RESERVED_LABELS, RESERVED_PREFIX, RESERVED_VARIABLE_PREFIX, RESERVED_VOLUME_PREFIX,
    },
    worker::{ADMIN_PORT, HandlerKind, LaneResources, WorkerSettings},
};
use crate::{
    invalid::{Findings, Invalid},
    spec::{DeletionPolicy, OrderedPartitionSet, OrderedPartitionSetSpec, Ownership, Start},
};

/// A specification that is right, in the types of the rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Validated {
    /// Namespace and name.
    pub name: SetName,
    /// How many partitions are wanted.
    pub partitions: u32,
    /// The shortest time between the beginnings of two changes of that number.
    pub minimum_interval_seconds: u64,
    /// How to reach NATS.
    pub nats: NatsAccess,
    /// The stream, with its mapping.
    pub stream: StreamSpec,
    /// Where new consumers begin.
    pub start: Start,
    /// Copies of the consumers' state; `None` as the stream.
    pub consumer_replicas: Option<u32>,
    /// How lanes are run; goes into each assignment.
    pub settings: LaneSettings,
    /// Where messages go that are put aside, if the policy puts any.
    pub aside: Option<Aside>,
    /// The pods.
    pub worker: WorkerSettings,
    /// What is left when the set goes.
    pub deletion_policy: DeletionPolicy,
}

impl Validated {
    /// Subjects of the stream of which some messages match no lane.
    pub fn uncovered_subjects(&self) -> Vec<&str> {
        let source = &self.stream.mapping.source;
        let covered = |subject: &str| SubjectPattern::parse(subject).is_ok_and(|it| it.is_subset_of(source));
        self.stream.subjects.iter().map(String::as_str).filter(|subject| !covered(subject)).collect()
    }
}

/// Checks a set. The error has everything that is wrong, not only the first.
pub fn validate(set: &OrderedPartitionSet) -> Result<Validated, Vec<Invalid>> {
    let mut findings = Findings::default();
    let spec = &set.spec;
    let name = name(set, &mut findings);
    let nats = nats::check(&spec.nats, &mut findings);
    let worker = worker::check(&spec.worker, &mut findings);
    let (on_exhausted, aside) =
        exhausted::check(name.as_ref(), &spec.on_exhausted, &spec.stream, &mut findings);
    let park = name.as_ref().zip(aside.as_ref()).and_then(|(name, aside)| exhausted::park(name, aside));
    let settings = settings(spec, on_exhausted, park, worker.handler.timeout_milliseconds(), &mut findings);
    let partitions = findings.bound("spec.partitions", i64::from(spec.partitions), 1, 1024);
    let minimum_interval_seconds = findings.bound(
        "spec.rescale.minimumIntervalSeconds",
        i64::from(spec.rescale.minimum_interval_seconds),
        0,
        86_400,
    );
    let consumer_replicas = consumer_replicas(spec, &mut findings);
    if spec.start_is_refused() {
        let allowed = "must be All when spec.stream.retention is WorkQueue";
        findings.add(Invalid::value("spec.consumer.start", "New", allowed));
    }
    let mapping = mapping::check(&spec.stream.name, &spec.mapping, &mut findings);
    if let Some(mapping) = &mapping
        && partitions > mapping.max_partitions
    {
        let allowed =
            format!("must be at most spec.mapping.maxPartitions, which is {}", mapping.max_partitions);
        findings.add(Invalid::value("spec.partitions", partitions, allowed));
    }
    let stream = stream::check(&spec.stream, mapping, &mut findings);
    let validated = name.zip(stream).map(|(name, stream)| Validated {
        name,
        partitions,
        minimum_interval_seconds,
        nats,
        stream,
        start: spec.consumer.start,
        consumer_replicas,
        settings,
        aside,
        worker,
        deletion_policy: spec.deletion_policy,
    });
    findings.finish(validated)
}

impl OrderedPartitionSetSpec {
    fn start_is_refused(&self) -> bool {
        self.consumer.start == Start::New && self.stream.retention == crate::spec::Retention::WorkQueue
    }
}

fn name(set: &OrderedPartitionSet, findings: &mut Findings) -> Option<SetName> {
    let Some(namespace) = set.metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty()) else {
        findings.add(Invalid::missing("metadata.namespace", "must be given"));
        return None;
    };
    let Some(name) = set.metadata.name.as_deref() else {
        findings.add(Invalid::missing("metadata.name", "must be given"));
        return None;
    };
    let allowed = format!(
        "must be lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most {MAX_SET_NAME_BYTES} characters"
    );
    let right = name.len() <= MAX_SET_NAME_BYTES && name.split('.').all(is_label);
    findings.require_text(right, "metadata.name", name, &allowed);
    Some(SetName::new(namespace, name))
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn consumer_replicas(spec: &OrderedPartitionSetSpec, findings: &mut Findings) -> Option<u32> {
    let field = "spec.consumer.replicas";
    let given = spec.consumer.replicas?;
    let number = findings.bound(field, i64::from(given), 1, 5);
    if spec.stream.retention == crate::spec::Retention::Limits {
        if given > spec.stream.replicas {
            let allowed = format!("must be at most spec.stream.replicas, which is {}", spec.stream.replicas);
            findings.add(Invalid::value(field, given, allowed));
        }
    } else if given != spec.stream.replicas {
        let allowed = format!(
            "must equal spec.stream.replicas, which is {}, because spec.stream.retention is {:?}",
            spec.stream.replicas, spec.stream.retention
        );
        findings.add(Invalid::value(field, given, allowed));
    }
    Some(number)
}

fn settings(
    spec: &OrderedPartitionSetSpec,
    on_exhausted: record::ExhaustedPolicy,
    park: Option<record::Park>,
    handler_timeout_milliseconds: u64,
    findings: &mut Findings,
) -> LaneSettings {
    let retry = &spec.retry;
    let ack_wait_seconds: u64 =
        findings.bound("spec.consumer.ackWaitSeconds", i64::from(spec.consumer.ack_wait_seconds), 1, 3600);
    let initial_backoff_milliseconds = findings.bound(
        "spec.retry.initialBackoffMilliseconds",
        i64::from(retry.initial_backoff_milliseconds),
        1,
        3_600_000,
    );
    let max_backoff_seconds: u64 =
        findings.bound("spec.retry.maxBackoffSeconds", i64::from(retry.max_backoff_seconds), 1, 86_400);
    let max_attempts = findings.bound("spec.retry.maxAttempts", i64::from(retry.max_attempts), 1, 1_000_000);
    if initial_backoff_milliseconds > max_backoff_seconds * 1000 {
        let allowed =
            format!("must be at most spec.retry.maxBackoffSeconds, which is {max_backoff_seconds} s");
        findings.add(Invalid::value(
            "spec.retry.initialBackoffMilliseconds",
            initial_backoff_milliseconds,
            allowed,
        ));
    }
    LaneSettings {
        ack_wait_milliseconds: ack_wait_seconds * 1000,
        ownership: match spec.consumer.ownership {
            Ownership::Pin => record::Ownership::Pin,
            Ownership::Lease => record::Ownership::Lease,
        },
        handler_timeout_milliseconds,
        retry: record::Retry {
            initial_backoff_milliseconds,
            max_backoff_milliseconds: max_backoff_seconds * 1000,
            max_attempts,
        },
        on_exhausted,
        park,
        delivery: delivery::check(&spec.delivery, spec.consumer.ownership, findings),
        paused: spec.paused,
        journal: journal::check(spec.worker.journal.as_ref(), &spec.stream, findings),
    }
}
