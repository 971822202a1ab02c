//! The conditions, each from what it is about.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lanekeeper_api::{
    condition::{ConditionType, Statement, Status, add_missing, set_condition},
    reason::Reason,
};
use lanekeeper_core::{
    plan::Wait,
    record::{LaneState, Record},
    share,
};

use super::{Findings, Rescale, lanes};
use crate::failure::{About, Failure};

/// Partitions in one message.
const MAX_NAMED: usize = 5;

/// Sets all of them.
pub(super) fn set(conditions: &mut Vec<Condition>, found: &Findings, now: &Time) {
    let parts = [
        (ConditionType::StreamReady, stream(found)),
        (ConditionType::LanesReady, lanes_ready(found)),
        (ConditionType::WorkersReady, workers(found)),
        (ConditionType::Rescaling, rescaling(found)),
        (ConditionType::Blocked, blocked(found)),
        (ConditionType::Degraded, degraded(found)),
    ];
    let ready = ready(found, &parts);
    set_condition(conditions, ConditionType::Ready, &ready, found.generation, now);
    for (condition, statement) in &parts {
        set_condition(conditions, *condition, statement, found.generation, now);
    }
    add_missing(conditions, found.generation, now);
}

fn failure(found: &Findings, about: &[About]) -> Option<Failure> {
    found.failures.iter().find(|failure| about.contains(&failure.about)).cloned()
}

fn of(status: Status, failure: Failure) -> Statement {
    Statement::new(status, failure.reason, failure.message)
}

fn stream(found: &Findings) -> Statement {
    if let Some(failure) = failure(found, &[About::Stream]) {
        return of(Status::False, failure);
    }
    if let Some(name) = &found.stream {
        return Statement::new(true, Reason::AsSpecified, format!("stream {name} is as specified"));
    }
    match failure(found, &[About::Spec, About::Nats]) {
        Some(failure) => of(Status::Unknown, failure),
        None => Statement::new(Status::Unknown, Reason::Pending, "not looked at yet"),
    }
}

fn lanes_ready(found: &Findings) -> Statement {
    if let Some(failure) = failure(found, &[About::Lanes]) {
        return of(Status::False, failure);
    }
    if found.waits.contains(&Wait::RecordLost) {
        let message = "the set's record is gone from NATS; one ackWait passes before it is rebuilt, and one more before its lanes begin anew";
        return Statement::new(false, Reason::HolderUnreachable, message);
    }
    let (Some(record), Some(wanted)) = (&found.record, found.wanted) else {
        return match failure(found, &[About::Spec, About::Nats, About::Stream]) {
            Some(failure) => of(Status::Unknown, failure),
            None => Statement::new(false, Reason::Progressing, "lanes are being made"),
        };
    };
    let wanted = found.rescale.kept().unwrap_or(wanted);
    let open = open_lanes(record, wanted);
    let message = format!("{open} of {wanted} lanes are open");
    if open == wanted as usize {
        Statement::new(true, Reason::AsSpecified, message)
    } else if found.rescale == Rescale::HandingOver {
        Statement::new(false, Reason::HandingOver, message)
    } else {
        Statement::new(false, Reason::Progressing, message)
    }
}

fn open_lanes(record: &Record, wanted: u32) -> usize {
    let is_open = |share: &share::Share| {
        record.lanes.iter().any(|lane| lane.state == LaneState::Open && lane.share == *share)
    };
    share::shares(wanted).iter().filter(|share| is_open(share)).count()
}

