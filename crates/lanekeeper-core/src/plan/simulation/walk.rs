//! One random walk: choices, failures, and what must hold.

use super::world::{InHand, MAX_PARTITIONS, Message, World, covered};
use crate::{
    plan::{Step, plan},
    record::{Holder, LaneState},
    share::shares,
    stream::Retention,
};

/// A way to fail; each happens a few times in a walk that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    WorkerCrash,
    WorkerStall,
    LateAck,
    LateStep,
    OperatorCrash,
    SecondOperator,
    DeliveredToNobody,
    ConsumerDeleted,
    MessageVanishes,
    NodeUnreachable,
    RecordLost,
    LaneKeyLost,
}

/// A safety rule that workers break, to prove that these walks would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Pulls without being written among the holders.
    PullsWithoutJoining,
    /// Joins a lane whose key says that it retires.
    JoinsRetiring,
    /// Leaves while it still handles a message.
    LeavesBeforeSettling,
    /// Treats floors as one higher than they are.
    TrustsFloorsTooMuch,
}

const STEPS: usize = 260;
const MESSAGES: usize = 14;

struct Walk<'a> {
    mutant: Option<Mutant>,
    world: World,
    failures: &'a [Failure],
    budget: usize,
    /// Steps that each operator still has to carry out.
    operators: [Vec<Step>; 2],
    /// Requests that timed out and are applied later.
    late_steps: Vec<Step>,
    late_acks: Vec<(u64, u64)>,
    random: u64,
    story: Vec<String>,
}

/// Walks; the story of the walk when something that must never happen did.
pub(super) fn walk(
    seed: u64,
    retention: Retention,
    failures: &[Failure],
    mutant: Option<Mutant>,
) -> Result<(), Vec<String>> {
    let mut walk = Walk {
        mutant,
        world: World::new(retention, workers_of(failures)),
        failures,
        budget: 2 * failures.len(),
        operators: [Vec::new(), Vec::new()],
        late_steps: Vec::new(),
        late_acks: Vec::new(),
        random: seed,
        story: Vec::new(),
    };
    walk.world.partitions = 1 + walk.below(MAX_PARTITIONS);
    // Interest retention keeps nothing that is published before the first consumers.
    let result = walk.settle_first().and_then(|()| walk.turbulence()).and_then(|()| walk.calm());
    result.map_err(|violation| {
        walk.story.push(violation);
        walk.story
    })
}

/// A message that vanishes from under its handler, or whose acknowledgement arrives when another pod repeats it, frees
/// the slot: a second pod of the partition would get the next message. Keeping that pod away is the work of pinning,
/// which the plan does not see; so there is one pod then.
fn workers_of(failures: &[Failure]) -> usize {
    let frees = [Failure::MessageVanishes, Failure::LateAck];
    if failures.iter().any(|failure| frees.contains(failure)) { 1 } else { 2 }
}

