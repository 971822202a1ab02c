//! Messages without attempts left: dead letters, dropping, the breaker.

use std::time::Duration;

use super::rig::*;
use crate::{
    lane::{Effect, Event, Note, Outcome, State},
    record::{Assignment, Blocked, BlockedBy, Breaker, ExhaustedPolicy, Report},
};

const BREAKER: Breaker = Breaker { max_exhausted: 2, window_seconds: 60 };

fn dead_letters() -> ExhaustedPolicy {
    ExhaustedPolicy::DeadLetter { stream: "DEAD".into(), subject: "dead".into(), breaker: BREAKER }
}

fn under(policy: ExhaustedPolicy) -> Assignment {
    let mut given = assignment(1);
    given.settings.on_exhausted = policy;
    given
}

fn serving(policy: ExhaustedPolicy) -> Rig {
    Rig::serving_with(under(policy), None)
}

fn permanent() -> Event<'static> {
    Event::Handled(Outcome::Permanent { reason: "422".into() })
}

/// Token, attempts and reason of each dead letter that was sent.
fn letters(effects: &[Effect]) -> Vec<(u64, u64, String)> {
    let letter = |effect: &Effect| match effect {
        Effect::DeadLetter { token, attempts, reason, .. } => Some((*token, *attempts, reason.clone())),
        _ => None,
    };
    effects.iter().filter_map(letter).collect()
}

/// What the last report says; there must be one.
fn blocked(effects: &[Effect]) -> Option<Blocked> {
    let report = |effect: &Effect| match effect {
        Effect::Report(report) => Some(report.blocked.clone()),
        _ => None,
    };
    effects.iter().rev().find_map(report).expect("it is reported")
}

fn refused(token: u64) -> Event<'static> {
    Event::NotStored { token, reason: "full".into() }
}

/// A message that was put away and confirmed.
fn puts_away(rig: &mut Rig, sequence: u64) {
    rig.deliver(sequence, 1);
    let [(token, ..)] = letters(&rig.on(permanent()))[..] else { panic!("it becomes a dead letter") };
    rig.on(Event::Stored { token });
}

#[test]
fn after_the_last_attempt_it_is_acknowledged_only_once_it_is_stored() {
    let mut rig = serving(dead_letters());
    rig.deliver(5, 2);
    assert_eq!(naks(&rig.fails()), [ms(200)]);
    rig.deliver(5, 3);
    let effects = rig.fails();
    let [(token, 3, reason)] = &letters(&effects)[..] else { panic!("{effects:?}") };
    assert!(reason == "no" && silent(&effects));
    assert_eq!(rig.lane.state(), State::Settling);
    let effects = rig.on(Event::Stored { token: *token });
    assert_eq!(acks(&effects), [true]);
    let reason = "no".to_owned();
    assert!(notes(&effects).contains(&Note::DeadLettered { sequence: 5, attempts: 3, reason }));
    assert_eq!(handles(&rig.deliver(6, 1)), [1]);
}

#[test]
fn what_will_never_work_is_put_away_after_one_attempt() {
    let mut rig = serving(dead_letters());
    rig.deliver(5, 1);
    assert!(matches!(&letters(&rig.on(permanent()))[..], [(_, 1, reason)] if reason == "422"));
}

#[test]
fn a_dead_letter_that_is_not_stored_keeps_its_message_until_it_is() {
    let mut rig = serving(dead_letters());
    rig.deliver(5, 3);
    let (first, ..) = letters(&rig.fails())[0].clone();
    let effects = rig.on(refused(first));
    let said = blocked(&effects).unwrap();
    assert_eq!((said.sequence, said.by), (5, BlockedBy::DeadLetter));
    assert!(said.reason.contains("full") && silent(&effects));
    assert_eq!(rig.lane.state(), State::Blocked);
    let (second, ..) = letters(&rig.keep(ms(100)))[0].clone();
    rig.on(refused(second));
    assert!(letters(&rig.keep(ms(199))).is_empty(), "sent less and less often");
    let (third, ..) = letters(&rig.keep(ms(1)))[0].clone();
    assert!(acks(&rig.on(Event::Stored { token: first })).is_empty(), "an old answer is none");
    assert_eq!(acks(&rig.on(Event::Stored { token: third })), [true]);
    assert_eq!(blocked(&rig.deliver(6, 1)), None, "it heals by itself");
}

