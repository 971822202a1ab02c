//! The pin: which worker the server gives messages to.

use std::sync::Arc;

use super::rig::*;
use crate::lane::{ConsumerFacts, Effect, Event, Note, PullStatus, Renewal, State};

fn renewals(effects: &[Effect]) -> Vec<Renewal> {
    let renewal = |effect: &Effect| match effect {
        Effect::Renew(renewal) => Some(renewal.clone()),
        _ => None,
    };
    effects.iter().filter_map(renewal).collect()
}

/// Where among the effects an unpin and a leave are.
fn unpin_and_leave(effects: &[Effect]) -> (Option<usize>, Option<usize>) {
    (
        effects.iter().position(|effect| *effect == Effect::Unpin),
        effects.iter().position(|effect| matches!(effect, Effect::Leave { .. })),
    )
}

fn pin_of(rig: &Rig) -> Option<Arc<str>> {
    rig.last_pull().pin
}

#[test]
fn the_first_pull_has_no_pin_and_those_after_a_message_have_its() {
    let mut rig = Rig::pinned();
    assert_eq!(pin_of(&rig), None);
    assert!(!rig.lane.owns());
    let effects = rig.deliver(1, 1);
    assert!(notes(&effects).contains(&Note::Pinned));
    assert!(rig.lane.owns());
    rig.done();
    assert_eq!(pin_of(&rig).as_deref(), Some("pin1"), "it rides on the ack");
    let effects = rig.deliver(2, 1);
    assert!(!notes(&effects).contains(&Note::Pinned), "said once");
}

#[test]
fn while_a_message_is_in_hand_the_pin_is_renewed_with_the_message() {
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    let mut times = Vec::new();
    for second in 1..=14 {
        let effects = rig.pass(seconds(1));
        assert_eq!(pulls(&effects), 0, "nothing that could bring a message");
        let renewed = renewals(&effects);
        assert_eq!(renewed.len(), progress(&effects));
        if let [renewal] = &renewed[..] {
            times.push(second);
            assert_eq!(&*renewal.pin, "pin1");
            rig.answer_last();
            rig.on(Event::PullEnded { pull: renewal.id, status: PullStatus::Expired });
        }
    }
    assert_eq!(times, [5, 10], "every third of the deadline");
}

#[test]
fn a_message_without_a_pin_is_renewed_by_progress_alone() {
    let mut rig = Rig::serving();
    rig.deliver(1, 1);
    for _ in 0..5 {
        let effects = rig.pass(seconds(5));
        assert_eq!((progress(&effects), renewals(&effects).len()), (1, 0));
        rig.answer_last();
    }
    assert_eq!(rig.lane.state(), State::Handling);
    rig.done();
    assert_eq!(pin_of(&rig), None);
}

#[test]
fn renewals_that_nobody_answers_end_the_handling_before_the_pin_can_lapse() {
    for status in [None, Some(PullStatus::Refused), Some(PullStatus::NoResponders)] {
        let mut rig = Rig::pinned();
        rig.deliver(1, 1);
        for _ in 0..2 {
            let renewed = renewals(&rig.pass(seconds(5)));
            rig.answer_last();
            if let Some(status) = status {
                rig.on(Event::PullEnded { pull: renewed[0].id, status });
            }
        }
        let effects = rig.pass(seconds(5));
        assert!(effects.contains(&Effect::Cancel), "{status:?}");
        assert!(notes(&effects).contains(&Note::Lost(1)), "{status:?}");
        assert!(silent(&effects), "{status:?}");
    }
}

#[test]
fn a_renewal_that_finds_the_next_message_waiting_counts() {
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    for _ in 0..4 {
        let renewed = renewals(&rig.pass(seconds(5)));
        rig.answer_last();
        rig.on(Event::PullEnded { pull: renewed[0].id, status: PullStatus::TooLarge });
    }
    assert_eq!(rig.lane.state(), State::Handling);
}

#[test]
fn who_is_told_in_mid_message_that_the_pin_is_anothers_gives_it_up_at_once_and_says_nothing() {
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    let renewed = renewals(&rig.pass(seconds(5)));
    let effects = rig.on(Event::PullEnded { pull: renewed[0].id, status: PullStatus::WrongPin });
    assert!(effects.contains(&Effect::Cancel));
    assert!(silent(&effects), "{effects:?}");
    let said = notes(&effects);
    assert!(said.contains(&Note::PinLost) && said.contains(&Note::Lost(1)), "{said:?}");
    assert_eq!(pulls(&effects), 1, "and asks to be the next");
    assert_eq!(pin_of(&rig), None);
    assert_eq!(rig.lane.state(), State::Standby);
}

