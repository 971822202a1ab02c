//! Which number of partitions is planned for in this pass: pure.

use lanekeeper_core::{
    record::{LaneState, Record},
    share,
    stream::Retention,
};

use crate::{status::Rescale, workers::Worker};

/// The number to plan for, and why it is not the wanted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) partitions: u32,
    pub(super) held_back: Option<Rescale>,
}

/// What a change must respect before it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// Whether changes are switched on.
    pub(super) handover: bool,
    /// The shortest time from the beginning of one change to that of the next.
    pub(super) minimum_interval_seconds: u64,
    /// Seconds since the Unix epoch.
    pub(super) now_seconds: u64,
    /// Of the stream.
    pub(super) retention: Retention,
    /// How many more consumers the account allows; `None` is no limit.
    pub(super) room: Option<u64>,
}

/// Decides. `workers` are those of the wanted partitions.
///
/// A change that began is always brought to its end. One that did not begin yet is held back while it is switched off,
/// while the one before it is too young, while the account has no room for its consumers, and while new partitions have no ready worker although others do: a lane that
/// runs is not taken down for one that nobody could serve.
pub(super) fn planned(record: Option<&Record>, wanted: u32, terms: Terms, workers: &[Worker]) -> Planned {
    let go = Planned { partitions: wanted, held_back: None };
    let Some(record) = record else { return go };
    let Some(in_force) = in_force(record).filter(|in_force| *in_force != wanted) else { return go };
    let kept = |why| Planned { partitions: in_force, held_back: Some(why) };
    if !terms.handover {
        return kept(Rescale::Refused(in_force));
    }
    if let Some(until) = delayed(record, terms) {
        return kept(Rescale::Delayed { in_force, until });
    }
    let needed = consumers_needed(in_force, wanted, terms.retention);
    if let Some(room) = terms.room.filter(|room| needed > *room) {
        return kept(Rescale::NoRoom { in_force, needed, room });
    }
    let running = workers.iter().any(|worker| worker.ready);
    let lacking = workers.iter().any(|worker| worker.partition >= in_force && !worker.ready);
    if running && lacking {
        return kept(Rescale::Starting);
    }
    go
}

/// Until when the change before holds back the next. One that seems to lie in the future was noted by another clock,
/// or by this one before it was set: it holds back nothing.
fn delayed(record: &Record, terms: Terms) -> Option<u64> {
    let changed = record.changed_seconds.filter(|changed| *changed <= terms.now_seconds)?;
    let until = changed + terms.minimum_interval_seconds;
    (until > terms.now_seconds).then_some(until)
}

/// How many more consumers than now a change needs while it is under way. Old ones stay until the new ones are there,
/// but for work queues, which allow no two for the same messages.
fn consumers_needed(in_force: u32, wanted: u32, retention: Retention) -> u64 {
    let (before, after) = (share::shares(in_force), share::shares(wanted));
    let added = after.iter().filter(|share| !before.contains(share)).count();
    let removed = before.iter().filter(|share| !after.contains(share)).count();
    let freed = if retention == Retention::WorkQueue { removed } else { 0 };
    added.saturating_sub(freed) as u64
}

