//! Two workers of one lane, a server and a network under random trouble: nothing is handled before what
//! came before it was completed, no invariant breaks, and everything is handled once the trouble ends.

mod leased;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use proptest::prelude::*;

use super::{
    rig::{PARK, WAIT, assignment, key_of, ms, seconds, subjects_of},
    server::{Down, Server, Up},
};
use crate::{
    fence::Fence,
    invariants::LaneMonitor,
    lane::{Backlog, ConsumerFacts, Delivered, Effect, Event, Lane, Note, Options, Outcome, PullStatus},
    lease::tests::world::World as Leases,
    order::{MAX_ORDERS, Order, Verb},
    park::{ParkOrder, ParkedMessage},
    record::{Breaker, ExhaustedPolicy, Holder, Ownership, Park},
    release::{self, Seen},
};

const MESSAGES: u64 = 12;
/// Messages take turns at so many keys.
const KEYS: u64 = 3;

#[derive(Debug, Clone)]
enum Trouble {
    /// Time passes.
    Pass(u64),
    /// The handler of a worker ends.
    Handled(usize, Outcome),
    Disconnect(usize),
    Connect(usize),
    /// The process is stopped for a while.
    Freeze(usize, u64),
    /// Packets of a worker take this long.
    Slow(usize, u64),
    /// The process is killed and a new one starts.
    Kill(usize),
    /// The same, and somebody releases what it had; each look and request takes its time.
    Release(usize, [u64; 4]),
    /// The process is asked to end; a new one starts when it did.
    Shutdown(usize),
    Pause(bool),
    DeleteInHand,
    /// Somebody takes the pin away, or the consumer's leader changes.
    Unpin,
    /// The other streams take nothing, or take it again.
    Full(bool),
    /// Somebody orders that a message be tried or skipped, or all up to one.
    Order {
        verb: Verb,
        sequence: u64,
        whole_key: bool,
    },
    /// What workers write of orders is lost, or not any more.
    Forgetful(bool),
    /// A person wants what is parked of a key released, or dropped.
    ParkOrder(u64, bool),
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts: any combination of them can be")]
struct Worker {
    /// Where the server sends what is for this process: another process of its place does not hear of it.
    address: usize,
    lane: Lane,
    monitor: LaneMonitor,
    connected: bool,
    frozen_until: Duration,
    delay: Duration,
    up: VecDeque<(Duration, Up)>,
    down: VecDeque<(Duration, Down)>,
    sequences: BTreeMap<u64, u64>,
    pins: BTreeMap<u64, Arc<str>>,
    running: Option<u64>,
    /// It runs with a parked message.
    running_parked: bool,
    /// The pin that came with it.
    running_with: Option<Arc<str>>,
    /// The pin that it noted.
    noted: Option<Arc<str>>,
    /// It says that the lane stands still.
    stalled: bool,
    /// What it was told of its lease.
    told: Option<Duration>,
    exited: bool,
}

impl Worker {
    fn new(address: usize) -> Self {
        Self {
            address,
            lane: Lane::new(Options::default()),
            monitor: LaneMonitor::new(),
            connected: false,
            frozen_until: Duration::ZERO,
            delay: ms(1),
            up: VecDeque::new(),
            down: VecDeque::new(),
            sequences: BTreeMap::new(),
            pins: BTreeMap::new(),
            running: None,
            running_parked: false,
            running_with: None,
            noted: None,
            stalled: false,
            told: None,
            exited: false,
        }
    }
}

/// What is done next of a release.
#[derive(Debug, Clone)]
enum Next {
    Look,
    Unpin { before: Seen },
    LookLeased { revision: u64 },
    Free { before: Seen, revision: u64 },
    LookAgain { before: Seen },
    GiveBack { sequence: u64 },
}

#[derive(Debug)]
struct Release {
    due: Duration,
    next: Next,
    pin: Arc<str>,
    times: [u64; 4],
}

struct World {
    now: Duration,
    server: Server,
    releases: Vec<Release>,
    workers: Vec<Worker>,
    /// Addresses that were given.
    addresses: usize,
    paused: bool,
    /// The worker that noted the pin last, and which.
    owner: Option<(usize, Arc<str>)>,
    /// Nothing happens that stops the lane, so nobody may say so.
    never_stalled: bool,
    /// Where a lease decides.
    leases: Option<Leases>,
    policy: ExhaustedPolicy,
    /// What the lane's key has of orders.
    orders: Vec<Order>,
    /// All that were ever given.
    ordered: Vec<Order>,
    /// What is written of orders is lost.
    forgetful: bool,
    /// Completed or put away.
    completed: BTreeSet<u64>,
    /// Those that were handed to a handler.
    begun: BTreeSet<u64>,
    /// What the lane's key has of orders about parked messages; how many were given.
    park_orders: Vec<ParkOrder>,
    park_ordered: u64,
    /// The worker that may carry those out.
    claim: Option<usize>,
    subjects: Vec<String>,
    messages: u64,
    history: Vec<String>,
}

impl World {
    fn new(workers: usize, policy: ExhaustedPolicy) -> Self {
        let mut world = Self {
            policy,
            now: Duration::ZERO,
            server: Server::new(MESSAGES),
            releases: Vec::new(),
            workers: Vec::new(),
            addresses: workers,
            paused: false,
            owner: None,
            never_stalled: false,
            orders: Vec::new(),
            ordered: Vec::new(),
            forgetful: false,
            leases: None,
            completed: BTreeSet::new(),
            begun: BTreeSet::new(),
            park_orders: Vec::new(),
            park_ordered: 0,
            claim: None,
            subjects: subjects_of(assignment(1).share).take(usize::try_from(KEYS).unwrap()).collect(),
            messages: 0,
            history: Vec::new(),
        };
        for index in 0..workers {
            world.workers.push(Worker::new(index));
            world.start(index);
        }
        world
    }

