//! Looking at the lane's consumer, and at its key when nothing is in hand: what the lane's witness goes by.

use std::time::{Duration, SystemTime};

use lanekeeper_core::{
    lane::Backlog,
    record::{Holder, LaneKey},
};
use lanekeeper_nats::lane::{ConsumerState, InspectError};
use tracing::Instrument;

use super::{Background, Driver};
use crate::handler::BatchHandler;

impl<H: BatchHandler> Driver<H> {
    /// Asks in the background; the answer comes as an event.
    pub(super) fn inspect(&self, token: u64) {
        let Some(serving) = self.lane.serving() else {
            // Asked for later: the lane is in no hurry for a lane that it does not have.
            let _ = self.background.0.send(Background::Failed { token });
            return;
        };
        let (consumer, incarnation) = (serving.consumer.clone(), serving.incarnation);
        let (inspector, stream, answers, identity) =
            (self.inspector.clone(), self.stream.clone(), self.background.0.clone(), self.identity.clone());
        let (asked, asked_seconds) = (self.now, now_seconds());
        let idle = self.lane.head().is_none();
        let look = async move {
            let answer = match inspector.inspect(&stream, &consumer).await {
                Ok(state) => {
                    let mut backlog = None;
                    if idle && let Some(key) = identity.lane_key(incarnation).await {
                        let seen = Look { incarnation, asked, asked_seconds };
                        backlog = Some(Box::new(seen.backlog(&state, &key, &identity.holder)));
                    }
                    Background::Facts { token, facts: state.facts, pending: state.pending, backlog }
                }
                Err(InspectError::Gone { .. }) => Background::Gone { token },
                Err(error) => {
                    tracing::debug!(%error, "the consumer could not be looked at");
                    Background::Failed { token }
                }
            };
            // Nobody listens when the process ends.
            let _ = answers.send(answer);
        };
        tokio::spawn(look.in_current_span());
    }
}

/// By this machine's clock, for people.
fn now_seconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// One look: at which lane, and when.
struct Look {
    incarnation: u64,
    asked: Duration,
    asked_seconds: u64,
}

impl Look {
    fn backlog(self, state: &ConsumerState, key: &LaneKey, us: &Holder) -> Backlog {
        let owner = key.owner.as_ref();
        let noted_by_sibling =
            owner.is_some_and(|owner| owner.holder != *us && key.holders.contains(&owner.holder));
        Backlog {
            incarnation: self.incarnation,
            asked: self.asked,
            asked_seconds: self.asked_seconds,
            waiting: state.pending,
            out: state.facts.ack_pending,
            delivered: state.delivered,
            floor: state.facts.floor,
            paused: state.paused,
            pin: state.facts.pin.clone(),
            siblings: key.holders.iter().filter(|holder| *holder != us).cloned().collect(),
            noted: owner.map(|owner| owner.pin.as_str().into()),
            noted_by_sibling,
        }
    }
}
