//! How sets are: pure, from what the API server holds, and NATS if it was reached.

use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::ResourceExt;
use lanekeeper_api::{
    OrderedPartitionSet,
    condition::{ConditionType, find},
    status::{LaneAttention, LaneCounts},
};
use lanekeeper_core::share::{Share, shares};
use serde::Serialize;

use crate::{
    age,
    lane::{self, Lane},
    look::Seen,
    table,
};

/// How one set is.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// `spec.partitions`.
    pub(crate) wanted: i32,
    /// `status.partitions`; 0 before the operator has seen the set.
    pub(crate) in_force: i32,
    /// Whether the operator has seen the present specification.
    pub(crate) up_to_date: bool,
    pub(crate) stream: String,
    pub(crate) subject: String,
    pub(crate) key_tokens: Vec<i32>,
    pub(crate) lanes: LaneCounts,
    pub(crate) attention: Vec<LaneAttention>,
    pub(crate) conditions: Vec<Condition>,
    /// Only when one set was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) partitions: Vec<Partition>,
    /// Only when one set was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nats: Option<Nats>,
}

/// What NATS said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Nats {
    /// Whether it said anything.
    pub(crate) reached: bool,
    /// Why it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// The lanes that its record names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lanes: Vec<Lane>,
}

impl Nats {
    pub(crate) fn seen(seen: &Seen) -> Self {
        Self { reached: true, why: None, lanes: lane::lanes(seen) }
    }

    pub(crate) fn not_reached(why: String) -> Self {
        Self { reached: false, why: Some(why), lanes: Vec::new() }
    }
}

/// One partition.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Partition {
    #[serde(rename = "partition")]
    pub(crate) number: u32,
    #[serde(flatten)]
    pub(crate) share: Share,
    pub(crate) deployment: String,
    /// `None` when there is no such Deployment.
    pub(crate) pods: Option<Pods>,
}

/// The pods of one Deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pods {
    pub(crate) ready: i32,
    pub(crate) wanted: i32,
}

/// Puts together what is known of a set. `nats` is `None` when it was not asked.
pub(crate) fn report(set: &OrderedPartitionSet, deployments: &[Deployment], nats: Option<Nats>) -> Report {
    let status = set.status.clone().unwrap_or_default();
    let name = set.name_any();
    let in_force = if deployments.is_empty() { 0 } else { u32::try_from(status.partitions).unwrap_or(0) };
    let partitions = shares(in_force.min(1024))
        .into_iter()
        .map(|share| {
            let deployment = format!("{name}-{}", share.partition());
            let found = deployments.iter().find(|one| one.name_any() == deployment);
            Partition { number: share.partition(), share, pods: found.map(pods), deployment }
        })
        .collect();
    Report {
        namespace: set.namespace().unwrap_or_default(),
        name,
        wanted: set.spec.partitions,
        in_force: status.partitions,
        up_to_date: status.observed_generation.is_some()
            && status.observed_generation == set.metadata.generation,
        stream: set.spec.stream.name.clone(),
        subject: set.spec.mapping.subject.clone(),
        key_tokens: set.spec.mapping.key_tokens.clone(),
        lanes: status.lanes,
        attention: status.attention,
        conditions: status.conditions,
        partitions,
        nats,
    }
}

fn pods(deployment: &Deployment) -> Pods {
    Pods {
        ready: deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0),
        wanted: deployment.spec.replicas.unwrap_or(1),
    }
}

/// One line for each set.
pub(crate) fn render_all(
    reports: &[Report],
    with_namespace: bool,
    namespace: &str,
    now: Timestamp,
) -> String {
    if reports.is_empty() {
        let place =
            if with_namespace { "any namespace".to_owned() } else { format!("namespace {namespace}") };
        return format!("There are no sets in {place}.\n");
    }
    let rows: Vec<[String; 7]> = reports.iter().map(|report| line(report, now)).collect();
    let headings = ["NAME", "PARTITIONS", "OPEN", "READY", "REASON", "SINCE", "WAITS FOR"];
    if !with_namespace {
        return table::render(headings, &rows);
    }
    let rows: Vec<[String; 8]> = rows
        .into_iter()
        .zip(reports)
        .map(|([a, b, c, d, e, f, g], report)| [report.namespace.clone(), a, b, c, d, e, f, g])
        .collect();
    table::render(["NAMESPACE", "NAME", "PARTITIONS", "OPEN", "READY", "REASON", "SINCE", "WAITS FOR"], &rows)
}

fn line(report: &Report, now: Timestamp) -> [String; 7] {
    let ready = find(&report.conditions, ConditionType::Ready);
    let text = |part: fn(&Condition) -> String| ready.map_or_else(|| "-".to_owned(), part);
    let waits = match report.attention.as_slice() {
        [] => String::new(),
        [first] => waits_for(first),
        [first, rest @ ..] => format!("{}, and {} more", waits_for(first), rest.len()),
    };
    [
        report.name.clone(),
        numbers(report),
        report.lanes.open.to_string(),
        text(|ready| ready.status.clone()),
        text(|ready| ready.reason.clone()),
        ready.map_or_else(|| "-".to_owned(), |ready| age::since(ready.last_transition_time.0, now)),
        waits,
    ]
}

