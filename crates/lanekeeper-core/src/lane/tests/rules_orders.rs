//! Orders of persons: trying at once, skipping, and when an order is over.

use super::rig::*;
use crate::{
    lane::{ConsumerFacts, Effect, Event, Note, Outcome, State},
    order::{Order, OrderOutcome, OrderResult, Verb},
    record::{Assignment, Breaker, ExhaustedPolicy, Report, Skipped},
};

const BREAKER: Breaker = Breaker { max_exhausted: 2, window_seconds: 60 };

fn under(policy: ExhaustedPolicy) -> Assignment {
    let mut given = assignment(1);
    given.settings.on_exhausted = policy;
    given
}

fn dead_letters() -> ExhaustedPolicy {
    ExhaustedPolicy::DeadLetter { stream: "DEAD".into(), subject: "dead".into(), breaker: BREAKER }
}

fn order(id: &str, verb: Verb, sequence: u64) -> Order {
    Order {
        id: id.into(),
        verb,
        key: key_of(&subject_of(assignment(1).share)),
        sequence: Some(sequence),
        through: None,
        reason: "it is a duplicate".into(),
        by: "ann".into(),
        at: "2026-01-01T00:00:00Z".into(),
        begun: false,
    }
}

fn retry(sequence: u64) -> Order {
    order("r", Verb::Retry, sequence)
}

fn skip(sequence: u64) -> Order {
    order("s", Verb::Skip, sequence)
}

fn skip_key(through: u64) -> Order {
    Order { sequence: None, through: Some(through), ..skip(0) }
}

fn given(orders: &[Order]) -> Event<'static> {
    Event::Orders { incarnation: 1, orders: orders.to_vec() }
}

/// Id, outcome and number of messages of each order that is over.
fn ended(effects: &[Effect]) -> Vec<(String, OrderOutcome, u64)> {
    let result = |effect: &Effect| match effect {
        Effect::OrderEnded { incarnation: 1, result: OrderResult { id, outcome, messages, .. } } => {
            Some((id.clone(), outcome.clone(), *messages))
        }
        _ => None,
    };
    effects.iter().filter_map(result).collect()
}

fn skips(effects: &[Effect]) -> Vec<(u64, u64)> {
    let skipped = |note: Note| match note {
        Note::Skipped { sequence, attempts, reason, by } => {
            assert_eq!((reason.as_str(), by.as_str()), ("it is a duplicate", "ann"));
            Some((sequence, attempts))
        }
        _ => None,
    };
    notes(effects).into_iter().filter_map(skipped).collect()
}

fn letters(effects: &[Effect]) -> Vec<(u64, String)> {
    let letter = |effect: &Effect| match effect {
        Effect::DeadLetter { token, reason, .. } => Some((*token, reason.clone())),
        _ => None,
    };
    effects.iter().filter_map(letter).collect()
}

/// A lane that stands at message 5 after its last attempt.
fn standing(policy: ExhaustedPolicy) -> Rig {
    let mut rig = Rig::serving_with(under(policy), None);
    rig.deliver(5, 3);
    rig.fails();
    rig
}

#[test]
fn the_message_at_which_a_lane_stands_is_tried_at_once_and_once() {
    let mut rig = standing(ExhaustedPolicy::Block);
    assert_eq!(rig.lane.state(), State::Blocked);
    let effects = rig.on(given(&[retry(5)]));
    assert_eq!(naks(&effects), [ms(0)]);
    let effects = rig.deliver(5, 4);
    assert_eq!(handles(&effects), [4]);
    assert!(effects.contains(&Effect::OrderBegun { incarnation: 1, id: "r".into() }));
    let effects = rig.fails();
    assert_eq!(ended(&effects), [("r".into(), OrderOutcome::Failed, 1)]);
    assert_eq!(rig.lane.state(), State::Blocked);
    // Read again before the result is written.
    let effects = rig.on(given(&[retry(5)]));
    assert_eq!(ended(&effects).len(), 1, "the result is written again");
    assert!(naks(&effects).is_empty(), "and nothing is tried for it");
}

#[test]
fn a_message_that_succeeds_when_it_is_tried_is_told_once_it_is_settled() {
    let mut rig = standing(ExhaustedPolicy::Block);
    rig.on(given(&[retry(5)]));
    rig.deliver(5, 4);
    let effects = rig.done();
    assert!(ended(&effects).is_empty());
    let effects = rig.deliver(6, 1);
    assert_eq!(ended(&effects), [("r".into(), OrderOutcome::Succeeded, 1)]);
    assert_eq!(handles(&effects), [1]);
}

#[test]
fn a_message_that_waits_for_its_next_attempt_is_called_back() {
    let mut rig = Rig::serving();
    rig.deliver(5, 2);
    assert_eq!(naks(&rig.fails()), [ms(200)]);
    assert_eq!(rig.lane.state(), State::RetryWait);
    assert_eq!(naks(&rig.on(given(&[retry(5)]))), [ms(0)]);
    assert_eq!(handles(&rig.deliver(5, 3)), [3]);

    // When the wait is over it may be another's.
    let mut rig = Rig::serving();
    rig.deliver(5, 2);
    rig.fails();
    rig.freeze(ms(200));
    let effects = rig.on(given(&[retry(5)]));
    assert!(silent(&effects), "{effects:?}");
    assert_eq!(handles(&rig.deliver(5, 3)), [3]);
}

