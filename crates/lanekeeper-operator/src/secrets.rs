//! The Secrets that a set names, read from its own namespace at each pass: I/O.
//!
//! Reading them each time is how a rotation is noticed, and it needs the right to `get` Secrets only. What is in them
//! never reaches a log, a condition or an Event: only names of Secrets and keys do.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use lanekeeper_api::{reason::Reason, validate::NatsAccess};
use lanekeeper_nats::{Files, connection::file_names};

use crate::failure::{About, Failure, words};

/// Why a Secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// There is none of this name.
    #[error("{field}: there is no Secret '{secret}' in namespace '{namespace}'")]
    Missing {
        /// The field that names it.
        field: &'static str,
        /// Its name.
        secret: String,
        /// The set's namespace.
        namespace: String,
    },
    /// It lacks the key.
    #[error("{field}: Secret '{secret}' in namespace '{namespace}' has no key '{key}'")]
    KeyMissing {
        /// The field that names it.
        field: &'static str,
        /// Its name.
        secret: String,
        /// The set's namespace.
        namespace: String,
        /// The key.
        key: String,
    },
    /// The API server would not give it.
    #[error("{field}: Secret '{secret}' cannot be read: {}", words(error))]
    Unreadable {
        /// The field that names it.
        field: &'static str,
        /// Its name.
        secret: String,
        /// The answer.
        #[source]
        error: Box<kube::Error>,
    },
}

impl SecretError {
    /// The word for conditions.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Missing { .. } | Self::KeyMissing { .. } => Reason::CredentialsMissing,
            Self::Unreadable { .. } => Reason::KubernetesApiError,
        }
    }
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Self {
        Self::new(About::Nats, error.reason(), error.to_string())
    }
}

/// What the Secrets of a set hold.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The operator's credentials.
    pub credentials: Files,
    /// Certificates.
    pub tls: Files,
}

/// Reads all that the operator's own connection needs, and checks that what workers will mount is there.
pub async fn read(client: &Client, namespace: &str, nats: &NatsAccess) -> Result<Secrets, SecretError> {
    let reader = Reader { secrets: Api::namespaced(client.clone(), namespace), namespace };
    let mut found = Secrets::default();
    if let Some(named) = &nats.credentials {
        let content = reader.key("spec.nats.credentialsSecretRef", &named.name, &named.key).await?;
        found.credentials = Files::Memory(BTreeMap::from([(file_names::CREDENTIALS.to_owned(), content)]));
    }
    if let Some(named) = &nats.worker_credentials
        && nats.credentials.as_ref() != Some(named)
    {
        reader.key("spec.nats.workerCredentialsSecretRef", &named.name, &named.key).await?;
    }
    if let Some(tls) = &nats.tls {
        let mut files = BTreeMap::new();
        if let Some(ca) = &tls.ca_secret_ref {
            let content = reader.key("spec.nats.tls.caSecretRef", &ca.name, &ca.key).await?;
            files.insert(file_names::AUTHORITIES.to_owned(), content);
        }
        if let Some(pair) = &tls.client_secret_ref {
            for key in [file_names::CERTIFICATE, file_names::KEY] {
                let content = reader.key("spec.nats.tls.clientSecretRef", &pair.name, key).await?;
                files.insert(key.to_owned(), content);
            }
        }
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
            Err(error) => Err(SecretError::Unreadable { field, secret, error: Box::new(error) }),
            Ok(None) => Err(SecretError::Missing { field, secret, namespace }),
            Ok(Some(found)) => match found.data.and_then(|mut data| data.remove(key)) {
                Some(content) => Ok(content.0),
                None => Err(SecretError::KeyMissing { field, secret, namespace, key: key.to_owned() }),
            },
        }
    }
}
