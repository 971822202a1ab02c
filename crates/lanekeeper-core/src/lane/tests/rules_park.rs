//! Parked keys: what waits behind them, what is known of them, and how they are released.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::rig::*;
use crate::{
    fence::Fence,
    lane::{ConsumerFacts, Effect, Event, Note, Outcome, State},
    park::{ParkOrder, ParkOutcome, ParkedMessage},
    record::{Assignment, BlockedBy, Breaker, ExhaustedPolicy, Park},
};

const BREAKER: Breaker = Breaker { max_exhausted: 2, window_seconds: 60 };

fn parking() -> Assignment {
    let mut given = assignment(1);
    given.settings.on_exhausted = ExhaustedPolicy::ParkKey { breaker: BREAKER };
    given.settings.park = Some(Park { stream: "PARK".into(), prefix: PARK.into() });
    given
}

/// A lane that parks, with the stored subjects of some keys.
struct Parking {
    rig: Rig,
    subjects: Vec<String>,
}

impl Parking {
    fn new() -> Self {
        let mut rig = Rig::serving_with(parking(), None);
        rig.pin = Some("pin1".into());
        Self { rig, subjects: subjects_of(assignment(1).share).take(4).collect() }
    }

    fn key(&self, number: usize) -> Arc<str> {
        let mapping = mapping();
        mapping.key_text(mapping.original_subject(&self.subjects[number]).unwrap()).unwrap().into()
    }

    fn deliver(&mut self, sequence: u64, deliveries: u64, key: usize) -> Vec<Effect> {
        self.rig.subject = self.subjects[key].clone();
        self.rig.deliver(sequence, deliveries)
    }

    /// The question which keys are parked is answered.
    fn tell(&mut self, keys: &[usize]) -> Vec<Effect> {
        let asked = |effect: &Effect| match effect {
            Effect::LoadParked { token } => Some(*token),
            _ => None,
        };
        let token = self.rig.log.iter().rev().find_map(asked).expect("it was asked");
        let keys: BTreeSet<Arc<str>> = keys.iter().map(|key| self.key(*key)).collect();
        self.rig.on(Event::ParkedKeys { token, keys })
    }

    /// A first message that succeeds, so that it is known what is parked.
    fn knowing(keys: &[usize]) -> Self {
        let mut parking = Self::new();
        parking.deliver(1, 1, 3);
        parking.tell(keys);
        parking.rig.done();
        parking.rig.pass(ms(30));
        parking.rig.answer_last();
        parking
    }

    /// The message fails for good and is parked.
    fn park(&mut self, sequence: u64, key: usize) -> Vec<Effect> {
        self.deliver(sequence, 1, key);
        let effects = self.rig.on(permanent());
        let [(token, ..)] = parks(&effects)[..] else { panic!("it is parked: {effects:?}") };
        self.rig.on(Event::Stored { token })
    }

    /// Nothing can come any more, so that what was ordered begins; the claim is granted and the consumer as it was.
    fn begin(&mut self, order: ParkOrder) -> u64 {
        self.rig.on(Event::ParkOrders { incarnation: 1, orders: vec![order], claimed: false });
        self.rig.pass(seconds(6));
        assert!(self.rig.log.contains(&Effect::Claim { incarnation: 1 }), "{:?}", self.rig.log);
        let effects = self.rig.on(Event::Claimed { incarnation: 1, granted: true });
        self.look(&effects, Some("pin1"))
    }

    /// The first look is answered, and the renewal with it; the token of the list that is asked for.
    fn look(&mut self, effects: &[Effect], pin: Option<&str>) -> u64 {
        let mut listed = Vec::new();
        for effect in effects {
            match effect {
                Effect::Renew(renewal) => {
                    let status = crate::lane::PullStatus::Expired;
                    listed.extend(self.rig.on(Event::PullEnded { pull: renewal.id, status }));
                }
                Effect::Inspect { token } => {
                    let facts = ConsumerFacts { ack_pending: 0, pin: pin.map(Into::into), ..Rig::facts() };
                    listed.extend(self.rig.on(Event::Consumer { token: *token, facts }));
                }
                _ => {}
            }
        }
        let token = listed.iter().find_map(|effect| match effect {
            Effect::ListParked { token, .. } => Some(*token),
            _ => None,
        });
        token.unwrap_or_else(|| panic!("it is listed: {listed:?}"))
    }

    /// The list, and the next message fetched; what is done with it.
    fn list(&mut self, token: u64, found: &[(u64, u64)]) -> Vec<Effect> {
        let message = |(sequence, stored): &(u64, u64)| ParkedMessage {
            fence: Fence { stream_incarnation: 1, sequence: *sequence },
            stored: vec![*stored],
        };
        let messages = found.iter().map(message).collect();
        let effects = self.rig.on(Event::ParkedListed { token, messages });
        self.fetch(&effects)
    }

