//! The simulated server, bucket and workers: what is true, and what each effect does to it.
//!
//! A revision is the hash of a value, so that worlds that are equal but for their history are one state.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, LazyLock},
};

use lanekeeper_core::{
    consumer::{ConsumerFound, ConsumerSpec, metadata},
    mapping::Mapping,
    names::SetName,
    plan::{LANES_AT_ONCE, Observed, Revisioned, Start, Step, Wanted},
    record::{
        Assignment, Delivery, ExhaustedPolicy, Floor, Holder, LaneKey, LaneRecord, LaneSettings, LaneState,
        Owner, Ownership, Record, Retry,
    },
    share::Share,
    stream::Retention,
    subject::SubjectPattern,
};

use crate::run::Run;

/// Hashes of keys are below this, and so is every modulus.
pub(crate) const MAX_PARTITIONS: u32 = 4;

/// One message: its hash stands for its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) hash: u32,
    pub(crate) completed: bool,
    /// Removed by expiry or by hand: nobody owes it anything.
    pub(crate) vanished: bool,
    /// Not in the stream any more.
    pub(crate) gone: bool,
}

impl Message {
    pub(crate) fn settled(&self) -> bool {
        self.completed || self.vanished
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Consumer {
    pub(crate) spec: Arc<ConsumerSpec>,
    pub(crate) share: Share,
    pub(crate) floor: u64,
    pub(crate) pending: Option<u64>,
    /// The pod that it serves, where consumers are pinned.
    pub(crate) pin: Option<usize>,
}

/// A message in a worker's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct InHand {
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
    /// The handler is done (or was not needed); the acknowledgement is due.
    pub(crate) done: bool,
    /// Past its deadline: it must send nothing, and does not count as a handler.
    pub(crate) lost: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    pub(crate) partition: u32,
    pub(crate) instance: u8,
    pub(crate) joined: Option<u64>,
    /// Of the lane that was joined.
    pub(crate) floors: Vec<Floor>,
    pub(crate) in_hand: Option<InHand>,
    /// Its node does not answer.
    pub(crate) cut: bool,
}

/// Everything that is true.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) retention: Retention,
    /// Sequence n is at n - 1.
    pub(crate) messages: Vec<Message>,
    pub(crate) consumers: BTreeMap<u64, Consumer>,
    pub(crate) record: Option<Arc<Record>>,
    pub(crate) known_before: bool,
    pub(crate) lane_keys: BTreeMap<u64, LaneKey>,
    pub(crate) assignments: BTreeMap<u32, Arc<Assignment>>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) terminated: BTreeSet<Holder>,
    pub(crate) fence_elapsed: BTreeSet<u64>,
}

/// What must never happen happened.
pub(crate) type Violation = String;

fn revision(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

static WANTED: LazyLock<Wanted> = LazyLock::new(|| Wanted {
    owner: Owner { cluster: "c".into(), namespace: "n".into(), name: "s".into(), uid: "u".into() },
    set: SetName::new("n", "s"),
    mapping: Mapping::new("S", SubjectPattern::parse("o.*").unwrap(), &[1], MAX_PARTITIONS.into()).unwrap(),
    partitions: 1,
    retention: Retention::Limits,
    start: Start::All,
    consumer_replicas: None,
    lanes_at_once: LANES_AT_ONCE,
    now_seconds: 0,
    settings: LaneSettings {
        ack_wait_milliseconds: 15_000,
        ownership: Ownership::Pin,
        handler_timeout_milliseconds: 60_000,
        retry: Retry { initial_backoff_milliseconds: 1, max_backoff_milliseconds: 1, max_attempts: 0 },
        on_exhausted: ExhaustedPolicy::Block,
        park: None,
        delivery: Delivery::Serial,
        paused: false,
        journal: None,
    },
});

pub(crate) fn mapping() -> &'static Mapping {
    &WANTED.mapping
}

impl World {
    pub(crate) fn new(run: &Run) -> Self {
        let worker = |partition: &u32| Worker {
            partition: *partition,
            instance: 0,
            joined: None,
            floors: Vec::new(),
            in_hand: None,
            cut: false,
        };
        Self {
            retention: run.retention,
            messages: Vec::new(),
            consumers: BTreeMap::new(),
            record: None,
            known_before: false,
            lane_keys: BTreeMap::new(),
            assignments: BTreeMap::new(),
            workers: run.pods.iter().map(worker).collect(),
            terminated: BTreeSet::new(),
            fence_elapsed: BTreeSet::new(),
        }
    }

    pub(crate) fn wanted(&self, partitions: u32) -> Wanted {
        Wanted { partitions, retention: self.retention, ..WANTED.clone() }
    }