fn workers(found: &Findings) -> Statement {
    if let Some(failure) = failure(found, &[About::Workers]) {
        return of(Status::False, failure);
    }
    if found.workers.is_empty() {
        return match failure(found, &[About::Spec, About::Nats, About::Stream, About::Lanes]) {
            Some(failure) => of(Status::Unknown, failure),
            None => Statement::new(false, Reason::Progressing, "no worker was started yet"),
        };
    }
    let lacking: Vec<_> =
        found.workers.iter().filter_map(|one| Some((one.partition, one.trouble.as_ref()?))).collect();
    let Some(worst) =
        lacking.iter().map(|(_, trouble)| trouble).max_by_key(|trouble| severity(trouble.reason))
    else {
        return Statement::new(
            true,
            Reason::AsSpecified,
            format!("{} workers are ready", found.workers.len()),
        );
    };
    let partitions: Vec<u32> = lacking.iter().map(|(partition, _)| *partition).collect();
    let mut message =
        format!("partitions without a ready worker: {}; {}", listed(&partitions), worst.message);
    for (_, other) in lacking.iter().filter(|(_, one)| one.reason != worst.reason).take(2) {
        message.push_str("; ");
        message.push_str(&other.message);
    }
    Statement::new(false, worst.reason, message)
}

/// What a person must hear of first.
fn severity(reason: Reason) -> u8 {
    match reason {
        Reason::QuotaExceeded => 6,
        Reason::ImagePullFailed => 5,
        Reason::CrashLooping => 4,
        Reason::Unschedulable => 3,
        Reason::WorkerNotReady => 2,
        _ => 1,
    }
}

