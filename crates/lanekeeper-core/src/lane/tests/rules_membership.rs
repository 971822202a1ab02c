//! Entering and leaving.

use std::sync::Arc;

use super::rig::*;
use crate::{
    lane::{Effect, Event, Note, Outcome, PullStatus, State},
    record::Excused,
};

fn leaves(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Leave { .. })).count()
}

fn retiring() -> Event<'static> {
    let mut given = assignment(1);
    given.retiring = true;
    Event::Assigned(Arc::new(given))
}

fn paused(paused: bool) -> Event<'static> {
    let mut given = assignment(1);
    given.settings.paused = paused;
    Event::Assigned(Arc::new(given))
}

fn shutdown() -> Event<'static> {
    Event::Shutdown { grace: seconds(20) }
}

#[test]
fn a_retiring_or_paused_assignment_is_not_entered_and_the_worker_is_in_place() {
    let mut rig = Rig::new();
    rig.on(Event::Connected);
    assert!(rig.on(retiring()).is_empty());
    assert!(rig.lane.in_place());
    assert_eq!(rig.lane.state(), State::Waiting);
    let mut rig = Rig::new();
    rig.on(Event::Connected);
    assert!(rig.on(paused(true)).is_empty());
    assert!(!rig.on(paused(false)).is_empty());
}

#[test]
fn without_the_connection_nothing_is_entered() {
    let mut rig = Rig::new();
    assert!(rig.on(Event::Assigned(Arc::new(assignment(1)))).is_empty());
    assert!(!rig.lane.in_place());
    assert_eq!(rig.on(Event::Connected).len(), 1);
}

#[test]
fn a_refused_join_waits_for_another_look_at_the_assignment() {
    let mut rig = Rig::new();
    rig.on(Event::Connected);
    rig.on(Event::Assigned(Arc::new(assignment(1))));
    rig.answer_inspection(Rig::facts());
    assert!(rig.on(Event::JoinRefused { incarnation: 1 }).is_empty());
    assert!(rig.pass(seconds(60)).is_empty());
    assert_eq!(rig.on(Event::Assigned(Arc::new(assignment(1)))).len(), 1);
}

#[test]
fn a_join_whose_fate_is_unknown_is_repeated_and_pulls_nothing() {
    let mut rig = Rig::new();
    rig.on(Event::Connected);
    rig.on(Event::Assigned(Arc::new(assignment(1))));
    rig.answer_inspection(Rig::facts());
    rig.on(Event::JoinFailed { incarnation: 1 });
    assert_eq!(rig.pass(seconds(1)), [Effect::Join { incarnation: 1 }]);
    let effects = rig.on(Event::Joined { incarnation: 1, retiring: true, excused: None });
    assert_eq!((pulls(&effects), leaves(&effects)), (0, 1));
}

#[test]
fn a_retiring_lane_is_left_after_what_is_in_hand_is_settled() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    assert_eq!(leaves(&rig.on(retiring())), 0);
    let effects = rig.done();
    assert_eq!((acks(&effects), leaves(&effects)), (vec![false], 0));
    assert_eq!(leaves(&rig.answer_last()), 1);
    assert_eq!(rig.on(Event::Left { incarnation: 1 }), [Effect::Note(Note::Left)]);
}

#[test]
fn an_idle_retiring_lane_is_left_at_once_and_what_still_comes_is_dropped() {
    let mut rig = Rig::serving();
    assert_eq!(leaves(&rig.on(retiring())), 1);
    let effects = rig.deliver(5, 1);
    assert!(handles(&effects).is_empty() && silent(&effects));
}

#[test]
fn the_key_may_say_that_a_lane_retires_before_its_assignment_does() {
    let mut rig = Rig::serving();
    assert_eq!(leaves(&rig.on(Event::Key { incarnation: 1, retiring: true, excused: None })), 1);
}

#[test]
fn retiring_is_never_taken_back() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.on(retiring());
    rig.on(Event::Assigned(Arc::new(assignment(1))));
    rig.done();
    assert_eq!(leaves(&rig.answer_last()), 1);
}

#[test]
fn the_successor_is_entered_after_the_old_lane_was_left() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.on(Event::Assigned(Arc::new(assignment(2))));
    rig.done();
    assert_eq!(leaves(&rig.answer_last()), 1);
    let effects = rig.on(Event::Left { incarnation: 1 });
    assert!(matches!(effects[..], [Effect::Note(Note::Left), Effect::Inspect { .. }]), "{effects:?}");
    assert_eq!(rig.answer_inspection(Rig::facts()), [Effect::Join { incarnation: 2 }]);
}

#[test]
fn an_assignment_from_a_replica_that_lags_is_ignored() {
    let mut rig = Rig::serving_with(assignment(2), None);
    rig.on(Event::Assigned(Arc::new(assignment(1))));
    assert_eq!(rig.lane.incarnation(), Some(2));
    assert_eq!(rig.lane.state(), State::Idle);
}

#[test]
fn a_lane_whose_assignment_cannot_be_read_goes_on() {
    let mut rig = Rig::serving();
    rig.on(Event::Unassigned);
    assert_eq!(handles(&rig.deliver(5, 1)), [1]);
}

