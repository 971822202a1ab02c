//! The numbers of a lane that only grow: times, tokens, pulls. For a model checker, in which two lanes that differ in
//! nothing else must be one; no driver needs it.

use std::time::Duration;

use super::{Lane, Membership};

/// One number of a lane.
#[doc(hidden)]
#[derive(Debug)]
pub enum Number<'a> {
    /// When something happened.
    Since(&'a mut Duration),
    /// When something is due; what is overdue is due now.
    Due(&'a mut Duration),
    /// Of a request.
    Token(&'a mut u64),
    /// A pull, or the driver's handle of a message.
    Pull(&'a mut u64),
    /// Failures in a row.
    Failures(&'a mut u32),
}

#[doc(hidden)]
impl Lane {
    /// Visits every number. They may be changed, as long as their order stays what it is.
    pub fn numbers(&mut self, visit: &mut dyn FnMut(Number<'_>)) {
        visit(Number::Token(&mut self.tokens));
        if let Some(token) = &mut self.inspecting {
            visit(Number::Token(token));
        }
        visit(Number::Due(&mut self.inspect_due));
        match &mut self.membership {
            Membership::Joining { retry: Some(due) } => visit(Number::Due(due)),
            Membership::Leaving { retry, give_up } => {
                for due in retry.iter_mut().chain(give_up) {
                    visit(Number::Due(due));
                }
            }
            Membership::Outside
            | Membership::Inspecting
            | Membership::Joining { retry: None }
            | Membership::Member
            | Membership::Exited => {}
        }
        if let Some(shutdown) = &mut self.shutdown {
            visit(Number::Due(&mut shutdown.cut));
        }
        self.pulls.numbers(visit);
        if let Some(pin) = &mut self.pin {
            pin.numbers(visit);
        }
        if let Some(until) = &mut self.lease {
            visit(Number::Due(until));
        }
        self.fuse.numbers(visit);
        self.suspicion.numbers(visit);
        visit(Number::Due(&mut self.replay_due));
        if let Some(replay) = &mut self.replay {
            replay.numbers(visit);
        }
        if let Some(hand) = &mut self.hand {
            hand.numbers(visit);
        }
        if let Some(given_back) = &mut self.given_back {
            given_back.numbers(visit);
        }
        if let Some(next) = &mut self.next {
            visit(Number::Pull(&mut next.message));
            visit(Number::Since(&mut next.pulled));
        }
    }

    /// Until when what is in hand is this lane's.
    pub fn deadline(&self) -> Option<Duration> {
        self.hand.as_ref().map(super::Hand::deadline)
    }
}
