//! A pipelined lane: going on, gaps, deadlines, retries in place, and giving back.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::rig::{PARK, Rig, WAIT, assignment, handles, ms, naks, notes, pulls, seconds};
use crate::{
    lane::{ConsumerFacts, Delivered, Effect, Event, Note, Outcome, PullStatus, State},
    park::ParkOrder,
    record::{Assignment, Breaker, Delivery, ExhaustedPolicy, Park},
};

pub(super) const WINDOW: u32 = 8;

fn facts(ack_pending: u64, floor: u64, delivered: u64, deliveries: u64) -> ConsumerFacts {
    ConsumerFacts {
        shortest_wait: WAIT,
        max_ack_pending: i64::from(WINDOW),
        ack_pending,
        floor,
        delivered,
        deliveries,
        pin: None,
    }
}

/// In, at a consumer with these facts, and asked what is out.
fn joined(found: &ConsumerFacts) -> Rig {
    joined_by(Rig::new(), Delivery::Pipelined { window: WINDOW }, found)
}

fn joined_by(rig: Rig, delivery: Delivery, found: &ConsumerFacts) -> Rig {
    let mut assignment = assignment(1);
    assignment.settings.delivery = delivery;
    joined_as(rig, assignment, found)
}

fn joined_as(mut rig: Rig, assignment: Assignment, found: &ConsumerFacts) -> Rig {
    rig.on(Event::Connected);
    rig.on(Event::Assigned(Arc::new(assignment)));
    rig.answer_inspection(found.clone());
    let effects = rig.on(Event::Joined { incarnation: 1, retiring: false, excused: None });
    assert_eq!(pulls(&effects), 1);
    rig
}

/// In, with nothing out.
fn serving() -> Rig {
    serving_by(Rig::new(), Delivery::Pipelined { window: WINDOW })
}

pub(super) fn serving_by(rig: Rig, delivery: Delivery) -> Rig {
    let nothing = facts(0, 0, 0, 0);
    let mut rig = joined_by(rig, delivery, &nothing);
    rig.answer_inspection(nothing);
    rig
}

/// The driver's number of a message is made of both sequences, so that tests can tell which is meant.
fn message(sequence: u64, consumer_sequence: u64) -> u64 {
    consumer_sequence * 1_000 + sequence
}

pub(super) fn deliver(rig: &mut Rig, sequence: u64, consumer_sequence: u64) -> Vec<Effect> {
    let (pull, subject) = (rig.last_pull().id, rig.subject.clone());
    rig.on(Event::Delivered(Delivered {
        message: message(sequence, consumer_sequence),
        pull,
        sequence,
        consumer_sequence,
        deliveries: 1,
        subject: &subject,
        pin: None,
    }))
}

fn handled(effects: &[Effect]) -> Vec<u64> {
    let message = |effect: &Effect| match effect {
        Effect::Handle { message, .. } => Some(message % 1_000),
        _ => None,
    };
    effects.iter().filter_map(message).collect()
}

pub(super) fn acked(effects: &[Effect]) -> Vec<u64> {
    let messages = |effect: &Effect| match effect {
        Effect::Acks { messages, .. } => messages.iter().map(|message| message % 1_000).collect(),
        _ => Vec::new(),
    };
    effects.iter().flat_map(messages).collect()
}

/// The acks that were sent last are answered.
pub(super) fn answer(rig: &mut Rig) -> Vec<Effect> {
    let token = |effect: &Effect| match effect {
        Effect::Acks { token, .. } => Some(*token),
        _ => None,
    };
    let token = rig.log.iter().rev().find_map(token).expect("something was acknowledged");
    rig.on(Event::Answered { token })
}

fn list(effects: &[Effect]) -> (u64, u64, u64) {
    let asked = |effect: &Effect| match effect {
        Effect::List { token, after, until } => Some((*token, *after, *until)),
        _ => None,
    };
    effects.iter().find_map(asked).unwrap_or_else(|| panic!("the stream is not asked: {effects:?}"))
}