    fn fetch(&mut self, effects: &[Effect]) -> Vec<Effect> {
        let asked = effects.iter().find_map(|effect| match effect {
            Effect::FetchParked { token, stored } => Some((*token, *stored)),
            _ => None,
        });
        let Some((token, stored)) = asked else { return effects.to_vec() };
        self.rig.on(Event::ParkedFetched { token, message: Some(1_000 + stored) })
    }

    /// The handler is done with the parked message, and it is deleted; what comes next.
    fn released(&mut self) -> Vec<Effect> {
        let effects = self.rig.done();
        self.deleted(&effects)
    }

    fn deleted(&mut self, effects: &[Effect]) -> Vec<Effect> {
        let token = effects.iter().find_map(|effect| match effect {
            Effect::DeleteParked { token, .. } => Some(*token),
            _ => None,
        });
        let token = token.unwrap_or_else(|| panic!("it is deleted: {effects:?}"));
        let effects = self.rig.on(Event::ParkedDeleted { token });
        self.fetch(&effects)
    }
}

fn permanent() -> Event<'static> {
    Event::Handled(Outcome::Permanent { reason: "422".into() })
}

/// Token, attempts and reason of each message that was sent to the park stream.
fn parks(effects: &[Effect]) -> Vec<(u64, u64, String)> {
    let park = |effect: &Effect| match effect {
        Effect::Park { token, attempts, reason, .. } => Some((*token, *attempts, reason.clone())),
        _ => None,
    };
    effects.iter().filter_map(park).collect()
}

/// Driver's handles of parked messages that were handed to the handler.
fn handled(effects: &[Effect]) -> Vec<u64> {
    let handle = |effect: &Effect| match effect {
        Effect::HandleParked { message, .. } => Some(*message),
        _ => None,
    };
    effects.iter().filter_map(handle).collect()
}

fn done(effects: &[Effect]) -> Option<ParkOutcome> {
    effects.iter().find_map(|effect| match effect {
        Effect::ParkOrderDone { outcome, .. } => Some(outcome.clone()),
        _ => None,
    })
}

fn release(key: Arc<str>) -> ParkOrder {
    ParkOrder { id: "a".into(), key, sequence: None, drop: false }
}

/// The token of the list that is asked for once more at the end.
fn listing(effects: &[Effect]) -> u64 {
    let token = effects.iter().find_map(|effect| match effect {
        Effect::ListParked { token, .. } => Some(*token),
        _ => None,
    });
    token.unwrap_or_else(|| panic!("it is listed once more: {effects:?}"))
}

#[test]
fn nothing_is_handled_before_it_is_known_what_is_parked_and_the_message_is_kept_meanwhile() {
    let mut parking = Parking::new();
    assert!(handles(&parking.deliver(1, 1, 0)).is_empty());
    assert!(progress(&parking.rig.keep(seconds(14))) > 0);
    assert_eq!(handles(&parking.tell(&[1])), [1]);
    parking.rig.done();
    assert_eq!(handles(&parking.deliver(2, 1, 2)), [1], "it is asked once");
}

#[test]
fn a_new_pin_asks_again_because_somebody_else_may_have_parked() {
    let mut parking = Parking::knowing(&[]);
    parking.rig.pin = Some("pin2".into());
    assert!(handles(&parking.deliver(2, 1, 0)).is_empty());
    assert_eq!(parks(&parking.tell(&[0])).len(), 1, "it waits behind what the other one parked");
}

#[test]
fn what_cannot_be_asked_stops_the_lane_and_says_so() {
    let mut parking = Parking::new();
    let effects = parking.deliver(1, 1, 0);
    let Some(Effect::LoadParked { token }) = effects.last().cloned() else { panic!("{effects:?}") };
    let effects = parking.rig.on(Event::ParkFailed { token, reason: "denied".into() });
    assert!(handles(&effects).is_empty());
    let said = effects.iter().find_map(|effect| match effect {
        Effect::Report(report) => report.blocked.clone(),
        _ => None,
    });
    assert!(said.is_some_and(|said| said.by == BlockedBy::Park && said.reason.contains("denied")));
    assert_eq!(parking.rig.lane.state(), State::Blocked);
    parking.rig.keep(ms(100));
    assert_eq!(handles(&parking.tell(&[])), [1]);
}

