//! What a journal of handlings must never show. [`crate::journal`] finds violations of it.

use std::fmt;

use serde::Serialize;

/// A named rule of the handlings of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum JournalInvariant {
    /// Nothing that was never completed is handled after a later message of its key was completed.
    NoStepBack,
    /// A message is handled only when the one before it, as far as that one is known, was completed.
    CompletedBeforeNext,
    /// No two handlings of a key run at once.
    OneAtATime,
    /// What is settled, or overtaken by a later message of its key, was completed by a handler or put away by policy.
    NothingSkipped,
    /// Only what was published is handled, under its own key.
    NothingUnknown,
}

impl JournalInvariant {
    /// Every invariant, in the order in which reports give them.
    pub const ALL: [Self; 5] = [
        Self::NoStepBack,
        Self::CompletedBeforeNext,
        Self::OneAtATime,
        Self::NothingSkipped,
        Self::NothingUnknown,
    ];

    /// As reports name its violations.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoStepBack => "steps back",
            Self::CompletedBeforeNext => "too early",
            Self::OneAtATime => "overlaps",
            Self::NothingSkipped => "gaps",
            Self::NothingUnknown => "unknown",
        }
    }
}

impl fmt::Display for JournalInvariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