#[test]
fn the_next_message_begins_at_once_and_acks_are_for_several() {
    let mut rig = serving();
    assert_eq!(handled(&deliver(&mut rig, 1, 1)), [1]);
    for sequence in 2..=6 {
        assert!(handled(&deliver(&mut rig, sequence, sequence)).is_empty(), "one at a time");
    }
    for sequence in 1..=3 {
        let effects = rig.done();
        assert_eq!((handled(&effects), acked(&effects)), (vec![sequence + 1], vec![]));
    }
    let effects = rig.done();
    assert_eq!((handled(&effects), acked(&effects)), (vec![5], vec![1, 2, 3, 4]), "half a window");
    answer(&mut rig);
    rig.done();
    assert!(acked(&rig.pass(ms(1))).is_empty());
    assert_eq!(acked(&rig.pass(ms(1))), [5], "or as soon as nothing more comes");
    assert_eq!(rig.lane.state(), State::Handling);
}

#[test]
fn acks_are_repeated_until_the_last_of_them_is_answered() {
    let mut rig = serving();
    for sequence in 1..=3 {
        deliver(&mut rig, sequence, sequence);
    }
    rig.done();
    assert_eq!(acked(&rig.pass(ms(2))), [1]);
    rig.done();
    assert_eq!(acked(&rig.pass(ms(2))), [2]);
    assert_eq!(acked(&rig.pass(seconds(1))), [1, 2], "both, for the first may not have arrived either");
    let effects = answer(&mut rig);
    assert!(notes(&effects).contains(&Note::Settled(2)));
    assert!(acked(&rig.pass(seconds(3))).is_empty());
}

#[test]
fn after_a_gap_nothing_begins_before_everything_that_is_out_is_on_hand() {
    let mut rig = serving();
    deliver(&mut rig, 1, 1);
    deliver(&mut rig, 4, 3);
    let effects = rig.done();
    assert_eq!((handled(&effects), acked(&effects)), (vec![], vec![1]), "what is sure is worked off");
    answer(&mut rig);
    let effects = rig.answer_inspection(facts(2, 1, 4, 3));
    let (token, after, until) = list(&effects);
    assert_eq!((after, until), (1, 4));
    assert!(handled(&rig.on(Event::Listed { token, sequences: vec![2, 4] })).is_empty());
    assert_eq!(rig.lane.state(), State::Gathering);
    let effects = deliver(&mut rig, 2, 4);
    assert_eq!(handled(&effects), [2]);
    assert_eq!(handled(&rig.done()), [4]);
}

#[test]
fn a_takeover_waits_for_what_another_worker_had_and_forgets_what_was_deleted() {
    let mut rig = joined(&facts(3, 5, 9, 20));
    let (token, ..) = list(&rig.answer_inspection(facts(3, 5, 9, 20)));
    // The consumer counts one that the stream has no more: perhaps only this replica has it not yet.
    rig.on(Event::Listed { token, sequences: vec![6, 9] });
    deliver(&mut rig, 10, 21);
    deliver(&mut rig, 9, 22);
    rig.pass(seconds(1));
    let (token, ..) = list(&rig.answer_inspection(facts(4, 5, 10, 22)));
    rig.on(Event::Listed { token, sequences: vec![6, 9, 10] });
    rig.pass(seconds(1));
    let (token, ..) = list(&rig.answer_inspection(facts(4, 5, 10, 22)));
    assert!(handled(&rig.on(Event::Listed { token, sequences: vec![6, 9, 10] })).is_empty());
    let gone = |effect: &Effect| match effect {
        Effect::AckGone { sequences, .. } => Some(sequences.clone()),
        _ => None,
    };
    assert_eq!(
        rig.log.iter().find_map(gone),
        Some(vec![7, 8]),
        "the lane's or another's, nobody can handle them"
    );
    assert_eq!(handled(&deliver(&mut rig, 6, 23)), [6]);
    assert_eq!(handled(&rig.done()), [9]);
    assert_eq!(handled(&rig.done()), [10]);
}

#[test]
fn a_floor_that_lags_behind_what_was_acknowledged_holds_nobody_up() {
    let mut rig = joined(&facts(2, 3, 9, 20));
    for _ in 0..2 {
        let (token, ..) = list(&rig.answer_inspection(facts(2, 3, 9, 20)));
        rig.on(Event::Listed { token, sequences: vec![4, 5, 6, 7, 8, 9] });
        rig.pass(seconds(1));
    }
    assert!(handled(&deliver(&mut rig, 9, 21)).is_empty(), "the consumer counts two");
    assert_eq!(handled(&deliver(&mut rig, 8, 22)), [8]);
    assert_eq!(handled(&rig.done()), [9]);
}