    fn start(&mut self, index: usize) {
        self.workers[index] = Worker::new(self.addresses);
        self.addresses += 1;
        self.owner.take_if(|(owner, _)| *owner == index);
        if let Some(leases) = &mut self.leases {
            leases.kill(index);
            leases.processes[index].gone = true;
        }
        // The process before it has ended, so it is no holder any more.
        self.claim.take_if(|holder| *holder == index);
        self.connect(index);
        self.assign(index);
    }

    fn connect(&mut self, index: usize) {
        if !self.workers[index].connected {
            self.workers[index].connected = true;
            self.tell(index, Event::Connected);
        }
    }

    fn disconnect(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        if worker.connected {
            worker.connected = false;
            worker.up.clear();
            worker.down.clear();
            self.tell(index, Event::Disconnected);
        }
    }

    fn assign(&mut self, index: usize) {
        let mut given = assignment(1);
        given.settings.paused = self.paused;
        given.settings.on_exhausted = self.policy.clone();
        if self.leases.is_some() {
            given.settings.ownership = Ownership::Lease;
        }
        given.settings.park = self.parks().then(|| Park { stream: "PARK".into(), prefix: PARK.into() });
        self.tell(index, Event::Assigned(Arc::new(given)));
    }

    fn parks(&self) -> bool {
        matches!(self.policy, ExhaustedPolicy::ParkKey { .. })
    }

    fn subject(&self, sequence: u64) -> &str {
        &self.subjects[usize::try_from(sequence % KEYS).unwrap()]
    }

    fn key(&self, sequence: u64) -> Arc<str> {
        let mapping = super::rig::mapping();
        let original = mapping.original_subject(self.subject(sequence)).unwrap().to_owned();
        mapping.key_text(&original).unwrap().into()
    }

    /// The lane's key is read by a worker.
    fn tell_park_orders(&mut self, index: usize) {
        let (orders, claimed) = (self.park_orders.clone(), self.claim == Some(index));
        self.tell(index, Event::ParkOrders { incarnation: 1, orders, claimed });
    }

    fn park_order(&mut self, of: u64, drop: bool) {
        self.park_ordered += 1;
        let (id, key) = (format!("parked {}", self.park_ordered), self.key(of));
        self.park_orders.push(ParkOrder { id, key, sequence: None, drop });
        for index in 0..self.workers.len() {
            self.tell_park_orders(index);
        }
    }

    /// A handler begins: everything earlier of its key is completed, and everything earlier at all that is not parked. A
    /// parked message begins before every later one of its key, unless it was parked by a store that came too late.
    fn check_start(&mut self, sequence: u64, parked: bool) {
        let owed = |q: &u64| {
            !self.completed.contains(q)
                && (q % KEYS == sequence % KEYS || !parked && !self.server.is_parked(*q))
        };
        let missing: Vec<u64> = (1..sequence).filter(owed).collect();
        assert!(
            missing.is_empty(),
            "{sequence} begins before {missing:?} are completed\n{}",
            self.history.join("\n")
        );
        if parked && !self.server.late.contains(&sequence) {
            let later = self.begun.range(sequence + 1..).find(|q| *q % KEYS == sequence % KEYS);
            assert!(later.is_none(), "{sequence} is released after {later:?}\n{}", self.history.join("\n"));
        }
        self.begun.insert(sequence);
    }

