//! Attempts, and what is none.

use std::time::Duration;

use super::rig::*;
use crate::{
    lane::{Effect, Event, Note, Outcome, State},
    record::{Excused, Report},
};

fn reports(effects: &[Effect]) -> Vec<Report> {
    let report = |effect: &Effect| match effect {
        Effect::Report(report) => Some(report.clone()),
        _ => None,
    };
    effects.iter().filter_map(report).collect()
}

fn unreachable() -> Event<'static> {
    Event::Handled(Outcome::Unreachable { reason: "connection refused".into() })
}

#[test]
fn a_failure_is_given_back_with_a_delay_that_doubles() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    assert_eq!(naks(&rig.fails()), [ms(100)]);
    assert_eq!(handles(&rig.deliver(5, 2)), [2]);
    assert_eq!(naks(&rig.fails()), [ms(200)]);
    assert_eq!(rig.lane.state(), State::RetryWait);
}

#[test]
fn a_lane_without_attempts_left_stands_there_tries_slowly_and_says_so_once() {
    let mut rig = Rig::serving();
    rig.deliver(5, 3);
    let effects = rig.fails();
    assert!(naks(&effects).is_empty(), "it stays in hand");
    assert_eq!(reports(&effects)[0].blocked.as_ref().map(|blocked| blocked.sequence), Some(5));
    assert_eq!(rig.lane.state(), State::Blocked);
    let effects = rig.keep(ms(29_999));
    assert!(naks(&effects).is_empty() && progress(&effects) >= 5, "it is kept alive");
    assert_eq!(naks(&rig.keep(ms(1))), [Duration::ZERO]);
    assert_eq!(rig.lane.state(), State::Blocked);
    assert_eq!(handles(&rig.deliver(5, 4)), [4]);
    assert!(reports(&rig.fails()).is_empty());
}

#[test]
fn a_blocked_lane_clears_itself_by_success() {
    let mut rig = Rig::serving();
    rig.deliver(5, 3);
    rig.fails();
    rig.keep(seconds(30));
    rig.deliver(5, 4);
    rig.done();
    let effects = rig.deliver(6, 1);
    assert_eq!(reports(&effects), [Report::new(1)]);
    assert_eq!(handles(&effects), [1]);
}

#[test]
fn what_will_never_work_blocks_at_once() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    let effects = rig.on(Event::Handled(Outcome::Permanent { reason: "400".into() }));
    assert!(silent(&effects));
    assert_eq!(rig.lane.state(), State::Blocked);
}

#[test]
fn a_handler_that_names_a_delay_gets_it() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    let outcome = Outcome::Retry { reason: "no".into(), after: Some(seconds(5)) };
    assert_eq!(naks(&rig.on(Event::Handled(outcome))), [seconds(5)]);
}

#[test]
fn a_handler_that_is_not_there_is_asked_again_while_the_message_is_held() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    let effects = rig.on(unreachable());
    assert!(naks(&effects).is_empty());
    assert!(
        effects.contains(&Effect::Excuse { incarnation: 1, excused: Excused { sequence: 5, deliveries: 1 } })
    );
    assert_eq!(rig.lane.state(), State::Held);
    assert_eq!(handles(&rig.pass(ms(100))), [1]);
    rig.on(unreachable());
    assert_eq!(handles(&rig.pass(ms(199))), [0u64; 0]);
    assert_eq!(handles(&rig.pass(ms(1))), [1]);
    assert_eq!(progress(&rig.pass(seconds(5))), 1);
    rig.done();
}

#[test]
fn a_delivery_that_became_an_attempt_after_all_counts() {
    let mut rig = Rig::serving();
    rig.deliver(5, 3);
    rig.on(unreachable());
    rig.pass(ms(100));
    let effects = rig.fails();
    assert!(
        effects.contains(&Effect::Excuse { incarnation: 1, excused: Excused { sequence: 5, deliveries: 0 } })
    );
    assert_eq!(rig.lane.state(), State::Blocked);
}

#[test]
fn asked_to_wait_the_message_is_held_and_no_attempt_counted() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    let wait = Outcome::Wait { reason: "503".into(), after: seconds(7) };
    assert!(naks(&rig.on(Event::Handled(wait))).is_empty());
    let effects = rig.pass(seconds(5));
    assert_eq!((progress(&effects), handles(&effects).len()), (1, 0));
    rig.answer_last();
    assert_eq!(handles(&rig.pass(seconds(2))), [1]);
}

#[test]
fn deliveries_that_a_predecessor_excused_are_no_attempts() {
    let excused = Excused { sequence: 5, deliveries: 2 };
    let mut rig = Rig::serving_with(assignment(1), Some(excused));
    assert_eq!(handles(&rig.deliver(5, 3)), [1]);
    assert_eq!(naks(&rig.fails()), [ms(100)]);
    assert_eq!(handles(&rig.deliver(5, 4)), [2]);
}

#[test]
fn what_is_excused_elsewhere_while_we_hold_the_lane_counts_too() {
    let mut rig = Rig::serving();
    let excused = Some(Excused { sequence: 5, deliveries: 2 });
    rig.on(Event::Key { incarnation: 1, retiring: false, excused });
    assert_eq!(handles(&rig.deliver(5, 3)), [1]);
}

#[test]
fn a_lost_message_is_reported_until_something_is_handled() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    let effects = rig.pass(seconds(15));
    assert_eq!(reports(&effects).last().and_then(|report| report.lost), Some(5));
    rig.deliver(5, 2);
    let effects = rig.done();
    assert_eq!(reports(&effects).last().map(|report| report.lost), Some(None));
    assert!(notes(&effects).contains(&Note::Completed(5)));
}

#[test]
fn a_failure_while_the_server_is_away_sends_nothing_later() {
    let mut rig = Rig::serving();
    rig.deliver(5, 1);
    rig.on(Event::Disconnected);
    assert!(silent(&rig.fails()));
    assert!(silent(&rig.on(Event::Connected)));
}
