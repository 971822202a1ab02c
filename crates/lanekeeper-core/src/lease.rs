//! A lease: one key that many processes may write, of which one at a time has what the key stands for.
//!
//! Nothing is assumed of clocks but that they run at about the same speed. The rules:
//!
//! - Every write is a compare-and-set on the revision that was read, also over a key that was deleted. So of those that
//!   saw the same, one wins, and whoever loses looks again. A read may be old; it can only lose.
//! - A lease is taken from another only after its key was seen unchanged for the whole time that it was given for, on the
//!   own monotonic clock, counted from the *arrival* of the answer that showed it first. What is given back is free at once.
//! - A holder counts from the *sending* of its last write that is known to be stored, and stops a margin earlier. So its
//!   end comes before anybody else's beginning, however slow a packet is and however long a process was stopped.
//! - Each write has a nonce. A write whose answer was lost is found by it, and counts from its own sending.
//! - A key that was deleted, or cannot be read, is like one of an unknown holder: somebody may go by what was there. Where
//!   there is nothing at all, two looks that find nothing do not prove that there was nothing in between (found by the
//!   random test): so a mark is written first, and taken over like the lease of a stranger.
//! - The first of all who may contend takes a key that is not there at once, if it does so within a tenth of the time
//!   after it asked to be let in: nobody else can have it before that time is over.
//!
//! [`decide`] is all of it as one pure function; [`Lessee`] remembers what it needs, and says what to ask for.
//!
//! Must not do: I/O, look at a clock, know what the lease is for.

mod lessee;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::lessee::{Lessee, Next};
use crate::record::{Holder, VERSION};

/// No holder promises more than this; a key that says more was written by hand.
const LONGEST: Duration = Duration::from_secs(3600);

/// Nor is an answer waited for longer, so that who is to give back a long lease does not wait for one.
const LONGEST_PATIENCE: Duration = Duration::from_secs(2);

/// What the key holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// [`VERSION`].
    pub v: u32,
    /// Who has it; nobody once it was given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// Which write of that process it is: each has a number of its own.
    pub nonce: u64,
    /// For how long it was given.
    pub milliseconds: u64,
}

impl Lease {
    /// One that nobody has.
    pub fn free(nonce: u64, terms: Terms) -> Self {
        Self { v: VERSION, holder: None, nonce, milliseconds: terms.milliseconds() }
    }

    /// One that nobody has, and that is not free: somebody may go by what was there before.
    pub fn mark(nonce: u64, terms: Terms) -> Self {
        let nobody = Holder { pod: String::new(), instance: String::new() };
        Self { holder: Some(nobody), ..Self::free(nonce, terms) }
    }

    /// Whether this process has it.
    pub fn is_of(&self, us: &Holder) -> bool {
        self.holder.as_ref() == Some(us)
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds).min(LONGEST)
    }
}

/// For how long a lease is given, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    time: Duration,
}

impl Terms {
    /// Leases of this length, at least 10 milliseconds.
    pub fn new(time: Duration) -> Self {
        Self { time: time.clamp(Duration::from_millis(10), LONGEST) }
    }

    /// How long others wait.
    pub fn time(self) -> Duration {
        self.time
    }

    /// How long after the sending of a write its holder asks for more.
    pub fn renew_after(self) -> Duration {
        self.time / 3
    }

    /// How long the holder itself goes by it. The tenth that is left is for clocks that run at different speeds, and for
    /// the moment that it takes to stop.
    pub fn own_time(self) -> Duration {
        self.time * 9 / 10
    }

    /// For how long the first of all may take a key that is not there, counted from its asking to be let in. What it
    /// takes then is over, for itself, before another who came later can have waited the whole time.
    pub fn first_time(self) -> Duration {
        self.time / 10
    }

    /// How long an answer is waited for.
    pub fn patience(self) -> Duration {
        (self.time / 6).min(LONGEST_PATIENCE)
    }

    fn milliseconds(self) -> u64 {
        u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The key, as an answer showed it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Found {
    /// Its revision, also that of the mark that a deletion leaves; 0 when there is nothing at all.
    pub revision: u64,
    /// What it holds; nothing when it was deleted or cannot be read.
    pub lease: Option<Lease>,
}

/// The key, and since when it is known to be like that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Observed {
    /// The key.
    pub found: Found,
    /// When the answer arrived that showed this revision first, on the own monotonic clock.
    pub since: Duration,
}

/// What to do about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Write ourselves into it, if it is still at the revision that was observed.
    Acquire,
    /// Write it once more, likewise.
    Renew,
    /// Write a mark where there is nothing.
    Mark,
    /// Nothing before that time, unless the key changes.
    Wait(Duration),
    /// It is not ours any more: stop what it stood for.
    Lost,
}

/// What to do at `now`. `held` is when the last write of ours that is known to be stored was sent, while we go by it.
pub fn decide(
    now: Duration,
    us: &Holder,
    observed: &Observed,
    held: Option<Duration>,
    terms: Terms,
) -> Decision {
    let lease = observed.found.lease.as_ref();
    let ours = lease.is_some_and(|lease| lease.is_of(us));
    if let Some(sent) = held {
        let due = sent + terms.renew_after();
        return if !ours || now >= sent + terms.own_time() {
            Decision::Lost
        } else if now >= due {
            Decision::Renew
        } else {
            Decision::Wait(due)
        };
    }
    if observed.found.revision == 0 {
        return Decision::Mark;
    }
    // One that names us and that we do not go by: nobody else may.
    if ours || lease.is_some_and(|lease| lease.holder.is_none()) {
        return Decision::Acquire;
    }
    let given_for = lease.map_or(Duration::ZERO, Lease::time);
    let over = observed.since + given_for.max(terms.time);
    if now >= over { Decision::Acquire } else { Decision::Wait(over) }
}

#[cfg(test)]
pub(crate) mod tests;