#[test]
fn a_wrong_pin_is_forgotten_and_asked_without_at_once() {
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    rig.done();
    let carried = rig.last_pull().id;
    let effects = rig.on(Event::PullEnded { pull: carried, status: PullStatus::WrongPin });
    assert_eq!(pulls(&effects), 0, "the ack is not confirmed yet");
    let effects = rig.pass(ms(20));
    assert_eq!(acks(&effects), [false], "which is asked for by itself");
    let effects = rig.answer_last();
    assert_eq!(pulls(&effects), 1);
    assert_eq!(pin_of(&rig), None);
    // Idle as well.
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    rig.done();
    rig.pass(ms(20));
    rig.answer_last();
    let carried = rig.last_pull().id;
    let effects = rig.on(Event::PullEnded { pull: carried, status: PullStatus::WrongPin });
    assert_eq!((pulls(&effects), pin_of(&rig)), (1, None));
}

#[test]
fn what_was_completed_is_acknowledged_though_the_pin_is_anothers() {
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    let renewed = renewals(&rig.pass(seconds(5)));
    rig.answer_last();
    rig.done();
    let effects = rig.on(Event::PullEnded { pull: renewed[0].id, status: PullStatus::WrongPin });
    assert!(!notes(&effects).contains(&Note::Lost(1)), "{effects:?}");
    assert_eq!(acks(&rig.pass(ms(20))), [false]);
    assert!(notes(&rig.answer_last()).contains(&Note::Settled(1)));
}

#[test]
fn what_was_completed_is_given_up_when_the_pin_may_have_lapsed_and_the_lane_asks_on() {
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    // The message is kept alive; that the pin was renewed is not heard of.
    assert_eq!(renewals(&rig.pass(seconds(5))).len(), 1);
    rig.answer_last();
    assert_eq!(acks(&rig.done()), [true]);
    let effects = rig.pass(seconds(10));
    assert!(notes(&effects).contains(&Note::Lost(1)), "{effects:?}");
    assert_eq!(pulls(&effects), 1);
}

#[test]
fn an_old_pull_that_is_refused_late_says_nothing_of_a_newer_pin() {
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    rig.done();
    let old = rig.last_pull().id;
    rig.on(Event::Disconnected);
    rig.on(Event::Connected);
    rig.answer_last();
    rig.pin = Some("pin2".into());
    let effects = rig.deliver(2, 1);
    assert!(notes(&effects).contains(&Note::Pinned));
    let effects = rig.on(Event::PullEnded { pull: old, status: PullStatus::WrongPin });
    assert!(!effects.contains(&Effect::Cancel), "{effects:?}");
    rig.done();
    assert_eq!(pin_of(&rig).as_deref(), Some("pin2"));
}

#[test]
fn the_pin_is_let_go_of_before_the_lane_is_left() {
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    rig.on(Event::Shutdown { grace: seconds(20) });
    rig.done();
    let effects = rig.answer_last();
    let (unpin, leave) = unpin_and_leave(&effects);
    assert!(unpin.is_some() && unpin < leave, "{effects:?}");
}

#[test]
fn a_lane_that_comes_to_its_end_and_one_that_never_had_the_pin_are_left_without_a_word() {
    let mut retiring = assignment(1);
    retiring.retiring = true;
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    rig.on(Event::Assigned(Arc::new(retiring)));
    rig.done();
    assert!(matches!(unpin_and_leave(&rig.answer_last()), (None, Some(_))));
    let mut rig = Rig::pinned();
    rig.on(Event::Shutdown { grace: seconds(20) });
    assert!(matches!(unpin_and_leave(&rig.pass(seconds(6))), (None, Some(_))));
}

#[test]
fn a_worker_that_sees_another_with_the_pin_is_a_standby() {
    let mut rig = Rig::pinned();
    let facts = |pin: &str| ConsumerFacts { pin: Some(pin.into()), ..Rig::facts() };
    rig.pass(seconds(16));
    rig.answer_inspection(facts("theirs"));
    assert_eq!(rig.lane.state(), State::Standby);
    assert!(rig.lane.in_place());
    rig.deliver(1, 1);
    assert_eq!(rig.lane.state(), State::Handling);
    rig.done();
    rig.pass(ms(20));
    rig.answer_last();
    rig.pass(seconds(16));
    rig.answer_inspection(facts("pin1"));
    assert_eq!(rig.lane.state(), State::Idle);
}

#[test]
fn requests_are_written_as_servers_read_them() {
    let mut rig = Rig::pinned();
    let text = rig.last_pull().to_string();
    assert_eq!(text, r#"{"batch":1,"expires":5000000000,"idle_heartbeat":2500000000,"group":"lane"}"#);
    rig.deliver(1, 1);
    let renewal = renewals(&rig.pass(seconds(5))).remove(0).to_string();
    assert_eq!(renewal, r#"{"batch":1,"expires":10000000,"max_bytes":1,"group":"lane","id":"pin1"}"#);
    rig.done();
    let text = rig.last_pull().to_string();
    assert!(text.ends_with(r#","group":"lane","id":"pin1"}"#), "{text}");
}
