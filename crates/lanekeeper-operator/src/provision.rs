//! The stream and the bucket of a set: looked at, decided (`lanekeeper_core::stream`), made or repaired. I/O.

use kube::{Api, ResourceExt};
use lanekeeper_api::{OrderedPartitionSet, reason::Reason, validate::Validated};
use lanekeeper_core::{
    consumer::Drift,
    names::SetName,
    plan::Wanted,
    record::Record,
    stream::{Judgement, StreamFound, StreamOwner, StreamSpec, drift, is_owner, judge, metadata},
};
use lanekeeper_nats::{Bucket, Cause, Connection, observe, provision};

use crate::{
    context::Scope,
    events::News,
    failure::{About, Failure, words},
    workers::Trouble,
};

/// The words of a server that cannot place so many copies, with the field that asked for them.
pub fn copies(cause: Cause, replicas: u32, words: &str) -> String {
    if cause == Cause::InsufficientResources && replicas > 1 {
        format!(
            "spec.stream.replicas is {replicas}, for which NATS needs as many servers with JetStream and room: {words}"
        )
    } else {
        words.to_owned()
    }
}

/// How often the stream is looked at again after something was done about it.
const ROUNDS: usize = 3;

/// A failure from a cause of the NATS crate.
pub fn failure(about: About, cause: Cause, message: impl Into<String>) -> Failure {
    let (about, reason) = match cause {
        Cause::NatsUnreachable => (About::Nats, Reason::NatsUnreachable),
        Cause::AuthorizationFailed => (About::Nats, Reason::AuthorizationFailed),
        Cause::CredentialsInvalid => (About::Nats, Reason::CredentialsInvalid),
        Cause::JetStreamUnavailable => (About::Nats, Reason::JetStreamUnavailable),
        Cause::ServerTooOld => (About::Nats, Reason::ServerTooOld),
        Cause::PermissionDenied => (about, Reason::PermissionDenied),
        Cause::InsufficientResources => (about, Reason::InsufficientResources),
        Cause::SubjectsOverlap => (about, Reason::SubjectsOverlap),
        Cause::ConsumersOverlap => (about, Reason::ConsumersOverlap),
        Cause::StreamMissing => (about, Reason::StreamMissing),
        Cause::StreamConfigConflict => (about, Reason::StreamConfigConflict),
        Cause::ConsumerConflict => (about, Reason::ConsumerConflict),
        Cause::KvForbidden => (about, Reason::KvForbidden),
        Cause::RecordUnreadable => (about, Reason::RecordUnreadable),
        Cause::NatsRefused => (about, Reason::NatsRefused),
        // Another look is due, and will come: nothing is wrong.
        Cause::ConsumerMissing | Cause::Raced | Cause::OutcomeUnknown => (about, Reason::Progressing),
        Cause::InternalError => (about, Reason::InternalError),
    };
    Failure::new(about, reason, message)
}

/// The stream of a set, as found after all that this set may do about it. `Err` ends the pass.
pub async fn stream(
    scope: &Scope,
    bucket: &Bucket,
    set: &Validated,
    wanted: &Wanted,
    had_stream: bool,
    news: &mut News,
) -> Result<StreamFound, Failure> {
    let spec = &set.stream;
    let name = &spec.mapping.stream;
    let us = StreamOwner::from(&wanted.owner);
    let connection = bucket.connection();
    for _ in 0..ROUNDS {
        let found = observe::stream(connection, name)
            .await
            .map_err(|error| failure(About::Stream, error.cause(), error.to_string()))?;
        let Some(found) = found else {
            create(scope, bucket, set, &us, had_stream, news).await?;
            continue;
        };
        let judgement = match StreamOwner::of(&found) {
            Some(owner) if owner.id != us.id && !lives(scope, &owner).await? => {
                let shared = another_user(scope, bucket, set).await?;
                inherited(spec, &us, &found, shared)
            }
            _ => judge(spec, &us, &found),
        };
        match judgement {
            Judgement::Joined(_) => return Ok(found),
            Judgement::Ours(drift) if drift.is_empty() => return Ok(found),
            Judgement::Ours(_) => repair(connection, spec, &us, news).await?,
            Judgement::Conflict(differences) => {
                let of = StreamOwner::of(&found).filter(|owner| owner.id != us.id);
                let of =
                    of.map(|owner| format!(", which set {} made,", path(scope, &owner))).unwrap_or_default();
                let message =
                    format!("stream {name}{of} differs from the specification: {}", joined(&differences));
                return Err(Failure::new(About::Stream, Reason::StreamConfigConflict, message));
            }
            Judgement::NotOwned => {
                let message = format!(
                    "stream {name} exists and was not made by Lanekeeper, and the operator takes over none: choose another spec.stream.name"
                );
                return Err(Failure::new(About::Stream, Reason::StreamNotOwned, message));
            }
            Judgement::WorkQueueTaken(owner) => {
                let message = format!(
                    "stream {name} is a work queue and serves set {}; a work queue serves one set",
                    path(scope, &owner)
                );
                return Err(Failure::new(About::Stream, Reason::WorkQueueTaken, message));
            }
        }
    }
    let message = format!("stream {name} does not stay as it was made; somebody else changes it");
    Err(Failure::new(About::Stream, Reason::StreamConfigConflict, message))
}

