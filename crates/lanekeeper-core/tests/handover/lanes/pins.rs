//! To whom a consumer is pinned, as the server sees it: only to that one's pulls does it give messages.

use std::time::Duration;

use lanekeeper_core::lane::{Event, PullStatus};

use super::{
    pod::Pull,
    run::Run,
    server::{Serving, Waiting},
    state::{State, WAIT},
};
use crate::world::Violation;

impl Serving {
    pub(crate) fn pinned(&self) -> Option<&'static str> {
        self.pin.map(|(pin, _)| pin)
    }

    /// The pin is kept by new pulls that carry it.
    pub(crate) fn keep(&mut self, pull: Pull, now: Duration) {
        self.pin = self.pin.map(|(pin, until)| (pin, if pull.pin == Some(pin) { now + WAIT } else { until }));
    }

    /// The first pull that may have a message.
    pub(crate) fn next(&self) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.pull.pin == self.pinned())
    }
}

impl State {
    /// Whoever has the consumer has it no more.
    pub(crate) fn unpin(&mut self, incarnation: u64) {
        if let Some(serving) = self.serving.get_mut(&incarnation) {
            serving.pin = None;
        }
    }

    /// Whether a pull carries a pin that is another's, or nobody's where there is a message to give one with.
    pub(crate) fn refuses(&self, incarnation: u64, pull: Pull) -> bool {
        let pinned = self.serving.get(&incarnation).and_then(Serving::pinned);
        pull.pin.is_some() && pull.pin != pinned && (pinned.is_some() || self.due(incarnation).is_some())
    }

    /// Pulls with a pin that is not in force are refused once there is a message that they might have.
    pub(crate) fn refuse_wrong_pins(&mut self, run: &Run) -> Result<(), Violation> {
        let due: Vec<u64> =
            self.world.consumers.keys().copied().filter(|one| self.due(*one).is_some()).collect();
        for incarnation in due {
            let Some(serving) = self.serving.get_mut(&incarnation) else { continue };
            let pinned = serving.pinned();
            let wrong = |waiting: &Waiting| waiting.pull.pin.is_some() && waiting.pull.pin != pinned;
            let refused: Vec<Waiting> = serving.waiting.iter().filter(|one| wrong(one)).cloned().collect();
            serving.waiting.retain(|waiting| !wrong(waiting));
            for Waiting { pod, pull, .. } in refused {
                self.tell(run, pod, Event::PullEnded { pull: pull.number, status: PullStatus::WrongPin })?;
            }
        }
        Ok(())
    }
}