    fn tell(&mut self, index: usize, event: Event<'_>) {
        let now = self.now;
        let worker = &mut self.workers[index];
        if worker.exited {
            return;
        }
        if let Event::Handled(outcome) = &event {
            let Some(sequence) = worker.running.take() else { return };
            worker.running_with = None;
            if *outcome == Outcome::Done {
                self.completed.insert(sequence);
            }
        }
        self.history.push(format!("{now:?} worker {index} <- {event:?}"));
        worker.monitor.told(now, &event);
        let effects = worker.lane.on(now, event);
        let broken = worker.monitor.did(now, &effects);
        self.history.push(format!("{now:?} worker {index} -> {effects:?}"));
        assert!(broken.is_empty(), "{broken:?}\n{}", self.history.join("\n"));
        for effect in effects {
            self.carry_out(index, &effect);
        }
    }

    fn carry_out(&mut self, index: usize, effect: &Effect) {
        if let Effect::Note(Note::Dropped { sequence, .. } | Note::ParkedDropped { sequence, .. }) = effect {
            self.completed.insert(*sequence);
        }
        if let Effect::Note(Note::Skipped { sequence, .. }) = effect {
            let key = key_of(self.subject(*sequence));
            let covers = |order: &Order| order.verb == Verb::Skip && order.covers(*sequence, &key);
            assert!(self.ordered.iter().any(covers), "{sequence}: nobody ordered that");
            if matches!(self.policy, ExhaustedPolicy::DeadLetter { .. }) {
                assert!(self.server.dead.contains(sequence), "{sequence} is nowhere");
            }
            self.completed.insert(*sequence);
        }
        match effect {
            Effect::Claim { incarnation } => {
                let (incarnation, granted) = (*incarnation, self.claim.is_none_or(|holder| holder == index));
                if granted {
                    self.claim = Some(index);
                }
                return self.tell(index, Event::Claimed { incarnation, granted });
            }
            Effect::Unclaim { .. } => drop(self.claim.take_if(|holder| *holder == index)),
            Effect::ParkOrderDone { id, .. } => {
                self.claim.take_if(|holder| *holder == index);
                self.park_orders.retain(|order| order.id != *id);
            }
            _ => {}
        }
        let key_of: Option<BTreeSet<u64>> = match effect {
            Effect::ListParked { key, .. } => {
                Some((1..=MESSAGES).filter(|sequence| self.key(*sequence) == *key).collect())
            }
            _ => None,
        };
        let worker = &mut self.workers[index];
        let sequence = |message: u64| worker.sequences[&message];
        let up = match effect {
            Effect::Pull(request) => Up::Pull(request.clone()),
            Effect::Renew(renewal) => Up::Renew(renewal.clone()),
            Effect::Unpin => Up::Unpin,
            Effect::Ack { message, token, pull } => {
                Up::Ack { sequence: sequence(*message), token: *token, pull: pull.clone() }
            }
            Effect::Nak { message, token, delay } => {
                Up::Nak { sequence: sequence(*message), token: *token, delay: *delay }
            }
            Effect::Progress { message, token } => {
                Up::Progress { sequence: sequence(*message), token: *token }
            }
            Effect::DeadLetter { message, token, until, .. } => {
                assert!(self.now < *until);
                Up::Publish { sequence: sequence(*message), token: *token }
            }
            Effect::Park { message, token, until, .. } => {
                assert!(self.now < *until);
                Up::Park { sequence: sequence(*message), token: *token, until: *until }
            }
            Effect::LoadParked { token } => Up::Load { token: *token },
            Effect::ListParked { token, .. } => Up::List { token: *token, of: key_of.unwrap_or_default() },
            Effect::FetchParked { token, stored } => Up::Fetch { token: *token, stored: *stored },
            Effect::DeleteParked { token, stored, until } => {
                assert!(self.now < *until);
                Up::Delete { token: *token, stored: stored.clone() }
            }
            Effect::Inspect { token } if worker.connected => Up::Inspect { token: *token, asked: self.now },
            Effect::Inspect { token } => return self.tell(index, Event::InspectFailed { token: *token }),
            Effect::Join { incarnation } => {
                let incarnation = *incarnation;
                self.tell(index, Event::Orders { incarnation, orders: self.orders.clone() });
                self.tell(index, Event::Joined { incarnation, retiring: false, excused: None });
                return self.tell_park_orders(index);
            }
            Effect::Contend { time, .. } => {
                assert_eq!(*time, WAIT);
                if let Some(leases) = &mut self.leases {
                    leases.again(index);
                    worker.told = None;
                }
                return;
            }
            Effect::Leave { incarnation, .. } => {
                self.owner.take_if(|(owner, _)| *owner == index);
                if let Some(leases) = &mut self.leases {
                    leases.processes[index].lessee.leave();
                }
                self.claim.take_if(|holder| *holder == index);
                return self.tell(index, Event::Left { incarnation: *incarnation });
            }
            Effect::Handle { message, .. } => {
                let sequence = sequence(*message);
                worker.running = Some(sequence);
                worker.running_parked = false;
                worker.running_with = worker.pins.get(message).cloned();
                self.one_at_a_time();
                return self.check_start(sequence, false);
            }
            Effect::HandleParked { message, .. } => {
                let sequence = sequence(*message);
                worker.running = Some(sequence);
                worker.running_parked = true;
                worker.running_with = None;
                self.one_of_a_key();
                return self.check_start(sequence, true);
            }
            Effect::Cancel => {
                worker.running = None;
                worker.running_with = None;
                return;
            }
            Effect::Exit => {
                worker.exited = true;
                return;
            }
            Effect::Own { pin, .. } => {
                worker.noted = Some(Arc::clone(pin));
                self.owner = Some((index, Arc::clone(pin)));
                return;
            }
            Effect::Report(report) => {
                worker.stalled = report.stalled.is_some();
                let alarm = worker.stalled && self.never_stalled;
                assert!(!alarm, "worker {index}: {report:?}\n{}", self.history.join("\n"));
                return;
            }
            Effect::Breaker { .. }
            | Effect::Claim { .. }
            | Effect::Unclaim { .. }
            | Effect::ParkOrderDone { .. }
            | Effect::Excuse { .. }
            | Effect::Forget { .. }
            | Effect::Note(_) => return,
            Effect::OrderBegun { id, .. } => {
                if !self.forgetful {
                    let begun = self.orders.iter_mut().filter(|order| order.id == *id);
                    begun.for_each(|order| order.begun = true);
                }
                return;
            }
            Effect::OrderEnded { result, .. } => {
                if !self.forgetful {
                    self.orders.retain(|order| order.id != result.id);
                }
                return;
            }
        };
        if worker.connected {
            let at = (self.now + worker.delay).max(worker.up.back().map_or(Duration::ZERO, |last| last.0));
            worker.up.push_back((at, up));
        }
    }