#[test]
fn a_paused_lane_finishes_what_its_pull_brings_leaves_and_comes_back() {
    let mut rig = Rig::serving();
    assert_eq!(leaves(&rig.on(paused(true))), 0, "its pull may still bring a message");
    let effects = rig.pass(seconds(6));
    assert_eq!((pulls(&effects), leaves(&effects)), (0, 1));
    rig.on(Event::Left { incarnation: 1 });
    let effects = rig.on(paused(false));
    assert!(matches!(effects[..], [Effect::Inspect { .. }]));
}

#[test]
fn after_a_shutdown_the_ack_brings_no_further_message() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.on(shutdown());
    rig.pass(seconds(3));
    assert_eq!(acks(&rig.done()), [false]);
    assert_eq!(leaves(&rig.answer_last()), 1);
    let effects = rig.on(Event::Left { incarnation: 1 });
    assert_eq!(effects, [Effect::Note(Note::Left), Effect::Exit]);
}

#[test]
fn an_idle_lane_waits_for_the_end_of_its_pull_before_it_exits() {
    let mut rig = Rig::serving();
    let pull = rig.last_pull().id;
    assert_eq!(leaves(&rig.on(shutdown())), 0);
    rig.freeze(seconds(3));
    assert_eq!(leaves(&rig.on(Event::PullEnded { pull, status: PullStatus::Expired })), 1);
}

#[test]
fn what_the_last_pull_brings_after_a_shutdown_began_is_handled() {
    let mut rig = Rig::serving();
    rig.on(shutdown());
    assert_eq!(handles(&rig.deliver(5, 1)), [1]);
    assert_eq!(acks(&rig.done()), [false]);
    assert_eq!(leaves(&rig.answer_last()), 1);
}

#[test]
fn a_handler_that_outlasts_the_shutdown_is_cut_and_nothing_is_sent() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.on(shutdown());
    let mut effects = Vec::new();
    while leaves(&effects) == 0 {
        effects = rig.pass(seconds(1));
        if progress(&effects) > 0 {
            rig.answer_last();
        }
    }
    assert!(effects.contains(&Effect::Cancel) && silent(&effects));
    let excused = Some(Excused { sequence: 5, deliveries: 1 });
    assert!(effects.contains(&Effect::Leave { incarnation: 1, excused }));
}

#[test]
fn a_message_held_for_an_absent_handler_is_given_back_at_once_by_a_shutdown() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.on(Event::Handled(Outcome::Unreachable { reason: "refused".into() }));
    let effects = rig.on(shutdown());
    assert_eq!((naks(&effects), leaves(&effects)), (vec![ms(0)], 1));
}

#[test]
fn a_process_that_cannot_leave_exits_all_the_same() {
    let mut rig = Rig::serving();
    rig.on(Event::Disconnected);
    rig.on(shutdown());
    let effects = rig.pass(seconds(12));
    assert!(effects.contains(&Effect::Exit));
}

#[test]
fn a_process_without_a_lane_exits_at_once() {
    let mut rig = Rig::new();
    assert_eq!(rig.on(shutdown()), [Effect::Exit]);
}

#[test]
fn a_deleted_consumer_ends_the_lane_and_not_the_process() {
    let mut rig = Rig::serving();
    let pull = rig.last_pull().id;
    rig.on(Event::PullEnded { pull, status: PullStatus::ConsumerDeleted });
    let token = rig.last_token();
    assert_eq!(leaves(&rig.on(Event::ConsumerGone { token })), 1);
    rig.on(Event::Left { incarnation: 1 });
    assert!(rig.pass(seconds(60)).is_empty(), "no hot loop");
    let effects = rig.on(Event::Assigned(Arc::new(assignment(2))));
    assert!(matches!(effects[..], [Effect::Inspect { .. }]));
}

#[test]
fn what_answers_a_pull_of_the_lane_before_is_dropped() {
    let mut rig = Rig::serving();
    let pull = rig.last_pull().id;
    rig.on(Event::Assigned(Arc::new(assignment(2))));
    rig.on(Event::Left { incarnation: 1 });
    rig.answer_inspection(Rig::facts());
    rig.on(Event::Joined { incarnation: 2, retiring: false, excused: None });
    let effects = rig.deliver_to(pull, 5, 1);
    assert_eq!(notes(&effects), [Note::Stale(5)]);
    assert_eq!(handles(&effects), [0u64; 0]);
    assert_eq!(handles(&rig.deliver(6, 1)), [1]);
}

#[test]
fn a_consumer_deleted_under_a_handler_lets_it_finish_and_sends_nothing() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.pass(ms(250));
    let token = rig.last_token();
    rig.on(Event::ConsumerGone { token });
    assert!(silent(&rig.pass(seconds(10))));
    let effects = rig.done();
    assert!(silent(&effects));
    assert_eq!(leaves(&effects), 1);
}

#[test]
fn a_restarted_server_is_no_deleted_consumer() {
    let mut rig = Rig::serving();
    let pull = rig.last_pull().id;
    rig.on(Event::PullEnded { pull, status: PullStatus::NoResponders });
    let token = rig.last_token();
    rig.on(Event::InspectFailed { token });
    assert_eq!(pulls(&rig.pass(seconds(1))), 1);
    assert_eq!(rig.lane.state(), State::Idle);
}
