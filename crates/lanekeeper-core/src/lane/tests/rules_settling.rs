//! Acks, their proof, and what comes twice.

use std::sync::Arc;

use super::rig::*;
use crate::lane::{ConsumerFacts, Effect, Event, Note, PullStatus, State};

#[test]
fn the_next_pull_rides_on_the_ack_and_none_is_out_while_a_handler_runs() {
    let mut rig = Rig::serving();
    assert_eq!(handles(&rig.deliver(5, 1)), [1]);
    assert_eq!(pulls(&rig.pass(seconds(4))), 0);
    assert_eq!(acks(&rig.done()), [true]);
    assert_eq!(rig.lane.state(), State::Settling);
}

#[test]
fn the_message_that_answers_the_pull_on_the_ack_proves_the_ack() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.done();
    let effects = rig.deliver(6, 1);
    assert!(notes(&effects).contains(&Note::Settled(5)));
    assert_eq!(handles(&effects), [1]);
}

#[test]
fn a_message_that_answers_another_pull_waits_for_the_confirmation() {
    let mut rig = Rig::serving();
    let first = rig.last_pull().id;
    rig.on(Event::Disconnected);
    rig.on(Event::Connected);
    let second = rig.last_pull().id;
    assert_ne!(first, second);
    rig.deliver_to(first, 5, 1);
    assert_eq!(acks(&rig.done()), [false], "one pull is out already");
    assert_eq!(handles(&rig.deliver_to(second, 6, 1)), [0u64; 0]);
    assert_eq!(handles(&rig.answer_last()), [1]);
}

#[test]
fn without_a_next_message_the_ack_is_repeated_until_it_is_answered() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.done();
    assert_eq!(acks(&rig.pass(ms(20))), [false]);
    assert_eq!(acks(&rig.pass(seconds(3))), [false; 3]);
    let effects = rig.answer_last();
    assert!(notes(&effects).contains(&Note::Settled(5)));
    assert_eq!(rig.lane.state(), State::Idle);
}

#[test]
fn an_end_of_the_pull_is_no_proof_of_the_ack() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.done();
    rig.freeze(seconds(5));
    let pull = rig.last_pull().id;
    rig.on(Event::PullEnded { pull, status: PullStatus::Expired });
    assert_eq!(rig.lane.state(), State::Settling);
}

#[test]
fn what_was_completed_and_comes_again_is_acknowledged_without_the_handler() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.done();
    let effects = rig.deliver(5, 2);
    assert_eq!((handles(&effects).len(), acks(&effects).len()), (0, 1));
    rig.answer_last();
    let effects = rig.deliver(5, 3);
    assert_eq!(notes(&effects)[0], Note::Duplicate(5));
    assert_eq!((handles(&effects).len(), acks(&effects).len()), (0, 1));
}

#[test]
fn what_a_predecessor_settled_is_acknowledged_without_the_handler() {
    let mut given = assignment(1);
    given.floors = vec![crate::record::Floor { share: given.share, sequence: 7 }];
    let mut rig = Rig::serving_with(given, None);
    let effects = rig.deliver(7, 1);
    assert_eq!(notes(&effects), [Note::Covered(7)]);
    assert_eq!((handles(&effects).len(), acks(&effects).len()), (0, 1));
    assert_eq!(handles(&rig.deliver(8, 1)), [1]);
}

#[test]
fn a_key_of_another_share_is_refused_and_the_lane_stands_there() {
    let mut rig = Rig::serving();
    rig.subject = subject_of(crate::share::Share { modulus: 2, residue: 0 });
    let effects = rig.deliver(5, 1);
    assert_eq!((handles(&effects).len(), acks(&effects).len(), naks(&effects)), (0, 0, vec![seconds(30)]));
    let Some(Effect::Report(report)) = effects.iter().find(|effect| matches!(effect, Effect::Report(_)))
    else {
        panic!("{effects:?}")
    };
    assert_eq!(report.refused.as_ref().map(|refused| refused.sequence), Some(5));
    assert_eq!(rig.lane.state(), State::Refusing);
}

#[test]
fn a_later_message_waits_until_the_server_says_that_nothing_else_is_out() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.fails();
    assert_eq!(handles(&rig.deliver(6, 1)), [0u64; 0]);
    let two = ConsumerFacts { ack_pending: 2, max_ack_pending: 100, ..Rig::facts() };
    let effects = rig.answer_inspection(two);
    assert_eq!(handles(&effects), [0u64; 0]);
    assert!(notes(&effects).contains(&Note::Overtaken(6)) && silent(&effects));
    assert_eq!(pulls(&rig.pass(seconds(1))), 0, "nothing is pulled from a consumer that is not serial");
    rig.pass(seconds(2));
    rig.answer_inspection(Rig::facts());
    assert_eq!(handles(&rig.deliver(5, 2)), [2]);
}

#[test]
fn a_message_after_one_that_was_deleted_is_handled_when_it_is_alone() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.fails();
    rig.deliver(6, 1);
    assert_eq!(handles(&rig.answer_inspection(Rig::facts())), [1]);
}

#[test]
fn after_a_reconnect_the_ack_is_sent_again_at_once_and_the_pull_too() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.on(Event::Disconnected);
    assert!(silent(&rig.done()));
    assert!(silent(&rig.pass(seconds(2))));
    assert_eq!(acks(&rig.on(Event::Connected)), [true]);
    rig.deliver(6, 1);
    rig.on(Event::Disconnected);
    rig.on(Event::Connected);
    let effects = rig.done();
    assert_eq!(acks(&effects), [true]);
}

#[test]
fn a_forgotten_pull_is_asked_for_again() {
    let mut rig = Rig::serving();
    assert_eq!(pulls(&rig.pass(seconds(4))), 1, "no heartbeat came");
    let pull = rig.last_pull();
    rig.pass(pull.expires / 2);
    rig.on(Event::Heartbeat { pull: pull.id });
    assert_eq!(pulls(&rig.pass(pull.expires / 2)), 0);
    rig.on(Event::PullEnded { pull: pull.id, status: PullStatus::Expired });
    assert_ne!(rig.last_pull().id, pull.id);
}

#[test]
fn a_refused_pull_is_not_repeated_in_a_hot_loop() {
    let mut rig = Rig::serving();
    let mut sent = 0;
    let until = rig.now + seconds(20);
    while rig.now < until {
        let pull = rig.last_pull().id;
        let mut effects = rig.on(Event::PullEnded { pull, status: PullStatus::Refused });
        effects.extend(rig.pass(ms(50)));
        sent += pulls(&effects);
    }
    assert!((5..=30).contains(&sent), "{sent} pulls in 20 s");
}

#[test]
fn the_settings_of_a_running_lane_can_change() {
    let mut rig = Rig::serving();
    let mut changed = assignment(1);
    changed.settings.retry.max_attempts = 1;
    rig.on(Event::Assigned(Arc::new(changed)));
    rig.deliver(5, 1);
    rig.fails();
    assert_eq!(rig.lane.state(), State::Blocked);
}