    /// Whatever vanishes, comes late or is cut off: no two handlers are at work at once, unless the pin was taken away
    /// from one of them in mid-message; then the message in hand alone keeps them apart. A frozen process is not at
    /// work; it notices before it goes on.
    fn one_at_a_time(&self) {
        let at_work = |worker: &&Worker| self.now > worker.frozen_until && !worker.exited;
        let pins: Vec<&Arc<str>> =
            self.workers.iter().filter(at_work).filter_map(|worker| worker.running_with.as_ref()).collect();
        let running = self.workers.iter().filter(at_work).filter(|worker| worker.running.is_some()).count();
        assert!(self.leases.is_none() || running < 2, "two handlers at once\n{}", self.history.join("\n"));
        let alone = pins.len() < 2 || pins.iter().any(|pin| self.server.taken.contains(*pin));
        assert!(alone, "two handlers at once\n{}", self.history.join("\n"));
    }

    /// No two handlers of one key are at work, whatever they do it for.
    fn one_of_a_key(&self) {
        let at_work = |worker: &&Worker| self.now > worker.frozen_until && !worker.exited;
        let mut keys: Vec<u64> =
            self.workers.iter().filter(at_work).filter_map(|worker| worker.running).collect();
        let all = keys.len();
        for sequence in &mut keys {
            *sequence %= KEYS;
        }
        keys.sort_unstable();
        keys.dedup();
        let late = !self.server.late.is_empty();
        assert!(late || keys.len() == all, "two handlers of a key at once\n{}", self.history.join("\n"));
    }

    /// The next moment at which anything happens by itself.
    fn wake(&self) -> Option<Duration> {
        let mut times: Vec<Duration> = self.server.wake(self.now).into_iter().collect();
        times.extend(self.releases.iter().map(|release| release.due));
        times.extend(self.leases.as_ref().map(Leases::wake));
        for worker in &self.workers {
            times.extend(worker.up.front().map(|packet| packet.0));
            if worker.exited {
                continue;
            }
            let next = worker.down.front().map(|packet| packet.0);
            let tick = worker.lane.wake(self.now);
            times.extend(next.into_iter().chain(tick).map(|time| time.max(worker.frozen_until)));
        }
        times.into_iter().min().map(|time| time.max(self.now))
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps = 0;
        while let Some(wake) = self.wake().filter(|wake| *wake <= until) {
            steps += 1;
            assert!(steps < 100_000, "a hot loop\n{}", self.history[self.history.len() - 40..].join("\n"));
            self.now = wake;
            self.turn();
        }
        self.now = until;
        self.turn();
    }

