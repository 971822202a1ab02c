//! A preview for people, in at most 80 columns. Pure.

use std::fmt::Write as _;

use lanekeeper_core::{share::Share, stream::Retention};

use super::{Count, Group, Kind, Preview, Waits, notes::list};
use crate::{lane::Position, table, wrap::wrap};

/// Cells of the longest bar.
const BAR: usize = 10;
/// Partitions named with their pods.
const MAX_NAMED: usize = 8;
/// Eighths of a cell.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// The whole preview.
pub(crate) fn render(preview: &Preview) -> String {
    let numbers = preview.partitions;
    let wanted = if numbers.wanted == numbers.in_force || numbers.wanted == numbers.planned {
        String::new()
    } else {
        format!(", {} wanted", numbers.wanted)
    };
    let mut text = table::facts(&[
        ("Set", preview.set.clone()),
        ("Stream", format!("{}, {} retention", preview.stream, retention(preview.retention))),
        (
            "Partitions",
            format!(
                "{} in force{wanted}, {} planned (at most {})",
                numbers.in_force, numbers.planned, numbers.max
            ),
        ),
    ]);
    if !preview.groups.is_empty() {
        text.push('\n');
        text.push_str(&groups(preview));
        text.push('\n');
        let facts = facts(preview);
        let width = facts.iter().map(|(name, _)| name.len() + 3).max().unwrap_or(0);
        for (name, words) in facts {
            text.push_str(&wrap(&format!("{:<width$}", format!("{name}:")), &words));
        }
    }
    if !preview.notes.is_empty() {
        text.push('\n');
    }
    for note in &preview.notes {
        text.push_str(&wrap("- ", note));
    }
    if !preview.groups.is_empty() && numbers.wanted != numbers.planned {
        let (namespace, name) = preview.set.split_once('/').unwrap_or(("", &preview.set));
        let planned = numbers.planned;
        // Writing into a String cannot fail.
        let _ = write!(text, "\nDo it:  kubectl -n {namespace} scale ops/{name} --replicas {planned}\n");
    }
    text
}

/// Before and after, side by side.
fn groups(preview: &Preview) -> String {
    let all = preview.groups.iter();
    let shares = all.flat_map(|group| {
        group.before.iter().map(|one| one.lane.share).chain(group.after.iter().map(|one| one.share))
    });
    let widest = shares.map(|share| share.modulus).min().unwrap_or(1);
    let heading = |when: &str| format!("{when:<16}{:<7}{:>10}", "KEYS", "WAITING");
    let mut text = format!("{:<9}{}     {}\n", "", heading("BEFORE"), heading("AFTER"));
    for group in &preview.groups {
        for row in 0..group.before.len().max(group.after.len()) {
            let kind = if row == 0 { kind(group) } else { "" };
            let before = group.before.get(row).map_or_else(String::new, |before| {
                let lane = &before.lane;
                let waiting = lane.position.map(|at| Count::exactly(at.unsettled()));
                share(lane.partition, lane.share, widest, waiting)
            });
            let after = group
                .after
                .get(row)
                .map_or_else(String::new, |after| share(after.partition, after.share, widest, after.waiting));
            let arrow = if row == 0 { "->" } else { "" };
            text.push_str(format!("{kind:<8}{before:<34} {arrow:<2} {after}").trim_end());
            text.push('\n');
        }
    }
    if !preview.untouched.is_empty() {
        let _ = match preview.untouched.len() {
            1 => writeln!(text, "1 partition is not part of the change: its lane goes on without a pause."),
            several => writeln!(
                text,
                "{several} partitions are not part of the change: their lanes go on without a pause."
            ),
        };
    }
    text
}

fn share(partition: u32, share: Share, widest: u32, waiting: Option<Count>) -> String {
    let waiting = waiting.map_or_else(|| "-".to_owned(), short);
    let keys = format!("1/{}", share.modulus);
    format!("{partition:>4} {:<BAR$} {keys:<7}{waiting:>10}", bar(share.modulus, widest))
}

/// A bar that is as long as the share is large; never nothing.
fn bar(modulus: u32, widest: u32) -> String {
    let eighths = (BAR * 8 * widest as usize / modulus as usize).max(1);
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    bar
}

fn kind(group: &Group) -> &'static str {
    match group.kind {
        Kind::Split => "split",
        Kind::Merge => "merge",
        Kind::Regroup => "regroup",
        Kind::Succeed => "renew",
        Kind::Begin => "begin",
    }
}

fn number(count: Count) -> String {
    if count.exact { count.messages.to_string() } else { format!("<={}", count.messages) }
}

