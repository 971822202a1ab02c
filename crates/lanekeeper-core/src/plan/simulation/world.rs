//! The simulated server, bucket, and workers: what is true, and what each effect does to it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    consumer::{ConsumerFound, ConsumerSpec, metadata},
    mapping::Mapping,
    names::SetName,
    plan::{Observed, Revisioned, Start, Step, Wanted},
    record::{Assignment, ExhaustedPolicy, Floor, Holder, LaneKey, LaneSettings, Owner, Record, Retry},
    share::Share,
    stream::Retention,
    subject::SubjectPattern,
};

pub(in crate::plan) const MAX_PARTITIONS: u32 = 4;

/// One message: its hash stands for its key.
#[derive(Debug, Clone, Default)]
pub(in crate::plan) struct Message {
    pub hash: u32,
    pub completed: bool,
    /// Removed by expiry or by hand: nobody owes it anything.
    pub vanished: bool,
    /// Not in the stream any more.
    pub gone: bool,
}

#[derive(Debug, Clone)]
pub(in crate::plan) struct Consumer {
    pub spec: ConsumerSpec,
    pub share: Share,
    pub floor: u64,
    pub pending: Option<u64>,
}

/// A message in a worker's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) struct InHand {
    pub incarnation: u64,
    pub sequence: u64,
    /// The handler is done (or was not needed); the acknowledgement is due.
    pub done: bool,
    /// Past its deadline: it must send nothing, and does not count as a handler.
    pub lost: bool,
}

#[derive(Debug, Clone)]
pub(in crate::plan) struct Worker {
    pub partition: u32,
    pub instance: u64,
    pub joined: Option<u64>,
    pub in_hand: Option<InHand>,
    pub cut: bool,
}

pub(in crate::plan) struct World {
    pub retention: Retention,
    pub partitions: u32,
    /// Sequence n is at n - 1.
    pub messages: Vec<Message>,
    pub consumers: BTreeMap<u64, Consumer>,
    pub revision: u64,
    pub record: Option<Revisioned<Record>>,
    pub lane_keys: BTreeMap<u64, Revisioned<LaneKey>>,
    pub assignments: BTreeMap<u32, Revisioned<Assignment>>,
    pub workers: Vec<Worker>,
    pub terminated: BTreeSet<Holder>,
    pub fence_elapsed: BTreeSet<u64>,
    pub known_before: bool,
}

impl World {
    /// A world without a set yet, with so many workers for each partition.
    pub(in crate::plan) fn new(retention: Retention, workers_each: usize) -> Self {
        let workers = (0..MAX_PARTITIONS)
            .flat_map(|partition| (0..workers_each).map(move |_| partition))
            .map(|partition| Worker { partition, instance: 0, joined: None, in_hand: None, cut: false })
            .collect();
        Self {
            retention,
            partitions: 1,
            messages: Vec::new(),
            consumers: BTreeMap::new(),
            revision: 0,
            record: None,
            lane_keys: BTreeMap::new(),
            assignments: BTreeMap::new(),
            workers,
            terminated: BTreeSet::new(),
            fence_elapsed: BTreeSet::new(),
            known_before: false,
        }
    }

    pub(in crate::plan) fn wanted(&self) -> Wanted {
        Wanted {
            owner: Owner { cluster: "c".into(), namespace: "n".into(), name: "s".into(), uid: "u".into() },
            set: SetName::new("n", "s"),
            mapping: Mapping::new("S", SubjectPattern::parse("o.*").unwrap(), &[1], MAX_PARTITIONS.into())
                .unwrap(),
            partitions: self.partitions,
            retention: self.retention,
            start: Start::All,
            consumer_replicas: None,
            settings: LaneSettings {
                ack_wait_milliseconds: 15_000,
                handler_timeout_milliseconds: 1000,
                retry: Retry {
                    initial_backoff_milliseconds: 1,
                    max_backoff_milliseconds: 1,
                    max_attempts: 0,
                },
                on_exhausted: ExhaustedPolicy::Block,
                paused: false,
            },
        }
    }

    pub(in crate::plan) fn holder(&self, worker: usize) -> Holder {
        Holder { pod: worker.to_string(), instance: self.workers[worker].instance.to_string() }
    }

