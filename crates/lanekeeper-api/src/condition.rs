//! Conditions: which there are, and how one is set.
//!
//! Pure: the time is given. Whether a status is written at all is decided by comparing it with the old one, which
//! works because nothing here changes unless its meaning does.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::reason::Reason;

/// The longest message of a condition, in characters: errors are quoted, and a quote may be long.
pub const MAX_MESSAGE_CHARS: usize = 1024;

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The summary: everything is as specified, and messages flow or could.
    Ready,
    /// The stream exists as specified.
    StreamReady,
    /// Every wanted lane is open.
    LanesReady,
    /// Every lane has a ready worker.
    WorkersReady,
    /// The number of partitions is changing, or waits to be changed.
    Rescaling,
    /// A lane stands at a message, or is kept from its messages, and waits for a person.
    Blocked,
    /// The set works, but something takes away from what it promises.
    Degraded,
}

impl ConditionType {
    /// All of them; each is present from the first reconcile on.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::StreamReady,
        Self::LanesReady,
        Self::WorkersReady,
        Self::Rescaling,
        Self::Blocked,
        Self::Degraded,
    ];

    /// The word in `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::StreamReady => "StreamReady",
            Self::LanesReady => "LanesReady",
            Self::WorkersReady => "WorkersReady",
            Self::Rescaling => "Rescaling",
            Self::Blocked => "Blocked",
            Self::Degraded => "Degraded",
        }
    }

    /// What `True` means.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Ready => "The summary: everything is as specified, and messages flow as they come.",
            Self::StreamReady => "The stream exists as specified.",
            Self::LanesReady => "Every wanted lane is open.",
            Self::WorkersReady => "Every lane has a ready worker.",
            Self::Rescaling => "The number of partitions is changing, or waits to be changed.",
            Self::Blocked => {
                "A lane stands at a message, or is kept from its messages, and waits for a person."
            }
            Self::Degraded => "The set works, but something takes away from what it promises.",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It does.
    True,
    /// It does not.
    False,
    /// It is not known.
    Unknown,
}

impl Status {
    /// The word in `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// What a condition is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Whether it holds.
    pub status: Status,
    /// Why.
    pub reason: Reason,
    /// For people; cut to [`MAX_MESSAGE_CHARS`].
    pub message: String,
}

impl Statement {
    /// A statement.
    pub fn new(status: impl Into<Status>, reason: Reason, message: impl Into<String>) -> Self {
        Self { status: status.into(), reason, message: message.into() }
    }
}

/// Sets a condition: `lastTransitionTime` stays unless the status changes, the generation is always this one.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    condition: ConditionType,
    statement: &Statement,
    generation: Option<i64>,
    now: &Time,
) {
    let status = statement.status.as_str();
    let old = conditions.iter_mut().find(|old| old.type_ == condition.as_str());
    let since = old.as_ref().filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
    let new = Condition {
        type_: condition.as_str().to_owned(),
        status: status.to_owned(),
        reason: statement.reason.as_str().to_owned(),
        message: shortened(&statement.message),
        observed_generation: generation,
        last_transition_time: since.unwrap_or_else(|| now.clone()),
    };
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// Adds each condition that is missing, as Unknown.
pub fn add_missing(conditions: &mut Vec<Condition>, generation: Option<i64>, now: &Time) {
    let pending = Statement::new(Status::Unknown, Reason::Pending, "not looked at yet");
    for condition in ConditionType::ALL {
        if find(conditions, condition).is_none() {
            set_condition(conditions, condition, &pending, generation, now);
        }
    }
}

/// The condition of one type.
pub fn find(conditions: &[Condition], condition: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|found| found.type_ == condition.as_str())
}

fn shortened(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        None => message.to_owned(),
        Some(_) => message.chars().take(MAX_MESSAGE_CHARS - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn statement(status: bool, reason: Reason) -> Statement {
        Statement::new(status, reason, "said")
    }

    #[test]
    fn the_transition_time_stays_until_the_status_changes() {
        let mut conditions = Vec::new();
        let mut set = |status, reason, generation, second| {
            set_condition(
                &mut conditions,
                ConditionType::Ready,
                &statement(status, reason),
                Some(generation),
                &at(second),
            );
            conditions[0].clone()
        };
        assert_eq!(set(false, Reason::Progressing, 1, 10).last_transition_time, at(10));
        let same_status = set(false, Reason::NatsUnreachable, 2, 20);
        assert_eq!(same_status.last_transition_time, at(10));
        assert_eq!(same_status.reason, "NatsUnreachable");
        assert_eq!(same_status.observed_generation, Some(2));
        assert_eq!(set(true, Reason::AsSpecified, 2, 30).last_transition_time, at(30));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn saying_the_same_again_changes_nothing() {
        let mut conditions = Vec::new();
        add_missing(&mut conditions, Some(1), &at(1));
        let before = conditions.clone();
        let pending = Statement::new(Status::Unknown, Reason::Pending, "not looked at yet");
        for condition in ConditionType::ALL {
            set_condition(&mut conditions, condition, &pending, Some(1), &at(99));
        }
        add_missing(&mut conditions, Some(1), &at(99));
        assert_eq!(conditions, before);
        assert_eq!(conditions.len(), ConditionType::ALL.len());
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        assert_eq!(shortened(&"ü".repeat(MAX_MESSAGE_CHARS)), "ü".repeat(MAX_MESSAGE_CHARS));
        let cut = shortened(&"ü".repeat(MAX_MESSAGE_CHARS + 1));
        assert_eq!(cut.chars().count(), MAX_MESSAGE_CHARS);
        assert!(cut.ends_with('…'));
    }
}