#[test]
fn nothing_is_asked_while_another_worker_has_the_pin() {
    let pinned = ConsumerFacts { pin: Some("other".into()), ..facts(3, 5, 9, 20) };
    let mut rig = joined(&pinned);
    let effects = rig.answer_inspection(pinned);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::List { .. })));
    assert_eq!(rig.lane.state(), State::Standby);
    let effects = deliver(&mut rig, 6, 21);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Inspect { .. })), "it is ours now");
}

#[test]
fn every_message_on_hand_is_kept_alive_and_a_fast_lane_says_nothing() {
    let mut rig = serving();
    deliver(&mut rig, 1, 1);
    deliver(&mut rig, 2, 2);
    let quick = rig.pass(WAIT * 3 / 10);
    assert_eq!(quick.iter().filter(|effect| matches!(effect, Effect::Progress { .. })).count(), 0);
    let effects = rig.keep(WAIT * 3);
    let kept = |wanted: u64| {
        let kept = |effect: &&Effect| matches!(effect, Effect::Progress { message, .. } if message % 1_000 == wanted);
        effects.iter().filter(kept).count()
    };
    assert!(kept(1) >= 8 && kept(2) >= 8, "{} and {}", kept(1), kept(2));
    assert_eq!(rig.lane.state(), State::Handling);
}

#[test]
fn past_the_deadline_of_one_behind_that_and_what_follows_is_given_up() {
    let mut rig = serving();
    deliver(&mut rig, 1, 1);
    deliver(&mut rig, 2, 2);
    let token = rig.pass(WAIT / 3).iter().find_map(|effect| match effect {
        Effect::Progress { message, token } if message % 1_000 == 1 => Some(*token),
        _ => None,
    });
    rig.on(Event::Answered { token: token.unwrap() });
    let effects = rig.pass(WAIT * 2 / 3);
    assert!(notes(&effects).contains(&Note::LostBehind { first: 2, messages: 1 }), "{effects:?}");
    assert!(!effects.contains(&Effect::Cancel), "the one in hand has a proof of its own");
    assert!(handled(&rig.done()).is_empty());
}

#[test]
fn a_failed_message_is_tried_in_its_place_and_nothing_is_given_back() {
    let mut rig = serving();
    deliver(&mut rig, 1, 1);
    deliver(&mut rig, 2, 2);
    let mut effects = rig.fails();
    assert_eq!(rig.lane.state(), State::RetryWait);
    effects.extend(rig.pass(ms(100)));
    effects.extend(rig.fails());
    effects.extend(rig.pass(ms(200)));
    assert_eq!(handles(&effects), [2, 3], "attempts");
    effects.extend(rig.fails());
    assert_eq!(rig.lane.state(), State::Blocked);
    effects.extend(rig.keep(Duration::from_secs(30)));
    effects.extend(rig.done());
    assert_eq!(handled(&effects), [1, 1, 1, 2]);
    assert!(naks(&effects).is_empty());
}

#[test]
fn who_waits_for_its_handler_makes_no_attempt_of_it() {
    let mut rig = serving();
    deliver(&mut rig, 1, 1);
    for _ in 0..5 {
        rig.on(Event::Handled(Outcome::Unreachable { reason: "refused".into() }));
        let effects = rig.keep(seconds(5));
        assert_eq!(handles(&effects).last(), Some(&1));
    }
}

#[test]
fn a_shutdown_finishes_one_acknowledges_and_gives_the_rest_back_in_order() {
    let mut rig = serving();
    for sequence in 1..=4 {
        deliver(&mut rig, sequence, sequence);
    }
    assert!(handled(&rig.on(Event::Shutdown { grace: seconds(60) })).is_empty());
    let effects = rig.done();
    assert_eq!((handled(&effects), acked(&effects)), (vec![], vec![1]), "at once");
    let effects = answer(&mut rig);
    assert!(naks(&effects).is_empty(), "the pull may still bring them back to us");
    let pull = rig.last_pull().id;
    let effects = rig.on(Event::PullEnded { pull, status: PullStatus::Expired });
    let given: Vec<u64> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Nak { message, .. } => Some(message % 1_000),
            _ => None,
        })
        .collect();
    assert_eq!(given, [2, 3, 4]);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Leave { .. })));
    assert!(acked(&rig.pass(seconds(1))).is_empty());
}