#[test]
fn a_message_without_attempts_left_is_tried_although_the_policy_would_put_it_away() {
    let mut rig = standing(dead_letters());
    let [(token, _)] = &letters(&rig.log.clone())[..] else { panic!("it becomes a dead letter") };
    rig.on(Event::NotStored { token: *token, reason: "full".into() });
    assert_eq!(naks(&rig.on(given(&[retry(5)]))), [ms(0)]);
    assert_eq!(handles(&rig.deliver(5, 4)), [4]);
    let effects = rig.fails();
    assert_eq!(ended(&effects), [("r".into(), OrderOutcome::Failed, 1)]);
    assert_eq!(letters(&effects).len(), 1, "then the policy decides again");
}

#[test]
fn an_attempt_that_kills_its_worker_is_not_made_again_for_the_same_order() {
    let mut rig = Rig::new();
    rig.on(Event::Connected);
    rig.on(Event::Assigned(std::sync::Arc::new(under(dead_letters()))));
    rig.answer_inspection(Rig::facts());
    rig.on(given(&[Order { begun: true, ..retry(5) }]));
    rig.on(Event::Joined { incarnation: 1, retiring: false, excused: None });
    let effects = rig.deliver(5, 5);
    assert!(handles(&effects).is_empty());
    let [(token, _)] = letters(&effects)[..] else { panic!("{effects:?}") };
    rig.on(Event::Stored { token });
    assert_eq!(ended(&rig.deliver(6, 1)), [("r".into(), OrderOutcome::Failed, 1)]);
}

#[test]
fn an_order_given_while_the_handler_runs_applies_if_that_attempt_fails() {
    let mut rig = Rig::serving();
    rig.deliver(5, 3);
    let effects = rig.on(given(&[retry(5)]));
    assert!(silent(&effects) && !effects.contains(&Effect::Cancel));
    let effects = rig.fails();
    assert_eq!((naks(&effects), ended(&effects)), (vec![ms(0)], vec![]), "one further attempt");
    assert_eq!(handles(&rig.deliver(5, 4)), [4]);

    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    let effects = rig.on(given(&[skip(5)]));
    assert!(silent(&effects) && !effects.contains(&Effect::Cancel));
    let effects = rig.fails();
    assert_eq!((skips(&effects), acks(&effects)), (vec![(5, 1)], vec![true]));

    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.on(given(&[skip(5)]));
    rig.done();
    let effects = rig.deliver(6, 1);
    assert_eq!(ended(&effects), [("s".into(), OrderOutcome::Void, 0)], "it was handled after all");
    assert_eq!(handles(&effects), [1]);
}

#[test]
fn a_skipped_message_is_acknowledged_without_the_handler_and_said() {
    let mut rig = standing(ExhaustedPolicy::Block);
    let effects = rig.on(given(&[skip(5)]));
    assert_eq!((skips(&effects), acks(&effects)), (vec![(5, 3)], vec![true]));
    let said = effects.iter().find_map(|effect| match effect {
        Effect::Report(Report { skipped: Some(Skipped { sequence, reason, by }), .. }) => {
            Some((*sequence, reason.clone(), by.clone()))
        }
        _ => None,
    });
    assert_eq!(said, Some((5, "it is a duplicate".into(), "ann".into())));
    let effects = rig.deliver(6, 1);
    assert_eq!(ended(&effects), [("s".into(), OrderOutcome::Skipped, 1)]);
    assert_eq!(handles(&effects), [1], "no other is skipped");
    let effects = rig.on(given(&[skip(5)]));
    assert_eq!(ended(&effects), [("s".into(), OrderOutcome::Skipped, 1)]);
    assert!(skips(&rig.fails()).is_empty(), "not even when it is read again");
}

#[test]
fn a_message_that_waits_or_has_not_come_yet_is_skipped_when_it_comes() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.fails();
    assert_eq!(naks(&rig.on(given(&[skip(5), Order { id: "t".into(), ..skip(7) }]))), [ms(0)]);
    let effects = rig.deliver(5, 2);
    assert_eq!((handles(&effects), skips(&effects)), (vec![], vec![(5, 1)]));
    assert_eq!(handles(&rig.deliver(6, 1)), [1]);
    rig.done();
    assert_eq!(skips(&rig.deliver(7, 1)), [(7, 0)]);
    assert_eq!(ended(&rig.deliver(8, 1)), [("t".into(), OrderOutcome::Skipped, 1)]);
}

