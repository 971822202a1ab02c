//! What a set has in NATS, taken away: consumers, then keys, the record last. I/O.
//!
//! Each look starts anew: a consumer that is gone already is fine. The stream is never deleted.

use std::time::Duration;

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::ResourceExt;
use lanekeeper_api::{reason::Reason, validate::validate};
use lanekeeper_core::{
    names::{SetKey, SetName},
    record::Record,
};
use lanekeeper_nats::{Bucket, Cause, ConnectError, Connection, observe, provision};

use crate::{
    failure::{About, Failure},
    reconcile::Pass,
    secrets::{self, SecretError},
};

/// A pod that the kubelet did not take away within this time after its grace is not waited for.
const OVERDUE: Duration = Duration::from_secs(30);

/// Pods in one message.
const MAX_NAMED: usize = 5;

impl Pass<'_> {
    /// Workers that are still there and may end by themselves, the first few by name.
    pub(super) fn workers_left(&self) -> Vec<String> {
        let now = Timestamp::now();
        let may_end = |pod: &&Pod| {
            if crate::holders::has_ended(pod) {
                return false;
            }
            // The time of deletion is the end of the grace already.
            pod.metadata.deletion_timestamp.as_ref().is_none_or(|end| {
                let over = now.duration_since(end.0);
                Duration::try_from(over).map_or(true, |over| over < OVERDUE)
            })
        };
        let mut names: Vec<String> = self.pods().iter().filter(may_end).map(ResourceExt::name_any).collect();
        names.sort_unstable();
        names.truncate(MAX_NAMED);
        names
    }
}

/// Takes everything away. Whether the set may go; an error is what it waits for.
pub(super) async fn nats(pass: &mut Pass<'_>) -> Result<bool, Failure> {
    let set = pass.set;
    let name = SetName::new(set.namespace().unwrap_or_default(), set.name_any());
    let left = |why: &str| {
        tracing::warn!(
            set = %name,
            stream = set.spec.stream.name,
            consumers = format!("{}*", name.consumer_prefix()),
            keys = format!("{}>", name.key_prefix()),
            bucket = pass.scope.context.settings.bucket,
            "the set is let go although its consumers and records stay in NATS: {why}"
        );
        format!(
            "consumers {}* of stream {} and keys {}> stay in NATS: {why}",
            name.consumer_prefix(),
            set.spec.stream.name,
            name.key_prefix()
        )
    };
    let Ok(validated) = validate(set) else {
        // It never had anything, or lost the way to it.
        let words = left("spec is invalid");
        pass.news.warn(Reason::InvalidSpec, words);
        return Ok(true);
    };
    let context = &pass.scope.context;
    let connection = match secrets::read(&context.client, &name.namespace, &validated.nats).await {
        Ok(found) => context
            .connections
            .get(&pass.uid, &validated.nats, &found)
            .await
            .map_err(|error| waiting(&error))?,
        Err(SecretError::Unreadable { field, secret, error }) => {
            return Err(SecretError::Unreadable { field, secret, error }.into());
        }
        // The Secret is gone; a connection that was made with it may still be there.
        Err(error) => {
            let Some(connection) = context.connections.last(&pass.uid) else {
                let words = left(&error.to_string());
                pass.news.warn(Reason::CredentialsMissing, words);
                return Ok(true);
            };
            connection
        }
    };
    clear(&connection, &context.settings.bucket, &context.cluster, &name, &validated.stream.mapping.stream)
        .await
        .map_err(|(cause, words)| waiting_for(cause, &words))?;
    Ok(true)
}

async fn clear(
    connection: &Connection,
    bucket: &str,
    cluster: &str,
    set: &SetName,
    stream: &str,
) -> Result<(), (Cause, String)> {
    let bucket = Bucket::new(connection.clone(), bucket);
    let entries = match bucket.load(&set.key_prefix()).await {
        Ok(entries) => entries,
        Err(error) if error.cause() == Cause::StreamMissing => Vec::new(),
        Err(error) => return Err((error.cause(), error.to_string())),
    };
    let is_record = |key: &str| set.parse_key(key) == Some(SetKey::Record);
    let record = entries.iter().find(|entry| is_record(&entry.key));
    let record = record.map(|entry| bucket.parse::<Record>(entry)).transpose();
    // Whose it is cannot be told of a record that cannot be read.
    if let Some(record) = record.map_err(|error| (error.cause(), error.to_string()))?.flatten() {
        let owner = &record.value.owner;
        if (&owner.cluster, &owner.namespace, &owner.name) != (&cluster.to_owned(), &set.namespace, &set.name)
        {
            tracing::warn!(%set, ?owner, "the record belongs to another set; nothing is taken away");
            return Ok(());
        }
    }
    match observe::consumers(connection, stream).await {
        Ok(consumers) => {
            for found in consumers.iter().filter(|found| set.parse_consumer(&found.name).is_some()) {
                provision::delete_consumer(connection, stream, &found.name)
                    .await
                    .map_err(|error| (error.cause(), error.to_string()))?;
            }
        }
        Err(error) if error.cause() == Cause::StreamMissing => {}
        Err(error) => return Err((error.cause(), error.to_string())),
    }
    // The record last: as long as it is there, what is left is known.
    let (records, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_record(&entry.key));
    for entry in others.into_iter().chain(records) {
        match bucket.delete(&entry.key, entry.revision).await {
            Ok(()) => {}
            Err(error) => return Err((error.cause(), error.to_string())),
        }
    }
    Ok(())
}

fn waiting(error: &ConnectError) -> Failure {
    waiting_for(error.cause(), &error.to_string())
}

fn waiting_for(cause: Cause, words: &str) -> Failure {
    let reason = match cause {
        // Somebody else's write came in between; the next look is soon.
        Cause::Raced | Cause::OutcomeUnknown => Reason::Progressing,
        _ => Reason::WaitingForNats,
    };
    let message = format!(
        "deletion waits for NATS, to delete the set's consumers: {words}; set spec.deletionPolicy to Retain to let the set go without it"
    );
    Failure::new(About::Nats, reason, message)
}
