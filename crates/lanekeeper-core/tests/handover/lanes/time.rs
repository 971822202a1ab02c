//! How time passes: to the next moment at which it matters to somebody, and no further.
//!
//! Everything else takes no time. What an idle lane does (it asks again, and looks at its consumer) is done on the way,
//! so that it makes no states of its own.

use std::time::Duration;

use lanekeeper_core::lane::{Event, PullStatus};

use super::{
    pod::Request,
    run::Run,
    server::Serving,
    state::{NOW, State, WAIT},
};
use crate::world::Violation;

/// If nothing matters for this long, nothing will.
const LONG: Duration = Duration::from_secs(16);

impl State {
    /// Whether there was anything to wait for.
    pub(crate) fn pass(&mut self, run: &Run) -> Result<bool, Violation> {
        self.notable = false;
        while let Some(next) = self.next_moment().filter(|next| *next <= NOW + LONG) {
            self.now = next;
            self.servers_go_on(run)?;
            for index in 0..self.pods.len() {
                let pod = &self.pods[index];
                if pod.frozen.is_some() || pod.exited {
                    // Its message is not its own any more, whether it knows or not.
                    self.notable |= pod.lane.deadline() == Some(next);
                } else if !self.is_cut(index) || pod.lane.deadline() == Some(next) {
                    self.tell(run, index, Event::Tick)?;
                }
                if !self.notable {
                    self.answer_all(run, index, Request::is_idle)?;
                }
            }
            let deliverable = |incarnation: &u64| self.next_message(*incarnation).is_some();
            if self.notable || self.world.consumers.keys().any(deliverable) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn next_moment(&self) -> Option<Duration> {
        let now = self.now;
        let lanes = self.pods.iter().enumerate().filter_map(|(index, pod)| {
            if pod.frozen.is_some() || self.is_cut(index) { pod.lane.deadline() } else { pod.lane.wake(now) }
        });
        let serving = self.serving.values().flat_map(|serving| {
            let pulls = serving.waiting.iter().flat_map(|one| [one.until, one.heartbeat()]);
            pulls.chain([serving.again_at]).chain(serving.pin.map(|(_, until)| until))
        });
        let fences = self.gone.values().map(|since| *since + WAIT);
        lanes.chain(serving).chain(fences).filter(|time| *time > now).min()
    }

    fn servers_go_on(&mut self, run: &Run) -> Result<(), Violation> {
        let now = self.now;
        let elapsed: Vec<u64> =
            self.gone.iter().filter(|(_, since)| **since + WAIT <= now).map(|(one, _)| *one).collect();
        self.notable |= !elapsed.is_empty();
        self.world.fence_elapsed.extend(elapsed);
        let mut said = Vec::new();
        for Serving { waiting, again_at, pin, .. } in self.serving.values_mut() {
            pin.take_if(|(_, until)| *until <= now);
            self.notable |= *again_at == now;
            for one in waiting.iter() {
                let pull = one.pull.number;
                if one.until <= now {
                    said.push((one.pod, Event::PullEnded { pull, status: PullStatus::Expired }));
                } else if one.heartbeat() == now {
                    said.push((one.pod, Event::Heartbeat { pull }));
                }
            }
            waiting.retain(|one| one.until > now);
        }
        for (pod, event) in said {
            self.tell(run, pod, event)?;
        }
        self.refuse_wrong_pins(run)
    }
}