    fn turn(&mut self) {
        self.server.serve(self.now);
        self.release_on();
        self.lease_on();
        for index in 0..self.workers.len() {
            while let Some(up) = due(&mut self.workers[index].up, self.now) {
                self.server.receive(self.now, self.workers[index].address, &up);
                self.completed.extend(&self.server.dead);
                let lost: Vec<_> = self
                    .server
                    .acked
                    .iter()
                    .filter(|q| !self.completed.contains(q) && !self.server.is_parked(**q))
                    .collect();
                assert!(lost.is_empty(), "{lost:?} acknowledged and nowhere\n{}", self.history.join("\n"));
            }
        }
        for (address, down) in std::mem::take(&mut self.server.out) {
            let worker = self.workers.iter_mut().find(|worker| worker.address == address);
            if let Some(worker) = worker.filter(|worker| worker.connected) {
                let at =
                    (self.now + worker.delay).max(worker.down.back().map_or(Duration::ZERO, |last| last.0));
                worker.down.push_back((at, down));
            }
        }
        for index in 0..self.workers.len() {
            if self.now < self.workers[index].frozen_until {
                continue;
            }
            while let Some(down) = due(&mut self.workers[index].down, self.now) {
                self.receive(index, &down);
            }
            self.tell(index, Event::Tick);
        }
    }

    /// The steps that are due of what is being released.
    fn release_on(&mut self) {
        while let Some(index) = self.releases.iter().position(|release| release.due <= self.now) {
            let Release { next, pin, times, .. } = self.releases.swap_remove(index);
            self.history.push(format!("{:?} release {next:?}", self.now));
            let then = match next {
                Next::Look if self.leases.is_some() => {
                    let revision = self.leases.as_ref().and_then(Leases::revision_of_dead);
                    revision.map(|revision| (times[1], Next::LookLeased { revision }))
                }
                Next::LookLeased { revision } => {
                    Some((times[1], Next::Free { before: self.server.seen(self.now), revision }))
                }
                Next::Free { before, revision } => {
                    let is_free = self.leases.as_mut().is_some_and(|leases| leases.free(revision));
                    is_free.then_some((times[2], Next::LookAgain { before }))
                }
                Next::Look => {
                    let before = self.server.seen(self.now);
                    release::may_unpin(&pin, &before).then_some((times[1], Next::Unpin { before }))
                }
                Next::Unpin { before } => {
                    self.server.release();
                    Some((times[2], Next::LookAgain { before }))
                }
                Next::LookAgain { before } => {
                    let after = self.server.seen(self.now);
                    let sequence = before.stream_sequence;
                    release::may_give_back(&before, &after).then_some((times[3], Next::GiveBack { sequence }))
                }
                Next::GiveBack { sequence } => {
                    let nak = Up::Nak { sequence, token: 0, delay: Duration::ZERO };
                    // Nobody waits for the answer.
                    self.server.receive(self.now, usize::MAX, &nak);
                    None
                }
            };
            self.releases.extend(then.map(|(time, next)| Release {
                due: self.now + ms(time),
                next,
                pin,
                times,
            }));
        }
    }

