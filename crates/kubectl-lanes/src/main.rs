//! `kubectl lanes`: what a set is doing, and where a key goes.
//!
//! Reads only, with the rights of whoever calls it: from the Kubernetes API server, and from the set's NATS where it can
//! be reached. Partitions are computed by the same rules that the operator uses.

mod age;
mod arguments;
mod audit;
mod cluster;
mod keys;
mod lane;
mod look;
mod place;
mod preview;
mod progress;
mod reach;
mod status;
mod table;
mod watch;
mod wrap;

use std::process::ExitCode;

use clap::Parser;
use k8s_openapi::jiff::Timestamp;
use lanekeeper_api::{OrderedPartitionSet, invalid};
use serde::Serialize;

use arguments::{Arguments, Command, Format, NatsFlags};
use cluster::{Cluster, ClusterError, Scope};

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Place(#[from] place::PlaceError),
    #[error("set {set} cannot be used as it is: {wrong}")]
    Invalid { set: String, wrong: String },
    #[error("{0}; --no-nats shows what can be known without it")]
    Look(Box<look::LookError>),
    #[error("set {set}: there is no stream {stream} in NATS, so there is nothing to hand over")]
    NoStream { set: String, stream: String },
    #[error(transparent)]
    Preview(#[from] preview::PreviewError),
    #[error(transparent)]
    Keys(#[from] keys::KeysError),
    #[error(transparent)]
    Watch(#[from] watch::WatchError),
    #[error("the answer cannot be written as JSON: {0}")]
    Json(serde_json::Error),
    #[error(transparent)]
    Audit(#[from] Box<audit::AuditError>),
    /// An answer, and not a good one.
    #[error("{0}")]
    Violated(String),
}

impl From<look::LookError> for Failure {
    fn from(error: look::LookError) -> Self {
        Self::Look(Box::new(error))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    api_version: &'static str,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Box::pin(run(Arguments::parse())).await {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(Failure::Violated(text)) => {
            print!("{text}");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<String, Failure> {
    let format = arguments.output;
    match arguments.command {
        Command::Version => {
            let version =
                Version { version: env!("CARGO_PKG_VERSION"), api_version: "lanekeeper.dev/v1alpha1" };
            write(format, &version, |it| format!("kubectl-lanes {} ({})\n", it.version, it.api_version))
        }
        Command::Audit { set: name, flags, nats } => {
            let cluster = Cluster::connect(&arguments.connection).await?;
            let set = cluster.set(&name).await?;
            let validated = lanekeeper_api::validate(&set)
                .map_err(|wrong| Failure::Invalid { set: name, wrong: invalid::summary(&wrong) })?;
            let audit = audit::audit(&cluster, &validated, &nats, &flags).await.map_err(Box::new)?;
            let text = write(format, &audit, audit::render)?;
            if audit.is_clean() { Ok(text) } else { Err(Failure::Violated(text)) }
        }
        Command::Status { set, all_namespaces, no_nats, nats, watching } => {
            let cluster = Cluster::connect(&arguments.connection).await?;
            let now = Timestamp::now();
            if let Some(name) = set {
                if watching.watch {
                    watch::watch(&cluster, &name, (no_nats, &nats), &watching, format).await?;
                    return Ok(String::new());
                }
                let set = cluster.set(&name).await?;
                let deployments = cluster.deployments(&name).await?;
                let nats = if no_nats { None } else { Some(ask(&cluster, &set, &nats).await) };
                let report = status::report(&set, &deployments, nats);
                return write(format, &report, |it| status::render_one(it, now));
            }
            let scope = if all_namespaces { Scope::All } else { Scope::Namespace };
            let reports: Vec<_> =
                cluster.sets(scope).await?.iter().map(|set| status::report(set, &[], None)).collect();
            write(format, &reports, |it| status::render_all(it, all_namespaces, &cluster.namespace, now))
        }
        Command::Plan { set, partitions, no_nats, nats } => {
            let cluster = Cluster::connect(&arguments.connection).await?;
            let set = cluster.set(&set).await?;
            let preview = plan(&cluster, &set, partitions, (!no_nats).then_some(&nats)).await?;
            write(format, &preview, preview::render)
        }
        Command::Keys { set, top, workers } => {
            let cluster = Cluster::connect(&arguments.connection).await?;
            let keys = keys::keys(&cluster, &set, top.into(), &workers).await?;
            write(format, &keys, keys::render)
        }
        Command::Where { set, key, subject } => {
            let cluster = Cluster::connect(&arguments.connection).await?;
            let set = cluster.set(&set).await?;
            let place = place::find(&set, place::Asked::new(key.as_deref(), subject.as_deref())?)?;
            write(format, &place, place::render)
        }
    }
}

/// What NATS says, or why it says nothing: the rest of a status is worth having without it.
async fn ask(cluster: &Cluster, set: &OrderedPartitionSet, flags: &NatsFlags) -> status::Nats {
    let validated = match lanekeeper_api::validate(set) {
        Ok(validated) => validated,
        Err(wrong) => return status::Nats::not_reached(invalid::summary(&wrong)),
    };
    match look::once(cluster, &validated, flags).await {
        Ok((_, seen)) => status::Nats::seen(&seen),
        Err(error) => status::Nats::not_reached(error.to_string()),
    }
}

/// Looks, and counts what a change would do.
async fn plan(
    cluster: &Cluster,
    set: &OrderedPartitionSet,
    partitions: i64,
    nats: Option<&NatsFlags>,
) -> Result<preview::Preview, Failure> {
    let name = set.metadata.name.clone().unwrap_or_default();
    let validated = lanekeeper_api::validate(set)
        .map_err(|wrong| Failure::Invalid { set: name, wrong: invalid::summary(&wrong) })?;
    let partitions = preview::number(partitions, &validated).map_err(preview::PreviewError::from)?;
    let looked = match nats {
        Some(flags) => Some(look::once(cluster, &validated, flags).await?),
        None => None,
    };
    if looked.as_ref().is_some_and(|(_, seen)| seen.stream.is_none()) {
        let (set, stream) = (validated.name.to_string(), validated.stream.mapping.stream);
        return Err(Failure::NoStream { set, stream });
    }
    let status = set.status.clone().unwrap_or_default();
    let room = match &looked {
        Some((reached, _)) => look::room(reached).await,
        None => None,
    };
    let facts = preview::Facts {
        set: &validated,
        room,
        in_force: u32::try_from(status.partitions).unwrap_or(0),
        conditions: &status.conditions,
        seen: looked.as_ref().map(|(_, seen)| seen),
        now: Timestamp::now(),
    };
    let mut preview = preview::preview(facts, partitions)?;
    if let Some((reached, _)) = &looked {
        let counted = look::count(reached, &validated, &preview.questions()).await?;
        preview.answer(&counted.ranges);
        preview.notes.extend(
            counted
                .why_not
                .map(|why| format!("Bounds are shown where messages could not be counted: {why}.")),
        );
    }
    Ok(preview)
}

fn write<T: Serialize>(
    format: Option<Format>,
    value: &T,
    render: impl FnOnce(&T) -> String,
) -> Result<String, Failure> {
    match format {
        None => Ok(render(value)),
        Some(Format::Json) => {
            let mut text = serde_json::to_string_pretty(value).map_err(Failure::Json)?;
            text.push('\n');
            Ok(text)
        }
    }
}
