//! What a set's Secrets hold, read with the rights of the caller, or files that stand for them.
//!
//! What is in them is in memory only, and never in a message: those name Secrets, keys and flags.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use lanekeeper_api::validate::Validated;
use lanekeeper_nats::{Files, connection::file_names};

use super::{ReachError, file};
use crate::{arguments::NatsFlags, cluster::words};

const CREDENTIALS: &str = "spec.nats.credentialsSecretRef";
const AUTHORITIES: &str = "spec.nats.tls.caSecretRef";
const PAIR: &str = "spec.nats.tls.clientSecretRef";

/// Why a Secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error("{field}: there is no Secret '{secret}' in namespace '{namespace}'")]
    Missing { field: &'static str, secret: String, namespace: String },
    #[error("{field}: Secret '{secret}' in namespace '{namespace}' has no key '{key}'")]
    KeyMissing { field: &'static str, secret: String, namespace: String, key: String },
    #[error(
        "{field}: Secret '{secret}' in namespace '{namespace}' cannot be read: {}; {} is needed",
        words(error),
        needed(field)
    )]
    Unreadable { field: &'static str, secret: String, namespace: String, error: Box<kube::Error> },
}

/// The right, or the flag that makes it unnecessary.
fn needed(field: &str) -> &'static str {
    match field {
        CREDENTIALS => "the right to `get` it, or a NATS credentials file of your own with --nats-creds,",
        AUTHORITIES => "the right to `get` it, or its certificates in a file with --nats-ca,",
        _ => "the right to `get` it",
    }
}

/// For the connection's settings.
#[derive(Default)]
pub(super) struct Secrets {
    pub(super) credentials: Files,
    pub(super) tls: Files,
}

/// Reads what the connection needs and no flag stands for.
pub(super) async fn read(client: &Client, set: &Validated, flags: &NatsFlags) -> Result<Secrets, ReachError> {
    let namespace = set.name.namespace.as_str();
    let reader = Reader { secrets: Api::namespaced(client.clone(), namespace), namespace };
    let mut found = Secrets::default();
    let credentials = match (&flags.creds, &set.nats.credentials) {
        (Some(path), _) => Some(file("--nats-creds", path)?),
        (None, Some(named)) => Some(reader.key(CREDENTIALS, &named.name, &named.key).await?),
        (None, None) => None,
    };
    if let Some(content) = credentials {
        found.credentials = Files::Memory(BTreeMap::from([(file_names::CREDENTIALS.to_owned(), content)]));
    }
    let tls = set.nats.tls.as_ref();
    let mut files = BTreeMap::new();
    let authorities = match (&flags.ca, tls.and_then(|tls| tls.ca_secret_ref.as_ref())) {
        (Some(path), _) => Some(file("--nats-ca", path)?),
        (None, Some(named)) => Some(reader.key(AUTHORITIES, &named.name, &named.key).await?),
        (None, None) => None,
    };
    files.extend(authorities.map(|content| (file_names::AUTHORITIES.to_owned(), content)));
    if let Some(pair) = tls.and_then(|tls| tls.client_secret_ref.as_ref()) {
        for key in [file_names::CERTIFICATE, file_names::KEY] {
            files.insert(key.to_owned(), reader.key(PAIR, &pair.name, key).await?);
        }
    }
    if !files.is_empty() {
        found.tls = Files::Memory(files);
    }
    Ok(found)
}

struct Reader<'a> {
    secrets: Api<Secret>,
    namespace: &'a str,
}

impl Reader<'_> {
    async fn key(&self, field: &'static str, secret: &str, key: &str) -> Result<Vec<u8>, SecretError> {
        let (secret, namespace) = (secret.to_owned(), self.namespace.to_owned());
        match self.secrets.get_opt(&secret).await {
            Err(error) => Err(SecretError::Unreadable { field, secret, namespace, error: Box::new(error) }),
            Ok(None) => Err(SecretError::Missing { field, secret, namespace }),
            Ok(Some(found)) => match found.data.and_then(|mut data| data.remove(key)) {
                Some(content) => Ok(content.0),
                None => Err(SecretError::KeyMissing { field, secret, namespace, key: key.to_owned() }),
            },
        }
    }
}
