//! One process on its way to a lease, and with it.

use std::time::Duration;

use super::{Decision, Found, Lease, Observed, Terms, decide};
use crate::record::Holder;

/// After a call that the key changed. It comes when a write is sent, which may be before every copy has it.
const AFTER_CALL: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Read the key.
    Read,
    /// Write the key, if it is at the revision that is expected (0: if there is nothing).
    Write {
        /// The revision.
        expected: u64,
        /// What to write.
        lease: Lease,
    },
    /// Nothing before that time, unless there is a call.
    Wait(Duration),
    /// It was given back, or never had.
    Done,
}

/// A write that is stored, or may be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Write {
    nonce: u64,
    sent: Duration,
}

/// Why the key must be read before it is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The answer to a write was lost.
    Doubt,
    /// A write was refused: the key is not what we think, since then at the latest.
    Refused(Duration),
}

/// What one process knows of a lease. One request at a time: whoever drives it answers each before it asks for the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lessee {
    us: Holder,
    terms: Terms,
    /// Until then a key that is not there is free: nobody else can have had it.
    first: Option<Duration>,
    nonces: u64,
    observed: Option<Observed>,
    /// When the write was sent that we go by.
    held: Option<Duration>,
    /// Writes that may be stored without our knowing.
    writes: Vec<Write>,
    look: Option<Look>,
    /// Reads since the last call.
    reads: usize,
    read_due: Duration,
    leaving: bool,
}

impl Lessee {
    /// A process that does not know the key yet. `nonces` is how many it used before; `first` is given
    /// to the first of all who may contend: until when it may take a key that is not there.
    pub fn new(us: Holder, terms: Terms, nonces: u64, first: Option<Duration>) -> Self {
        Self {
            us,
            terms,
            first,
            nonces,
            observed: None,
            held: None,
            writes: Vec::new(),
            look: None,
            reads: AFTER_CALL.len(),
            read_due: Duration::ZERO,
            leaving: false,
        }
    }

    /// Until when this process may go by the lease, if it may now.
    pub fn until(&self, now: Duration) -> Option<Duration> {
        let end = self.held? + self.terms.own_time();
        (now < end && !self.leaving).then_some(end)
    }

    /// How many nonces were used.
    pub fn nonces(&self) -> u64 {
        self.nonces
    }

    /// For how long leases are given.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// The revision at which the key was seen last.
    pub fn revision(&self) -> Option<u64> {
        self.observed.as_ref().map(|observed| observed.found.revision)
    }

