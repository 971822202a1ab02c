//! `kubectl lanes`: what a set is doing, where a key goes, and what a person decides about messages.
//!
//! With the rights of whoever calls it: reads from the Kubernetes API server, and from the set's NATS where it can be
//! reached. `retry` and `skip` write orders into a lane's key, `dlq` publishes and
//! deletes dead letters; nothing else is changed. Partitions are computed by the same rules that the operator uses.

mod age;
mod arguments;
mod audit;
mod cluster;
mod dlq;
mod keys;
mod lane;
mod look;
mod orders;
mod parked;
mod place;
mod preview;
mod progress;
mod reach;
mod status;
mod table;
mod watch;
mod who;
mod wrap;

use std::process::ExitCode;

use clap::Parser;
use k8s_openapi::jiff::Timestamp;
use lanekeeper_api::{OrderedPartitionSet, invalid, validate::Validated};
use serde::Serialize;

use arguments::{Arguments, Command, Connection, DlqCommand, Format, NatsFlags, ParkedCommand, Waiting};
use cluster::{Cluster, ClusterError, Scope};
use orders::{Asked, Head};

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
    #[error(transparent)]
    Orders(#[from] Box<orders::OrdersError>),
    #[error(transparent)]
    Reason(#[from] orders::ReasonError),
    #[error(transparent)]
    Parked(#[from] Box<parked::ParkedError>),
    #[error(transparent)]
    Dlq(#[from] Box<dlq::DlqError>),
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
            let validated = validated(&cluster, &name).await?;
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
        Command::Retry { set, which, waiting, nats } => {
            let head = match (which.sequence, which.key, which.partition) {
                (Some(sequence), ..) => Head::Sequence(sequence),
                (None, Some(key), _) => Head::Key(key),
                (None, None, partition) => Head::Partition(partition.unwrap_or_default()),
            };
            order(&arguments.connection, &set, &nats, &Asked::Retry(head), waiting, format).await
        }
        Command::Skip { set, which, reason, waiting, nats } => {
            let reason = orders::checked(&reason)?;
            let asked = match (which.sequence, which.key) {
                (None, Some(key)) => Asked::SkipKey { key, reason },
                (sequence, _) => Asked::SkipOne { sequence: sequence.unwrap_or_default(), reason },
            };
            order(&arguments.connection, &set, &nats, &asked, waiting, format).await
        }
        Command::Parked { command } => parked_keys(&arguments.connection, command, format).await,
        Command::Dlq { command } => dead_letters(&arguments.connection, command, format).await,
        Command::Where { set, key, subject } => {
            let cluster = Cluster::connect(&arguments.connection).await?;
            let set = cluster.set(&set).await?;
            let place = place::find(&set, place::Asked::new(key.as_deref(), subject.as_deref())?)?;
            write(format, &place, place::render)
        }
    }
}

/// Gives an order, and says what came of it.
async fn order(
    connection: &Connection,
    name: &str,
    nats: &NatsFlags,
    asked: &Asked,
    waiting: Waiting,
    format: Option<Format>,
) -> Result<String, Failure> {
    let cluster = Cluster::connect(connection).await?;
    let set = validated(&cluster, name).await?;
    let answer = orders::give(&cluster, &set, nats, asked, waiting.timeout).await.map_err(Box::new)?;
    let text = write(format, &answer, orders::render)?;
    if answer.is_good() { Ok(text) } else { Err(Failure::Violated(text)) }
}

/// Shows dead letters, or does something with them.
async fn dead_letters(
    connection: &Connection,
    command: DlqCommand,
    format: Option<Format>,
) -> Result<String, Failure> {
    let (name, nats, stream) = match &command {
        DlqCommand::List { set, nats, stream, .. }
        | DlqCommand::Replay { set, nats, stream, .. }
        | DlqCommand::Drop { set, nats, stream, .. } => (set.clone(), nats.clone(), stream.clone()),
    };
    let cluster = Cluster::connect(connection).await?;
    let set = validated(&cluster, &name).await?;
    let dlq = dlq::Dlq::open(&cluster, &set, &nats, stream).await.map_err(Box::new)?;
    match command {
        DlqCommand::List { key, limit, .. } => {
            let list = dlq.list(key, limit).await.map_err(Box::new)?;
            write(format, &list, dlq::render_list)
        }
        DlqCommand::Replay { which, care, .. } => {
            let done = dlq.replay(&which.into(), care).await.map_err(Box::new)?;
            let text = write(format, &done, dlq::render_done)?;
            if done.is_good() { Ok(text) } else { Err(Failure::Violated(text)) }
        }
        DlqCommand::Drop { which, reason, care, .. } => {
            let done = dlq.drop_letters(&which.into(), &reason, care).await.map_err(Box::new)?;
            let text = write(format, &done, dlq::render_done)?;
            if done.is_good() { Ok(text) } else { Err(Failure::Violated(text)) }
        }
    }
}

/// Shows parked keys, or has something done with them.
async fn parked_keys(
    connection: &Connection,
    command: ParkedCommand,
    format: Option<Format>,
) -> Result<String, Failure> {
    let (name, nats) = match &command {
        ParkedCommand::List { set, nats, .. }
        | ParkedCommand::Release { set, nats, .. }
        | ParkedCommand::Drop { set, nats, .. } => (set.clone(), nats.clone()),
    };
    let cluster = Cluster::connect(connection).await?;
    let set = validated(&cluster, &name).await?;
    let parked = parked::Parked::open(&cluster, &set, &nats).await.map_err(Box::new)?;
    let (which, drop, waiting) = match command {
        ParkedCommand::List { key, limit, .. } => {
            let list = parked.list(key.as_deref(), limit).await.map_err(Box::new)?;
            return write(format, &list, parked::render_list);
        }
        ParkedCommand::Release { which, waiting, .. } => {
            (which.key.map_or(parked::Which::All, parked::Which::Key), None, waiting)
        }
        ParkedCommand::Drop { which, reason, waiting, .. } => {
            let reason = orders::checked(&reason)?;
            let which = match (which.key, which.sequence) {
                (None, sequence) => parked::Which::Sequence(sequence.unwrap_or_default()),
                (Some(key), _) => parked::Which::Key(key),
            };
            (which, Some(reason), waiting)
        }
    };
    let ordered = parked.order(&cluster, &which, drop.as_deref(), waiting.timeout).await.map_err(Box::new)?;
    let text = write(format, &ordered, parked::render_ordered)?;
    if ordered.is_good() { Ok(text) } else { Err(Failure::Violated(text)) }
}

/// A set that can be used as it is.
async fn validated(cluster: &Cluster, name: &str) -> Result<Validated, Failure> {
    let set = cluster.set(name).await?;
    lanekeeper_api::validate(&set)
        .map_err(|wrong| Failure::Invalid { set: name.to_owned(), wrong: invalid::summary(&wrong) })
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
