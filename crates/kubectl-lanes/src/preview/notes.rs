//! What a person should know besides, in words. Pure.

use k8s_openapi::jiff::Timestamp;
use lanekeeper_api::condition::{ConditionType, find};
use lanekeeper_core::{
    plan::Note,
    record::{LaneState, Record},
    share::shares,
    stream::Retention,
};

use super::{Facts, Group, Preview};

/// Partitions named in one sentence.
const MAX_NAMED: usize = 5;

pub(super) fn notes(facts: Facts<'_>, preview: &Preview, found: &[Note]) -> Vec<String> {
    let mut notes = Vec::new();
    let planned = preview.partitions.planned;
    let record = facts.seen.and_then(|seen| seen.record.as_ref()).map(|record| &record.value);
    let under_way = record.is_some_and(|record| !at_rest(record));
    if under_way {
        notes.push(format!(
            "A change to {} is under way. Lanes that retire do not come back: another number goes on from where it stands.",
            preview.partitions.wanted
        ));
    } else if preview.groups.is_empty() {
        notes.push(format!("{planned} is the number in force: nothing would change."));
    } else if preview.partitions.wanted == planned {
        notes.push(format!("spec.partitions is {planned} already: the operator is about to do this."));
    }
    notes.extend(found.iter().map(in_words));
    notes.extend(starting(preview));
    notes.extend(held_back(facts));
    if !under_way && !preview.groups.is_empty() {
        notes.extend(record.and_then(|record| too_soon(facts, record)));
    }
    notes.extend(no_room(facts, preview));
    if facts.set.settings.paused {
        notes.push("The set is paused: no worker has a message in hand, lanes are handed over all the same, and stand still until spec.paused is false.".to_owned());
    }
    notes.extend(blocked(preview));
    notes.extend(failing(facts));
    notes
}

/// Whether every lane is open.
fn at_rest(record: &Record) -> bool {
    record.lanes.iter().all(|lane| lane.state == LaneState::Open)
        && shares(u32::try_from(record.lanes.len()).unwrap_or(0))
            .iter()
            .all(|share| record.lanes.iter().any(|lane| lane.share == *share))
}

/// What the operator is about to mend, whatever the number is.
fn in_words(note: &Note) -> String {
    match note {
        Note::StreamReplaced { before, now } => {
            format!(
                "The stream created at {before} was replaced by one created at {now}: positions start anew."
            )
        }
        Note::ConsumerLost { partition, found, .. } => format!(
            "Partition {partition}: there is {found} in the place of its consumer, so a new lane succeeds it in any case."
        ),
        Note::RecordRebuilt { lanes } => {
            format!("The set's record was lost and is rebuilt from {lanes} consumers.")
        }
        Note::LaneKeyLost { partition, .. } => format!(
            "Partition {partition}: somebody deleted the key of its lane, so a new lane succeeds it in any case, after one ackWait."
        ),
    }
}

/// Pods that are started first.
fn starting(preview: &Preview) -> Option<String> {
    let numbers = preview.partitions;
    if preview.groups.is_empty() || numbers.planned <= numbers.in_force.max(numbers.wanted) {
        return None;
    }
    let new: Vec<u32> = (numbers.in_force..numbers.planned).collect();
    let them = if new.len() == 1 { "its worker is" } else { "their workers are" };
    Some(format!(
        "{} started first; no lane is touched until {them} ready, as long as others run.",
        named(&new, "is", "are")
    ))
}

/// The operator's own word on changes, when it says more than that one is under way.
fn held_back(facts: Facts<'_>) -> Option<String> {
    let rescaling = find(facts.conditions, ConditionType::Rescaling)?;
    let ordinary = ["HandingOver", "WorkersStarting"].contains(&rescaling.reason.as_str());
    (rescaling.status == "True" && !ordinary)
        .then(|| format!("The operator holds changes back ({}): {}.", rescaling.reason, rescaling.message))
}

/// The change before was not long ago.
fn too_soon(facts: Facts<'_>, record: &Record) -> Option<String> {
    let interval = facts.set.minimum_interval_seconds;
    let now = u64::try_from(facts.now.as_second()).ok()?;
    // One that seems to lie in the future holds back nothing: another clock noted it.
    let until = record.changed_seconds.filter(|changed| *changed <= now)? + interval;
    let until = Timestamp::from_second(i64::try_from(until).ok()?).ok().filter(|until| *until > facts.now)?;
    Some(format!(
        "It would begin at {until}: spec.rescale.minimumIntervalSeconds is {interval}, and the change before is younger than that."
    ))
}

/// The account does not allow the consumers of both numbers at once.
fn no_room(facts: Facts<'_>, preview: &Preview) -> Option<String> {
    let lanes = |part: fn(&Group) -> usize| preview.groups.iter().map(part).sum::<usize>() as u64;
    let added = lanes(|group| group.after.len());
    // On a work queue the old ones are deleted first.
    let freed = if preview.retention == Retention::WorkQueue { lanes(|group| group.before.len()) } else { 0 };
    let needed = added.saturating_sub(freed);
    let room = facts.room.filter(|room| needed > *room)?;
    Some(format!(
        "It would not begin: while lanes are handed over it needs {needed} more consumers, and the NATS account allows {room} more."
    ))
}

/// Lanes that stand at a message.
fn blocked(preview: &Preview) -> Option<String> {
    let lanes = preview.groups.iter().flat_map(|group| &group.before);
    let stuck: Vec<String> = lanes
        .filter_map(|before| Some((before.lane.partition, before.lane.blocked.as_ref()?.sequence)))
        .map(|(partition, sequence)| format!("partition {partition} at message {sequence}"))
        .collect();
    (!stuck.is_empty()).then(|| {
        format!(
            "Blocked: {}. That does not hold up the change: between two attempts its worker has nothing in hand and leaves. The partition that gets the message begins with it, its attempts are counted anew, and it blocks again if the message still fails; keys that go to another partition are free of it.",
            stuck.join(", ")
        )
    })
}

/// The operator cannot do its work.
fn failing(facts: Facts<'_>) -> Option<String> {
    let ready = find(facts.conditions, ConditionType::LanesReady)?;
    let ordinary = ["AsSpecified", "HandingOver", "Progressing", "Pending"].contains(&ready.reason.as_str());
    (ready.status != "True" && !ordinary).then(|| {
        format!("The operator cannot look after the lanes now ({}): {}.", ready.reason, ready.message)
    })
}

/// `partition 4 is`, `partitions 4 and 5 are`.
fn named(partitions: &[u32], one: &str, several: &str) -> String {
    match partitions {
        [only] => format!("Partition {only} {one}"),
        _ => format!("Partitions {} {several}", list(partitions)),
    }
}

/// A few numbers, or the first and last of many that follow each other.
pub(crate) fn list(partitions: &[u32]) -> String {
    let consecutive = partitions.windows(2).all(|two| two[0] + 1 == two[1]);
    match partitions {
        [first, .., last] if consecutive && partitions.len() > 2 => format!("{first} to {last}"),
        _ => {
            let some: Vec<String> = partitions.iter().take(MAX_NAMED).map(u32::to_string).collect();
            let more = partitions.len().saturating_sub(MAX_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", some.join(", "))
        }
    }
}
