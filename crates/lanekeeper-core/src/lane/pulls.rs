//! The pulls that are out: which message answers which, and when to ask again.
//!
//! A pull asks for one message, that of a pipelined lane for many. It is answered on a subject of its own, so the time of its sending is known
//! for each message, and that is where the message's deadline counts from: a packet may be slow, and a worker
//! that was frozen finds stale messages in its socket.

use std::{sync::Arc, time::Duration};

use super::{Number, PullRequest, PullStatus};

/// No pull waits longer, so that a lane with a long deadline leaves as quickly as one with a short one.
const LONGEST: Duration = Duration::from_secs(5);
const LONGEST_OF_MANY: Duration = Duration::from_secs(2);
/// How long after its expiry a pull is thought to be on its way back.
const SLACK: Duration = Duration::from_millis(500);
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LAST_BACKOFF: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Pull {
    id: u64,
    /// How many messages it may still bring.
    left: u32,
    sent: Duration,
    expires: Duration,
    heard: Duration,
    /// No longer counted on, though the server may still answer it.
    doubted: bool,
}

impl Pull {
    fn over(&self) -> Duration {
        self.sent + self.expires + SLACK
    }

    /// Heartbeats come twice in its life; with none for three quarters of it, the server forgot the pull.
    fn silent(&self) -> Duration {
        self.heard + self.expires * 3 / 4 + SLACK / 5
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Pulls {
    last: u64,
    out: Vec<Pull>,
    failures: u32,
    not_before: Duration,
}

impl Pulls {
    /// How long a pull of a consumer with this deadline waits.
    pub(super) fn expiry(wait: Duration) -> Duration {
        (wait / 3).min(LONGEST)
    }

    /// A new pull.
    pub(super) fn issue(
        &mut self,
        now: Duration,
        wait: Duration,
        batch: u32,
        grouped: bool,
        pin: Option<Arc<str>>,
    ) -> PullRequest {
        let id = self.number();
        // One that brings many is in the way of leaving even when messages come.
        let longest = if batch > 1 { LONGEST_OF_MANY } else { LONGEST };
        let expires = Self::expiry(wait).min(longest);
        self.out.push(Pull { id, left: batch, sent: now, expires, heard: now, doubted: false });
        PullRequest { id, batch, expires, heartbeat: expires / 2, grouped, pin }
    }

    /// A number that no pull had.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The number given last.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// A message came for the pull: when that was sent, if the pull is known.
    pub(super) fn consume(&mut self, now: Duration, id: u64) -> Option<Duration> {
        let index = self.out.iter().position(|pull| pull.id == id)?;
        self.failures = 0;
        let pull = &mut self.out[index];
        let sent = pull.sent;
        pull.left -= 1;
        pull.heard = now;
        if pull.left == 0 {
            self.out.swap_remove(index);
        }
        Some(sent)
    }

    /// When the pull was sent, if it is known.
    pub(super) fn sent(&self, id: u64) -> Option<Duration> {
        self.out.iter().find(|pull| pull.id == id).map(|pull| pull.sent)
    }

    pub(super) fn heard(&mut self, now: Duration, id: u64) {
        if let Some(pull) = self.out.iter_mut().find(|pull| pull.id == id) {
            pull.heard = now;
            self.failures = 0;
        }
    }

    /// The pull came back without a message.
    pub(super) fn ended(&mut self, now: Duration, id: u64, status: PullStatus) {
        let Some(index) = self.out.iter().position(|pull| pull.id == id) else { return };
        let pull = self.out.swap_remove(index);
        match status {
            // One that ends much too early must not become a hot loop.
            PullStatus::Expired if now >= pull.sent + pull.expires / 2 => self.failures = 0,
            PullStatus::WrongPin if self.failures == 0 => self.failures = 1,
            _ => self.back_off(now),
        }
    }

    fn back_off(&mut self, now: Duration) {
        let delay = FIRST_BACKOFF.saturating_mul(1 << self.failures.min(10)).min(LAST_BACKOFF);
        self.failures += 1;
        self.not_before = now + delay;
    }

    /// Nothing that is out can be counted on, though it may still be answered.
    pub(super) fn doubt_all(&mut self) {
        for pull in &mut self.out {
            pull.doubted = true;
        }
    }

    /// Whatever still answers one is dropped.
    pub(super) fn forget_all(&mut self) {
        self.out.clear();
    }

    /// A fresh start: what was asked for is asked for again at once.
    pub(super) fn ask_at_once(&mut self) {
        self.failures = 0;
        self.not_before = Duration::ZERO;
    }

    /// Gives up what time has ended; whether that was one that should have shown life. `wait` is the consumer's
    /// deadline: a message past it is dropped anyway.
    pub(super) fn expire(&mut self, now: Duration, wait: Duration) -> bool {
        let mut silent = false;
        for pull in &mut self.out {
            if !pull.doubted && (now >= pull.over() || now >= pull.silent()) {
                pull.doubted = true;
                silent = true;
            }
        }
        if silent {
            self.back_off(now);
        }
        self.out.retain(|pull| now < pull.sent + wait);
        silent
    }

    /// Whether one is out that is counted on.
    pub(super) fn standing(&self) -> bool {
        self.out.iter().any(|pull| !pull.doubted)
    }

    /// Whether the server may still answer one with a message.
    pub(super) fn may_be_answered(&self, now: Duration) -> bool {
        self.out.iter().any(|pull| now < pull.over())
    }

    /// Whether asking is due.
    pub(super) fn may_ask(&self, now: Duration) -> bool {
        now >= self.not_before
    }

    /// When something changes by time alone.
    pub(super) fn wake(&self, now: Duration) -> Option<Duration> {
        self.out.iter().flat_map(|pull| [pull.over(), pull.silent()]).filter(|time| *time > now).min()
    }

    /// See [`super::Lane::numbers`].
    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(Number<'_>)) {
        visit(Number::Pull(&mut self.last));
        visit(Number::Failures(&mut self.failures));
        visit(Number::Due(&mut self.not_before));
        for pull in &mut self.out {
            visit(Number::Pull(&mut pull.id));
            visit(Number::Since(&mut pull.sent));
            visit(Number::Since(&mut pull.heard));
        }
    }

    /// When asking is allowed again.
    pub(super) fn not_before(&self) -> Duration {
        self.not_before
    }
}