    /// Nothing of ours is stored, or may be.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.held.is_none() && self.first.is_none() && self.writes.is_empty()
    }

    #[cfg(test)]
    pub(super) fn holder(&self) -> &Holder {
        &self.us
    }

    /// Gives it back from now on.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// What to do now. The answer to a request has to be told before the next call.
    pub fn next(&mut self, now: Duration) -> Next {
        if self.observed.is_none() || self.look.is_some() {
            if self.leaving && self.held.is_none() && self.writes.is_empty() && !self.names_us() {
                return Next::Done;
            }
            return self.read_when_due(now);
        }
        if self.leaving {
            return self.give_back(now);
        }
        let Some(observed) = &self.observed else { return self.read_when_due(now) };
        match decide(now, &self.us, observed, self.held, self.terms) {
            Decision::Mark if self.first.is_none_or(|limit| now >= limit) => self.write(now, Lease::mark),
            Decision::Acquire | Decision::Renew | Decision::Mark => self.write_ours(now),
            Decision::Lost => {
                self.held = None;
                self.next(now)
            }
            Decision::Wait(until) if self.held.is_some() => Next::Wait(until),
            Decision::Wait(_) if now >= self.read_due => Next::Read,
            Decision::Wait(until) => Next::Wait(until.min(self.read_due)),
        }
    }

    fn read_when_due(&self, now: Duration) -> Next {
        if now >= self.read_due { Next::Read } else { Next::Wait(self.read_due) }
    }

    fn names_us(&self) -> bool {
        let lease = self.observed.as_ref().and_then(|observed| observed.found.lease.as_ref());
        lease.is_some_and(|lease| lease.is_of(&self.us))
    }

    fn give_back(&mut self, now: Duration) -> Next {
        if self.names_us() { self.write(now, Lease::free) } else { Next::Done }
    }

    fn write_ours(&mut self, now: Duration) -> Next {
        let us = self.us.clone();
        self.write(now, |nonce, terms| Lease { holder: Some(us), ..Lease::free(nonce, terms) })
    }

    fn write(&mut self, now: Duration, lease: impl FnOnce(u64, Terms) -> Lease) -> Next {
        let expected = self.revision().unwrap_or_default();
        self.nonces += 1;
        self.first = None;
        let lease = lease(self.nonces, self.terms);
        // One that is found to be stored later than this would give nothing.
        self.writes.retain(|write| now < write.sent + self.terms.own_time());
        self.writes.push(Write { nonce: self.nonces, sent: now });
        Next::Write { expected, lease }
    }

    /// The write just asked for is stored at this revision.
    pub fn written(&mut self, now: Duration, revision: u64, lease: Lease) {
        let sent = self.writes.iter().find(|write| write.nonce == lease.nonce).map(|write| write.sent);
        self.held = sent.filter(|_| lease.is_of(&self.us));
        // What others expected to find is not there any more.
        self.writes.clear();
        self.look = None;
        self.observe(now, Found { revision, lease: Some(lease) });
    }

    /// The write just asked for was refused: the key is at another revision.
    pub fn refused(&mut self, now: Duration, nonce: u64) {
        self.writes.retain(|write| write.nonce != nonce);
        if self.writes.is_empty() {
            // Not by one of ours whose answer was lost.
            self.held = None;
        }
        self.look = Some(Look::Refused(now));
        self.read_due = now;
        self.reads = 0;
    }

    /// Whether the write just asked for is stored is not known.
    pub fn unknown(&mut self, now: Duration) {
        self.look.get_or_insert(Look::Doubt);
        // What fails at once must not become a hot loop.
        self.read_due = now + self.terms.time() / 24;
        self.reads = AFTER_CALL.len();
    }

    /// The key could not be read.
    pub fn unread(&mut self, now: Duration) {
        self.read_due = now + self.terms.time() / 12;
    }

    /// The key changed, perhaps.
    pub fn called(&mut self, now: Duration) {
        // A holder is told by its writes, and hears each of them.
        if self.held.is_none() {
            self.reads = 0;
            self.read_due = self.read_due.min(now + AFTER_CALL[0]);
        }
    }

    /// The key was read; the answer may be an old one.
    pub fn found(&mut self, now: Duration, found: Found) {
        let known = self.revision();
        self.read_due = now + AFTER_CALL.get(self.reads).copied().unwrap_or(self.terms.renew_after());
        self.reads += 1;
        if let Some(sent) = self.stored(&found)
            && known.is_none_or(|known| found.revision > known)
        {
            self.held = Some(sent);
            self.writes.clear();
            self.look = None;
            return self.observe(now, found);
        }
        match known {
            Some(_) if self.observed.as_ref().is_some_and(|observed| observed.found == found) => {
                self.is_still_there(now);
            }
            // An old answer, or somebody took the key away altogether. Who goes by it finds out by writing.
            Some(known) if found.revision < known => {
                // Also when the whole bucket was made anew, and counts from 1 again.
                let is_anew = matches!(self.look, Some(Look::Refused(since)) if now >= since + self.terms.renew_after());
                if self.held.is_none() && (found.revision == 0 || is_anew) {
                    self.look = None;
                    self.observe(now, found);
                } else if self.look == Some(Look::Doubt) {
                    self.look = None;
                }
            }
            _ => {
                self.held = None;
                self.look = None;
                self.observe(now, found);
            }
        }
    }

    /// When a write was sent that an answer shows to be stored.
    fn stored(&self, found: &Found) -> Option<Duration> {
        let lease = found.lease.as_ref().filter(|lease| lease.is_of(&self.us))?;
        self.writes.iter().find(|write| write.nonce == lease.nonce).map(|write| write.sent)
    }

    fn is_still_there(&mut self, now: Duration) {
        match self.look {
            // A server refuses also while another's write is on its way, which may come to nothing.
            Some(Look::Refused(since)) if now < since + self.terms.renew_after() => {}
            _ => self.look = None,
        }
    }

    fn observe(&mut self, now: Duration, found: Found) {
        self.observed = Some(Observed { found, since: now });
        // What the call was about is seen.
        self.reads = AFTER_CALL.len();
        self.read_due = now + self.terms.renew_after();
    }
}
