use k8s_openapi::jiff::Timestamp;
use lanekeeper_api::{condition, condition::ConditionType, reason::Reason};
use lanekeeper_core::{
    record::{Blocked, Holder, LaneRecord, LaneState, Mode, Owner, Ownership, StallKind, Stalled, VERSION},
    share,
};

use super::*;
use crate::failure::About;

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn record(partitions: u32, state: LaneState) -> Record {
    let lane = |share: share::Share| LaneRecord {
        incarnation: u64::from(share.residue) + 1,
        share,
        state,
        ownership: Ownership::Pin,
        mode: Mode::Serial,
        start: 1,
        floors: Vec::new(),
        opened: true,
        fenced: false,
        fence_milliseconds: 0,
        checkpoint: 0,
    };
    let owner = Owner { cluster: "c".into(), namespace: "n".into(), name: "s".into(), uid: "u".into() };
    Record {
        v: VERSION,
        owner,
        stream: "ORDERS".into(),
        stream_created: "t".into(),
        stream_incarnation: 1,
        partitions: None,
        changed_seconds: None,
        counter: 9,
        lanes: share::shares(partitions).into_iter().map(lane).collect(),
    }
}

fn worker(partition: u32, reason: Option<Reason>) -> Worker {
    let trouble =
        reason.map(|reason| Trouble { reason, message: format!("Deployment s-{partition}: {reason}") });
    Worker { partition, ready: trouble.is_none(), trouble }
}

fn fine(partitions: u32) -> Findings {
    Findings {
        generation: Some(3),
        wanted: Some(partitions),
        selector: "a=b".into(),
        stream: Some("ORDERS".into()),
        record: Some(record(partitions, LaneState::Open)),
        rescale: Rescale::Settled,
        workers: (0..partitions).map(|partition| worker(partition, None)).collect(),
        ..Findings::default()
    }
}

fn said(status: &OrderedPartitionSetStatus, condition: ConditionType) -> String {
    let found = condition::find(&status.conditions, condition).unwrap();
    assert_eq!(found.observed_generation, status.observed_generation);
    format!("{}/{}", found.status, found.reason)
}

fn message(status: &OrderedPartitionSetStatus, condition: ConditionType) -> String {
    condition::find(&status.conditions, condition).unwrap().message.clone()
}

#[test]
fn everything_fine_is_ready_and_the_next_pass_says_exactly_the_same() {
    let first = status(None, &fine(4), &at(1));
    assert_eq!(said(&first, ConditionType::Ready), "True/AsSpecified");
    assert_eq!((first.partitions, first.lanes.open), (4, 4));
    assert_eq!(first.conditions.len(), ConditionType::ALL.len());
    assert_eq!(status(Some(&first), &fine(4), &at(99)), first);
}

#[test]
fn a_failure_is_the_reason_of_ready_and_leaves_unknown_what_it_hides() {
    let before = status(None, &fine(2), &at(1));
    let found = Findings {
        generation: Some(3),
        wanted: Some(2),
        selector: "a=b".into(),
        workers: vec![worker(0, None), worker(1, None)],
        failures: vec![Failure::new(About::Nats, Reason::NatsUnreachable, "no route")],
        ..Findings::default()
    };
    let after = status(Some(&before), &found, &at(2));
    assert_eq!(said(&after, ConditionType::Ready), "False/NatsUnreachable");
    for hidden in [
        ConditionType::StreamReady,
        ConditionType::LanesReady,
        ConditionType::Blocked,
        ConditionType::Rescaling,
    ] {
        assert_eq!(said(&after, hidden), "Unknown/NatsUnreachable", "{hidden}");
    }
    assert_eq!(said(&after, ConditionType::WorkersReady), "True/AsSpecified");
    assert_eq!((after.partitions, after.lanes), (before.partitions, before.lanes), "what was known stays");
}

#[test]
fn partitions_without_a_worker_are_named_with_the_worst_reason() {
    let mut found = fine(8);
    found.workers[1] = worker(1, Some(Reason::WorkersStarting));
    for partition in [3, 4, 5, 6, 7] {
        found.workers[partition as usize] = worker(partition, Some(Reason::QuotaExceeded));
    }
    let status = status(None, &found, &at(1));
    assert_eq!(said(&status, ConditionType::WorkersReady), "False/QuotaExceeded");
    let words = message(&status, ConditionType::WorkersReady);
    assert!(words.contains("1, 3, 4, 5, 6 and 1 more") && words.contains("s-7"), "{words}");
    assert_eq!((status.lanes.open, status.lanes.without_worker), (2, 6));
    assert_eq!(said(&status, ConditionType::Ready), "False/QuotaExceeded");
}