    pub(crate) fn holder(&self, worker: usize) -> Holder {
        Holder { pod: worker.to_string(), instance: self.workers[worker].instance.to_string() }
    }

    pub(crate) fn lanes(&self) -> &[LaneRecord] {
        self.record.as_ref().map_or(&[], |record| &record.lanes)
    }

    pub(crate) fn observe(&self) -> Observed {
        let keys = self.lane_keys.iter();
        let assignments = self.assignments.iter();
        Observed {
            stream_created: "then".into(),
            stream_last_sequence: self.messages.len() as u64,
            record: self
                .record
                .as_ref()
                .map(|record| Revisioned { revision: revision(record), value: Record::clone(record) }),
            known_before: self.known_before,
            lane_keys: keys
                .map(|(incarnation, key)| {
                    (*incarnation, Revisioned { revision: revision(key), value: key.clone() })
                })
                .collect(),
            leases: BTreeMap::new(),
            assignments: assignments
                .map(|(partition, one)| {
                    (*partition, Revisioned { revision: revision(one), value: Assignment::clone(one) })
                })
                .collect(),
            consumers: self.consumers.iter().map(|(incarnation, one)| (*incarnation, one.found())).collect(),
            terminated: self.terminated.clone(),
            unreachable: (0..self.workers.len())
                .filter(|worker| self.workers[*worker].cut)
                .map(|worker| self.holder(worker))
                .collect(),
            fence_elapsed: self.fence_elapsed.clone(),
        }
    }

    /// Carries out one step; whether it succeeded.
    pub(crate) fn apply(&mut self, step: &Step) -> Result<bool, Violation> {
        match step {
            Step::PutRecord { expected, record } => {
                if self.record.as_ref().map(revision) != *expected {
                    return Ok(false);
                }
                self.check_opened(record)?;
                self.known_before = true;
                self.record = Some(Arc::new(record.clone()));
            }
            Step::PutLaneKey { incarnation, expected, key } => {
                if self.lane_keys.get(incarnation).map(revision) != *expected {
                    return Ok(false);
                }
                self.lane_keys.insert(*incarnation, key.clone());
            }
            Step::PutAssignment { partition, expected, assignment } => {
                if self.assignments.get(partition).map(revision) != *expected {
                    return Ok(false);
                }
                self.assignments.insert(*partition, Arc::new(Assignment::clone(assignment)));
            }
            Step::CreateConsumer(spec) => return Ok(self.create(spec)),
            Step::RepairConsumer { spec, drift } => {
                return Err(format!("nothing drifts here, but {} is repaired: {drift:?}", spec.name));
            }
            Step::DeleteConsumer { incarnation, .. } => {
                self.consumers.remove(incarnation);
                self.forget_without_interest()?;
            }
            Step::DeleteLaneKey { incarnation, expected } => {
                if self.lane_keys.get(incarnation).is_some_and(|key| revision(key) != *expected) {
                    return Ok(false);
                }
                self.lane_keys.remove(incarnation);
            }
            Step::DeleteLease { incarnation, .. } => {
                return Err(format!("no lease was ever written, but that of {incarnation} is deleted"));
            }
            Step::DeleteAssignment { partition, expected } => {
                if self.assignments.get(partition).is_some_and(|one| revision(one) != *expected) {
                    return Ok(false);
                }
                self.assignments.remove(partition);
            }
        }
        Ok(true)
    }

    fn create(&mut self, spec: &ConsumerSpec) -> bool {
        let number = |key: &str| spec.metadata[key].parse::<u64>().unwrap();
        let incarnation = number(metadata::INCARNATION);
        let share = Share {
            modulus: u32::try_from(number(metadata::MODULUS)).unwrap(),
            residue: u32::try_from(number(metadata::PARTITION)).unwrap(),
        };
        if let Some(existing) = self.consumers.get(&incarnation) {
            return *existing.spec == *spec;
        }
        if self.retention == Retention::WorkQueue
            && self.consumers.values().any(|one| one.share.overlaps(share))
        {
            return false;
        }
        let floor = spec.start.map_or(0, |start| start - 1);
        let spec = Arc::new(spec.clone());
        self.consumers.insert(incarnation, Consumer { spec, share, floor, pending: None, pin: None });
        true
    }