#[test]
fn a_whole_key_is_skipped_up_to_what_was_there_and_no_other_key() {
    let mut rig = Rig::serving();
    let ours = rig.subject.clone();
    let share = assignment(1).share;
    let other = (0..1_000).map(|number| format!("orders.z{number}"));
    let mut other = other.filter(|subject| share.contains_hash(mapping().key_hash(subject).unwrap()));
    let other = mapping().stored_subject(&other.next().unwrap()).unwrap();
    rig.on(given(&[skip_key(7)]));
    assert_eq!(skips(&rig.deliver(5, 1)), [(5, 0)]);
    rig.subject = other;
    assert_eq!(handles(&rig.deliver(6, 1)), [1]);
    rig.done();
    rig.subject = ours;
    let effects = rig.deliver(7, 1);
    assert_eq!((skips(&effects), ended(&effects).len()), (vec![(7, 0)], 0));
    let effects = rig.deliver(8, 1);
    assert_eq!(ended(&effects), [("s".into(), OrderOutcome::Skipped, 2)]);
    assert_eq!(handles(&effects), [1], "it came later than the order");
}

#[test]
fn with_dead_letters_a_skipped_message_is_stored_before_it_is_acknowledged() {
    let mut rig = Rig::serving_with(under(dead_letters()), None);
    rig.on(given(&[skip(5)]));
    let effects = rig.deliver(5, 1);
    let [(token, reason)] = &letters(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(reason, "skipped by ann: it is a duplicate");
    assert!(silent(&effects) && skips(&effects).is_empty());
    let effects = rig.on(Event::NotStored { token: *token, reason: "full".into() });
    assert!(silent(&effects) && skips(&effects).is_empty(), "never lost");
    let [(token, _)] = letters(&rig.keep(seconds(1)))[..] else { panic!("it is sent again") };
    // The key is read in between, from a copy that lags.
    rig.on(given(&[]));
    let effects = rig.on(Event::Stored { token });
    assert_eq!((skips(&effects), acks(&effects)), (vec![(5, 0)], vec![true]));
}

#[test]
fn skipping_does_not_count_for_the_breaker() {
    let mut rig = Rig::serving_with(under(dead_letters()), None);
    rig.on(given(&[skip_key(9)]));
    for sequence in 5..10 {
        let [(token, _)] = letters(&rig.deliver(sequence, 1))[..] else { panic!("it is stored") };
        rig.on(Event::Stored { token });
    }
    rig.deliver(10, 1);
    let effects = rig.on(Event::Handled(Outcome::Permanent { reason: "422".into() }));
    assert_eq!(letters(&effects).len(), 1);
}

#[test]
fn a_held_message_is_skipped_or_tried_at_once() {
    let unreachable = || Event::Handled(Outcome::Unreachable { reason: "refused".into() });
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.on(unreachable());
    assert_eq!(rig.lane.state(), State::Held);
    assert_eq!(handles(&rig.on(given(&[retry(5)]))), [1]);
    assert!(handles(&rig.on(unreachable())).is_empty(), "no hot loop");
    let effects = rig.on(given(&[retry(5), skip(5)]));
    assert_eq!((skips(&effects), acks(&effects)), (vec![(5, 0)], vec![true]));
}

#[test]
fn an_order_for_what_the_lane_is_past_is_void() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.done();
    rig.deliver(6, 1);
    let effects = rig.on(given(&[skip(5), retry(4)]));
    let void = |id: &str| (id.to_owned(), OrderOutcome::Void, 0);
    assert_eq!(ended(&effects), [void("s"), void("r")]);
    assert!(silent(&effects));
}

#[test]
fn an_idle_lane_looks_whether_it_is_past_an_order_and_leaves_the_word_to_the_owner() {
    let owned = |pin: Option<&str>, floor| ConsumerFacts {
        ack_pending: 0,
        pin: pin.map(Into::into),
        floor,
        ..Rig::facts()
    };
    let mut rig = Rig::serving();
    let effects = rig.on(given(&[skip(5)]));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Inspect { .. })), "{effects:?}");
    assert!(ended(&rig.answer_inspection(owned(None, 4))).is_empty(), "it may still come");
    let mut standby = Rig::serving();
    standby.on(given(&[skip(5)]));
    assert!(ended(&standby.answer_inspection(owned(Some("other"), 5))).is_empty());
    rig.on(given(&[skip(5)]));
    assert_eq!(ended(&rig.answer_inspection(owned(None, 5))), [("s".into(), OrderOutcome::Void, 0)]);
}

#[test]
fn an_order_that_stood_there_before_the_worker_came_is_carried_out_by_it() {
    let mut rig = Rig::new();
    rig.on(Event::Connected);
    rig.on(Event::Assigned(std::sync::Arc::new(under(ExhaustedPolicy::Block))));
    rig.answer_inspection(Rig::facts());
    rig.on(given(&[skip(5)]));
    rig.on(Event::Joined { incarnation: 1, retiring: false, excused: None });
    assert_eq!(skips(&rig.deliver(5, 7)), [(5, 6)]);
}

#[test]
fn what_is_not_known_is_left_alone() {
    let mut rig = standing(ExhaustedPolicy::Block);
    let effects = rig.on(given(&[order("n", Verb::Other("praise".into()), 5)]));
    assert!(silent(&effects) && ended(&effects).is_empty());
    let effects = rig.on(Event::Orders { incarnation: 2, orders: vec![skip(5)] });
    assert!(silent(&effects), "of another lane");
}
