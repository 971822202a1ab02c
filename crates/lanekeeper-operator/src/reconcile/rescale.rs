//! Which number of partitions is planned for in this pass: pure.

use lanekeeper_core::{
    record::{LaneState, Record},
    share,
};

use crate::{status::Rescale, workers::Worker};

/// The number to plan for, and why it is not the wanted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) partitions: u32,
    pub(super) held_back: Option<Rescale>,
}

/// Decides. `workers` are those of the wanted partitions.
///
/// A change that began is always brought to its end. One that did not begin yet is held back while it is switched off,
/// and while new partitions have no ready worker although others do: a lane that runs is not taken down for one that
/// nobody could serve.
pub(super) fn planned(record: Option<&Record>, wanted: u32, handover: bool, workers: &[Worker]) -> Planned {
    let go = Planned { partitions: wanted, held_back: None };
    let Some(in_force) = record.and_then(in_force).filter(|in_force| *in_force != wanted) else { return go };
    if !handover {
        return Planned { partitions: in_force, held_back: Some(Rescale::Refused(in_force)) };
    }
    let running = workers.iter().any(|worker| worker.ready);
    let lacking = workers.iter().any(|worker| worker.partition >= in_force && !worker.ready);
    if running && lacking {
        return Planned { partitions: in_force, held_back: Some(Rescale::Starting) };
    }
    go
}

/// The number of partitions, when no change of it is under way.
fn in_force(record: &Record) -> Option<u32> {
    let lanes: Vec<_> = record.lanes.iter().filter(|lane| lane.state != LaneState::Settled).collect();
    let at_rest = lanes.iter().all(|lane| matches!(lane.state, LaneState::Open | LaneState::Created));
    if !at_rest || !lanes.iter().any(|lane| lane.opened) {
        return None;
    }
    let count = u32::try_from(lanes.len()).ok()?;
    share::shares(count).iter().all(|share| lanes.iter().any(|lane| lane.share == *share)).then_some(count)
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::record::{LaneRecord, Owner, VERSION};

    use super::*;

    fn record(partitions: u32, state: LaneState) -> Record {
        let owner = Owner { cluster: "c".into(), namespace: "n".into(), name: "s".into(), uid: "u".into() };
        let lanes = share::shares(partitions)
            .into_iter()
            .map(|share| LaneRecord {
                incarnation: u64::from(share.residue) + 1,
                share,
                state,
                start: 1,
                floors: Vec::new(),
                opened: state != LaneState::Created,
                fenced: false,
                checkpoint: 0,
            })
            .collect();
        Record {
            v: VERSION,
            owner,
            stream: "S".into(),
            stream_created: "t".into(),
            stream_incarnation: 1,
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
        let with = |ready: &[bool]| planned(Some(&record), 3, true, &workers(ready));
        assert_eq!(with(&[true, true, false]), Planned { partitions: 2, held_back: Some(Rescale::Starting) });
        assert_eq!(with(&[true, true, true]), Planned { partitions: 3, held_back: None });
        // An old worker that is down does not hold back, and nobody runs who could be taken down.
        assert_eq!(with(&[true, false, true]).partitions, 3);
        assert_eq!(with(&[false, false, false]).partitions, 3);
    }

    #[test]
    fn switched_off_the_old_number_stays_in_force() {
        let record = record(2, LaneState::Open);
        let planned = planned(Some(&record), 8, false, &[]);
        assert_eq!(planned, Planned { partitions: 2, held_back: Some(Rescale::Refused(2)) });
    }

    #[test]
    fn a_change_that_began_goes_on_and_a_set_never_opened_takes_the_new_number() {
        for state in [LaneState::Retiring, LaneState::Created] {
            let record = record(2, state);
            assert_eq!(planned(Some(&record), 4, false, &[]).partitions, 4, "{state:?}");
        }
        assert_eq!(planned(None, 4, false, &[]).partitions, 4);
    }
}
