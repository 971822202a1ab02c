//! The park stream of the random tests, as the worker's crate shows it to a lane: storing is by id, and a repeat is read
//! back.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What a worker asks of it.
#[derive(Debug, Clone)]
pub(super) enum ParkUp {
    Store { sequence: u64, token: u64, until: Duration },
    Load { token: u64 },
    List { token: u64, of: BTreeSet<u64> },
    Fetch { token: u64, stored: u64 },
    Delete { token: u64, stored: Vec<u64> },
}

/// What it answers.
#[derive(Debug, Clone)]
pub(super) enum ParkDown {
    Stored { token: u64 },
    NotStored { token: u64 },
    Keys { token: u64, parked: Vec<u64> },
    List { token: u64, parked: Vec<(u64, u64)> },
    Fetched { token: u64, sequence: Option<u64> },
    Deleted { token: u64 },
}

#[derive(Debug, Default)]
pub(super) struct ParkStream {
    /// Its sequences, and those of the messages.
    stored: BTreeMap<u64, u64>,
    last: u64,
    /// Those whose ids it remembers.
    seen: BTreeSet<u64>,
    /// Those that were stored after their worker had lost them: time was over, or persons took both locks away, the message
    /// and the pin.
    pub(super) late: BTreeSet<u64>,
}

impl ParkStream {
    pub(super) fn has(&self, sequence: u64) -> bool {
        self.stored.values().any(|parked| *parked == sequence)
    }

    pub(super) fn sequences(&self) -> Vec<u64> {
        self.stored.values().copied().collect()
    }

    /// `full`: it takes nothing new. `unlocked`: persons took message and pin away from whoever stores.
    pub(super) fn receive(&mut self, now: Duration, up: ParkUp, full: bool, unlocked: bool) -> ParkDown {
        match up {
            ParkUp::Store { sequence, token, until } => {
                let new = !self.seen.contains(&sequence);
                if full && new || !new && !self.has(sequence) {
                    return ParkDown::NotStored { token };
                }
                if new {
                    self.seen.insert(sequence);
                    self.last += 1;
                    self.stored.insert(self.last, sequence);
                    if now >= until || unlocked {
                        self.late.insert(sequence);
                    }
                }
                ParkDown::Stored { token }
            }
            ParkUp::Load { token } => ParkDown::Keys { token, parked: self.sequences() },
            ParkUp::List { token, of } => {
                let of =
                    |(stored, sequence): (&u64, &u64)| of.contains(sequence).then_some((*stored, *sequence));
                ParkDown::List { token, parked: self.stored.iter().filter_map(of).collect() }
            }
            ParkUp::Fetch { token, stored } => {
                ParkDown::Fetched { token, sequence: self.stored.get(&stored).copied() }
            }
            ParkUp::Delete { token, stored } => {
                for stored in stored {
                    self.stored.remove(&stored);
                }
                ParkDown::Deleted { token }
            }
        }
    }
}