#[test]
fn an_answer_that_never_comes_is_a_refusal_and_one_that_comes_late_counts() {
    let mut rig = serving(dead_letters());
    rig.deliver(5, 3);
    let (token, ..) = letters(&rig.fails())[0].clone();
    let effects = rig.keep(seconds(15));
    assert!(blocked(&effects).is_some_and(|said| said.reason.contains("nothing was heard")));
    assert_eq!(acks(&rig.on(Event::Stored { token })), [true]);
}

#[test]
fn nothing_is_sent_past_the_deadline_and_the_successor_puts_it_away_without_the_handler() {
    let mut rig = serving(dead_letters());
    rig.deliver(5, 3);
    let (token, ..) = letters(&rig.fails())[0].clone();
    rig.freeze(WAIT);
    let effects = rig.on(Event::Stored { token });
    assert!(silent(&effects) && notes(&effects).contains(&Note::Lost(5)));
    let effects = rig.deliver(5, 4);
    assert!(handles(&effects).is_empty());
    assert!(matches!(letters(&effects)[..], [(_, 3, _)]), "{effects:?}");
}

#[test]
fn a_connection_that_comes_back_sends_it_again() {
    let mut rig = serving(dead_letters());
    rig.deliver(5, 3);
    rig.on(Event::Disconnected);
    assert!(letters(&rig.fails()).is_empty());
    let (token, ..) = letters(&rig.on(Event::Connected))[0].clone();
    assert_eq!(acks(&rig.on(Event::Stored { token })).len(), 1);
}

#[test]
fn a_lane_that_retires_waits_for_what_is_on_its_way_and_leaves_the_rest_to_its_successor() {
    let mut rig = serving(dead_letters());
    rig.deliver(5, 3);
    let (token, ..) = letters(&rig.fails())[0].clone();
    let retiring = Event::Key { incarnation: 1, retiring: true, excused: None };
    assert!(!rig.on(retiring).iter().any(|effect| matches!(effect, Effect::Leave { .. })));
    let effects = rig.on(refused(token));
    assert!(silent(&effects) && effects.iter().any(|effect| matches!(effect, Effect::Leave { .. })));
}

#[test]
fn a_shutdown_gives_back_what_a_lane_stands_at() {
    for policy in [ExhaustedPolicy::Block, dead_letters()] {
        let mut rig = serving(policy);
        rig.deliver(5, 3);
        let effects = rig.fails();
        for (token, ..) in letters(&effects) {
            rig.on(refused(token));
        }
        let effects = rig.on(Event::Shutdown { grace: seconds(10) });
        assert_eq!(naks(&effects), [Duration::ZERO]);
        assert!(
            !effects.iter().any(|effect| matches!(effect, Effect::Excuse { .. })),
            "attempts stay attempts"
        );
    }
}

#[test]
fn a_policy_that_changes_meanwhile_is_followed() {
    let mut rig = serving(dead_letters());
    rig.deliver(5, 3);
    let (token, ..) = letters(&rig.fails())[0].clone();
    rig.on(Event::Assigned(std::sync::Arc::new(under(ExhaustedPolicy::Block))));
    rig.on(refused(token));
    assert!(letters(&rig.keep(ms(100))).is_empty());
    assert_eq!(rig.lane.state(), State::Blocked);
    rig.on(Event::Assigned(std::sync::Arc::new(under(ExhaustedPolicy::Drop { breaker: BREAKER }))));
    rig.keep(seconds(30));
    assert_eq!(acks(&rig.deliver(5, 4)), [true], "what it stands at is put away at its next try");
}

