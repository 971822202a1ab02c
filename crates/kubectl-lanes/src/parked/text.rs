//! Parked keys and messages, and what came of orders about them, for people. Pure.

use std::fmt::Write as _;

use super::{List, Ordered, ParkedKey, ParkedMessage};
use crate::{orders, table};

/// A table: keys, the one that is parked longest first, or the messages of one.
pub(crate) fn render_list(list: &List) -> String {
    if list.keys.is_empty() && list.messages.is_empty() {
        return format!("Nothing of {} is parked in stream {}.\n", list.set, list.stream);
    }
    let mut text = if list.messages.is_empty() {
        let rows: Vec<[String; 7]> = list.keys.iter().map(key).collect();
        table::render(["KEY", "PARTITION", "MESSAGES", "FIRST", "LAST", "SINCE", "REASON"], &rows)
    } else {
        let rows: Vec<[String; 7]> = list.messages.iter().map(message).collect();
        table::render(["SEQUENCE", "PARKED AS", "SUBJECT", "BYTES", "ATTEMPTS", "SINCE", "REASON"], &rows)
    };
    if list.more {
        let _ = writeln!(text, "There are more; --limit shows them.");
    }
    text
}

fn key(one: &ParkedKey) -> [String; 7] {
    let ParkedKey { key, partition, messages, first, last, since, reason } = one.clone();
    let number = |number: u64| number.to_string();
    [key, partition.to_string(), number(messages), number(first), number(last), since, reason]
}

fn message(one: &ParkedMessage) -> [String; 7] {
    let ParkedMessage { sequence, stored, subject, bytes, attempts, since, reason } = one.clone();
    [sequence.to_string(), stored.to_string(), subject, bytes.to_string(), attempts, since, reason]
}

/// A line for each key.
pub(crate) fn render_ordered(ordered: &Ordered) -> String {
    if ordered.answers.is_empty() {
        return format!("Nothing of {} is parked.\n", ordered.set);
    }
    ordered.answers.iter().map(orders::render).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_messages_are_tables_and_nothing_is_said_to_be_nothing() {
        let mut list = List {
            set: "shop/orders".into(),
            stream: "PARK".into(),
            keys: Vec::new(),
            messages: Vec::new(),
            more: false,
        };
        assert_eq!(render_list(&list), "Nothing of shop/orders is parked in stream PARK.\n");
        list.keys.push(ParkedKey {
            key: "a.b".into(),
            partition: 2,
            messages: 3,
            first: 5,
            last: 9,
            since: "2026-01-01T00:00:00Z".into(),
            reason: "422".into(),
        });
        list.more = true;
        let text = render_list(&list);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["a.b", "2", "3", "5", "9", "2026-01-01T00:00:00Z", "422"]);
        assert!(text.ends_with("There are more; --limit shows them.\n"));
    }
}