#[test]
fn a_lane_that_retires_acknowledges_what_it_completed_and_gives_nothing_back() {
    let mut rig = serving();
    deliver(&mut rig, 1, 1);
    deliver(&mut rig, 2, 2);
    rig.on(Event::Key { incarnation: 1, retiring: true, excused: None });
    let effects = rig.done();
    assert_eq!(acked(&effects), [1]);
    let effects = answer(&mut rig);
    assert!(naks(&effects).is_empty());
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Leave { .. })));
}

#[test]
fn an_order_about_parked_messages_waits_until_a_lane_has_what_is_out_and_does_not_keep_it_from_it() {
    let mut given = assignment(1);
    given.settings.delivery = Delivery::Pipelined { window: WINDOW };
    given.settings.on_exhausted =
        ExhaustedPolicy::ParkKey { breaker: Breaker { max_exhausted: 10, window_seconds: 600 } };
    given.settings.park = Some(Park { stream: "PARK".into(), prefix: PARK.into() });
    let out = facts(1, 0, 1, 1);
    let mut rig = joined_as(Rig::new(), given, &out);
    let (token, ..) = list(&rig.answer_inspection(out));
    rig.on(Event::Listed { token, sequences: vec![1] });
    let order = ParkOrder { id: "one".into(), key: "k".into(), sequence: None, drop: false };
    rig.on(Event::ParkOrders { incarnation: 1, orders: vec![order], claimed: false });
    let pull = rig.last_pull().id;
    let effects = rig.on(Event::PullEnded { pull, status: PullStatus::Expired });
    let effects = [effects, rig.pass(seconds(1))].concat();
    assert_eq!(pulls(&effects), 1, "how else should the message come that is out");
    let effects = deliver(&mut rig, 1, 2);
    let token = effects.iter().find_map(|effect| match effect {
        Effect::LoadParked { token } => Some(*token),
        _ => None,
    });
    let effects = rig.on(Event::ParkedKeys { token: token.unwrap(), keys: BTreeSet::new() });
    assert_eq!(handled(&effects), [1]);
    rig.done();
    rig.pass(ms(2));
    answer(&mut rig);
    let pull = rig.last_pull().id;
    let effects = rig.on(Event::PullEnded { pull, status: PullStatus::Expired });
    assert_eq!(pulls(&effects), 0);
    assert!(effects.contains(&Effect::Claim { incarnation: 1 }), "{effects:?}");
}

#[test]
fn a_policy_that_changes_while_a_lane_stands_is_followed_at_the_next_try_with_the_handlers_words() {
    let breaker = Breaker { max_exhausted: 10, window_seconds: 600 };
    let dead_letter = ExhaustedPolicy::DeadLetter { stream: "DEAD".into(), subject: "dead".into(), breaker };
    for policy in [dead_letter, ExhaustedPolicy::ParkKey { breaker }] {
        let mut rig = serving();
        deliver(&mut rig, 1, 1);
        rig.on(Event::Handled(Outcome::Permanent { reason: "422".into() }));
        assert_eq!(rig.lane.state(), State::Blocked);
        let mut given = assignment(1);
        given.settings.delivery = Delivery::Pipelined { window: WINDOW };
        // One attempt is all.
        given.settings.retry.max_attempts = 1;
        given.settings.on_exhausted = policy.clone();
        given.settings.park = Some(Park { stream: "PARK".into(), prefix: PARK.into() });
        rig.on(Event::Assigned(Arc::new(given)));
        let mut effects = rig.keep(seconds(31));
        let asked = effects.iter().find_map(|effect| match effect {
            Effect::LoadParked { token } => Some(*token),
            _ => None,
        });
        effects.extend(rig.on(Event::ParkedKeys { token: asked.unwrap(), keys: BTreeSet::new() }));
        let put_away = effects.iter().find_map(|effect| match effect {
            Effect::DeadLetter { reason, .. } | Effect::Park { reason, .. } => Some(reason.as_str()),
            _ => None,
        });
        assert_eq!(put_away, Some("422"), "{policy:?}: {effects:?}");
    }
}
