//! How to reach NATS. Secrets are always of the set's own namespace: no field could name another.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{bounded_strings, rule};

/// Servers and credentials.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Nats {
    /// `nats://host:port` or `tls://host:port`, of one cluster. Without user or password: those belong into a Secret.
    #[schemars(schema_with = "bounded_strings")]
    #[x_kube(
        validation = rule(
            "self.all(s, s.matches('^(nats|tls)://[^/?#\\\\s]+$'))",
            "spec.nats.servers: must each be nats://host:port or tls://host:port"
        ),
        validation = rule(
            "self.all(s, !s.contains('@'))",
            "spec.nats.servers: must not hold a user or password; use spec.nats.credentialsSecretRef"
        )
    )]
    pub servers: Vec<String>,

    /// A Secret with a credentials file (`.creds`: JWT and seed); the operator's, and the workers' unless they
    /// have their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretKeyRef>,

    /// A Secret with narrower credentials for the workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_credentials_secret_ref: Option<SecretKeyRef>,

    /// TLS towards the servers, required as soon as this is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// The JetStream domain, when the account's streams live in one (leaf nodes).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^.*>\s]+$"))]
    pub jet_stream_domain: Option<String>,
}

/// One key of a Secret.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// TLS towards the servers.
#[derive(Serialize, Deserialize, KubeSchema, Debug, Clone, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rule(
    "has(self.caSecretRef) || has(self.clientSecretRef)",
    "spec.nats.tls: must have caSecretRef or clientSecretRef; for TLS with well-known authorities use tls:// in spec.nats.servers"
))]
pub struct Tls {
    /// Certificate authorities to trust (PEM), instead of the well-known ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,
    /// The client's own certificate: a Secret of type `kubernetes.io/tls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<ClientSecretRef>,
}

/// A Secret of type `kubernetes.io/tls` (keys `tls.crt` and `tls.key`).
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct ClientSecretRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