/// The number of partitions, when no change of it is under way.
fn in_force(record: &Record) -> Option<u32> {
    let lanes: Vec<_> = record.lanes.iter().filter(|lane| lane.state != LaneState::Settled).collect();
    let at_rest = lanes.iter().all(|lane| matches!(lane.state, LaneState::Open | LaneState::Created));
    if !at_rest || !lanes.iter().any(|lane| lane.opened) {
        return None;
    }
    let count = u32::try_from(lanes.len()).ok()?;
    // A change goes through many lanes a few at a time, and passes other numbers on its way.
    if record.partitions.is_some_and(|leads_to| leads_to != count) {
        return None;
    }
    share::shares(count).iter().all(|share| lanes.iter().any(|lane| lane.share == *share)).then_some(count)
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::record::{LaneRecord, Mode, Owner, Ownership, VERSION};

    use super::*;

    const ON: Terms = Terms {
        handover: true,
        minimum_interval_seconds: 0,
        now_seconds: 1_000,
        retention: Retention::Limits,
        room: None,
    };
    const OFF: Terms = Terms { handover: false, ..ON };

    fn record(partitions: u32, state: LaneState) -> Record {
        let owner = Owner { cluster: "c".into(), namespace: "n".into(), name: "s".into(), uid: "u".into() };
        let lanes = share::shares(partitions)
            .into_iter()
            .map(|share| LaneRecord {
                incarnation: u64::from(share.residue) + 1,
                share,
                state,
                ownership: Ownership::Pin,
                mode: Mode::Serial,
                start: 1,
                floors: Vec::new(),
                opened: state != LaneState::Created,
                fenced: false,
                fence_milliseconds: 0,
                checkpoint: 0,
            })
            .collect();
        Record {
            v: VERSION,
            owner,
            stream: "S".into(),
            stream_created: "t".into(),
            stream_incarnation: 1,
            partitions: None,
            changed_seconds: None,
            counter: 8,
            lanes,
        }
    }

    fn workers(ready: &[bool]) -> Vec<Worker> {
        let one = |(partition, ready): (usize, &bool)| Worker {
            partition: u32::try_from(partition).unwrap(),
            ready: *ready,
            trouble: None,
        };
        ready.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_change_waits_for_workers_of_new_partitions_while_others_run() {
        let record = record(2, LaneState::Open);
        let with = |ready: &[bool]| planned(Some(&record), 3, ON, &workers(ready));
        assert_eq!(with(&[true, true, false]), Planned { partitions: 2, held_back: Some(Rescale::Starting) });
        assert_eq!(with(&[true, true, true]), Planned { partitions: 3, held_back: None });
        // An old worker that is down does not hold back, and nobody runs who could be taken down.
        assert_eq!(with(&[true, false, true]).partitions, 3);
        assert_eq!(with(&[false, false, false]).partitions, 3);
    }

    #[test]
    fn switched_off_the_old_number_stays_in_force() {
        let record = record(2, LaneState::Open);
        let planned = planned(Some(&record), 8, OFF, &[]);
        assert_eq!(planned, Planned { partitions: 2, held_back: Some(Rescale::Refused(2)) });
    }

    #[test]
    fn a_change_that_began_goes_on_and_a_set_never_opened_takes_the_new_number() {
        for state in [LaneState::Retiring, LaneState::Created] {
            let record = record(2, state);
            assert_eq!(planned(Some(&record), 4, OFF, &[]).partitions, 4, "{state:?}");
        }
        assert_eq!(planned(None, 4, OFF, &[]).partitions, 4);
    }

    #[test]
    fn a_change_waits_until_the_one_before_is_old_enough() {
        let terms = Terms { minimum_interval_seconds: 300, ..ON };
        let after = |changed_seconds| {
            let record = Record { changed_seconds, ..record(2, LaneState::Open) };
            planned(Some(&record), 3, terms, &[]).held_back
        };
        assert_eq!(after(Some(701)), Some(Rescale::Delayed { in_force: 2, until: 1_001 }));
        assert_eq!(after(Some(1_000)), Some(Rescale::Delayed { in_force: 2, until: 1_300 }));
        assert_eq!(after(Some(700)), None);
        assert_eq!(after(None), None, "the first change waits for nothing");
        assert_eq!(after(Some(5_000)), None, "a clock that was set back holds back nothing");
        let under_way = Record { changed_seconds: Some(999), ..record(2, LaneState::Retiring) };
        assert_eq!(planned(Some(&under_way), 3, terms, &[]).held_back, None);
    }

    #[test]
    fn a_change_for_whose_consumers_there_is_no_room_does_not_begin() {
        let record = record(4, LaneState::Open);
        // 4 to 6: two lanes are split in two.
        let with = |room, retention| {
            let terms = Terms { room: Some(room), retention, ..ON };
            planned(Some(&record), 6, terms, &[]).held_back
        };
        let refused = |room, needed| Some(Rescale::NoRoom { in_force: 4, needed, room });
        assert_eq!(with(3, Retention::Limits), refused(3, 4));
        assert_eq!(with(4, Retention::Limits), None);
        // Each pair comes in the place of one that is deleted before.
        assert_eq!(with(1, Retention::WorkQueue), refused(1, 2));
        assert_eq!(with(2, Retention::WorkQueue), None);
    }

    #[test]
    fn a_number_that_a_change_passes_on_its_way_holds_back_nothing() {
        let terms = Terms { minimum_interval_seconds: 300, room: Some(0), ..ON };
        let passing =
            Record { partitions: Some(8), changed_seconds: Some(999), ..record(5, LaneState::Open) };
        for wanted in [8, 3] {
            assert_eq!(
                planned(Some(&passing), wanted, terms, &[]),
                Planned { partitions: wanted, held_back: None }
            );
        }
        let arrived = Record { partitions: Some(5), ..passing };
        assert!(planned(Some(&arrived), 8, terms, &[]).held_back.is_some());
    }
}