fn listed(partitions: &[u32]) -> String {
    let named: Vec<String> = partitions.iter().take(MAX_NAMED).map(u32::to_string).collect();
    let more = partitions.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

fn rescaling(found: &Findings) -> Statement {
    let wanted = found.wanted.unwrap_or_default();
    match found.rescale {
        Rescale::Settled => {
            Statement::new(false, Reason::Settled, format!("the number of partitions in force is {wanted}"))
        }
        Rescale::HandingOver => Statement::new(
            true,
            Reason::HandingOver,
            format!("lanes are being handed over to {wanted} partitions"),
        ),
        Rescale::Starting => Statement::new(
            true,
            Reason::WorkersStarting,
            format!("workers for {wanted} partitions are being started before any lane is handed over"),
        ),
        Rescale::Refused(in_force) => Statement::new(
            true,
            Reason::RescaleNotSupported,
            format!(
                "spec.partitions is {wanted}, but changing it is switched off: {in_force} partitions stay in force"
            ),
        ),
        Rescale::Delayed { in_force, until } => Statement::new(
            true,
            Reason::RescaleDelayed,
            format!(
                "spec.partitions is {wanted}; {in_force} partitions stay in force until {}, because of spec.rescale.minimumIntervalSeconds",
                point_in_time(until)
            ),
        ),
        Rescale::NoRoom { in_force, needed, room } => Statement::new(
            true,
            Reason::InsufficientResources,
            format!(
                "spec.partitions is {wanted}, which needs {needed} more consumers while lanes are handed over, and the NATS account allows {room} more: {in_force} partitions stay in force"
            ),
        ),
        Rescale::Unknown => match found.failures.first() {
            Some(failure) => of(Status::Unknown, failure.clone()),
            None => Statement::new(Status::Unknown, Reason::Pending, "not looked at yet"),
        },
    }
}

fn point_in_time(seconds: u64) -> String {
    lanes::moment(seconds)
        .map_or_else(|| format!("second {seconds} of the Unix epoch"), |time| time.to_string())
}

fn blocked(found: &Findings) -> Statement {
    let Some(record) = &found.record else {
        return match found.failures.first() {
            Some(failure) => of(Status::Unknown, failure.clone()),
            None => Statement::new(Status::Unknown, Reason::Pending, "not looked at yet"),
        };
    };
    let open = record.lanes.iter().filter(|lane| lane.state == LaneState::Open);
    let needy: Vec<_> = open.filter(|lane| lanes::is_blocked(lane, &found.reports)).collect();
    let mut stuck: Vec<u32> = needy.iter().map(|lane| lane.share.partition()).collect();
    stuck.sort_unstable();
    if stuck.is_empty() {
        return Statement::new(false, Reason::NoneBlocked, "no lane waits for a person");
    }
    let exhausted = found.reports.iter().find_map(|(partition, report)| {
        stuck.contains(partition).then_some(report.blocked.as_ref()).flatten().map(|at| (*partition, at))
    });
    let refused =
        found.reports.iter().any(|(partition, report)| stuck.contains(partition) && report.refused.is_some());
    let stalled = needy.iter().find_map(|lane| {
        lanes::stalled(lane, &found.reports).map(|stalled| (lane.share.partition(), stalled))
    });
    match (exhausted, stalled) {
        (Some((partition, at)), _) => Statement::new(
            true,
            lanes::reason_of(at),
            format!(
                "partitions that wait for a person: {}; partition {partition} stands at sequence {}: {}",
                listed(&stuck),
                at.sequence,
                at.reason
            ),
        ),
        (None, Some((partition, at))) if !refused => Statement::new(
            true,
            Reason::LaneStalled,
            format!(
                "partitions whose messages wait and reach no worker: {}; partition {partition} at sequence {}, since {}: {}",
                listed(&stuck),
                at.sequence,
                point_in_time(at.since_seconds),
                lanes::words(&at)
            ),
        ),
        (None, _) => Statement::new(
            true,
            Reason::MessageRefused,
            format!("partitions whose worker refused a message: {}; see status.attention", listed(&stuck)),
        ),
    }
}

fn degraded(found: &Findings) -> Statement {
    let lost: Vec<u32> = found
        .reports
        .iter()
        .filter(|(_, report)| report.lost.is_some())
        .map(|(partition, _)| *partition)
        .collect();
    let mut troubles: Vec<(Reason, String)> =
        found.degraded.iter().map(|trouble| (trouble.reason, trouble.message.clone())).collect();
    if !lost.is_empty() {
        let message = format!("partitions whose worker lost a message's deadline: {}", listed(&lost));
        troubles.push((Reason::DeadlineLost, message));
    }
    let fenced = found.waits.iter().any(|wait| !matches!(wait, Wait::Holders { .. }));
    if fenced {
        let message = "a worker that may hold a message cannot be asked; one ackWait passes before its successor begins";
        troubles.push((Reason::HolderUnreachable, message.to_owned()));
    }
    match troubles.first() {
        None if found.record.is_none() => match found.failures.first() {
            Some(failure) => of(Status::Unknown, failure.clone()),
            None => Statement::new(Status::Unknown, Reason::Pending, "not looked at yet"),
        },
        None => Statement::new(false, Reason::AsSpecified, "nothing takes away from what the set promises"),
        Some((reason, _)) => {
            let messages: Vec<&str> = troubles.iter().map(|(_, message)| message.as_str()).collect();
            Statement::new(true, *reason, messages.join("; "))
        }
    }
}

/// The summary: the first failure, else the first part that is not as it should be.
fn ready(found: &Findings, parts: &[(ConditionType, Statement)]) -> Statement {
    if let Some(failure) = found.failures.first() {
        return of(Status::False, failure.clone());
    }
    let bad = |condition: ConditionType, good: Status| {
        let statement = parts.iter().find(|(one, _)| *one == condition).map(|(_, statement)| statement)?;
        (statement.status != good).then(|| statement.clone())
    };
    let first = bad(ConditionType::StreamReady, Status::True)
        .or_else(|| bad(ConditionType::LanesReady, Status::True))
        .or_else(|| bad(ConditionType::Blocked, Status::False))
        .or_else(|| bad(ConditionType::WorkersReady, Status::True));
    if let Some(statement) = first {
        return Statement { status: Status::False, ..statement };
    }
    if found.paused {
        return Statement::new(false, Reason::Paused, "spec.paused is true: no lane begins another message");
    }
    if let Rescale::Refused(_) | Rescale::NoRoom { .. } = found.rescale {
        return Statement { status: Status::False, ..rescaling(found) };
    }
    Statement::new(true, Reason::AsSpecified, "everything is as specified")
}
