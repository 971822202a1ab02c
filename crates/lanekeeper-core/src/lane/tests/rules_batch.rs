//! Several messages for the handler at once: when a batch begins, what is in it, and what becomes of one that fails.

use std::time::Duration;

use super::{
    rig::{Rig, WAIT, ms, notes, seconds},
    rules_window::{WINDOW, acked, answer, deliver, serving_by},
};
use crate::{
    lane::{Effect, Event, Note, Options, Outcome, State},
    record::Delivery,
};

const MOST: u32 = 3;

fn serving(wait_milliseconds: u64) -> Rig {
    let rig = Rig::with(Options { batches: true, ..Options::default() });
    serving_by(rig, Delivery::Batch { window: WINDOW, most: MOST, wait_milliseconds })
}

/// What the handler is given, with the attempt.
fn batches(effects: &[Effect]) -> Vec<(Vec<u64>, u64)> {
    let batch = |effect: &Effect| match effect {
        Effect::Handle { message, attempt, with } => {
            let all = std::iter::once(message).chain(with);
            Some((all.map(|message| message % 1_000).collect(), *attempt))
        }
        _ => None,
    };
    effects.iter().filter_map(batch).collect()
}

fn deliver_all(rig: &mut Rig, sequences: std::ops::RangeInclusive<u64>) -> Vec<Effect> {
    sequences.flat_map(|sequence| deliver(rig, sequence, sequence)).collect()
}

/// What was completed is acknowledged, and that is confirmed.
fn settle(rig: &mut Rig) {
    rig.pass(ms(2));
    answer(rig);
}

#[test]
fn a_batch_is_what_has_come_while_the_one_before_was_handled_up_to_the_most() {
    let mut rig = serving(0);
    assert_eq!(batches(&deliver_all(&mut rig, 1..=6)), [(vec![1], 1)]);
    assert_eq!(batches(&rig.done()), [(vec![2, 3, 4], 1)]);
    let effects = rig.done();
    assert_eq!((batches(&effects), acked(&effects)), (vec![(vec![5, 6], 1)], vec![1, 2, 3, 4]));
    answer(&mut rig);
    rig.done();
    assert_eq!(acked(&rig.pass(ms(2))), [5, 6]);
    let effects = answer(&mut rig);
    assert!(notes(&effects).contains(&Note::Settled(6)), "{effects:?}");
}

#[test]
fn a_batch_that_is_not_full_waits_for_more_as_long_as_it_may() {
    let mut rig = serving(200);
    assert!(batches(&deliver_all(&mut rig, 1..=2)).is_empty());
    assert!(batches(&rig.pass(ms(199))).is_empty());
    assert_eq!(batches(&rig.pass(ms(1))), [(vec![1, 2], 1)]);
    deliver_all(&mut rig, 3..=4);
    rig.pass(ms(150));
    assert!(batches(&rig.done()).is_empty(), "the wait begins with the first of them");
    assert_eq!(batches(&rig.pass(ms(50))), [(vec![3, 4], 1)]);
    rig.done();
    assert_eq!(batches(&deliver_all(&mut rig, 5..=7)), [(vec![5, 6, 7], 1)], "full");
}

#[test]
fn a_batch_that_failed_is_tried_again_as_it_was() {
    let mut rig = serving(0);
    deliver_all(&mut rig, 1..=3);
    assert_eq!(batches(&rig.done()), [(vec![2, 3], 1)]);
    deliver_all(&mut rig, 4..=5);
    rig.fails();
    assert_eq!(rig.lane.state(), State::RetryWait);
    assert_eq!(batches(&rig.pass(ms(100))), [(vec![2, 3], 2)], "nothing is added");
    assert_eq!(batches(&rig.done()), [(vec![4, 5], 1)]);
}

#[test]
fn a_batch_that_waits_for_its_handler_makes_no_attempt() {
    let mut rig = serving(0);
    deliver_all(&mut rig, 1..=3);
    rig.done();
    settle(&mut rig);
    for _ in 0..5 {
        rig.on(Event::Handled(Outcome::Unreachable { reason: "refused".into() }));
        let effects = rig.keep(seconds(5));
        assert_eq!(batches(&effects).last(), Some(&(vec![2, 3], 1)));
    }
}

#[test]
fn without_attempts_left_the_messages_of_a_batch_are_tried_one_at_a_time_and_only_the_one_at_fault_blocks() {
    let mut rig = serving(0);
    deliver_all(&mut rig, 1..=4);
    assert_eq!(batches(&rig.done()), [(vec![2, 3, 4], 1)]);
    rig.fails();
    assert_eq!(batches(&rig.pass(ms(100))), [(vec![2, 3, 4], 2)]);
    rig.fails();
    assert_eq!(batches(&rig.pass(ms(200))), [(vec![2, 3, 4], 3)]);
    let effects = rig.fails();
    assert!(notes(&effects).contains(&Note::Divided { first: 2, messages: 3 }), "{effects:?}");
    let effects = [effects, rig.pass(ms(1))].concat();
    assert_eq!(batches(&effects), [(vec![2], 1)]);
    deliver_all(&mut rig, 5..=6);
    assert_eq!(batches(&rig.done()), [(vec![3], 1)]);
    rig.fails();
    settle(&mut rig);
    assert_eq!(batches(&rig.pass(ms(100))), [(vec![3], 2)]);
    rig.fails();
    assert_eq!(batches(&rig.pass(ms(200))), [(vec![3], 3)]);
    rig.fails();
    assert_eq!(rig.lane.state(), State::Blocked);
    rig.keep(seconds(31));
    assert_eq!(batches(&rig.done()), [(vec![4], 1)], "it was mended");
    assert_eq!(batches(&rig.done()), [(vec![5, 6], 1)], "behind the batch there are batches again");
}

#[test]
fn a_batch_that_will_never_work_is_divided_at_once() {
    let mut rig = serving(0);
    deliver_all(&mut rig, 1..=3);
    rig.done();
    let effects = rig.on(Event::Handled(Outcome::Permanent { reason: "no".into() }));
    assert!(notes(&effects).contains(&Note::Divided { first: 2, messages: 2 }), "{effects:?}");
    let effects = [effects, rig.pass(ms(1))].concat();
    assert_eq!(batches(&effects), [(vec![2], 1)]);
}

#[test]
fn past_the_deadline_of_one_of_it_the_whole_batch_is_given_up() {
    let mut rig = serving(0);
    deliver_all(&mut rig, 1..=3);
    rig.done();
    let mut answered = false;
    let until = rig.now + WAIT;
    while rig.now < until {
        let effects = rig.pass(Duration::from_millis(100));
        for effect in &effects {
            // The last of the batch is never confirmed.
            if let Effect::Progress { message, token } = effect
                && message % 1_000 == 2
            {
                answered = true;
                rig.on(Event::Answered { token: *token });
            }
        }
    }
    assert!(answered, "the first was kept alive");
    assert!(rig.log.contains(&Effect::Cancel), "{:?}", rig.log);
    assert!(acked(&rig.done()).is_empty(), "the handler's end comes too late");
}

#[test]
fn a_handler_that_knows_no_batches_gets_one_message_at_a_time() {
    let batch = Delivery::Batch { window: WINDOW, most: MOST, wait_milliseconds: 1_000 };
    let mut rig = serving_by(Rig::new(), batch);
    assert_eq!(batches(&deliver_all(&mut rig, 1..=4)), [(vec![1], 1)], "and nothing waits");
    assert_eq!(batches(&rig.done()), [(vec![2], 1)]);
}
