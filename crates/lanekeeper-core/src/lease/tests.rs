//! The rules one by one; what many contenders, a slow network and a key that others touch make of them is in [`random`].

mod random;
pub(crate) mod world;

use std::time::Duration;

use super::*;

const TIME: Duration = Duration::from_secs(30);

fn terms() -> Terms {
    Terms::new(TIME)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn holder(instance: &str) -> Holder {
    Holder { pod: "pod".into(), instance: instance.into() }
}

fn lease(instance: Option<&str>, nonce: u64) -> Lease {
    Lease { holder: instance.map(holder), ..Lease::free(nonce, terms()) }
}

fn found(revision: u64, lease: Option<Lease>) -> Found {
    Found { revision, lease }
}

fn contender() -> Lessee {
    Lessee::new(holder("us"), terms(), 0, None)
}

/// The write that is asked for: expected revision, lease.
fn writes(lessee: &mut Lessee, now: Duration) -> (u64, Lease) {
    match lessee.next(now) {
        Next::Write { expected, lease } => (expected, lease),
        other => panic!("{other:?} at {now:?}"),
    }
}

/// A contender that got a free lease by a write sent at `now`, at revision 2.
fn holding(now: Duration) -> Lessee {
    let mut lessee = contender();
    assert_eq!(lessee.next(now), Next::Read);
    lessee.found(now, found(1, Some(lease(None, 1))));
    let (expected, lease) = writes(&mut lessee, now);
    assert_eq!(expected, 1);
    lessee.written(now, 2, lease);
    lessee
}

#[test]
fn anothers_lease_is_taken_only_after_it_was_seen_unchanged_for_its_whole_time() {
    let us = holder("us");
    let longer = Lease { milliseconds: 60_000, ..lease(Some("other"), 1) };
    let endless = Lease { milliseconds: u64::MAX, ..lease(Some("other"), 1) };
    let rows = [
        (Some(lease(Some("other"), 1)), 30),
        // A promise that was longer than ours is kept.
        (Some(longer), 60),
        (Some(endless), 3600),
        // Deleted, or not readable: somebody may go by what was there.
        (None, 30),
    ];
    for (lease, time) in rows {
        let observed = Observed { found: found(7, lease), since: seconds(5) };
        let over = seconds(5 + time);
        let decide = |now| decide(now, &us, &observed, None, terms());
        let before = seconds(4 + time) + Duration::from_millis(999);
        assert_eq!(decide(before), Decision::Wait(over), "{observed:?}");
        assert_eq!(decide(over), Decision::Acquire, "{observed:?}");
    }
}

#[test]
fn a_lease_that_was_given_back_and_one_that_names_us_are_taken_at_once() {
    for lease in [lease(None, 1), lease(Some("us"), 1)] {
        let observed = Observed { found: found(7, Some(lease)), since: seconds(5) };
        assert_eq!(decide(seconds(5), &holder("us"), &observed, None, terms()), Decision::Acquire);
    }
}

#[test]
fn a_holder_renews_each_third_and_stops_a_tenth_before_others_may_begin() {
    let observed = Observed { found: found(7, Some(lease(Some("us"), 1))), since: seconds(5) };
    let decide = |now| decide(seconds(now), &holder("us"), &observed, Some(seconds(4)), terms());
    assert_eq!(decide(5), Decision::Wait(seconds(14)));
    assert_eq!(decide(14), Decision::Renew);
    assert_eq!(decide(30), Decision::Renew);
    assert_eq!(decide(31), Decision::Lost, "counted from the sending, not from the answer");
    let taken = Observed { found: found(8, Some(lease(Some("other"), 1))), ..observed.clone() };
    assert_eq!(super::decide(seconds(5), &holder("us"), &taken, Some(seconds(4)), terms()), Decision::Lost);
}

#[test]
fn a_lease_counts_from_the_sending_of_its_write_and_no_renewal_is_no_longer_lease() {
    let mut lessee = holding(seconds(10));
    assert_eq!(lessee.until(seconds(36)), Some(seconds(37)));
    let (expected, again) = writes(&mut lessee, seconds(20));
    assert_eq!(expected, 2);
    assert_eq!(lessee.until(seconds(25)), Some(seconds(37)), "sent is not stored");
    lessee.written(seconds(25), 3, again);
    assert_eq!(lessee.until(seconds(25)), Some(seconds(47)));
    assert_eq!(lessee.until(seconds(47)), None, "whatever was not looked at in the meantime");
}

#[test]
fn a_write_whose_answer_was_lost_is_found_by_its_nonce_and_counts_from_its_own_sending() {
    let mut lessee = holding(seconds(0));
    let (_, first) = writes(&mut lessee, seconds(10));
    lessee.unknown(seconds(12));
    assert_eq!(lessee.next(seconds(14)), Next::Read);
    // An old answer: not stored yet, as far as that copy knows.
    lessee.found(seconds(14), found(2, Some(lease(Some("us"), 1))));
    let (expected, second) = writes(&mut lessee, seconds(15));
    assert_eq!(expected, 2);
    lessee.refused(seconds(16), second.nonce);
    assert_eq!(lessee.until(seconds(16)), Some(seconds(27)), "it may have been our own write");
    assert_eq!(lessee.next(seconds(16)), Next::Read);
    lessee.found(seconds(17), found(3, Some(first)));
    assert_eq!(lessee.until(seconds(17)), Some(seconds(37)));
}

#[test]
fn a_write_that_is_refused_means_that_it_is_anothers_and_is_no_error() {
    let mut lessee = holding(seconds(0));
    let (_, renewal) = writes(&mut lessee, seconds(10));
    lessee.refused(seconds(11), renewal.nonce);
    assert_eq!(lessee.until(seconds(11)), None);
    // An old copy shows what was there before, again and again: it is not believed, and not asked in a hot loop.
    let (mut now, mut reads) = (seconds(11), 0);
    while now < seconds(20) {
        match lessee.next(now) {
            Next::Read => {
                reads += 1;
                lessee.found(now, found(2, Some(lease(Some("us"), 1))));
            }
            Next::Wait(until) => now = until,
            other => panic!("{other:?} at {now:?}"),
        }
    }
    assert!((3..6).contains(&reads), "{reads}");
    lessee.found(now, found(3, Some(lease(Some("other"), 9))));
    assert!(matches!(lessee.next(now), Next::Wait(_)));
}

#[test]
fn a_refusal_that_nothing_follows_is_forgotten_after_a_while() {
    let mut lessee = holding(seconds(0));
    let (_, renewal) = writes(&mut lessee, seconds(10));
    lessee.refused(seconds(11), renewal.nonce);
    lessee.found(seconds(21), found(2, Some(lease(Some("us"), 1))));
    assert_eq!(writes(&mut lessee, seconds(21)).0, 2, "it is there still, as compare-and-set will tell");
}

#[test]
fn a_deleted_key_is_written_over_at_the_revision_that_was_read_after_the_whole_time() {
    let mut lessee = contender();
    lessee.found(seconds(1), found(7, Some(lease(Some("other"), 1))));
    lessee.found(seconds(20), found(8, None));
    assert!(matches!(lessee.next(seconds(49)), Next::Read | Next::Wait(_)));
    assert_eq!(writes(&mut lessee, seconds(50)).0, 8);
}

#[test]
fn where_there_is_nothing_a_mark_is_written_and_taken_over_after_the_whole_time() {
    // However long nothing was seen: there may have been something in between.
    let mut lessee = contender();
    lessee.found(seconds(1), found(7, Some(lease(Some("other"), 1))));
    lessee.found(seconds(20), found(0, None));
    let (expected, mark) = writes(&mut lessee, seconds(20));
    assert_eq!(expected, 0);
    assert!(!mark.is_of(&holder("us")) && mark.holder.is_some(), "it is nobody's and not free: {mark:?}");
    lessee.written(seconds(21), 9, mark.clone());
    assert_eq!(lessee.until(seconds(21)), None);
    assert!(matches!(lessee.next(seconds(50)), Next::Read | Next::Wait(_)));
    assert_eq!(writes(&mut lessee, seconds(51)).0, 9);
    // Another's mark is no different.
    let mut other = contender();
    other.found(seconds(21), found(9, Some(mark)));
    assert!(matches!(other.next(seconds(50)), Next::Read | Next::Wait(_)));
    assert_eq!(writes(&mut other, seconds(51)).0, 9);
}

#[test]
fn a_bucket_that_was_made_anew_is_found_out_though_its_revisions_begin_again() {
    let mut lessee = contender();
    lessee.found(seconds(1), found(500, Some(lease(Some("other"), 1))));
    let (_, refused) = writes(&mut lessee, seconds(31));
    lessee.refused(seconds(31), refused.nonce);
    lessee.found(seconds(32), found(7, Some(lease(Some("another"), 1))));
    assert!(matches!(lessee.next(seconds(32)), Next::Wait(_)), "it may be an old answer");
    lessee.found(seconds(41), found(7, Some(lease(Some("another"), 1))));
    assert!(matches!(lessee.next(seconds(70)), Next::Read | Next::Wait(_)));
    assert_eq!(writes(&mut lessee, seconds(71)).0, 7);
}

#[test]
fn a_key_that_nobody_ever_wrote_is_free_for_the_first_in_its_time_and_for_nobody_else() {
    let first = || {
        let mut first = Lessee::new(holder("us"), terms(), 7, Some(seconds(3)));
        first.found(seconds(1), found(0, None));
        first
    };
    let takes = |lessee: &mut Lessee, at| {
        let (expected, lease) = writes(lessee, seconds(at));
        assert_eq!(expected, 0);
        lease.is_of(&holder("us"))
    };
    assert!(takes(&mut first(), 2));
    assert!(!takes(&mut first(), 3), "another may have it soon");
    let mut second = contender();
    second.found(seconds(1), found(0, None));
    assert!(!takes(&mut second, 1));
    // Once it wrote, somebody took the key away.
    let mut again = first();
    assert!(takes(&mut again, 1));
    again.unknown(seconds(1));
    again.found(seconds(2), found(0, None));
    assert!(!takes(&mut again, 2));
}

#[test]
fn giving_back_is_a_write_of_nobody_and_what_was_never_had_is_not_given_back() {
    let mut lessee = holding(seconds(0));
    lessee.leave();
    assert_eq!(lessee.until(seconds(1)), None);
    let (expected, free) = writes(&mut lessee, seconds(1));
    assert_eq!((expected, &free.holder), (2, &None));
    lessee.written(seconds(1), 3, free);
    assert_eq!(lessee.next(seconds(1)), Next::Done);
    for mut never in [contender(), {
        let mut lessee = contender();
        lessee.found(seconds(1), found(7, Some(lease(Some("other"), 1))));
        lessee
    }] {
        never.leave();
        assert_eq!(never.next(seconds(1)), Next::Done);
    }
}

#[test]
fn a_write_under_way_is_waited_for_before_the_lease_is_given_back() {
    let mut lessee = holding(seconds(0));
    let (_, renewal) = writes(&mut lessee, seconds(10));
    lessee.unknown(seconds(12));
    lessee.leave();
    assert_eq!(lessee.next(seconds(14)), Next::Read);
    lessee.found(seconds(14), found(3, Some(renewal)));
    assert_eq!(writes(&mut lessee, seconds(14)).0, 3);
}

#[test]
fn a_call_is_followed_by_reads_until_the_change_is_seen() {
    let mut lessee = contender();
    lessee.found(seconds(1), found(7, Some(lease(Some("other"), 1))));
    assert_eq!(lessee.next(seconds(1)), Next::Wait(seconds(11)), "at rest each third");
    lessee.called(seconds(2));
    let soon = seconds(2) + Duration::from_millis(20);
    assert_eq!(lessee.next(seconds(2)), Next::Wait(soon));
    assert_eq!(lessee.next(soon), Next::Read);
    lessee.found(soon, found(7, Some(lease(Some("other"), 1))));
    assert!(matches!(lessee.next(soon), Next::Wait(until) if until < seconds(3)), "an old answer");
    lessee.found(seconds(3), found(8, Some(lease(None, 2))));
    assert_eq!(writes(&mut lessee, seconds(3)).0, 8);
}

#[test]
fn a_lease_is_written_as_it_is_read() {
    let text = serde_json::to_string(&lease(Some("us"), 4)).unwrap();
    let expected = r#"{"v":1,"holder":{"pod":"pod","instance":"us"},"nonce":4,"milliseconds":30000}"#;
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<Lease>(&text).unwrap(), lease(Some("us"), 4));
    let free = serde_json::to_string(&lease(None, 5)).unwrap();
    assert_eq!(free, r#"{"v":1,"nonce":5,"milliseconds":30000}"#);
    assert_eq!(serde_json::from_str::<Lease>(&free).unwrap(), lease(None, 5));
}
