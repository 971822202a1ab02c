//! Two workers of one lane, a server and a network under random trouble: nothing is handled before what
//! came before it was completed, no invariant breaks, and everything is handled once the trouble ends.

mod effects;
mod leased;
mod packets;
mod troubles;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use proptest::prelude::*;

use self::troubles::{PROMPT, Trouble, death, policy, trouble, usual};
use super::{
    park_stream::ParkDown,
    rig::{PARK, WAIT, assignment, key_of, ms, seconds, subjects_of},
    server::{Down, Server, Up},
};
use crate::{
    fence::Fence,
    invariants::LaneMonitor,
    lane::{Backlog, ConsumerFacts, Delivered, Event, Lane, Options, Outcome, PullStatus},
    lease::tests::world::World as Leases,
    order::{MAX_ORDERS, Order, Verb},
    park::{ParkOrder, ParkedMessage},
    record::{ExhaustedPolicy, Holder, Ownership, Park},
    release::{self, Seen},
};

const MESSAGES: u64 = 12;
/// Messages take turns at so many keys.
const KEYS: u64 = 3;

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
                && (q % KEYS == sequence % KEYS || !parked && !self.server.park.has(*q))
        };
        let missing: Vec<u64> = (1..sequence).filter(owed).collect();
        assert!(
            missing.is_empty(),
            "{sequence} begins before {missing:?} are completed\n{}",
            self.history.join("\n")
        );
        if parked && !self.server.park.late.contains(&sequence) {
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
        let late = !self.server.park.late.is_empty();
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
                    .filter(|q| !self.completed.contains(q) && !self.server.park.has(**q))
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
        let parked = world.server.park.sequences();
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