#[test]
fn what_a_lane_stood_at_under_another_policy_keeps_its_handlers_words() {
    let mut rig = serving(ExhaustedPolicy::Block);
    rig.deliver(5, 3);
    rig.fails();
    assert_eq!(rig.lane.state(), State::Blocked);
    rig.on(Event::Assigned(std::sync::Arc::new(under(dead_letters()))));
    rig.keep(seconds(30));
    assert!(matches!(&letters(&rig.deliver(5, 4))[..], [(_, 3, reason)] if reason == "no"));
}

#[test]
fn a_dropped_message_is_recorded_before_it_is_acknowledged() {
    let mut rig = serving(ExhaustedPolicy::Drop { breaker: BREAKER });
    rig.deliver(5, 3);
    let effects = rig.fails();
    let reported = Report { dropped: Some(Blocked::new(5, "no")), ..Report::new(1) };
    let said = effects.iter().position(|effect| *effect == Effect::Report(reported.clone()));
    let acked = effects.iter().position(|effect| matches!(effect, Effect::Ack { .. }));
    assert!(said.is_some() && said < acked, "{effects:?}");
    assert_eq!(handles(&rig.deliver(6, 1)), [1]);
}

#[test]
fn more_than_the_breaker_allows_stop_the_lane_until_the_message_succeeds() {
    let mut rig = serving(dead_letters());
    puts_away(&mut rig, 1);
    puts_away(&mut rig, 2);
    rig.deliver(3, 1);
    let effects = rig.on(permanent());
    assert!(letters(&effects).is_empty() && silent(&effects));
    assert!(effects.contains(&Effect::Breaker { incarnation: 1, sequence: 3 }));
    assert!(blocked(&effects).is_some_and(|said| said.by == BlockedBy::Breaker));
    // It stays open when the window is over, and the handler is asked again although no attempt is left.
    rig.keep(seconds(30));
    assert_eq!(handles(&rig.deliver(3, 9)), [9]);
    assert!(letters(&rig.fails()).is_empty());
    rig.keep(seconds(30));
    rig.deliver(3, 10);
    rig.done();
    puts_away(&mut rig, 4);
    puts_away(&mut rig, 5);
    rig.deliver(6, 1);
    assert!(letters(&rig.on(permanent())).is_empty(), "it counts anew");
}

#[test]
fn what_was_put_away_long_ago_does_not_count() {
    let mut rig = serving(dead_letters());
    puts_away(&mut rig, 1);
    puts_away(&mut rig, 2);
    rig.deliver(3, 1);
    rig.keep(seconds(59));
    rig.done();
    rig.deliver(4, 1);
    rig.keep(seconds(1));
    assert_eq!(letters(&rig.on(permanent())).len(), 1);
}

#[test]
fn a_worker_that_starts_at_an_open_breaker_knows_it() {
    let mut rig = Rig::new();
    rig.on(Event::Connected);
    rig.on(Event::Assigned(std::sync::Arc::new(under(dead_letters()))));
    rig.answer_inspection(Rig::facts());
    rig.on(Event::BreakerOpen { incarnation: 1, sequence: 3 });
    rig.on(Event::Joined { incarnation: 1, retiring: false, excused: None });
    assert_eq!(handles(&rig.deliver(3, 7)), [7], "tried, not put away");
    assert!(letters(&rig.on(permanent())).is_empty());
    rig.keep(seconds(30));
    rig.deliver(3, 8);
    rig.done();
    // Read again and again, the key tells nothing new.
    rig.on(Event::BreakerOpen { incarnation: 1, sequence: 3 });
    puts_away(&mut rig, 4);
    rig.on(Event::BreakerOpen { incarnation: 1, sequence: 3 });
    puts_away(&mut rig, 5);
    rig.deliver(6, 1);
    assert!(letters(&rig.on(permanent())).is_empty());
}