#[test]
fn a_message_without_attempts_is_parked_and_its_key_with_it_while_others_go_on() {
    let mut parking = Parking::knowing(&[]);
    parking.deliver(2, 3, 0);
    let effects = parking.rig.fails();
    assert!(silent(&effects), "it is acknowledged only once it is stored");
    let [(token, 3, _)] = parks(&effects)[..] else { panic!("{effects:?}") };
    let effects = parking.rig.on(Event::Stored { token });
    assert_eq!(acks(&effects), [true]);
    let first = |note: &Note| matches!(note, Note::Parked { sequence: 2, first: true, .. });
    assert!(notes(&effects).iter().any(first));
    assert_eq!(handles(&parking.deliver(3, 1, 1)), [1], "another key");
    parking.rig.done();
    let effects = parking.deliver(4, 1, 0);
    assert!(handles(&effects).is_empty());
    let [(token, 0, _)] = parks(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(acks(&parking.rig.on(Event::Stored { token })), [true]);
}

#[test]
fn what_waits_behind_a_parked_message_does_not_count_for_the_breaker() {
    let mut parking = Parking::knowing(&[]);
    parking.park(2, 0);
    for sequence in 3..9 {
        let effects = parking.deliver(sequence, 1, 0);
        let [(token, ..)] = parks(&effects)[..] else { panic!("{effects:?}") };
        parking.rig.on(Event::Stored { token });
    }
    parking.park(9, 1);
    parking.deliver(10, 1, 2);
    let effects = parking.rig.on(permanent());
    assert!(parks(&effects).is_empty(), "two keys within the window are as many as it allows");
    assert!(effects.contains(&Effect::Breaker { incarnation: 1, sequence: 10 }));
}

#[test]
fn a_key_that_is_parked_stays_so_when_the_policy_changes() {
    let mut parking = Parking::knowing(&[]);
    parking.park(2, 0);
    let mut given = parking_to(ExhaustedPolicy::Block);
    given.settings.paused = false;
    parking.rig.on(Event::Assigned(Arc::new(given)));
    assert_eq!(parks(&parking.deliver(3, 1, 0)).len(), 1);
}

fn parking_to(policy: ExhaustedPolicy) -> Assignment {
    let mut given = parking();
    given.settings.on_exhausted = policy;
    given
}

#[test]
fn what_cannot_be_parked_stays_in_hand_and_was_no_attempt_when_its_handler_was_not_asked() {
    let mut parking = Parking::knowing(&[0]);
    let effects = parking.deliver(2, 1, 0);
    let [(token, ..)] = parks(&effects)[..] else { panic!("{effects:?}") };
    let effects = parking.rig.on(Event::NotStored { token, reason: "full".into() });
    assert!(silent(&effects));
    assert_eq!(parking.rig.lane.state(), State::Blocked);
    assert_eq!(parks(&parking.rig.keep(ms(100))).len(), 1, "sent again");
    let token = parks(&parking.rig.log).last().unwrap().0;
    parking.rig.on(Event::NotStored { token, reason: "full".into() });
    let effects = parking.rig.on(Event::Shutdown { grace: seconds(10) });
    assert_eq!(naks(&effects), [Duration::ZERO]);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Excuse { .. })));
}

#[test]
fn a_release_runs_by_fence_between_two_messages_and_pulls_nothing_meanwhile() {
    let mut parking = Parking::knowing(&[0]);
    let token = parking.begin(release(parking.key(0)));
    // Stored late, and twice.
    let effects = parking.list(token, &[(7, 1), (5, 2), (5, 3)]);
    assert_eq!(handled(&effects), [1_002]);
    let effects = parking.rig.done();
    let deleted = effects
        .iter()
        .any(|effect| matches!(effect, Effect::DeleteParked { stored, .. } if stored == &[2, 3]));
    assert!(deleted, "{effects:?}");
    assert_eq!(handled(&parking.deleted(&effects)), [1_001]);
    assert_eq!(pulls(&parking.rig.log[parking.rig.log.len() - 8..]), 0);
    let effects = parking.released();
    let token = listing(&effects);
    let effects = parking.list(token, &[]);
    assert_eq!(done(&effects), Some(ParkOutcome { messages: 2, drop: false, failure: None }));
    assert_eq!(pulls(&effects), 1, "the lane goes on");
    parking.deliver(8, 1, 0);
    assert_eq!(handles(&parking.tell(&[])), [1], "the key is free");
}