    fn receive(&mut self, index: usize, down: &Down) {
        match down.clone() {
            Down::Message { pull, sequence, deliveries, pin } => {
                self.messages += 1;
                let (message, subject) = (self.messages, self.subject(sequence).to_owned());
                self.workers[index].pins.insert(message, Arc::clone(&pin));
                self.workers[index].sequences.insert(message, sequence);
                let pin = Some(&*pin).filter(|pin| !pin.is_empty());
                let delivered = Delivered { message, pull, sequence, deliveries, subject: &subject, pin };
                self.tell(index, Event::Delivered(delivered));
            }
            Down::Expired { pull } => {
                self.tell(index, Event::PullEnded { pull, status: PullStatus::Expired });
            }

            Down::Heartbeat { pull } => self.tell(index, Event::Heartbeat { pull }),
            Down::Stored { token } => self.tell(index, Event::Stored { token }),
            Down::NotStored { token } => {
                self.tell(index, Event::NotStored { token, reason: "full".into() });
            }
            Down::Keys { token, parked } => {
                let keys = parked.iter().map(|sequence| self.key(*sequence)).collect();
                self.tell(index, Event::ParkedKeys { token, keys });
            }
            Down::List { token, parked } => {
                let message = |(stored, sequence): &(u64, u64)| ParkedMessage {
                    fence: Fence { stream_incarnation: 1, sequence: *sequence },
                    stored: vec![*stored],
                };
                self.tell(
                    index,
                    Event::ParkedListed { token, messages: parked.iter().map(message).collect() },
                );
            }
            Down::Fetched { token, sequence } => {
                let message = sequence.map(|sequence| {
                    self.messages += 1;
                    self.workers[index].sequences.insert(self.messages, sequence);
                    self.messages
                });
                self.tell(index, Event::ParkedFetched { token, message });
            }
            Down::Deleted { token } => self.tell(index, Event::ParkedDeleted { token }),
            Down::Answer { token } => self.tell(index, Event::Answered { token }),
            Down::Facts { token, asked, waiting, delivered, out, pin } => {
                let facts = ConsumerFacts {
                    shortest_wait: WAIT,
                    max_ack_pending: 1,
                    ack_pending: out,
                    pin: pin.clone(),
                    floor: delivered - out,
                };
                self.tell(index, Event::Consumer { token, facts });
                let backlog = Backlog {
                    incarnation: 1,
                    asked,
                    asked_seconds: asked.as_secs(),
                    waiting,
                    out,
                    delivered,
                    floor: delivered - out,
                    paused: false,
                    pin,
                    siblings: self.siblings(index),
                    noted: self.owner.as_ref().map(|(_, pin)| Arc::clone(pin)),
                    noted_by_sibling: self.owner.as_ref().is_some_and(|(owner, _)| *owner != index),
                };
                self.tell(index, Event::Backlog(Box::new(backlog)));
            }
            Down::WrongPin { pull } => {
                self.tell(index, Event::PullEnded { pull, status: PullStatus::WrongPin });
            }
        }
    }

    fn siblings(&self, index: usize) -> Vec<Holder> {
        let others = self.workers.iter().enumerate();
        let others = others.filter(|(other, worker)| *other != index && !worker.exited);
        others.map(|(other, _)| Holder { pod: other.to_string(), instance: String::new() }).collect()
    }

    fn suffer(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Pass(milliseconds) => self.pass(ms(milliseconds)),
            Trouble::Handled(index, outcome) => {
                if self.now >= self.workers[index].frozen_until {
                    self.tell(index, Event::Handled(outcome));
                }
            }
            Trouble::Disconnect(index) => self.disconnect(index),
            Trouble::Connect(index) => self.connect(index),
            Trouble::Freeze(index, milliseconds) => {
                self.workers[index].frozen_until = self.now + ms(milliseconds);
            }
            Trouble::Slow(index, milliseconds) => self.workers[index].delay = ms(milliseconds),
            Trouble::Kill(index) => self.start(index),
            Trouble::Release(index, times) => {
                let noted = self.workers[index].noted.take();
                self.start(index);
                let due = self.now + ms(times[0]);
                self.releases.extend(noted.map(|pin| Release { due, next: Next::Look, pin, times }));
            }
            Trouble::Shutdown(index) => {
                if self.workers[index].exited {
                    self.start(index);
                } else {
                    self.tell(index, Event::Shutdown { grace: seconds(10) });
                }
            }
            Trouble::Pause(paused) => {
                self.paused = paused;
                for index in 0..self.workers.len() {
                    self.assign(index);
                }
            }
            Trouble::Unpin => self.server.unpin(),
            Trouble::Full(full) => self.server.full = full,
            Trouble::Order { verb, sequence, whole_key } => {
                let order = Order {
                    id: self.ordered.len().to_string(),
                    verb,
                    key: key_of(self.subject(sequence)),
                    sequence: (!whole_key).then_some(sequence),
                    through: whole_key.then_some(sequence),
                    reason: "why".into(),
                    by: "somebody".into(),
                    at: String::new(),
                    begun: false,
                };
                if self.orders.len() < MAX_ORDERS {
                    self.ordered.push(order.clone());
                    self.orders.push(order);
                }
                self.read_orders();
            }
            Trouble::Forgetful(forgetful) => self.forgetful = forgetful,
            Trouble::ParkOrder(of, drop) => self.park_order(of, drop),
            Trouble::DeleteInHand => {
                if let Some(sequence) = self.server.delete_pending() {
                    // Nobody can complete it any more, so nothing waits for it.
                    self.completed.insert(sequence);
                }
            }
        }
    }