/// In ten columns at most.
fn short(count: Count) -> String {
    const MILLION: u64 = 1_000_000;
    if count.messages < 100 * MILLION {
        return number(count);
    }
    let bound = if count.exact { "" } else { "<=" };
    format!("{bound}{}M", count.messages.div_ceil(MILLION))
}

fn messages(count: Count) -> String {
    let bound = if count.exact { "" } else { "at most " };
    let plural = if count.messages == 1 { "" } else { "s" };
    format!("{bound}{} message{plural}", count.messages)
}

fn facts(preview: &Preview) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(moved) = preview.moved {
        let before = preview.groups.iter().flat_map(|group| &group.before);
        let all = before.filter_map(|one| one.lane.position).map(Position::unsettled).sum::<u64>();
        facts.push((
            "Moves",
            format!("{} of {all} that are not settled go to another partition.", messages(moved)),
        ));
    }
    if let Some(skipped) = preview.skipped.filter(|_| merges(preview)) {
        facts.push(("Skips", skips(preview, skipped)));
    }
    if preview.asked_nats {
        facts.push(("In hand", in_hand(preview)));
        facts.push(("Waits for", waits(&preview.waits_for)));
    } else {
        facts.push(("Waiting", "what waits and what is in hand is not known without NATS.".to_owned()));
    }
    facts.push(("Pause", pause(preview)));
    facts
}

fn merges(preview: &Preview) -> bool {
    preview.groups.iter().any(|group| group.before.len() > 1)
}

fn skips(preview: &Preview, skipped: Count) -> String {
    if preview.retention == Retention::WorkQueue {
        return "nothing: a work queue holds only what is not settled.".to_owned();
    }
    if skipped.messages == 0 {
        return "nothing: no lane is ahead of the one it merges with.".to_owned();
    }
    let after = preview.groups.iter().flat_map(|group| &group.after);
    let each: Vec<String> = after
        .filter_map(|one| Some((one.partition, one.skipped.filter(|count| count.messages > 0)?)))
        .map(|(partition, count)| format!("{} in {partition}", number(count)))
        .collect();
    format!(
        "{} that the lane ahead has settled will be acknowledged once more, without the handler ({}).",
        messages(skipped),
        each.join(", ")
    )
}

fn in_hand(preview: &Preview) -> String {
    let lanes = preview.groups.iter().flat_map(|group| &group.before).map(|before| &before.lane);
    let busy: Vec<String> = lanes
        .filter(|lane| lane.position.is_some_and(|position| position.in_hand > 0))
        .map(|lane| {
            let pods = if lane.holders.is_empty() {
                String::new()
            } else {
                format!(" ({})", lane.holders.join(", "))
            };
            format!("partition {}{pods}", lane.partition)
        })
        .collect();
    match busy.len().saturating_sub(MAX_NAMED) {
        0 if busy.is_empty() => "nothing at this moment.".to_owned(),
        0 => format!("one message each in {}.", busy.join(", ")),
        more => format!("one message each in {} and {more} more.", busy[..MAX_NAMED].join(", ")),
    }
}

fn waits(waits: &[Waits]) -> String {
    let idle = waits.iter().filter(|one| one.in_hand == 0).map(|one| one.partition).collect::<Vec<_>>();
    let busy = waits.iter().filter(|one| one.in_hand > 0).map(|one| one.partition).collect::<Vec<_>>();
    let of = |partitions: &[u32]| {
        if partitions.len() == 1 {
            format!("the worker of partition {}", list(partitions))
        } else {
            format!("the workers of partitions {}", list(partitions))
        }
    };
    match (busy.is_empty(), idle.is_empty()) {
        (true, true) => "nobody: no worker has joined these lanes.".to_owned(),
        (true, false) => format!("{}, to leave; nothing is in hand.", of(&idle)),
        (false, true) => format!("{}, to settle the message in hand and leave.", of(&busy)),
        (false, false) => {
            format!("{}, to settle the message in hand and leave; {}, to leave.", of(&busy), of(&idle))
        }
    }
}

fn pause(preview: &Preview) -> String {
    let seconds = |milliseconds: u64| {
        if milliseconds.is_multiple_of(1000) {
            format!("{} s", milliseconds / 1000)
        } else {
            format!("{milliseconds} ms")
        }
    };
    format!(
        "each key of these partitions, once: until the message in hand of its group is settled (handling may take up to {}), and then a few round trips to NATS. Other keys: none. A worker that cannot be asked, because its node is gone, costs one ackWait more ({}).",
        seconds(preview.times.handler_timeout_milliseconds),
        seconds(preview.times.ack_wait_milliseconds)
    )
}

fn retention(retention: Retention) -> &'static str {
    match retention {
        Retention::Limits => "limits",
        Retention::Interest => "interest",
        Retention::WorkQueue => "work-queue",
    }
}