#[test]
fn a_parked_message_that_fails_again_is_retried_and_then_stays_with_all_behind_it() {
    let mut parking = Parking::knowing(&[0]);
    let token = parking.begin(release(parking.key(0)));
    let effects = parking.list(token, &[(5, 1), (6, 2)]);
    assert_eq!(handled(&effects), [1_001]);
    for delay in [100, 200] {
        parking.rig.fails();
        assert_eq!(handled(&parking.rig.pass(ms(delay))), [1_001]);
    }
    let effects = parking.rig.fails();
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::DeleteParked { .. })));
    assert_eq!(
        done(&effects),
        Some(ParkOutcome { messages: 0, drop: false, failure: Some((5, "no".into())) })
    );
}

#[test]
fn an_order_that_is_read_again_after_it_was_done_is_only_said_to_be_done() {
    let mut parking = Parking::knowing(&[0]);
    let order = release(parking.key(0));
    let token = parking.begin(order.clone());
    assert!(done(&parking.list(token, &[])).is_some());
    let effects = parking.rig.on(Event::ParkOrders { incarnation: 1, orders: vec![order], claimed: false });
    assert!(done(&effects).is_some());
    assert!(!parking.rig.pass(seconds(7)).contains(&Effect::Claim { incarnation: 1 }));
}

#[test]
fn dropping_hands_nothing_to_the_handler_and_one_message_may_be_meant() {
    let mut parking = Parking::knowing(&[0]);
    let order = ParkOrder { sequence: Some(6), drop: true, ..release(parking.key(0)) };
    let token = parking.begin(order);
    let effects = parking.list(token, &[(5, 1), (6, 2), (7, 3)]);
    assert!(handled(&effects).is_empty());
    let effects = parking.deleted(&effects);
    let token = listing(&effects);
    let effects = parking.list(token, &[(5, 1), (7, 3)]);
    assert_eq!(done(&effects), Some(ParkOutcome { messages: 1, drop: true, failure: None }));
}

#[test]
fn without_the_claim_nothing_is_released_and_the_lane_goes_on() {
    let mut parking = Parking::knowing(&[0]);
    let orders = vec![release(parking.key(0))];
    parking.rig.on(Event::ParkOrders { incarnation: 1, orders, claimed: false });
    parking.rig.pass(seconds(6));
    let effects = parking.rig.on(Event::Claimed { incarnation: 1, granted: false });
    assert_eq!(pulls(&effects), 1);
}

#[test]
fn a_release_without_proof_of_the_lane_is_given_up_and_its_result_does_not_count() {
    let mut parking = Parking::knowing(&[0]);
    let token = parking.begin(release(parking.key(0)));
    parking.list(token, &[(5, 1)]);
    let effects = parking.rig.pass(WAIT);
    assert!(effects.contains(&Effect::Cancel) && effects.contains(&Effect::Unclaim { incarnation: 1 }));
    let effects = parking.rig.done();
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::DeleteParked { .. })));
}

#[test]
fn a_release_ends_when_the_lanes_messages_go_to_another_worker() {
    let mut parking = Parking::knowing(&[0]);
    let token = parking.begin(release(parking.key(0)));
    parking.list(token, &[(5, 1)]);
    let effects = parking.rig.pass(WAIT / 3);
    let asked = effects.iter().find_map(|effect| match effect {
        Effect::Inspect { token } => Some(*token),
        _ => None,
    });
    let facts = ConsumerFacts { pin: Some("other".into()), ..Rig::facts() };
    let effects = parking.rig.on(Event::Consumer { token: asked.unwrap(), facts });
    assert!(effects.contains(&Effect::Cancel));
    assert_eq!(parking.rig.lane.state(), State::Standby);
}

#[test]
fn a_quiet_lane_that_nobody_is_pinned_to_is_released_too() {
    let mut parking = Parking { rig: Rig::serving_with(parking(), None), ..Parking::new() };
    let order = release(parking.key(0));
    parking.rig.on(Event::ParkOrders { incarnation: 1, orders: vec![order], claimed: false });
    parking.rig.pass(seconds(6));
    let effects = parking.rig.on(Event::Claimed { incarnation: 1, granted: true });
    let token = parking.look(&effects, None);
    assert_eq!(handled(&parking.list(token, &[(5, 1)])), [1_001]);
}

#[test]
fn a_lane_that_retires_lets_the_handler_of_a_parked_message_end_before_it_leaves() {
    let mut parking = Parking::knowing(&[0]);
    let token = parking.begin(release(parking.key(0)));
    parking.list(token, &[(5, 1), (6, 2)]);
    let leaves = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Leave { .. }));
    let retiring = Event::Key { incarnation: 1, retiring: true, excused: None };
    assert!(!leaves(&parking.rig.on(retiring)));
    let effects = parking.rig.done();
    assert!(!leaves(&effects));
    assert!(leaves(&parking.deleted(&effects)), "what is left is for its successor");
}
