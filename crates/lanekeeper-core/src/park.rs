//! Parked messages: a message without attempts left, and every later one of its key, in a stream of their own, in order.
//!
//! **The lock is presence.** A key is parked as long as the park stream has a message of it; nothing else says so, and so
//! nothing can disagree. Subjects there hold the same path as those of the lanes ([`Mapping::subject_under`]), so a share is
//! one filter and parked keys move with their partition: whoever serves a share looks at what is parked of it before it
//! handles anything, and again whenever another worker may have parked meanwhile.
//!
//! **At every instant a message is in the stream or in the park stream.** It is acknowledged once it is known to be stored
//! there, and deleted there once its handler succeeded. What fails in between leaves it in both, which repeats it.
//!
//! **Order.** An owner parks one message after another, each confirmed and acknowledged before the next one is delivered, so
//! the park stream has them in order. A store of a former owner may come late: its message is then parked twice, or behind
//! later ones. So order here is that of the fence, never that of the park stream, and copies with one fence are one message
//! ([`in_order`]). Within the duplicate window a late copy is not even stored, also when the message was released meanwhile,
//! because servers remember its id. That a late copy locks a key that is free takes more: the message must have been
//! handled well by the new owner, who is given it only after the deadline of the former one; who had used up its attempts is
//! not asked again, so it must be one that "will never work" and then did; and the copy must travel for that long. Nothing
//! is lost by it and nothing overtakes; what it repeats when it is released is for the handler's fence to recognise.
//!
//! **Release** runs in the lane, which takes no message of its consumer meanwhile: parked messages of a key, by fence,
//! through the handler with what they had when they were published, each deleted after it succeeded. It stops at the first
//! that fails. One worker of a lane does it, by a claim in the lane's key that holds as long as it is among the holders, so
//! that a quiet lane, whose pin is nobody's, can be released too.
//!
//! This module must not know servers.
//!
//! [`Mapping::subject_under`]: crate::mapping::Mapping::subject_under

use std::{collections::VecDeque, fmt, sync::Arc};

use crate::{
    fence::Fence,
    order::{Order, OrderOutcome, OrderResult, Verb},
    record::{LaneSettings, Park},
};

/// One message as it is parked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ParkedMessage {
    /// Its place among all of its key.
    pub fence: Fence,
    /// Its sequence in the park stream; more than one when it was parked more than once.
    pub stored: Vec<u64>,
}

/// What a person wants done with parked messages of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ParkOrder {
    /// Tells it from others.
    pub id: String,
    /// The key.
    pub key: Arc<str>,
    /// Only the message with this stream sequence.
    pub sequence: Option<u64>,
    /// Delete them, instead of handling and then deleting them.
    pub drop: bool,
}

impl ParkOrder {
    /// The orders about parked messages among all of a lane.
    pub fn among(orders: &[Order]) -> Vec<Self> {
        let about_parked = orders.iter().filter(|order| matches!(order.verb, Verb::Release | Verb::Drop));
        about_parked
            .map(|order| Self {
                id: order.id.clone(),
                key: order.key.as_str().into(),
                sequence: order.sequence,
                drop: order.verb == Verb::Drop,
            })
            .collect()
    }
}

/// What came of a [`ParkOrder`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ParkOutcome {
    /// Messages that were handled, or dropped, and are parked no more.
    pub messages: u64,
    /// They were to be dropped.
    pub drop: bool,
    /// The message that failed again, so that the key stays parked: its stream sequence, and what its handler said.
    pub failure: Option<(u64, String)>,
}

impl ParkOutcome {
    /// As it is told to whoever gave the order.
    pub fn result(self, id: String) -> OrderResult {
        let (outcome, reason) = match (self.failure, self.messages, self.drop) {
            (Some((sequence, reason)), ..) => {
                (OrderOutcome::Failed, format!("sequence {sequence}: {reason}"))
            }
            (None, 0, _) => (OrderOutcome::Void, "nothing of it is parked".to_owned()),
            (None, _, true) => (OrderOutcome::Dropped, String::new()),
            (None, _, false) => (OrderOutcome::Released, String::new()),
        };
        OrderResult { id, outcome, messages: self.messages, reason }
    }
}

impl fmt::Display for ParkOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages are parked no more", self.messages)?;
        match &self.failure {
            None => Ok(()),
            Some((sequence, reason)) => {
                write!(f, "; the key stays parked, because sequence {sequence} failed again: {reason}")
            }
        }
    }
}

/// Where the lanes of a set park: in the place that some lane was told of before, whatever is wanted now. Somebody who was
/// told of it may still park there, and what is parked there must be found by whoever has the key next.
pub fn kept<'a>(wanted: Option<&Park>, told: impl IntoIterator<Item = &'a LaneSettings>) -> Option<Park> {
    told.into_iter().find_map(|settings| settings.park.as_ref()).or(wanted).cloned()
}

/// Parked messages in the order in which they are to be handled: by fence, each once.
pub fn in_order(found: impl IntoIterator<Item = ParkedMessage>) -> VecDeque<ParkedMessage> {
    let mut found: Vec<ParkedMessage> = found.into_iter().collect();
    found.sort_by(|one, other| (one.fence, &one.stored).cmp(&(other.fence, &other.stored)));
    let mut ordered: VecDeque<ParkedMessage> = VecDeque::with_capacity(found.len());
    for message in found {
        match ordered.back_mut().filter(|last| last.fence == message.fence) {
            Some(last) => last.stored.extend(message.stored),
            None => ordered.push_back(message),
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parked(incarnation: u32, sequence: u64, stored: u64) -> ParkedMessage {
        let fence = Fence { stream_incarnation: incarnation, sequence };
        ParkedMessage { fence, stored: vec![stored] }
    }

    #[test]
    fn a_message_that_was_parked_late_and_twice_is_handled_once_and_in_its_place() {
        let ordered = in_order([parked(1, 5, 1), parked(1, 7, 2), parked(2, 1, 3), parked(1, 5, 4)]);
        let told: Vec<_> = ordered.iter().map(|one| (one.fence.sequence, one.stored.clone())).collect();
        assert_eq!(told, [(5, vec![1, 4]), (7, vec![2]), (1, vec![3])]);
    }

    proptest! {
        #[test]
        fn order_is_that_of_the_fence_and_nothing_is_left_out(found in prop::collection::vec((1u32..3, 1u64..9), 0..40)) {
            let found: Vec<_> = found.iter().zip(1..).map(|((a, b), stored)| parked(*a, *b, stored)).collect();
            let ordered = in_order(found.clone());
            prop_assert!(ordered.iter().is_sorted_by(|one, other| one.fence < other.fence));
            let stored: usize = ordered.iter().map(|one| one.stored.len()).sum();
            prop_assert_eq!(stored, found.len());
        }
    }
}
