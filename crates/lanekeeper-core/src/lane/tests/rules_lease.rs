//! The lease in the place of the pin: what a lane does with it, and without.

use std::sync::Arc;

use super::rig::*;
use crate::{
    lane::{Effect, Event, Note, Outcome, PullStatus, State},
    record::{Assignment, Breaker, ExhaustedPolicy, Ownership},
};

fn leased() -> Assignment {
    let mut assignment = assignment(1);
    assignment.settings.ownership = Ownership::Lease;
    assignment
}

/// In the lane, without its lease.
fn standby(assignment: Assignment) -> Rig {
    let mut rig = Rig::new();
    rig.on(Event::Connected);
    rig.on(Event::Assigned(Arc::new(assignment)));
    rig.answer_inspection(Rig::facts());
    let effects = rig.on(Event::Joined { incarnation: 1, retiring: false, excused: None });
    assert!(effects.contains(&Effect::Contend { incarnation: 1, time: WAIT }), "{effects:?}");
    assert_eq!(pulls(&effects), 0);
    rig
}

fn granted(rig: &mut Rig, lasting: u64) -> Vec<Effect> {
    let until = Some(rig.now + seconds(lasting));
    rig.on(Event::Leased { incarnation: 1, until })
}

fn taken(rig: &mut Rig) -> Vec<Effect> {
    rig.on(Event::Leased { incarnation: 1, until: None })
}

/// In the lane, with a lease for so many seconds.
fn holder(lasting: u64) -> Rig {
    let mut rig = standby(leased());
    granted(&mut rig, lasting);
    rig
}

#[test]
fn without_the_lease_nothing_is_asked_for_and_with_it_at_once() {
    let mut rig = standby(leased());
    let effects = rig.pass(seconds(60));
    assert_eq!(pulls(&effects), 0, "{effects:?}");
    assert_eq!(rig.lane.state(), State::Standby);
    assert!(rig.lane.in_place() && !rig.lane.owns());
    let effects = granted(&mut rig, 13);
    assert_eq!(pulls(&effects), 1);
    assert!(notes(&effects).contains(&Note::Leased));
    assert!(effects.contains(&Effect::Own { incarnation: 1, pin: "".into() }), "noted for who finds us dead");
    assert_eq!(rig.lane.state(), State::Idle);
    assert!(rig.lane.owns());
    let effects = granted(&mut rig, 14);
    assert!(notes(&effects).is_empty(), "said once: {effects:?}");
}

#[test]
fn pulls_of_a_leased_lane_name_no_group() {
    let text = holder(13).last_pull().to_string();
    assert_eq!(text, r#"{"batch":1,"expires":5000000000,"idle_heartbeat":2500000000}"#);
}

#[test]
fn a_lease_that_lapses_ends_the_handling_and_nothing_more_is_said() {
    let mut rig = holder(13);
    rig.deliver(1, 1);
    // The message's own deadline moves on: only the lease does not.
    let effects = rig.keep(seconds(12));
    assert!(!effects.contains(&Effect::Cancel));
    let effects = rig.keep(seconds(1));
    assert!(effects.contains(&Effect::Cancel), "{effects:?}");
    assert!(silent(&effects), "{effects:?}");
    let said = notes(&effects);
    assert!(said.contains(&Note::Lost(1)) && said.contains(&Note::LeaseOver), "{said:?}");
    assert_eq!(rig.lane.state(), State::Standby);
    assert_eq!(pulls(&rig.pass(seconds(60))), 0);
}

#[test]
fn a_frozen_holder_notices_before_it_does_anything_else() {
    for event in [Event::Handled(Outcome::Done), Event::Leased { incarnation: 1, until: Some(seconds(13)) }] {
        let mut rig = holder(13);
        rig.deliver(1, 1);
        rig.freeze(seconds(14));
        let effects = rig.on(event);
        assert!(effects.contains(&Effect::Cancel) && silent(&effects), "{effects:?}");
        assert!(!rig.lane.owns());
    }
}

#[test]
fn who_is_told_that_the_lease_is_anothers_gives_its_message_up_at_once() {
    let mut rig = holder(13);
    rig.deliver(1, 1);
    let effects = taken(&mut rig);
    assert!(effects.contains(&Effect::Cancel) && silent(&effects), "{effects:?}");
    assert_eq!(pulls(&effects), 0);
    assert_eq!(rig.lane.state(), State::Standby);
}

#[test]
fn what_was_completed_is_acknowledged_though_the_lease_is_over_and_brings_nothing_more() {
    let mut rig = holder(13);
    rig.deliver(1, 1);
    rig.pass(seconds(1));
    rig.done();
    let carried = rig.last_pull().id;
    let effects = taken(&mut rig);
    assert!(!notes(&effects).contains(&Note::Lost(1)), "{effects:?}");
    let effects = rig.deliver_to(carried, 2, 1);
    assert!(notes(&effects).contains(&Note::Stale(2)), "the ack brought a message of another's: {effects:?}");
    assert_eq!(acks(&rig.pass(ms(20))), [false]);
    assert!(notes(&rig.answer_last()).contains(&Note::Settled(1)));
}

#[test]
fn what_answers_a_pull_of_an_earlier_lease_is_dropped() {
    let mut rig = holder(13);
    let pull = rig.last_pull().id;
    taken(&mut rig);
    granted(&mut rig, 13);
    let effects = rig.deliver_to(pull, 1, 1);
    assert!(notes(&effects).contains(&Note::Stale(1)), "{effects:?}");
    assert_eq!(handles(&rig.deliver(1, 2)), [2]);
}

#[test]
fn a_lease_is_given_back_with_the_lane_and_another_incarnations_is_not_ours() {
    let mut rig = holder(60);
    rig.on(Event::Leased { incarnation: 2, until: None });
    assert!(rig.lane.owns());
    rig.deliver(1, 1);
    rig.on(Event::Shutdown { grace: seconds(20) });
    rig.done();
    let effects = rig.answer_last();
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Leave { .. })), "{effects:?}");
    assert!(!effects.contains(&Effect::Unpin));
    assert!(!rig.lane.owns());
    granted(&mut rig, 60);
    assert!(!rig.lane.owns(), "too late");
}

#[test]
fn a_pin_means_nothing_to_a_leased_lane() {
    let mut rig = holder(13);
    rig.pin = Some("pin1".into());
    rig.deliver(1, 1);
    let effects = rig.pass(seconds(5));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Renew(_))), "{effects:?}");
    rig.answer_last();
    rig.on(Event::PullEnded { pull: 1, status: PullStatus::WrongPin });
    assert_eq!(rig.lane.state(), State::Handling);
}

#[test]
fn a_dead_letter_is_not_sent_after_the_lease() {
    let mut given = leased();
    let breaker = Breaker { max_exhausted: 10, window_seconds: 60 };
    given.settings.on_exhausted =
        ExhaustedPolicy::DeadLetter { stream: "DEAD".into(), subject: "dead".into(), breaker };
    let mut rig = standby(given);
    granted(&mut rig, 7);
    rig.deliver(1, 1);
    let effects = rig.on(Event::Handled(Outcome::Permanent { reason: "no".into() }));
    let until = effects.iter().find_map(|effect| match effect {
        Effect::DeadLetter { until, .. } => Some(*until),
        _ => None,
    });
    assert_eq!(until, Some(seconds(7)));
}