    pub(in crate::plan) fn observe(&self) -> Observed {
        Observed {
            stream_created: "then".into(),
            stream_last_sequence: self.messages.len() as u64,
            record: self.record.clone(),
            known_before: self.known_before,
            lane_keys: self.lane_keys.clone(),
            assignments: self.assignments.clone(),
            consumers: self.consumers.iter().map(|(incarnation, one)| (*incarnation, one.found())).collect(),
            terminated: self.terminated.clone(),
            unreachable: (0..self.workers.len())
                .filter(|w| self.workers[*w].cut)
                .map(|w| self.holder(w))
                .collect(),
            fence_elapsed: self.fence_elapsed.clone(),
        }
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Carries out one step; whether it succeeded.
    pub(in crate::plan) fn apply(&mut self, step: &Step) -> Result<bool, String> {
        match step.clone() {
            Step::PutRecord { expected, record } => {
                if self.record.as_ref().map(|record| record.revision) != expected {
                    return Ok(false);
                }
                self.check_opened(&record)?;
                let revision = self.next_revision();
                self.known_before = true;
                self.record = Some(Revisioned { revision, value: record });
            }
            Step::PutLaneKey { incarnation, expected, key } => {
                if self.lane_keys.get(&incarnation).map(|key| key.revision) != expected {
                    return Ok(false);
                }
                let revision = self.next_revision();
                self.lane_keys.insert(incarnation, Revisioned { revision, value: key });
            }
            Step::PutAssignment { partition, expected, assignment } => {
                if self.assignments.get(&partition).map(|one| one.revision) != expected {
                    return Ok(false);
                }
                let revision = self.next_revision();
                self.assignments.insert(partition, Revisioned { revision, value: *assignment });
            }
            Step::CreateConsumer(spec) => return Ok(self.create(spec)),
            Step::RepairConsumer { spec, drift } => {
                return Err(format!("nothing drifts here, but {} is repaired: {drift:?}", spec.name));
            }
            Step::DeleteConsumer { incarnation, .. } => {
                self.consumers.remove(&incarnation);
                self.forget_without_interest()?;
            }
            Step::DeleteLaneKey { incarnation, expected } => {
                if self.lane_keys.get(&incarnation).is_some_and(|key| key.revision != expected) {
                    return Ok(false);
                }
                self.lane_keys.remove(&incarnation);
            }
            Step::DeleteAssignment { partition, expected } => {
                if self.assignments.get(&partition).is_some_and(|one| one.revision != expected) {
                    return Ok(false);
                }
                self.assignments.remove(&partition);
            }
        }
        Ok(true)
    }

    fn create(&mut self, spec: ConsumerSpec) -> bool {
        let number = |key: &str| spec.metadata[key].parse::<u64>().unwrap();
        let incarnation = number(metadata::INCARNATION);
        let share = Share {
            modulus: u32::try_from(number(metadata::MODULUS)).unwrap(),
            residue: u32::try_from(number(metadata::PARTITION)).unwrap(),
        };
        if let Some(existing) = self.consumers.get(&incarnation) {
            return existing.spec == spec;
        }
        if self.retention == Retention::WorkQueue
            && self.consumers.values().any(|one| one.share.overlaps(share))
        {
            return false;
        }
        let floor = spec.start.map_or(0, |start| start - 1);
        self.consumers.insert(incarnation, Consumer { spec, share, floor, pending: None });
        true
    }

    /// Nothing that is not completed may lie behind a lane that is opened.
    fn check_opened(&self, record: &Record) -> Result<(), String> {
        use crate::record::LaneState::Open;
        let before: Vec<u64> = self
            .record
            .iter()
            .flat_map(|record| &record.value.lanes)
            .filter(|lane| lane.state == Open)
            .map(|lane| lane.incarnation)
            .collect();
        for lane in
            record.lanes.iter().filter(|lane| lane.state == Open && !before.contains(&lane.incarnation))
        {
            for (sequence, message) in self.numbered() {
                let behind = sequence < lane.start || covered(&lane.floors, message.hash, sequence);
                if lane.share.contains_hash(message.hash) && behind && !message.completed && !message.vanished
                {
                    return Err(format!(
                        "lane {} opens past message {sequence}, never completed",
                        lane.incarnation
                    ));
                }
            }
        }
        Ok(())
    }

    pub(in crate::plan) fn numbered(&self) -> impl Iterator<Item = (u64, &Message)> {
        self.messages.iter().enumerate().map(|(index, message)| (index as u64 + 1, message))
    }

    pub(in crate::plan) fn message(&mut self, sequence: u64) -> &mut Message {
        let index = usize::try_from(sequence).unwrap() - 1;
        &mut self.messages[index]
    }

    /// Interest retention removes what no consumer needs.
    pub(in crate::plan) fn forget_without_interest(&mut self) -> Result<(), String> {
        if self.retention != Retention::Interest {
            return Ok(());
        }
        let consumers = &self.consumers;
        for (index, message) in self.messages.iter_mut().enumerate() {
            let sequence = index as u64 + 1;
            let needed = |one: &Consumer| one.share.contains_hash(message.hash) && sequence > one.floor;
            if !message.gone && !consumers.values().any(needed) {
                message.gone = true;
                if !message.completed && !message.vanished {
                    return Err(format!("message {sequence} removed: no consumer has interest in it"));
                }
            }
        }
        Ok(())
    }

    /// An acknowledgement arrives; servers check only that the sequence is pending.
    pub(in crate::plan) fn acknowledge(&mut self, incarnation: u64, sequence: u64) -> Result<(), String> {
        let Some(consumer) = self.consumers.get_mut(&incarnation) else { return Ok(()) };
        if consumer.pending != Some(sequence) {
            return Ok(());
        }
        consumer.pending = None;
        consumer.floor = sequence;
        let work_queue = self.retention == Retention::WorkQueue;
        let message = self.message(sequence);
        if !message.completed && !message.vanished {
            return Err(format!("message {sequence} acknowledged, never completed"));
        }
        message.gone |= work_queue;
        self.forget_without_interest()
    }

    /// What the consumer would deliver next.
    pub(in crate::plan) fn next_of(&self, consumer: &Consumer) -> Option<u64> {
        self.numbered()
            .find(|(sequence, message)| {
                *sequence > consumer.floor && !message.gone && consumer.share.contains_hash(message.hash)
            })
            .map(|(sequence, _)| sequence)
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
            max_ack_pending: 1,
            max_deliver: -1,
            ack_wait_milliseconds: self.spec.ack_wait_milliseconds,
            backoff_milliseconds: Vec::new(),
            inactive_threshold_milliseconds: 0,
            headers_only: false,
            replay_policy: "instant".into(),
            set: BTreeMap::new(),
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
pub(in crate::plan) fn covered(floors: &[Floor], hash: u32, sequence: u64) -> bool {
    floors.iter().any(|floor| floor.share.contains_hash(hash) && sequence <= floor.sequence)
}
