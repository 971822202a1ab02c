//! Which of an instance's handlings have entries, in memory that grows with the holes only.

use std::collections::BTreeMap;

/// A set of numbers from 1.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    /// Runs without holes: first and last. They neither overlap nor touch.
    runs: BTreeMap<u64, u64>,
}

impl Numbers {
    /// 0 is no number: whoever wrote it does not count.
    pub(super) fn insert(&mut self, number: u64) {
        if number == 0 {
            return;
        }
        let below = self.runs.range(..=number).next_back().map(|(&first, &last)| (first, last));
        if below.is_some_and(|(_, last)| number <= last) {
            return;
        }
        let first = match below {
            Some((first, last)) if last + 1 == number => first,
            _ => number,
        };
        let last = number.checked_add(1).and_then(|next| self.runs.remove(&next)).unwrap_or(number);
        self.runs.insert(first, last);
    }

    /// Holes below the highest number; a partial journal may begin with any.
    pub(super) fn missing(&self, partial: bool) -> usize {
        let mut holes = 0;
        let mut next = if partial { self.runs.keys().next().copied().unwrap_or(1) } else { 1 };
        for (&first, &last) in &self.runs {
            holes += first - next;
            next = last.saturating_add(1);
        }
        usize::try_from(holes).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn holes_are_counted_whatever_the_order_of_arrival(given in prop::collection::vec(0_u64..40, 0..60)) {
            let mut numbers = Numbers::default();
            for &number in &given {
                numbers.insert(number);
            }
            let seen: BTreeSet<u64> = given.into_iter().filter(|&number| number > 0).collect();
            let highest = seen.last().copied().unwrap_or(0);
            let lowest = seen.first().copied().unwrap_or(1);
            let holes = |from: u64| (from..=highest).filter(|number| !seen.contains(number)).count();
            prop_assert_eq!(numbers.missing(false), holes(1));
            prop_assert_eq!(numbers.missing(true), holes(lowest));
        }
    }
}
