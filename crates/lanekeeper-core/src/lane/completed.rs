//! Which messages this process has completed in this lane, so that one that comes again is not handled again.
//!
//! Bounded, and only a help: repeats are allowed, and a new process starts with nothing.

use std::collections::VecDeque;

const REMEMBERED: usize = 4096;

/// The latest completed sequences, in the order in which they were completed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Completed {
    sequences: VecDeque<u64>,
    highest: u64,
}

impl Completed {
    pub(super) fn insert(&mut self, sequence: u64) {
        if self.sequences.len() == REMEMBERED {
            self.sequences.pop_front();
        }
        self.sequences.push_back(sequence);
        self.highest = self.highest.max(sequence);
    }

    pub(super) fn contains(&self, sequence: u64) -> bool {
        // The usual message is newer than all of them.
        sequence <= self.highest && self.sequences.contains(&sequence)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_completed_is_known_and_the_oldest_is_forgotten() {
        let mut completed = Completed::default();
        for sequence in (2..).step_by(2).take(REMEMBERED + 1) {
            completed.insert(sequence);
        }
        assert!(!completed.contains(2));
        assert!(completed.contains(4));
        assert!(!completed.contains(5), "a gap was never completed");
        completed.clear();
        assert!(!completed.contains(4));
    }
}