    /// Every worker reads the lane's key.
    fn read_orders(&mut self) {
        for index in 0..self.workers.len() {
            if self.now >= self.workers[index].frozen_until {
                self.tell(index, Event::Orders { incarnation: 1, orders: self.orders.clone() });
            }
        }
    }

    /// Peace: every handler succeeds and every worker is up.
    fn recover(&mut self) {
        self.suffer(Trouble::Pause(false));
        self.suffer(Trouble::Full(false));
        self.suffer(Trouble::Forgetful(false));
        for index in 0..self.workers.len() {
            self.workers[index].delay = ms(1);
            self.workers[index].frozen_until = self.now;
            self.connect(index);
        }
        for turn in 0..600 {
            if self.parks() && turn % 60 == 30 {
                // Read every now and then; what is still parked is released.
                for of in 0..KEYS {
                    self.park_order(of, false);
                }
            }
            for index in 0..self.workers.len() {
                if self.workers[index].exited {
                    self.start(index);
                }
                if self.workers[index].running.is_some() {
                    self.tell(index, Event::Handled(Outcome::Done));
                }
            }
            if !self.orders.is_empty() {
                self.read_orders();
            }
            self.pass(ms(500));
        }
    }
}

/// The next packet, if it has arrived.
fn due<T>(packets: &mut VecDeque<(Duration, T)>, now: Duration) -> Option<T> {
    if packets.front().is_some_and(|packet| packet.0 <= now) {
        packets.pop_front().map(|packet| packet.1)
    } else {
        None
    }
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let worker = 0usize..2;
    let outcome = prop_oneof![
        6 => Just(Outcome::Done),
        1 => Just(Outcome::Retry { reason: "no".into(), after: None }),
        1 => Just(Outcome::Permanent { reason: "400".into() }),
        1 => Just(Outcome::Wait { reason: "503".into(), after: seconds(2) }),
        1 => Just(Outcome::Unreachable { reason: "refused".into() }),
    ];
    prop_oneof![
        8 => prop_oneof![1u64..100, 100u64..3_000, 3_000u64..20_000].prop_map(Trouble::Pass),
        10 => (worker.clone(), outcome).prop_map(|(worker, outcome)| Trouble::Handled(worker, outcome)),
        1 => worker.clone().prop_map(Trouble::Disconnect),
        2 => worker.clone().prop_map(Trouble::Connect),
        1 => (worker.clone(), 1_000u64..40_000).prop_map(|(worker, time)| Trouble::Freeze(worker, time)),
        1 => (worker.clone(), prop_oneof![Just(1u64), 1u64..20_000]).prop_map(|(w, time)| Trouble::Slow(w, time)),
        1 => worker.clone().prop_map(Trouble::Kill),
        1 => worker.prop_map(Trouble::Shutdown),
        1 => any::<bool>().prop_map(Trouble::Pause),
        1 => Just(Trouble::DeleteInHand),
        1 => Just(Trouble::Unpin),
        1 => any::<bool>().prop_map(Trouble::Full),
        2 => order(),
        1 => any::<bool>().prop_map(Trouble::Forgetful),
        2 => (0..KEYS, prop::bool::weighted(0.2)).prop_map(|(of, drop)| Trouble::ParkOrder(of, drop)),
    ]
}

/// What is usual, or is over by itself before anybody must hear of it.
fn usual() -> impl Strategy<Value = Trouble> {
    let worker = 0usize..2;
    let outcome = prop_oneof![
        3 => Just(Outcome::Done),
        2 => Just(Outcome::Retry { reason: "no".into(), after: None }),
        1 => Just(Outcome::Retry { reason: "later".into(), after: Some(seconds(20)) }),
        1 => Just(Outcome::Permanent { reason: "400".into() }),
        1 => Just(Outcome::Wait { reason: "503".into(), after: seconds(60) }),
    ];
    prop_oneof![
        8 => prop_oneof![1u64..3_000, 3_000u64..60_000].prop_map(Trouble::Pass),
        4 => (worker.clone(), outcome).prop_map(|(worker, outcome)| Trouble::Handled(worker, outcome)),
        2 => (worker, 1_000u64..60_000).prop_map(|(worker, time)| Trouble::Freeze(worker, time)),
        2 => Just(Trouble::Unpin),
        1 => Just(Trouble::DeleteInHand),
        1 => any::<bool>().prop_map(Trouble::Pause),
    ]
}