/// The stream of an owner that is gone is this set's from now on, if servers can make it what this set asks for. While
/// another set uses it, only as it is: other limits or subjects could cost that one messages.
fn inherited(spec: &StreamSpec, us: &StreamOwner, found: &StreamFound, shared: bool) -> Judgement {
    let kept = |one: &Drift| !one.repairable || (shared && !is_owner(one));
    let (conflicts, repairable): (Vec<Drift>, Vec<Drift>) =
        drift(spec, us, found).into_iter().partition(kept);
    if conflicts.is_empty() { Judgement::Ours(repairable) } else { Judgement::Conflict(conflicts) }
}

/// Whether another living set has a record about the same stream.
async fn another_user(scope: &Scope, bucket: &Bucket, set: &Validated) -> Result<bool, Failure> {
    let name = &set.stream.mapping.stream;
    for other in users_of(scope, name).into_iter().filter(|other| *other != set.name) {
        if has_record(bucket, &other, name).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Living sets that name a stream, the oldest first.
fn users_of(scope: &Scope, stream: &str) -> Vec<SetName> {
    let age = |other: &OrderedPartitionSet| {
        let created = other.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, other.namespace().unwrap_or_default(), other.name_any())
    };
    let sets = scope.caches.sets.state();
    let living = sets.iter().filter_map(|guarded| guarded.0.as_ref().ok());
    let mut same: Vec<_> = living
        .filter(|other| other.spec.stream.name == *stream && other.metadata.deletion_timestamp.is_none())
        .map(age)
        .collect();
    same.sort();
    same.into_iter().map(|(_, namespace, name)| SetName { namespace, name }).collect()
}

/// Sets of other accounts may name a stream of theirs in the same way, so what counts is a record in this account.
async fn has_record(bucket: &Bucket, set: &SetName, stream: &str) -> Result<bool, Failure> {
    let record = bucket.get_json::<Record>(&set.record_key()).await;
    let record = record.map_err(|error| failure(About::Lanes, error.cause(), error.to_string()))?;
    Ok(record.is_some_and(|found| found.value.stream == *stream))
}

async fn create(
    scope: &Scope,
    bucket: &Bucket,
    set: &Validated,
    us: &StreamOwner,
    had_stream: bool,
    news: &mut News,
) -> Result<(), Failure> {
    let name = &set.stream.mapping.stream;
    if let Some(maker) = maker(scope, bucket, set).await? {
        let message = format!("stream {name} is missing; set {maker} is the one that makes it");
        return Err(Failure::new(About::Stream, Reason::StreamMissing, message));
    }
    let created = match provision::create_stream(bucket.connection(), &set.stream, us).await {
        Ok(created) => created,
        // Another set was faster; what it made is looked at next.
        Err(error) if error.cause() == Cause::StreamConfigConflict => return Ok(()),
        Err(error) => {
            let words = copies(error.cause(), set.stream.replicas, &error.to_string());
            return Err(failure(About::Stream, error.cause(), words));
        }
    };
    if !created.new {
        return Ok(());
    }
    if had_stream {
        let message = format!("stream {name} was missing and was created again; positions start anew");
        news.warn(Reason::StreamRecreated, message);
    } else {
        news.done(Reason::StreamCreated, format!("stream {name} was created"));
    }
    Ok(())
}

async fn repair(
    connection: &Connection,
    spec: &StreamSpec,
    us: &StreamOwner,
    news: &mut News,
) -> Result<(), Failure> {
    let name = &spec.mapping.stream;
    let repaired = provision::repair_stream(connection, spec, us)
        .await
        .map_err(|error| failure(About::Stream, error.cause(), error.to_string()))?;
    let is_owner = |one: &Drift| one.field == "metadata" && one.wanted.starts_with(metadata::OWNER);
    let (owner, fields): (Vec<Drift>, Vec<Drift>) = repaired.into_iter().partition(is_owner);
    if !owner.is_empty() {
        news.done(Reason::StreamAdopted, format!("stream {name}: this set takes care of it from now on"));
    }
    if !fields.is_empty() {
        news.warn(Reason::StreamRepaired, format!("stream {name}: {}", joined(&fields)));
    }
    Ok(())
}

fn joined(differences: &[Drift]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Namespace and name of an owner of this cluster.
fn in_cluster<'a>(owner: &'a StreamOwner, cluster: &str) -> Option<(&'a str, &'a str)> {
    owner.id.strip_prefix(cluster)?.strip_prefix('/')?.split_once('/')
}

/// An owner as a person of this cluster would call it.
fn path(scope: &Scope, owner: &StreamOwner) -> String {
    match in_cluster(owner, &scope.context.cluster) {
        Some((namespace, name)) => format!("{namespace}/{name}"),
        None => format!("{} (of another cluster)", owner.id),
    }
}

/// Whether the set that a stream names as its owner still exists. One of another cluster is taken to live.
async fn lives(scope: &Scope, owner: &StreamOwner) -> Result<bool, Failure> {
    let Some((namespace, name)) = in_cluster(owner, &scope.context.cluster) else { return Ok(true) };
    let sets: Api<OrderedPartitionSet> = Api::namespaced(scope.context.client.clone(), namespace);
    match sets.get_metadata_opt(name).await {
        Ok(found) => Ok(found.is_some_and(|set| set.metadata.deletion_timestamp.is_none())),
        // In a namespace that this operator may not look into.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(true),
        Err(error) => {
            let message = format!("set {namespace}/{name} cannot be looked at: {}", words(&error));
            Err(Failure::new(About::Stream, Reason::KubernetesApiError, message))
        }
    }
}

/// The set that makes a missing stream, when it is another one: the oldest of those that already use it.
async fn maker(scope: &Scope, bucket: &Bucket, set: &Validated) -> Result<Option<SetName>, Failure> {
    let name = &set.stream.mapping.stream;
    for other in users_of(scope, name).into_iter().take_while(|other| *other != set.name) {
        if has_record(bucket, &other, name).await? {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// What the stream takes away from what the set promises.
pub fn troubles(set: &Validated) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    let spec = &set.stream;
    let uncovered = set.uncovered_subjects();
    if !uncovered.is_empty() {
        let message = format!(
            "messages of {} that spec.mapping.subject '{}' does not match reach no lane",
            uncovered.join(", "),
            spec.mapping.source
        );
        troubles.push(Trouble { reason: Reason::UnmappedMessages, message });
    }
    let limits = [
        ("maxAgeSeconds", spec.max_age_seconds.is_some()),
        ("maxBytes", spec.max_bytes.is_some()),
        ("maxMessages", spec.max_messages.is_some()),
    ];
    let given: Vec<&str> = limits.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    if !given.is_empty() {
        let names: Vec<String> = given.iter().map(|name| format!("spec.stream.{name}")).collect();
        let message = format!("{} may discard messages before they are handled", names.join(" and "));
        troubles.push(Trouble { reason: Reason::RetentionMayDiscard, message });
    }
    troubles
}
