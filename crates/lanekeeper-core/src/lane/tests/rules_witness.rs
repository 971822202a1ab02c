//! The witness: what is told of a lane whose messages wait, and what is not.

use std::sync::Arc;

use super::rig::*;
use crate::{
    lane::{Backlog, ConsumerFacts, Effect, Event, Note, Outcome, PullStatus, State},
    record::{Holder, Report, StallKind, Stalled},
};

/// What was reported last of a stall.
fn said(effects: &[Effect]) -> Vec<Option<Stalled>> {
    let said = |effect: &Effect| match effect {
        Effect::Report(Report { stalled, .. }) => Some(*stalled),
        _ => None,
    };
    effects.iter().filter_map(said).collect()
}

fn is_stalled(rig: &Rig) -> bool {
    said(&rig.log).last().is_some_and(Option::is_some)
}

/// A world that says the same at each look.
#[derive(Clone)]
struct Scene {
    waiting: u64,
    out: u64,
    floor: u64,
    paused: bool,
    pin: Option<Arc<str>>,
    siblings: Vec<Holder>,
    noted: Option<Arc<str>>,
    noted_by_sibling: bool,
}

/// Nothing waits and nobody else is there; ten messages were settled.
fn calm() -> Scene {
    Scene {
        waiting: 0,
        out: 0,
        floor: 10,
        paused: false,
        pin: None,
        siblings: Vec::new(),
        noted: None,
        noted_by_sibling: false,
    }
}

/// Somebody has the message at 11, and three more wait.
fn taken() -> Scene {
    Scene { waiting: 3, out: 1, ..calm() }
}

fn sibling() -> Vec<Holder> {
    vec![Holder { pod: "orders-1-b".into(), instance: "i".into() }]
}

/// A sibling has the pin, and noted it.
fn with_owner() -> Scene {
    let pin: Option<Arc<str>> = Some("theirs".into());
    Scene { siblings: sibling(), noted: pin.clone(), pin, noted_by_sibling: true, ..taken() }
}

impl Scene {
    fn backlog(&self, rig: &Rig) -> Backlog {
        Backlog {
            incarnation: 1,
            asked: rig.now,
            asked_seconds: 1_000_000 + rig.now.as_secs(),
            waiting: self.waiting,
            out: self.out,
            delivered: self.floor + self.out,
            floor: self.floor,
            paused: self.paused,
            pin: self.pin.clone(),
            siblings: self.siblings.clone(),
            noted: self.noted.clone(),
            noted_by_sibling: self.noted_by_sibling,
        }
    }

    /// Answers the look that was asked for.
    fn answer(&self, rig: &mut Rig, token: u64) -> Vec<Effect> {
        let facts = ConsumerFacts { ack_pending: self.out, pin: self.pin.clone(), ..Rig::facts() };
        let mut effects = rig.on(Event::Consumer { token, facts });
        let backlog = self.backlog(rig);
        effects.extend(rig.on(Event::Backlog(Box::new(backlog))));
        effects
    }

    /// Lets time pass; each look is answered at once, and each pull ends as it must.
    fn lasts(&self, rig: &mut Rig, seconds: u64) -> Vec<Effect> {
        let until = rig.now + super::rig::seconds(seconds);
        let mut all = Vec::new();
        loop {
            let wake = rig.lane.wake(rig.now).filter(|wake| *wake <= until);
            rig.now = wake.unwrap_or(until);
            let mut effects = rig.on(Event::Tick);
            while let Some(effect) = effects.pop() {
                let more = match &effect {
                    Effect::Inspect { token } => self.answer(rig, *token),
                    Effect::Pull(pull) => rig.on(Event::Heartbeat { pull: pull.id }),
                    _ => Vec::new(),
                };
                all.push(effect);
                effects.extend(more);
            }
            if wake.is_none() {
                return all;
            }
        }
    }
}

/// In for a while, with an empty lane.
fn settled_in() -> Rig {
    let mut rig = Rig::serving();
    calm().lasts(&mut rig, 60);
    assert!(!is_stalled(&rig));
    rig
}

