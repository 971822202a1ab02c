//! The way to NATS: Secrets, connection, server, and whether it is still the same NATS as before.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};
use lanekeeper_api::{reason::Reason, validate::Validated};
use lanekeeper_core::{plan::Wanted, record::Record};
use lanekeeper_nats::{
    Bucket, Cause, Connection,
    observe::{self, Facts},
};
use serde_json::Value;

use super::Pass;
use crate::{
    children::Children,
    failure::{About, Failure},
    labels, provision, secrets,
};

/// The value of the annotation that accepts a NATS where the stream is missing.
const NEW: &str = "new";

impl Pass<'_> {
    /// A connection to a server that this version can work with, and what is known of that.
    pub(super) async fn reach(&self, validated: &Validated) -> Result<(Connection, Facts), Failure> {
        let context = &self.scope.context;
        let found = secrets::read(&context.client, &validated.name.namespace, &validated.nats).await?;
        let failed = |cause: Cause, words: &str| {
            provision::failure(About::Nats, cause, blamed(validated, cause, words))
        };
        let connection = context
            .connections
            .get(&self.uid, &validated.nats, &found)
            .await
            .map_err(|error| failed(error.cause(), &error.to_string()))?;
        let facts =
            observe::facts(&connection).await.map_err(|error| failed(error.cause(), &error.to_string()))?;
        Ok((connection, facts))
    }

    /// In a namespace that is being deleted nothing is made any more.
    pub(super) async fn check_namespace(&self, namespace: &str) -> Result<(), Failure> {
        let namespaces: Api<Namespace> = Api::all(self.scope.context.client.clone());
        match namespaces.get_metadata_opt(namespace).await {
            Ok(Some(found)) if found.metadata.deletion_timestamp.is_none() => Ok(()),
            Ok(_) => {
                let message = format!("namespace {namespace} is being deleted; nothing is made in it");
                Err(Failure::new(About::Lanes, Reason::Deleting, message))
            }
            // The API server itself makes nothing in a namespace that ends; this look only saves the tries.
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            Err(error) => Err(Failure::kubernetes(About::Lanes, &format!("namespace {namespace}"), &error)),
        }
    }

    /// Right after `spec.nats` changed, a stream that is not the recorded one stops the set: it may be another NATS
    /// altogether, and a person must say that this is meant. What the workers run with shows where the set was.
    pub(super) async fn check_moved(
        &self,
        bucket: &Bucket,
        validated: &Validated,
        wanted: &Wanted,
        deployments: &Children<'_>,
    ) -> Result<(), Failure> {
        let servers = validated.nats.servers.join(",");
        let domain = validated.nats.domain.clone().unwrap_or_default();
        let moved = deployments.known().iter().any(|one| {
            let before = |name| variable(&one.data, name).unwrap_or_default();
            before("LANEKEEPER_NATS_SERVERS") != servers || before("LANEKEEPER_NATS_DOMAIN") != domain
        });
        if !moved {
            return Ok(());
        }
        let name = &wanted.mapping.stream;
        let stream = observe::stream(bucket.connection(), name)
            .await
            .map_err(|error| provision::failure(About::Stream, error.cause(), error.to_string()))?;
        let record = match bucket.get_json::<Record>(&wanted.set.record_key()).await {
            Ok(record) => record.map(|found| found.value.stream_created),
            Err(error) if error.cause() == Cause::StreamMissing => None,
            Err(error) => return Err(provision::failure(About::Lanes, error.cause(), error.to_string())),
        };
        let created = stream.map(|found| found.created);
        if record.is_some() && record == created {
            return Ok(());
        }
        let confirm = created.clone().unwrap_or_else(|| NEW.to_owned());
        if self.set.annotations().get(labels::ACCEPT_STREAM) == Some(&confirm) {
            return Ok(());
        }
        let there = created.map_or_else(
            || format!("there is no stream {name}"),
            |created| format!("stream {name} was created at {created}"),
        );
        let message = format!(
            "spec.nats changed, and {there} where it points to now, which is not the stream that the set's record knows; the workers stay where they are. To go on there with new positions, annotate the set with {}={confirm}",
            labels::ACCEPT_STREAM
        );
        Err(Failure::new(About::Stream, Reason::StreamChanged, message))
    }
}

/// The words of a connection that failed, with the field that they are about.
fn blamed(validated: &Validated, cause: Cause, words: &str) -> String {
    let credentials = validated.nats.credentials.as_ref();
    match (cause, credentials) {
        (Cause::CredentialsInvalid | Cause::AuthorizationFailed, Some(secret))
            if validated.nats.tls.is_none() =>
        {
            format!("spec.nats.credentialsSecretRef (key {} of Secret {}): {words}", secret.key, secret.name)
        }
        (Cause::NatsUnreachable, _) => format!("spec.nats.servers: {words}"),
        _ => words.to_owned(),
    }
}

/// The value of a variable of the lane's container.
fn variable<'a>(deployment: &'a Value, name: &str) -> Option<&'a str> {
    let containers = deployment.pointer("/spec/template/spec/containers")?.as_array()?;
    let lane = containers.iter().find(|one| one["name"] == lanekeeper_api::validate::LANE)?;
    lane["env"].as_array()?.iter().find(|one| one["name"] == name)?["value"].as_str()
}
