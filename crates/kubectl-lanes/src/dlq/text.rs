//! Dead letters and what was done with them, for people. Pure.

use std::fmt::Write as _;

use super::{Done, List, Replayed, letter::Letter};
use crate::table;

/// A table, the oldest first.
pub(crate) fn render_list(list: &List) -> String {
    if list.letters.is_empty() {
        return format!("No dead letters of {} in stream {}.\n", list.set, list.stream);
    }
    let rows: Vec<[String; 7]> = list.letters.iter().map(row).collect();
    let headings = ["SEQUENCE", "ORIGINAL", "KEY", "PARTITION", "ATTEMPTS", "TIME", "REASON"];
    let mut text = table::render(headings, &rows);
    if list.more {
        let _ = writeln!(text, "There are more; --limit shows them.");
    }
    text
}

fn row(letter: &Letter) -> [String; 7] {
    let Letter { sequence, key, partition, attempts, time, reason, .. } = letter.clone();
    let original = letter.original.map(|number| number.to_string()).unwrap_or_default();
    [sequence.to_string(), original, key, partition, attempts, time, reason]
}

/// A line for each letter.
pub(crate) fn render_done(done: &Done) -> String {
    let mut text = String::new();
    let would = if done.dry_run { "would be " } else { "" };
    let message = |letter: &Letter| {
        let original = letter.original.map(|number| format!(" {number}")).unwrap_or_default();
        format!("dead letter {} (message{original} of key {})", letter.sequence, letter.key)
    };
    for Replayed { letter, now } in &done.replayed {
        let now = now.map(|now| format!(": message {now} now")).unwrap_or_default();
        let _ = writeln!(text, "{} {would}published again to {}{now}", message(letter), letter.subject);
    }
    for letter in &done.dropped {
        let _ = writeln!(
            text,
            "{} of {} {would}dropped; it had failed {} times, last with: {}",
            message(letter),
            letter.time,
            letter.attempts,
            letter.reason
        );
    }
    if let Some(reason) = &done.reason {
        let _ = writeln!(text, "Reason: {reason}");
    }
    if let Some(failed) = &done.failed {
        let _ = writeln!(text, "Stopped at dead letter {}: {}", failed.sequence, failed.why);
        let _ = writeln!(text, "{} left as they were.", failed.left);
    }
    text
}