fn order() -> impl Strategy<Value = Trouble> {
    let what = prop_oneof![
        Just((Verb::Retry, false)),
        Just((Verb::Skip, false)),
        Just((Verb::Skip, true)),
        Just((Verb::Other("praise".into()), false)),
    ];
    (what, 1..=MESSAGES).prop_map(|((verb, whole_key), sequence)| Trouble::Order {
        verb,
        sequence,
        whole_key,
    })
}

/// Milliseconds that a step of a release may take without being late.
const PROMPT: u64 = 50;

/// What happens to workers, without anything that breaks one of the two locks by itself.
fn death() -> impl Strategy<Value = Trouble> {
    let worker = 0usize..3;
    let time = || prop_oneof![3 => 1u64..50, 1 => 1u64..40_000];
    let outcome = prop_oneof![
        6 => Just(Outcome::Done),
        1 => Just(Outcome::Retry { reason: "no".into(), after: None }),
        1 => Just(Outcome::Wait { reason: "503".into(), after: seconds(2) }),
    ];
    prop_oneof![
        8 => prop_oneof![1u64..100, 100u64..3_000, 3_000u64..20_000].prop_map(Trouble::Pass),
        6 => (worker.clone(), outcome).prop_map(|(worker, outcome)| Trouble::Handled(worker, outcome)),
        3 => (worker.clone(), [time(), time(), time(), time()])
            .prop_map(|(worker, times)| Trouble::Release(worker, times)),
        1 => worker.clone().prop_map(Trouble::Kill),
        1 => (worker, 1_000u64..40_000).prop_map(|(worker, time)| Trouble::Freeze(worker, time)),
    ]
}

fn policy() -> impl Strategy<Value = ExhaustedPolicy> {
    let breaker = (1u32..6, prop_oneof![Just(5u64), Just(600)])
        .prop_map(|(max_exhausted, window_seconds)| Breaker { max_exhausted, window_seconds });
    let dead_letter = |breaker| {
        let (stream, subject) = ("DEAD".to_owned(), "dead".to_owned());
        ExhaustedPolicy::DeadLetter { stream, subject, breaker }
    };
    prop_oneof![
        1 => Just(ExhaustedPolicy::Block),
        2 => breaker.clone().prop_map(dead_letter),
        3 => breaker.clone().prop_map(|breaker| ExhaustedPolicy::ParkKey { breaker }),
        1 => breaker.prop_map(|breaker| ExhaustedPolicy::Drop { breaker }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn order_holds_under_any_trouble_and_everything_is_handled_when_it_ends(
        policy in policy(), troubles in prop::collection::vec(trouble(), 0..80)
    ) {
        let mut world = World::new(2, policy);
        for trouble in troubles {
            world.suffer(trouble);
        }
        world.recover();
        let missing: Vec<u64> = (1..=MESSAGES).filter(|q| !world.completed.contains(q)).collect();
        prop_assert!(missing.is_empty(), "{missing:?} never completed\n{}", world.history.join("\n"));
        world.orders.retain(|order| !matches!(order.verb, Verb::Other(_)));
        prop_assert!(world.orders.is_empty(), "{:?} are not over\n{}", world.orders, world.history.join("\n"));
        let parked = world.server.parked();
        prop_assert!(parked.is_empty(), "{parked:?} are parked for ever\n{}", world.history.join("\n"));
        prop_assert!(world.workers.iter().all(|worker| !worker.stalled), "{}", world.history.join("\n"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn slow_handlers_retries_frozen_workers_and_lost_pins_never_look_like_a_lane_that_stands_still(
        troubles in prop::collection::vec(usual(), 0..60)
    ) {
        let mut world = World::new(2, ExhaustedPolicy::Block);
        world.never_stalled = true;
        for trouble in troubles {
            world.suffer(trouble);
        }
        world.recover();
    }
}

proptest! {
    // Three workers and many ends: each case takes long.
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn releasing_what_a_dead_worker_had_never_makes_two_handlers_however_late_each_step_is(
        troubles in prop::collection::vec(death(), 0..80)
    ) {
        let mut world = World::new(3, ExhaustedPolicy::Block);
        let mut late = false;
        for mut trouble in troubles {
            // One that is late can break one of the two locks, a second one the other.
            if let Trouble::Release(_, times) = &mut trouble {
                if late {
                    *times = times.map(|time| time.min(PROMPT));
                }
                late |= times.iter().any(|time| *time > PROMPT);
            }
            world.suffer(trouble);
        }
        world.recover();
        let missing: Vec<u64> = (1..=MESSAGES).filter(|q| !world.completed.contains(q)).collect();
        prop_assert!(missing.is_empty(), "{missing:?} never completed\n{}", world.history.join("\n"));
    }
}