impl Walk<'_> {
    /// splitmix64, after <https://prng.di.unimi.it/splitmix64.c> (public domain).
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound)).unwrap()
    }

    /// Whether this failure happens now.
    fn fails(&mut self, failure: Failure, one_in: u32) -> bool {
        if self.budget == 0 || !self.failures.contains(&failure) || self.below(one_in) != 0 {
            return false;
        }
        self.budget -= 1;
        self.story.push(format!("-- {failure:?}"));
        true
    }

    fn settle_first(&mut self) -> Result<(), String> {
        for _ in 0..40 {
            self.operate(0)?;
        }
        Ok(())
    }

    fn turbulence(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            match self.below(12) {
                0 if self.world.messages.len() < MESSAGES => {
                    let hash = self.below(MAX_PARTITIONS);
                    self.world.messages.push(Message { hash, ..Message::default() });
                    self.story.push(format!("message {} of key {hash}", self.world.messages.len()));
                    self.world.forget_without_interest()?;
                }
                1 if self.below(4) == 0 => {
                    self.world.partitions = 1 + self.below(MAX_PARTITIONS);
                    self.story.push(format!("N = {}", self.world.partitions));
                }
                2..5 => self.operate(0)?,
                5 if !self.operators[1].is_empty() || self.fails(Failure::SecondOperator, 2) => {
                    self.operate(1)?;
                }
                6 => self.misfortune()?,
                _ => self.work()?,
            }
        }
        Ok(())
    }

    /// No failures any more: everything must come to its end.
    fn calm(&mut self) -> Result<(), String> {
        self.budget = 0;
        self.story.push("-- calm".into());
        for _ in 0..3000 {
            if self.finished() {
                return Ok(());
            }
            match self.below(4) {
                0 => self.operate(0)?,
                1 => self.misfortune()?,
                _ => self.work()?,
            }
        }
        let lanes = self.world.record.as_ref().map(|record| &record.value.lanes);
        let plan = plan(&self.world.wanted(), &self.world.observe());
        Err(format!(
            "never comes to an end: lanes {lanes:?}, workers {:?}, plan {plan:?}",
            self.world.workers
        ))
    }

    fn finished(&self) -> bool {
        let wanted = shares(self.world.partitions);
        let Some(record) = &self.world.record else { return false };
        let lanes = &record.value.lanes;
        lanes.len() == wanted.len()
            && lanes.iter().all(|lane| lane.state == LaneState::Open && wanted.contains(&lane.share))
            && self.world.consumers.keys().all(|one| lanes.iter().any(|lane| lane.incarnation == *one))
            && self.world.messages.iter().all(|message| message.completed || message.vanished)
            && self.late_steps.is_empty()
    }

    fn operate(&mut self, operator: usize) -> Result<(), String> {
        if self.operators[operator].is_empty() {
            let plan = plan(&self.world.wanted(), &self.world.observe());
            self.operators[operator] = plan.steps;
            self.operators[operator].reverse(); // the next is the last: popped
            return Ok(());
        }
        if self.fails(Failure::OperatorCrash, 6) {
            self.operators[operator].clear();
            return Ok(());
        }
        let Some(step) = self.operators[operator].pop() else { return Ok(()) };
        let conditional = !matches!(step, Step::CreateConsumer(_) | Step::DeleteConsumer { .. });
        if self.fails(Failure::LateStep, 6) && !conditional {
            self.story.push(format!("late: {step:?}"));
            self.late_steps.push(step);
            self.operators[operator].clear();
            return Ok(());
        }
        let done = self.world.apply(&step)?;
        self.story.push(format!("operator {operator}: {}{step:?}", if done { "" } else { "refused: " }));
        if !done {
            self.operators[operator].clear();
        }
        Ok(())
    }

    /// What happens around: late requests, time passing, and failures of the server and nodes.
    fn misfortune(&mut self) -> Result<(), String> {
        if let Some(step) = self.late_steps.pop() {
            let done = self.world.apply(&step)?;
            self.story.push(format!("applied late ({done}): {step:?}"));
        }
        if let Some((incarnation, sequence)) = self.late_acks.pop() {
            self.story.push(format!("late ack of {sequence} on lane {incarnation}"));
            self.world.acknowledge(incarnation, sequence)?;
        }
        self.pass_time();
        let existing: Vec<u64> = self.world.consumers.keys().copied().collect();
        if !existing.is_empty() && self.fails(Failure::ConsumerDeleted, 3) {
            let index = self.below(u32::try_from(existing.len()).unwrap()) as usize;
            self.story.push(format!("somebody deletes the consumer of lane {}", existing[index]));
            self.world.consumers.remove(&existing[index]);
        }
        if !self.world.messages.is_empty() && self.fails(Failure::MessageVanishes, 3) {
            let sequence = u64::from(1 + self.below(u32::try_from(self.world.messages.len()).unwrap()));
            self.story.push(format!("message {sequence} vanishes"));
            let message = self.world.message(sequence);
            message.gone = true;
            message.vanished = true;
            for consumer in self.world.consumers.values_mut().filter(|one| one.pending == Some(sequence)) {
                consumer.pending = None;
                consumer.floor = sequence;
            }
        }
        if self.fails(Failure::NodeUnreachable, 4) {
            // One of the two workers of a partition: the other one must be enough to go on.
            let partition = self.below(MAX_PARTITIONS) as usize;
            self.story.push(format!("node of worker {} unreachable", 2 * partition));
            self.world.workers[2 * partition].cut = true;
        }
        if self.fails(Failure::RecordLost, 4) {
            self.world.record = None;
            self.world.fence_elapsed.remove(&0);
        }
        if self.fails(Failure::LaneKeyLost, 4) {
            let keys: Vec<u64> = self.world.lane_keys.keys().copied().collect();
            if !keys.is_empty() {
                let index = self.below(u32::try_from(keys.len()).unwrap()) as usize;
                self.story.push(format!("key of lane {} deleted", keys[index]));
                self.world.lane_keys.remove(&keys[index]);
            }
        }
        Ok(())
    }

    /// One `AckWait` passes for those whose consumer is gone: whoever holds a message of it has passed its deadline.
    fn pass_time(&mut self) {
        let holds = |world: &World, incarnation: u64| {
            world.workers.iter().any(|worker| {
                worker.in_hand.is_some_and(|hand| hand.incarnation == incarnation && !hand.lost)
            })
        };
        for worker in 0..self.world.workers.len() {
            let Some(hand) = self.world.workers[worker].in_hand else { continue };
            let unanswered =
                self.world.workers[worker].cut || !self.world.consumers.contains_key(&hand.incarnation);
            if unanswered && !hand.lost && self.below(3) == 0 {
                self.story.push(format!("worker {worker} passes its deadline of {}", hand.sequence));
                self.world.workers[worker].in_hand = Some(InHand { lost: true, ..hand });
            }
        }
        let named: Vec<u64> = self
            .world
            .record
            .iter()
            .flat_map(|record| &record.value.lanes)
            .map(|lane| lane.incarnation)
            .collect();
        for incarnation in named {
            if !self.world.consumers.contains_key(&incarnation) && !holds(&self.world, incarnation) {
                self.world.fence_elapsed.insert(incarnation);
            }
        }
        let nobody = self.world.workers.iter().all(|worker| worker.in_hand.is_none_or(|hand| hand.lost));
        if self.world.record.is_none() && nobody {
            self.world.fence_elapsed.insert(0);
        }
    }

    /// One worker does one thing.
    fn work(&mut self) -> Result<(), String> {
        let index = self.below(u32::try_from(self.world.workers.len()).unwrap()) as usize;
        if self.fails(Failure::WorkerCrash, 12) && !self.world.workers[index].cut {
            let holder = self.world.holder(index);
            self.world.terminated.insert(holder);
            let worker = &mut self.world.workers[index];
            worker.instance += 1;
            worker.joined = None;
            worker.in_hand = None;
            return Ok(());
        }
        let worker = self.world.workers[index].clone();
        match worker.in_hand {
            Some(hand)
                if self.mutant == Some(Mutant::LeavesBeforeSettling)
                    && worker.joined.is_some()
                    && self.must_leave(worker.partition, hand.incarnation) =>
            {
                self.leave(index, hand.incarnation);
            }
            Some(hand) if hand.lost => {
                // It may complete or give up; either way it says nothing to the server.
                if self.below(2) == 0 && !hand.done {
                    self.world.message(hand.sequence).completed = true;
                }
                self.world.workers[index].in_hand = None;
            }
            Some(hand) if self.fails(Failure::WorkerStall, 6) => {
                self.world.workers[index].in_hand = Some(InHand { lost: true, ..hand });
            }
            Some(hand) if !hand.done => {
                self.story.push(format!("worker {index} completes {}", hand.sequence));
                self.world.message(hand.sequence).completed = true;
                self.world.workers[index].in_hand = Some(InHand { done: true, ..hand });
            }
            Some(_) if worker.cut => {}
            Some(hand) => {
                if self.fails(Failure::LateAck, 4) {
                    self.late_acks.push((hand.incarnation, hand.sequence));
                    return Ok(()); // not confirmed: it will be repeated
                }
                self.world.acknowledge(hand.incarnation, hand.sequence)?;
                self.world.workers[index].in_hand = None;
            }
            None if worker.cut => {}
            None => match worker.joined {
                None => self.join(index),
                Some(incarnation) if self.must_leave(worker.partition, incarnation) => {
                    self.leave(index, incarnation);
                }
                Some(incarnation) => self.pull(index, incarnation)?,
            },
        }
        Ok(())
    }

    fn must_leave(&self, partition: u32, incarnation: u64) -> bool {
        let assigned = self.world.assignments.get(&partition).map(|one| &one.value);
        let key = self.world.lane_keys.get(&incarnation).map(|key| key.value.retiring);
        assigned.is_some_and(|one| one.incarnation != incarnation || one.retiring)
            || key.unwrap_or(true)
            || !self.world.consumers.contains_key(&incarnation)
    }

    fn join(&mut self, index: usize) {
        let partition = self.world.workers[index].partition;
        let Some(assigned) = self.world.assignments.get(&partition).map(|one| &one.value) else { return };
        let incarnation = assigned.incarnation;
        let holder = self.world.holder(index);
        let careless = self.mutant == Some(Mutant::JoinsRetiring);
        if assigned.retiring && !careless {
            return;
        }
        if let Some(key) = self.world.lane_keys.get_mut(&incarnation)
            && (!key.value.retiring || careless)
        {
            if self.mutant != Some(Mutant::PullsWithoutJoining) {
                self.world.revision += 1;
                key.revision = self.world.revision;
                key.value.holders.push(holder);
            }
            self.world.workers[index].joined = Some(incarnation);
            self.story.push(format!("worker {index} joins lane {incarnation}"));
        }
    }

    fn leave(&mut self, index: usize, incarnation: u64) {
        let holder: Holder = self.world.holder(index);
        if let Some(key) = self.world.lane_keys.get_mut(&incarnation) {
            self.world.revision += 1;
            key.revision = self.world.revision;
            key.value.holders.retain(|one| *one != holder);
        }
        self.world.workers[index].joined = None;
        self.story.push(format!("worker {index} leaves lane {incarnation}"));
    }

    fn pull(&mut self, index: usize, incarnation: u64) -> Result<(), String> {
        let Some(consumer) = self.world.consumers.get(&incarnation) else { return Ok(()) };
        let held = self.world.workers.iter().any(|worker| {
            worker.in_hand.is_some_and(|hand| {
                hand.incarnation == incarnation && Some(hand.sequence) == consumer.pending && !hand.lost
            })
        });
        let sequence = match consumer.pending {
            Some(_) if held => None,
            Some(pending) => Some(pending),
            None => self.world.next_of(consumer),
        };
        let Some(sequence) = sequence else { return Ok(()) };
        let nobody = self.fails(Failure::DeliveredToNobody, 6);
        if let Some(consumer) = self.world.consumers.get_mut(&incarnation) {
            consumer.pending = Some(sequence);
        }
        if nobody {
            return Ok(());
        }
        self.story.push(format!("worker {index} gets {sequence} on lane {incarnation}"));
        self.begin(index, incarnation, sequence)
    }

    fn begin(&mut self, index: usize, incarnation: u64, sequence: u64) -> Result<(), String> {
        let partition = self.world.workers[index].partition;
        let assigned = self.world.assignments.get(&partition).map(|one| &one.value);
        let floors = assigned.filter(|one| one.incarnation == incarnation).map_or(&[][..], |one| &one.floors);
        let message =
            self.world.numbered().find(|(one, _)| *one == sequence).map(|(_, message)| message.clone());
        let Some(message) = message else { return Err(format!("message {sequence} does not exist")) };
        let settled = |message: &Message| message.completed || message.vanished;
        let trusted = if self.mutant == Some(Mutant::TrustsFloorsTooMuch) { sequence - 1 } else { sequence };
        let skipped = covered(floors, message.hash, trusted);
        if skipped && !settled(&message) {
            return Err(format!("message {sequence} skipped by a floor, never completed"));
        }
        if !skipped {
            let earlier = self
                .world
                .numbered()
                .find(|(one, other)| *one < sequence && other.hash == message.hash && !settled(other));
            if let Some((earlier, _)) = earlier {
                return Err(format!(
                    "handler of {sequence} starts before {earlier} of its key has completed"
                ));
            }
            for (other, worker) in self.world.workers.iter().enumerate() {
                if let Some(hand) = worker.in_hand.filter(|hand| !hand.lost && !hand.done)
                    && other != index
                    && self.world.messages[usize::try_from(hand.sequence).unwrap() - 1].hash == message.hash
                {
                    return Err(format!(
                        "{sequence} starts while {} of its key runs at worker {other}",
                        hand.sequence
                    ));
                }
            }
        }
        self.world.workers[index].in_hand =
            Some(InHand { incarnation, sequence, done: skipped, lost: false });
        Ok(())
    }
}