    /// Nothing that is not completed may lie behind a lane that is opened.
    fn check_opened(&self, record: &Record) -> Result<(), Violation> {
        let open = |lane: &&LaneRecord| lane.state == LaneState::Open;
        let known =
            |incarnation| self.lanes().iter().filter(open).any(|lane| lane.incarnation == incarnation);
        for lane in record.lanes.iter().filter(open).filter(|lane| !known(lane.incarnation)) {
            for (sequence, message) in self.numbered() {
                let behind = sequence < lane.start || covered(&lane.floors, message.hash, sequence);
                let owed = self.retention != Retention::WorkQueue && !message.settled();
                if lane.share.contains_hash(message.hash) && behind && owed {
                    return Err(format!(
                        "lane {} opens past message {sequence}, never completed",
                        lane.incarnation
                    ));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u64, &Message)> {
        self.messages.iter().enumerate().map(|(index, message)| (index as u64 + 1, message))
    }

    pub(crate) fn message(&mut self, sequence: u64) -> &mut Message {
        &mut self.messages[usize::try_from(sequence).unwrap() - 1]
    }

    /// Interest retention removes what no consumer needs.
    pub(crate) fn forget_without_interest(&mut self) -> Result<(), Violation> {
        if self.retention != Retention::Interest {
            return Ok(());
        }
        let consumers = &self.consumers;
        for (index, message) in self.messages.iter_mut().enumerate() {
            let sequence = index as u64 + 1;
            let needs = |one: &Consumer| one.share.contains_hash(message.hash) && sequence > one.floor;
            if !message.gone && !consumers.values().any(needs) {
                message.gone = true;
                if !message.settled() {
                    return Err(format!("message {sequence} removed: no consumer has interest in it"));
                }
            }
        }
        Ok(())
    }

    /// An acknowledgement arrives; servers check only that the sequence is pending.
    pub(crate) fn acknowledge(&mut self, incarnation: u64, sequence: u64) -> Result<(), Violation> {
        let Some(consumer) = self.consumers.get_mut(&incarnation) else { return Ok(()) };
        if consumer.pending != Some(sequence) {
            return Ok(());
        }
        consumer.pending = None;
        consumer.floor = sequence;
        let work_queue = self.retention == Retention::WorkQueue;
        let message = self.message(sequence);
        if !message.settled() {
            return Err(format!("message {sequence} acknowledged, never completed"));
        }
        message.gone |= work_queue;
        self.forget_without_interest()
    }

    /// A message is removed from under everybody; servers settle it where it was pending.
    pub(crate) fn vanish(&mut self, sequence: u64) {
        let message = self.message(sequence);
        message.gone = true;
        message.vanished = true;
        for consumer in self.consumers.values_mut().filter(|one| one.pending == Some(sequence)) {
            consumer.pending = None;
            consumer.floor = sequence;
        }
    }

    /// What a consumer would deliver now, to somebody who is allowed to have it.
    pub(crate) fn deliverable(&self, incarnation: u64) -> Option<u64> {
        let consumer = &self.consumers[&incarnation];
        let held = |pending: u64| {
            self.workers.iter().any(|worker| {
                worker.in_hand.is_some_and(|hand| {
                    hand.incarnation == incarnation && hand.sequence == pending && !hand.lost
                })
            })
        };
        match consumer.pending {
            Some(pending) if held(pending) => None,
            Some(pending) => Some(pending),
            None => self
                .numbered()
                .find(|(sequence, message)| {
                    *sequence > consumer.floor && !message.gone && consumer.share.contains_hash(message.hash)
                })
                .map(|(sequence, _)| sequence),
        }
    }
}

impl Consumer {
    fn found(&self) -> ConsumerFound {
        ConsumerFound {
            name: self.spec.name.clone(),
            filters: vec![self.spec.filter.clone()],
            deliver_policy: if self.spec.start.is_some() { "by_start_sequence" } else { "all" }.into(),
            start: self.spec.start,
            ack_policy: "explicit".into(),
            push: false,
            max_ack_pending: i64::from(self.spec.delivery.most_out()),
            max_deliver: -1,
            ack_wait_milliseconds: self.spec.ack_wait_milliseconds,
            backoff_milliseconds: Vec::new(),
            inactive_threshold_milliseconds: 0,
            headers_only: false,
            replay_policy: "instant".into(),
            set: self.spec.pin(),
            paused: false,
            replicas: 0,
            metadata: self.spec.metadata.clone(),
            floor: self.floor,
            delivered: self.floor,
            ack_pending: u64::from(self.pending.is_some()),
            pending: 0,
        }
    }
}

/// Whether a predecessor's floor says that the message is settled.
pub(crate) fn covered(floors: &[Floor], hash: u32, sequence: u64) -> bool {
    floors.iter().any(|floor| floor.share.contains_hash(hash) && sequence <= floor.sequence)
}