/// The number of partitions, or both while it changes.
pub(crate) fn numbers(report: &Report) -> String {
    if report.in_force == report.wanted || report.in_force == 0 {
        report.wanted.to_string()
    } else {
        format!("{}->{}", report.in_force, report.wanted)
    }
}

fn waits_for(lane: &LaneAttention) -> String {
    let at = lane.sequence.map(|sequence| format!(" at {sequence}")).unwrap_or_default();
    format!("{} of partition {}{at}", lane.reason, lane.partition)
}

/// Everything about one set.
pub(crate) fn render_one(report: &Report, now: Timestamp) -> String {
    let Report { namespace, name, stream, subject, .. } = report;
    let tokens: Vec<String> = report.key_tokens.iter().map(i32::to_string).collect();
    let LaneCounts { open, handing_over, blocked, without_worker } = report.lanes;
    let lanes = format!(
        "{} wanted, {} in force: {open} open, {handing_over} handing over, {blocked} blocked, {without_worker} without worker",
        report.wanted, report.in_force
    );
    let mut facts = vec![
        ("Set", format!("{namespace}/{name}")),
        ("Stream", format!("{stream}, subjects {subject}, key made of '*' number {}", tokens.join(", "))),
        ("Lanes", lanes),
    ];
    if !report.up_to_date {
        let note = "the operator has not seen this specification yet; what follows is about an earlier one";
        facts.push(("Note", note.to_owned()));
    }
    if let Some(why) = report.nats.as_ref().and_then(|nats| nats.why.as_deref()) {
        facts.push(("NATS", format!("not reached, so lanes and what waits in them are not shown: {why}")));
    }
    let mut text = table::facts(&facts);
    let known = ConditionType::ALL.iter().filter_map(|condition| find(&report.conditions, *condition));
    let conditions: Vec<[String; 5]> = known
        .map(|it| {
            let since = age::since(it.last_transition_time.0, now);
            [it.type_.clone(), it.status.clone(), since, it.reason.clone(), it.message.clone()]
        })
        .collect();
    if !conditions.is_empty() {
        text.push('\n');
        text.push_str(&table::render(["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"], &conditions));
    }
    let lanes = report.nats.as_ref().map(|nats| nats.lanes.as_slice()).unwrap_or_default();
    if !lanes.is_empty() {
        text.push('\n');
        let rows: Vec<[String; 7]> = lanes.iter().map(|lane| lane_row(lane, &report.partitions)).collect();
        let headings = ["PARTITION", "KEYS", "LANE", "WAITING", "IN HAND", "HELD BY", "PODS READY"];
        text.push_str(&table::render(headings, &rows));
    } else if !report.partitions.is_empty() {
        text.push('\n');
        let rows: Vec<[String; 4]> = report.partitions.iter().map(partition_row).collect();
        text.push_str(&table::render(["PARTITION", "KEYS", "DEPLOYMENT", "PODS READY"], &rows));
    }
    if !report.attention.is_empty() {
        text.push('\n');
        let rows: Vec<[String; 4]> = report.attention.iter().map(|lane| attention_row(lane, now)).collect();
        text.push_str(&table::render(["WAITS FOR PARTITION", "REASON", "SEQUENCE", "MESSAGE"], &rows));
    }
    text
}

fn partition_row(partition: &Partition) -> [String; 4] {
    [
        partition.number.to_string(),
        format!("1/{}", partition.share.modulus),
        partition.deployment.clone(),
        pods_ready(partition),
    ]
}

fn pods_ready(partition: &Partition) -> String {
    partition.pods.map_or_else(|| "missing".to_owned(), |pods| format!("{}/{}", pods.ready, pods.wanted))
}

fn lane_row(lane: &Lane, partitions: &[Partition]) -> [String; 7] {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let partition = partitions.iter().find(|one| one.number == lane.partition);
    [
        lane.partition.to_string(),
        format!("1/{}", lane.share.modulus),
        lane::state(lane).to_owned(),
        number(lane.position.map(|position| position.waiting)),
        number(lane.position.map(|position| position.in_hand)),
        if lane.holders.is_empty() { "-".to_owned() } else { lane.holders.join(", ") },
        partition.map_or_else(|| "-".to_owned(), pods_ready),
    ]
}

fn attention_row(lane: &LaneAttention, now: Timestamp) -> [String; 4] {
    let since = lane.since.as_ref().map(|since| format!(", for {}", age::since(since.0, now)));
    [
        lane.partition.to_string(),
        lane.reason.clone(),
        lane.sequence.map_or_else(|| "-".to_owned(), |sequence| sequence.to_string()),
        format!("{}{}", lane.message, since.unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests;