#[test]
fn a_blocked_lane_is_named_with_its_sequence_and_counted_once() {
    let mut found = fine(2);
    let blocked = Some(Blocked::new(17, "out of stock"));
    // The second report is about an incarnation that is gone.
    found.reports = vec![
        (1, Report { blocked: blocked.clone(), ..Report::new(2) }),
        (0, Report { blocked, ..Report::new(99) }),
    ];
    let status = status(None, &found, &at(1));
    assert_eq!(said(&status, ConditionType::Blocked), "True/AttemptsExhausted");
    assert!(message(&status, ConditionType::Blocked).contains("partition 1 stands at sequence 17"));
    assert_eq!((status.lanes.open, status.lanes.blocked), (1, 1));
    assert_eq!(status.attention.len(), 1);
    assert_eq!(said(&status, ConditionType::Ready), "False/AttemptsExhausted");
}

#[test]
fn a_lane_that_stands_still_is_named_once_with_what_keeps_it_where_and_since_when() {
    let mut found = fine(3);
    let stalled = |kind, since_seconds| Some(Stalled { kind, sequence: 17, since_seconds });
    // Both pods of a lane say so.
    found.reports = vec![
        (1, Report { stalled: stalled(StallKind::NothingMoves, 90), ..Report::new(2) }),
        (1, Report { stalled: stalled(StallKind::SlotHeldElsewhere, 60), ..Report::new(2) }),
    ];
    let first = status(None, &found, &at(100));
    assert_eq!(said(&first, ConditionType::Blocked), "True/LaneStalled");
    assert_eq!(
        message(&first, ConditionType::Blocked),
        "partitions whose messages wait and reach no worker: 1; partition 1 at sequence 17, since 1970-01-01T00:01:00Z: a client that is no worker of the set holds its message or its pin"
    );
    let [lane] = &first.attention[..] else { panic!("{:?}", first.attention) };
    assert_eq!((lane.partition, lane.sequence, &lane.since), (1, Some(17), &Some(at(60))));
    assert!(lane.message.starts_with("SlotHeldElsewhere: "), "{}", lane.message);
    assert_eq!((first.lanes.open, first.lanes.blocked), (2, 1));
    assert_eq!(said(&first, ConditionType::Ready), "False/LaneStalled");
    // A message that needs a person comes first.
    found.reports.push((2, Report { blocked: Some(Blocked::new(5, "out of stock")), ..Report::new(3) }));
    let both = status(Some(&first), &found, &at(101));
    assert_eq!(said(&both, ConditionType::Blocked), "True/AttemptsExhausted");
    assert_eq!(both.attention.len(), 2);
    let after = status(Some(&both), &fine(3), &at(102));
    assert_eq!(said(&after, ConditionType::Blocked), "False/NoneBlocked");
    assert!(after.attention.is_empty());
}

#[test]
fn what_a_change_waits_for_is_listed_and_bounded() {
    let mut found = fine(40);
    found.record = Some(record(40, LaneState::Retiring));
    found.rescale = Rescale::HandingOver;
    let holder = |number: u32| Holder { pod: format!("s-{number}-x"), instance: "i".into() };
    found.waits = (0..40)
        .map(|partition| Wait::Holders { partition, incarnation: 1, holders: (0..9).map(holder).collect() })
        .collect();
    let before = status(None, &fine(20), &at(1));
    let after = status(Some(&before), &found, &at(2));
    assert_eq!(after.attention.len(), 20);
    assert!(after.attention[0].message.ends_with("s-4-x and 4 more to settle the message in hand"));
    assert_eq!(after.partitions, 20, "the old number until all lanes of the new one are open");
    assert_eq!(said(&after, ConditionType::Rescaling), "True/HandingOver");
    assert_eq!(after.lanes.handing_over, 40);
}

#[test]
fn a_paused_set_and_one_whose_change_is_refused_are_not_ready() {
    let paused = Findings { paused: true, ..fine(1) };
    assert_eq!(said(&status(None, &paused, &at(1)), ConditionType::Ready), "False/Paused");
    let refused = Findings { wanted: Some(4), rescale: Rescale::Refused(2), ..fine(2) };
    let status = status(None, &refused, &at(1));
    assert_eq!(said(&status, ConditionType::Ready), "False/RescaleNotSupported");
    assert_eq!(said(&status, ConditionType::LanesReady), "True/AsSpecified");
    assert_eq!(status.partitions, 2);
}

#[test]
fn troubles_that_do_not_stop_the_set_are_degraded_and_it_stays_ready() {
    let mut found = fine(1);
    found.degraded = vec![
        Trouble { reason: Reason::RetentionMayDiscard, message: "one".into() },
        Trouble { reason: Reason::UnmappedMessages, message: "two".into() },
    ];
    found.reports = vec![(0, Report { lost: Some(5), ..Report::new(1) })];
    let status = status(None, &found, &at(1));
    assert_eq!(said(&status, ConditionType::Degraded), "True/RetentionMayDiscard");
    let words = message(&status, ConditionType::Degraded);
    assert!(words.starts_with("one; two; partitions whose worker lost a message's deadline: 0"), "{words}");
    assert_eq!(said(&status, ConditionType::Ready), "True/AsSpecified");
}