#[test]
fn a_slot_that_somebody_else_has_is_told_within_three_deadlines_with_its_sequence_and_since_when() {
    let mut rig = settled_in();
    let before = rig.now;
    let effects = taken().lasts(&mut rig, 45);
    let [Some(stalled)] = said(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((stalled.kind, stalled.sequence), (StallKind::SlotHeldElsewhere, 11));
    let since = stalled.since_seconds - 1_000_000;
    assert!((before.as_secs()..=before.as_secs() + 15).contains(&since), "{since}");
    assert_eq!(notes(&effects).iter().filter(|note| matches!(note, Note::Stalled(_))).count(), 1, "once");
    assert_eq!(rig.lane.state(), State::Idle);
    assert!(rig.lane.in_place(), "a restart would help nobody");
}

#[test]
fn it_is_not_told_before_a_message_that_nobody_holds_would_have_come_again() {
    let mut rig = settled_in();
    assert_eq!(said(&taken().lasts(&mut rig, 22)), []);
}

#[test]
fn messages_that_are_not_delivered_though_the_slot_is_free_are_told_of() {
    let mut rig = settled_in();
    let effects = Scene { waiting: 3, ..calm() }.lasts(&mut rig, 45);
    let [Some(stalled)] = said(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((stalled.kind, stalled.sequence), (StallKind::NothingMoves, 11));
}

#[test]
fn a_pause_is_told_of_at_the_first_look_and_over_at_the_next() {
    let mut rig = settled_in();
    let paused = Scene { paused: true, ..calm() };
    let effects = paused.lasts(&mut rig, 15);
    let [Some(stalled)] = said(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((stalled.kind, stalled.sequence), (StallKind::ConsumerPaused, 11));
    assert_eq!(said(&paused.lasts(&mut rig, 60)), [], "no news");
    assert_eq!(said(&calm().lasts(&mut rig, 5)), [None]);
}

#[test]
fn what_waits_after_a_pause_has_time_to_come() {
    let mut rig = settled_in();
    Scene { paused: true, waiting: 3, ..calm() }.lasts(&mut rig, 60);
    assert!(is_stalled(&rig));
    assert_eq!(said(&Scene { waiting: 3, ..calm() }.lasts(&mut rig, 20)), [None]);
}

#[test]
fn a_floor_that_moves_is_no_stall_and_ends_one() {
    let mut rig = settled_in();
    for floor in 10..20 {
        assert_eq!(said(&Scene { floor, ..taken() }.lasts(&mut rig, 15)), []);
    }
    Scene { floor: 19, ..taken() }.lasts(&mut rig, 45);
    assert!(is_stalled(&rig));
    assert_eq!(said(&Scene { floor: 20, ..taken() }.lasts(&mut rig, 5)), [None]);
}

#[test]
fn a_message_that_comes_ends_it_at_once() {
    let mut rig = settled_in();
    taken().lasts(&mut rig, 45);
    let effects = rig.deliver(11, 2);
    assert_eq!(said(&effects), [None]);
    assert!(notes(&effects).contains(&Note::Moving));
    assert_eq!(handles(&effects).len(), 1);
}

#[test]
fn what_is_in_our_hands_is_no_stall_however_long_it_takes() {
    let mut rig = settled_in();
    rig.deliver(11, 1);
    for _ in 0..60 {
        assert_eq!(said(&rig.keep(ms(900))), []);
        let backlog = taken().backlog(&rig);
        assert_eq!(said(&rig.on(Event::Backlog(Box::new(backlog)))), []);
    }
}

#[test]
fn a_sibling_that_handles_for_long_is_no_stall_for_the_standby() {
    let mut rig = settled_in();
    assert_eq!(said(&with_owner().lasts(&mut rig, 600)), []);
    assert_eq!(rig.lane.state(), State::Standby);
}

#[test]
fn a_change_of_leader_that_forgets_the_owners_pin_is_no_stall() {
    let mut rig = settled_in();
    assert_eq!(said(&Scene { pin: None, ..with_owner() }.lasts(&mut rig, 600)), []);
}

#[test]
fn a_pin_that_no_holder_noted_is_a_strangers() {
    let mut rig = settled_in();
    let stranger = Scene { pin: Some("stranger".into()), ..taken() };
    let effects = stranger.lasts(&mut rig, 45);
    assert!(matches!(said(&effects)[..], [Some(Stalled { kind: StallKind::SlotHeldElsewhere, .. })]));
    // Also if it has nothing in hand and lets the others wait.
    let mut rig = settled_in();
    let stranger = Scene { out: 0, ..stranger };
    let effects = stranger.lasts(&mut rig, 45);
    assert!(matches!(said(&effects)[..], [Some(Stalled { kind: StallKind::SlotHeldElsewhere, .. })]));
    // And beside a sibling that has noted another one; there, a delay of its own may run besides.
    let mut rig = settled_in();
    let stranger = Scene { pin: Some("stranger".into()), ..with_owner() };
    assert_eq!(said(&stranger.lasts(&mut rig, 45)), []);
    assert!(matches!(said(&stranger.lasts(&mut rig, 30))[..], [Some(_)]));
}

#[test]
fn suspicion_starts_anew_when_the_siblings_change() {
    let mut rig = settled_in();
    for round in 0..8 {
        let siblings = if round % 2 == 0 { sibling() } else { Vec::new() };
        assert_eq!(said(&Scene { siblings, ..taken() }.lasts(&mut rig, 20)), []);
    }
}

#[test]
fn our_own_message_that_waits_for_its_next_attempt_is_no_stall() {
    let mut rig = settled_in();
    rig.deliver(11, 1);
    let after = Some(seconds(300));
    rig.on(Event::Handled(Outcome::Retry { reason: "busy".into(), after }));
    assert_eq!(rig.lane.state(), State::RetryWait);
    assert_eq!(said(&taken().lasts(&mut rig, 320)), []);
    assert!(matches!(said(&taken().lasts(&mut rig, 60))[..], [Some(_)]), "but somebody has it now");
}

#[test]
fn a_message_that_was_out_before_we_came_may_have_been_given_back_with_a_delay() {
    let mut rig = Rig::serving();
    assert_eq!(said(&taken().lasts(&mut rig, 50)).last(), None);
    assert!(matches!(said(&taken().lasts(&mut rig, 30))[..], [Some(_)]));
}

#[test]
fn an_answer_that_comes_late_and_a_witness_that_was_frozen_say_nothing() {
    let mut rig = settled_in();
    taken().lasts(&mut rig, 15);
    let late = taken().backlog(&rig);
    rig.freeze(seconds(40));
    assert_eq!(said(&rig.on(Event::Backlog(Box::new(late)))), [], "of a time that is over");
    let backlog = taken().backlog(&rig);
    assert_eq!(said(&rig.on(Event::Backlog(Box::new(backlog)))), [], "nobody watched in between");
    assert_eq!(said(&taken().lasts(&mut rig, 15)), []);
}

#[test]
fn a_lane_that_is_paused_or_left_or_stands_at_a_message_of_its_own_is_not_stalled() {
    let mut rig = settled_in();
    taken().lasts(&mut rig, 45);
    let mut given = assignment(1);
    given.settings.paused = true;
    rig.on(Event::Assigned(Arc::new(given)));
    let pull = rig.last_pull().id;
    let mut effects = rig.on(Event::PullEnded { pull, status: PullStatus::Expired });
    effects.extend(taken().lasts(&mut rig, 60));
    assert_eq!(said(&effects), [None]);
    let mut rig = settled_in();
    rig.deliver(11, 1);
    rig.on(Event::Handled(Outcome::Permanent { reason: "no".into() }));
    rig.keep(seconds(31));
    assert_eq!(rig.lane.state(), State::Blocked, "given back, to be tried again");
    let effects = taken().lasts(&mut rig, 600);
    assert_eq!(said(&effects).iter().flatten().count(), 0);
}

#[test]
fn what_is_said_of_another_lane_means_nothing() {
    let mut rig = settled_in();
    let other = Backlog { incarnation: 2, paused: true, ..taken().backlog(&rig) };
    assert!(rig.on(Event::Backlog(Box::new(other))).is_empty());
}

#[test]
fn a_note_of_our_pin_that_was_lost_is_written_again() {
    let mut rig = Rig::pinned();
    rig.deliver(1, 1);
    rig.done();
    rig.pass(ms(20));
    rig.answer_last();
    let ours: Option<Arc<str>> = Some("pin1".into());
    let lost = Scene { pin: ours.clone(), noted: Some("older".into()), ..calm() };
    let effects = lost.lasts(&mut rig, 15);
    assert!(effects.contains(&Effect::Own { incarnation: 1, pin: "pin1".into() }), "{effects:?}");
    let noted = Scene { noted: ours.clone(), pin: ours, ..calm() };
    let own = |effect: &Effect| matches!(effect, Effect::Own { .. });
    assert!(!noted.lasts(&mut rig, 60).iter().any(own));
}
