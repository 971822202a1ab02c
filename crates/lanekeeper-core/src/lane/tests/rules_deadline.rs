//! How long a message may be kept, and what happens when that is over.

use super::rig::*;
use crate::lane::{ConsumerFacts, Effect, Event, Note, State};

#[test]
fn the_deadline_counts_from_the_sending_of_the_pull() {
    let mut rig = Rig::serving();
    rig.freeze(seconds(14));
    assert_eq!(handles(&rig.deliver(5, 1)), [1]);
    let effects = rig.pass(seconds(1));
    assert!(effects.contains(&Effect::Cancel) && notes(&effects).contains(&Note::Lost(5)));
}

#[test]
fn a_message_past_its_deadline_is_dropped_without_a_word() {
    let mut rig = Rig::serving();
    let pull = rig.last_pull().id;
    rig.freeze(seconds(15));
    let effects = rig.deliver_to(pull, 5, 1);
    assert!(handles(&effects).is_empty() && silent(&effects));
    assert!(notes(&effects).contains(&Note::Stale(5)));
}

#[test]
fn a_pull_is_answered_once() {
    let mut rig = Rig::serving();
    let pull = rig.last_pull().id;
    rig.deliver_to(pull, 5, 1);
    rig.done();
    let effects = rig.deliver_to(pull, 6, 1);
    assert!(handles(&effects).is_empty());
    assert!(notes(&effects).contains(&Note::Stale(6)));
}

#[test]
fn answered_progress_keeps_a_message_for_as_long_as_the_handler_may_take() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    for _ in 0..11 {
        assert_eq!(progress(&rig.pass(seconds(5))), 1);
        let token = rig.log.iter().rev().find_map(|effect| match effect {
            Effect::Progress { token, .. } => Some(*token),
            _ => None,
        });
        rig.on(Event::Answered { token: token.unwrap() });
    }
    assert_eq!(rig.lane.state(), State::Handling);
    assert_eq!(acks(&rig.done()).len(), 1);
}

#[test]
fn progress_that_nobody_answers_is_no_proof() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    let effects = rig.pass(seconds(15));
    assert_eq!(progress(&effects), 2);
    assert!(effects.contains(&Effect::Cancel));
    let effects = rig.done();
    assert!(silent(&effects), "the result is discarded");
    assert_eq!(rig.lane.state(), State::Lost);
}

#[test]
fn an_answer_that_comes_after_the_deadline_changes_nothing() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.pass(seconds(14));
    let token = rig.last_token();
    rig.freeze(seconds(1));
    let effects = rig.on(Event::Answered { token });
    assert!(notes(&effects).contains(&Note::Lost(5)));
}

#[test]
fn an_answer_extends_only_to_its_own_sending_plus_the_deadline() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.pass(seconds(5));
    let token = rig.last_token();
    rig.on(Event::Disconnected);
    rig.pass(seconds(9));
    rig.on(Event::Answered { token });
    assert!(!notes(&rig.pass(ms(5_999))).contains(&Note::Lost(5)));
    assert!(notes(&rig.pass(ms(1))).contains(&Note::Lost(5)));
}

#[test]
fn a_frozen_worker_that_wakes_up_sends_nothing_for_the_old_message() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.freeze(seconds(30));
    let effects = rig.done();
    assert!(silent(&effects), "{effects:?}");
    assert_eq!(pulls(&effects), 1, "it asks for work again");
}

#[test]
fn an_ack_that_is_never_answered_loses_the_message_and_the_lane_goes_on() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.done();
    let effects = rig.pass(seconds(16));
    assert!(notes(&effects).contains(&Note::Lost(5)));
    let effects = rig.deliver(6, 1);
    assert!(handles(&effects).is_empty(), "whether 5 is settled is asked first");
    assert_eq!(handles(&rig.answer_inspection(Rig::facts())), [1]);
}

#[test]
fn a_backoff_list_shortens_everything_that_is_timed() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.pass(ms(250));
    let shorter = ConsumerFacts { shortest_wait: seconds(1), ..Rig::facts() };
    rig.answer_inspection(shorter);
    let effects = rig.pass(ms(100));
    assert_eq!(progress(&effects), 1, "a third of the new deadline has passed: {effects:?}");
    rig.answer_last();
    assert_eq!(progress(&rig.pass(ms(334))), 1);
    assert!(notes(&rig.pass(seconds(1))).contains(&Note::Lost(5)));
    rig.pass(seconds(1));
    assert!(rig.last_pull().expires <= ms(334));
    assert!(rig.last_pull().heartbeat * 2 <= rig.last_pull().expires);
}

#[test]
fn the_same_message_delivered_again_to_its_holder_begins_its_clock_again() {
    let mut rig = Rig::serving();
    let first = rig.last_pull().id;
    rig.on(Event::Disconnected);
    rig.on(Event::Connected);
    let second = rig.last_pull().id;
    rig.deliver_to(first, 5, 1);
    rig.pass(seconds(4));
    let effects = rig.deliver_to(second, 5, 2);
    assert_eq!(effects, [Effect::Forget { message: 1 }]);
    let acked = rig.done();
    assert!(matches!(acked[1], Effect::Ack { message: 2, .. }), "{acked:?}");
}

#[test]
fn a_handler_that_takes_too_long_has_failed() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    let mut effects = Vec::new();
    for _ in 0..20 {
        effects.extend(rig.pass(seconds(3)));
        if rig.lane.state() != State::Handling {
            break;
        }
        rig.answer_last();
    }
    assert!(effects.contains(&Effect::Cancel));
    assert_eq!(naks(&effects), [ms(100)]);
}
