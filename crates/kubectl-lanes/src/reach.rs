//! The way to the NATS of a set: addresses, credentials and certificates as its specification has them, with the rights
//! of whoever calls. I/O.
//!
//! A Service's name means nothing outside of the cluster, so a port is then forwarded through the API server. Nothing
//! here changes anything in NATS.

mod address;
mod forward;
mod secrets;

use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use lanekeeper_api::validate::{LANE, Validated};
use lanekeeper_core::names::DEFAULT_BUCKET;
use lanekeeper_nats::{Bucket, ConnectError, ConnectSettings, Connection};

use crate::{arguments::NatsFlags, cluster::Cluster};
use address::Address;
use forward::{Forward, ForwardError};
use secrets::SecretError;

/// The name that servers show.
const NAME: &str = "kubectl-lanes";

/// What helps whenever NATS cannot be reached.
const FLAG: &str = "if NATS can be reached from here otherwise, for example through `kubectl port-forward`, give the address with --nats-server";

/// Why NATS is not reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReachError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("{flag} {}: the file cannot be read: {error}", path.display())]
    File { flag: &'static str, path: PathBuf, error: std::io::Error },
    #[error(
        "--nats-server: '{0}' is no address of a NATS server: it must be nats://host:port or tls://host:port"
    )]
    Flag(String),
    #[error("spec.nats.servers: {tried} cannot be resolved here, and is no Service of the cluster; {FLAG}")]
    Unresolvable { tried: String },
    #[error("{0}; {FLAG}")]
    Forward(#[from] ForwardError),
    #[error("{error}{}; {FLAG}", cause(error))]
    Connect { error: ConnectError },
}

/// The client's error says its kind only.
fn cause(error: &ConnectError) -> String {
    let ConnectError::Refused { error, .. } = error else { return String::new() };
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let said = error.to_string();
    cause.filter(|cause| !said.contains(cause.as_str())).map(|cause| format!(": {cause}")).unwrap_or_default()
}

/// The NATS of a set.
pub(crate) struct Reached {
    /// A connection as the operator's user, or as that of `--nats-creds`.
    pub(crate) connection: Connection,
    /// The bucket of the set's record.
    pub(crate) bucket: Bucket,
    /// Ends with this value.
    _forward: Option<Forward>,
}

/// Connects to the NATS of a set. What the caller may want to know on the way is written to stderr.
pub(crate) async fn reach(
    cluster: &Cluster,
    set: &Validated,
    flags: &NatsFlags,
) -> Result<Reached, ReachError> {
    let mut settings = ConnectSettings::new(set.nats.servers.clone(), NAME);
    let secrets = secrets::read(cluster.client(), set, flags).await?;
    settings.credentials = secrets.credentials;
    settings.tls = secrets.tls;
    settings.domain.clone_from(&set.nats.domain);
    let mut forwarded = None;
    match &flags.server {
        Some(server) => through(server, set, &mut settings)?,
        None => match route(&set.nats.servers).await? {
            Route::Direct => {}
            Route::Through(server) => {
                let forward = Forward::start(cluster.client(), &server, &set.name.namespace).await?;
                eprintln!("{}", forward.describe());
                settings.servers = vec![format!("{}://{}", server.scheme, forward.local())];
                settings.stands_for = Some(server.host);
                forwarded = Some(forward);
            }
        },
    }
    let connection = Connection::connect(settings).await.map_err(|error| ReachError::Connect { error })?;
    let bucket = if let Some(bucket) = &flags.bucket {
        bucket.clone()
    } else {
        // Without the right to read Deployments the usual name is as good a guess as any; a wrong one is told.
        let deployments = cluster.deployments(&set.name.name).await.unwrap_or_default();
        bucket_of(&deployments).unwrap_or(DEFAULT_BUCKET).to_owned()
    };
    Ok(Reached { bucket: Bucket::new(connection.clone(), &bucket), connection, _forward: forwarded })
}

/// An address given by the caller. A port on this machine is somebody's forwarding of the set's own server, so that the
/// certificate is still that server's.
fn through(server: &str, set: &Validated, settings: &mut ConnectSettings) -> Result<(), ReachError> {
    let given = Address::parse(server).ok_or_else(|| ReachError::Flag(server.to_owned()))?;
    if given.is_loopback() {
        let own = set.nats.servers.first().and_then(|own| Address::parse(own));
        settings.stands_for = own.map(|own| own.host).filter(|host| *host != given.host);
    }
    settings.servers = vec![server.to_owned()];
    Ok(())
}

enum Route {
    /// To the addresses themselves.
    Direct,
    /// Through a forwarded port.
    Through(Address),
}

/// Whether some address can be used as it is; else the first that is a Service's name.
async fn route(servers: &[String]) -> Result<Route, ReachError> {
    let addresses: Vec<Address> = servers.iter().filter_map(|server| Address::parse(server)).collect();
    for address in &addresses {
        if address.resolves().await {
            return Ok(Route::Direct);
        }
    }
    let internal = addresses.into_iter().find(|address| address.in_cluster("").is_some());
    internal.map(Route::Through).ok_or_else(|| ReachError::Unresolvable { tried: servers.join(", ") })
}

/// The bucket that the set's workers were told of, when it is not the usual one.
fn bucket_of(deployments: &[Deployment]) -> Option<&str> {
    let pods = deployments.iter().filter_map(|one| one.spec.template.spec.as_ref());
    let lanes = pods.flat_map(|pod| &pod.containers).filter(|container| container.name == LANE);
    let mut variables = lanes.flat_map(|container| container.env.iter().flatten());
    variables.find(|variable| variable.name == "LANEKEEPER_BUCKET")?.value.as_deref()
}

/// A file that a flag names.
fn file(flag: &'static str, path: &Path) -> Result<Vec<u8>, ReachError> {
    std::fs::read(path).map_err(|error| ReachError::File { flag, path: path.to_owned(), error })
}
