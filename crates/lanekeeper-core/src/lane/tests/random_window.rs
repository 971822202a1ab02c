//! Two workers of one lane with a window, handled one by one or in batches, a server and a network under random trouble:
//! nothing is handled before what came before it was completed or, of another key, parked, no ack covers what was not, no more than a window is repeated, and everything is handled once
//! the trouble ends.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use proptest::prelude::*;

use super::{
    park_stream::{ParkDown, ParkUp},
    rig::{PARK, assignment, mapping, ms, seconds, subjects_of},
    window_server::{Down, Up, WindowServer},
};
use crate::{
    fence::Fence,
    invariants::LaneMonitor,
    lane::{Delivered, Effect, Event, Lane, Note, Options, Outcome},
    order::{MAX_ORDERS, Order, Verb},
    park::{ParkOrder, ParkedMessage},
    record::{Breaker, Delivery, ExhaustedPolicy, Park},
};

const MESSAGES: u64 = 20;
/// Messages are of so many keys, in turn.
const KEYS: u64 = 3;

#[derive(Debug, Clone)]
enum Trouble {
    Pass(u64),
    /// So many handlings of a worker end well, one after another.
    Work(usize, u8),
    Handled(usize, Outcome),
    Disconnect(usize),
    Connect(usize),
    Freeze(usize, u64),
    Slow(usize, u64),
    Kill(usize),
    Shutdown(usize),
    Pause(bool),
    /// One of the messages that are out is deleted from the stream.
    Delete(usize),
    Unpin,
    ChangeLeader,
    /// So many deliveries reach nobody.
    Lose(u32),
    /// The parked messages of a key are to be released, or dropped.
    ParkOrder(u64, bool),
    /// A person decides about a message, or about the whole key that it is of.
    Order(Verb, u64, bool),
}

struct Worker {
    lane: Lane,
    monitor: LaneMonitor,
    connected: bool,
    frozen_until: Duration,
    delay: Duration,
    up: VecDeque<(Duration, Up)>,
    down: VecDeque<(Duration, Down)>,
    /// Stream and consumer sequence of each message.
    messages: BTreeMap<u64, (u64, u64)>,
    pins: BTreeMap<u64, Arc<str>>,
    /// What is in the handler, and the pin that it came with; none if it was parked.
    running: Option<(Vec<u64>, Option<Arc<str>>)>,
    exited: bool,
}

impl Worker {
    fn new() -> Self {
        Self {
            lane: Lane::new(Options { batches: true, ..Options::default() }),
            monitor: LaneMonitor::new(),
            connected: false,
            frozen_until: Duration::ZERO,
            delay: ms(1),
            up: VecDeque::new(),
            down: VecDeque::new(),
            messages: BTreeMap::new(),
            pins: BTreeMap::new(),
            running: None,
            exited: false,
        }
    }
}

struct World {
    now: Duration,
    server: WindowServer,
    delivery: Delivery,
    workers: Vec<Worker>,
    paused: bool,
    policy: ExhaustedPolicy,
    /// Completed, put away, or deleted.
    completed: BTreeSet<u64>,
    deleted: bool,
    /// What the lane's key has of orders; all that were given.
    orders: Vec<Order>,
    ordered: Vec<Order>,
    /// Handled at least once.
    begun: BTreeSet<u64>,
    /// What the lane's key has of orders about parked messages; how many were given.
    park_orders: Vec<ParkOrder>,
    park_ordered: u64,
    /// Who may release.
    claim: Option<usize>,
    subjects: Vec<String>,
    messages: u64,
    history: Vec<String>,
}

impl World {
    fn new(delivery: Delivery, old: bool, policy: ExhaustedPolicy) -> Self {
        let mut world = Self {
            now: Duration::ZERO,
            server: WindowServer::new(MESSAGES, delivery.most_out(), old),
            delivery,
            workers: Vec::new(),
            paused: false,
            policy,
            completed: BTreeSet::new(),
            deleted: false,
            orders: Vec::new(),
            ordered: Vec::new(),
            begun: BTreeSet::new(),
            park_orders: Vec::new(),
            park_ordered: 0,
            claim: None,
            subjects: subjects_of(assignment(1).share).take(usize::try_from(KEYS).unwrap()).collect(),
            messages: 0,
            history: Vec::new(),
        };
        for index in 0..2 {
            world.workers.push(Worker::new());
            world.start(index);
        }
        world
    }

    fn told(&self) -> String {
        self.history.join("\n")
    }

    fn subject(&self, sequence: u64) -> &str {
        &self.subjects[usize::try_from(sequence % KEYS).unwrap()]
    }

    fn key(&self, sequence: u64) -> Arc<str> {
        let mapping = mapping();
        mapping.key_text(mapping.original_subject(self.subject(sequence)).unwrap()).unwrap().into()
    }

    fn parks(&self) -> bool {
        matches!(self.policy, ExhaustedPolicy::ParkKey { .. })
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

    fn start(&mut self, index: usize) {
        self.claim.take_if(|holder| *holder == index);
        self.workers[index] = Worker::new();
        self.connect(index);
        self.assign(index);
    }

    fn connect(&mut self, index: usize) {
        if !self.workers[index].connected {
            self.workers[index].connected = true;
            self.tell(index, Event::Connected);
        }
    }

    fn assign(&mut self, index: usize) {
        let mut given = assignment(1);
        given.settings.paused = self.paused;
        given.settings.on_exhausted = self.policy.clone();
        given.settings.delivery = self.delivery;
        given.settings.park = self.parks().then(|| Park { stream: "PARK".into(), prefix: PARK.into() });
        self.tell(index, Event::Assigned(Arc::new(given)));
    }

    fn tell(&mut self, index: usize, event: Event<'_>) {
        let now = self.now;
        let worker = &mut self.workers[index];
        if worker.exited {
            return;
        }
        if let Event::Handled(outcome) = &event {
            let Some((sequences, _)) = worker.running.take() else { return };
            if *outcome == Outcome::Done {
                self.begun.extend(&sequences);
                self.completed.extend(sequences);
            }
        }
        self.history.push(format!("{now:?} worker {index} <- {event:?}"));
        worker.monitor.told(now, &event);
        let effects = worker.lane.on(now, event);
        let broken = worker.monitor.did(now, &effects);
        self.history.push(format!("{now:?} worker {index} -> {effects:?}"));
        assert!(broken.is_empty(), "{broken:?}\n{}", self.told());
        for effect in effects {
            self.carry_out(index, &effect);
        }
    }

    fn carry_out(&mut self, index: usize, effect: &Effect) {
        if let Effect::Note(Note::Dropped { sequence, .. } | Note::ParkedDropped { sequence, .. }) = effect {
            self.completed.insert(*sequence);
        }
        if let Effect::Note(Note::Skipped { sequence, .. }) = effect {
            let key = self.key(*sequence);
            let covers = |order: &Order| order.verb == Verb::Skip && order.covers(*sequence, &key);
            assert!(self.ordered.iter().any(covers), "{sequence}: nobody ordered that\n{}", self.told());
            let kept = !matches!(self.policy, ExhaustedPolicy::DeadLetter { .. });
            assert!(kept || self.server.dead.contains(sequence), "{sequence} is nowhere\n{}", self.told());
            self.completed.insert(*sequence);
        }
        let of_key: BTreeSet<u64> = match effect {
            Effect::ListParked { key, .. } => (1..=MESSAGES).filter(|q| self.key(*q) == *key).collect(),
            _ => BTreeSet::new(),
        };
        let worker = &mut self.workers[index];
        let known = |message: u64| worker.messages[&message];
        let up = match effect {
            Effect::Pull(request) => Up::Pull(request.clone()),
            Effect::Renew(renewal) => Up::Renew(renewal.clone()),
            Effect::Unpin => Up::Unpin,
            Effect::Acks { messages, token } => {
                let sequences = messages.iter().map(|message| known(*message).0).collect();
                Up::Acks { sequences, token: Some(*token) }
            }
            Effect::AckGone { sequences, .. } => Up::Acks { sequences: sequences.clone(), token: None },
            Effect::Ack { .. } => unreachable!("of a serial lane"),
            Effect::Nak { message, token, .. } => Up::Nak { sequence: known(*message).0, token: *token },
            Effect::Progress { message, token } => {
                Up::Progress { sequence: known(*message).0, token: *token }
            }
            Effect::DeadLetter { message, token, .. } => {
                Up::Publish { sequence: known(*message).0, token: *token }
            }
            Effect::Inspect { token } if worker.connected => Up::Inspect { token: *token },
            Effect::Inspect { token } => return self.tell(index, Event::InspectFailed { token: *token }),
            Effect::List { token, after, until } if worker.connected => {
                Up::List { token: *token, after: *after, until: *until }
            }
            Effect::List { token, .. } => return self.tell(index, Event::ListFailed { token: *token }),
            Effect::Join { incarnation } => {
                let incarnation = *incarnation;
                self.tell(index, Event::Orders { incarnation, orders: self.orders.clone() });
                self.tell(index, Event::Joined { incarnation, retiring: false, excused: None });
                return self.tell_park_orders(index);
            }
            Effect::Leave { incarnation, .. } => {
                self.claim.take_if(|holder| *holder == index);
                return self.tell(index, Event::Left { incarnation: *incarnation });
            }
            Effect::Handle { message, with, .. } => {
                let sequences: Vec<u64> =
                    std::iter::once(message).chain(with).map(|message| known(*message).0).collect();
                let pin = Arc::clone(&worker.pins[message]);
                worker.running = Some((sequences.clone(), Some(pin)));
                return self.begins(&sequences);
            }
            Effect::HandleParked { message, .. } => {
                let sequence = known(*message).0;
                worker.running = Some((vec![sequence], None));
                return self.begins_parked(sequence);
            }
            Effect::Park { message, token, until, .. } => {
                assert!(self.now < *until);
                Up::Park(ParkUp::Store { sequence: known(*message).0, token: *token, until: *until })
            }
            Effect::LoadParked { token } => Up::Park(ParkUp::Load { token: *token }),
            Effect::ListParked { token, .. } => Up::Park(ParkUp::List { token: *token, of: of_key }),
            Effect::FetchParked { token, stored } => {
                Up::Park(ParkUp::Fetch { token: *token, stored: *stored })
            }
            Effect::DeleteParked { token, stored, until } => {
                assert!(self.now < *until);
                Up::Park(ParkUp::Delete { token: *token, stored: stored.clone() })
            }
            Effect::Claim { incarnation } => {
                let (incarnation, granted) = (*incarnation, self.claim.is_none_or(|holder| holder == index));
                if granted {
                    self.claim = Some(index);
                }
                return self.tell(index, Event::Claimed { incarnation, granted });
            }
            Effect::Unclaim { .. } => {
                self.claim.take_if(|holder| *holder == index);
                return;
            }
            Effect::ParkOrderDone { id, .. } => {
                self.claim.take_if(|holder| *holder == index);
                return self.park_orders.retain(|order| order.id != *id);
            }
            Effect::Cancel => return worker.running = None,
            Effect::Exit => return worker.exited = true,
            Effect::OrderBegun { id, .. } => {
                let begun = self.orders.iter_mut().filter(|order| order.id == *id);
                return begun.for_each(|order| order.begun = true);
            }
            Effect::OrderEnded { result, .. } => {
                return self.orders.retain(|order| order.id != result.id);
            }
            Effect::Contend { .. } => unreachable!("there is no lease"),
            Effect::Own { .. }
            | Effect::Breaker { .. }
            | Effect::Excuse { .. }
            | Effect::Forget { .. }
            | Effect::Report(_)
            | Effect::Note(_) => return,
        };
        if worker.connected {
            let at = (self.now + worker.delay).max(worker.up.back().map_or(Duration::ZERO, |last| last.0));
            worker.up.push_back((at, up));
        }
    }

    /// Everything of its key that is ahead is completed, and nothing behind it has begun.
    fn begins_parked(&mut self, sequence: u64) {
        let of_key = |q: &u64| q % KEYS == sequence % KEYS;
        let missing: Vec<u64> = (1..sequence).filter(|q| of_key(q) && !self.completed.contains(q)).collect();
        assert!(
            missing.is_empty(),
            "{sequence} is released before {missing:?} are completed\n{}",
            self.told()
        );
        // What a dead worker had completed is a repeat, and comes before everything of its key again.
        let excused = self.server.park.late.contains(&sequence) || self.completed.contains(&sequence);
        let later = self.begun.range(sequence + 1..).find(|q| of_key(q)).filter(|_| !excused);
        assert!(later.is_none(), "{sequence} is released after {later:?}\n{}", self.told());
        self.begun.insert(sequence);
        self.one_of_a_key();
    }

    /// No two handlers of one key are at work, whatever they do it for.
    fn one_of_a_key(&self) {
        let at_work = |worker: &&Worker| self.now > worker.frozen_until && !worker.exited;
        let running = self.workers.iter().filter(at_work).filter_map(|worker| worker.running.as_ref());
        let keys: Vec<BTreeSet<u64>> = running
            .map(|(sequences, _)| sequences.iter().map(|sequence| sequence % KEYS).collect())
            .collect();
        let alone = match &keys[..] {
            [one, other] => one.is_disjoint(other),
            _ => true,
        };
        let late = !self.server.park.late.is_empty() || self.deleted && !self.server.taken.is_empty();
        assert!(alone || late, "two handlers of a key at once\n{}", self.told());
    }

    fn begins(&mut self, sequences: &[u64]) {
        let (Some(sequence), Some(last)) = (sequences.first().copied(), sequences.last().copied()) else {
            return;
        };
        assert!(sequences.is_sorted_by(|before, after| before < after), "{sequences:?}\n{}", self.told());
        let most = if let Delivery::Batch { most, .. } = self.delivery { most } else { 1 };
        assert!(sequences.len() <= most as usize, "{sequences:?}\n{}", self.told());
        let together = |q: &u64| self.completed.contains(q) || sequences.contains(q);
        // Behind a parked message nothing of its key begins.
        let waits = |q: &u64| {
            let ahead = sequences.iter().any(|sequence| sequence > q && sequence % KEYS == q % KEYS);
            !ahead && self.server.park.has(*q)
        };
        let missing: Vec<u64> = (1..last).filter(|q| !together(q) && !waits(q)).collect();
        assert!(missing.is_empty(), "{sequence} begins before {missing:?} are completed\n{}", self.told());
        if !self.deleted {
            let again = self.completed.range(sequence..).count();
            assert!(
                again <= self.delivery.most_out() as usize,
                "{again} are repeated from {sequence} on\n{}",
                self.told()
            );
        }
        // A frozen process is not at work; it notices before it goes on.
        let at_work = |worker: &&Worker| self.now > worker.frozen_until && !worker.exited;
        let pins: Vec<&Arc<str>> = self
            .workers
            .iter()
            .filter(at_work)
            .filter_map(|worker| worker.running.as_ref()?.1.as_ref())
            .collect();
        // What was deleted while it was handled keeps nobody waiting once the pin is gone as well.
        let excused = self.deleted && pins.iter().any(|pin| self.server.taken.contains(*pin));
        assert!(pins.len() < 2 || excused, "two handlers at once\n{}", self.told());
        // A batch that fails has not begun but with its first message.
        self.begun.insert(sequence);
        self.one_of_a_key();
    }

    fn wake(&self) -> Option<Duration> {
        let mut times: Vec<Duration> = self.server.wake(self.now).into_iter().collect();
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
        for index in 0..self.workers.len() {
            while let Some(up) = due(&mut self.workers[index].up, self.now) {
                self.server.receive(self.now, index, &up);
                self.completed.extend(&self.server.dead);
                let is_lost = |q: &&u64| !self.server.park.has(**q);
                let lost: Vec<&u64> = self.server.acked.difference(&self.completed).filter(is_lost).collect();
                assert!(lost.is_empty(), "{lost:?} acknowledged and nowhere\n{}", self.told());
            }
        }
        for (index, down) in std::mem::take(&mut self.server.out) {
            let worker = &mut self.workers[index];
            if worker.connected {
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
                self.receive(index, down);
            }
            self.tell(index, Event::Tick);
        }
    }

    fn receive(&mut self, index: usize, down: Down) {
        match down {
            Down::Message { pull, sequence, consumer_sequence, deliveries, pin } => {
                self.messages += 1;
                let (message, subject) = (self.messages, self.subject(sequence).to_owned());
                self.workers[index].pins.insert(message, Arc::clone(&pin));
                self.workers[index].messages.insert(message, (sequence, consumer_sequence));
                let (subject, pin) = (&*subject, Some(&*pin));
                let delivered =
                    Delivered { message, pull, sequence, consumer_sequence, deliveries, subject, pin };
                self.tell(index, Event::Delivered(delivered));
            }
            Down::Ended { pull, status } => self.tell(index, Event::PullEnded { pull, status }),
            Down::Heartbeat { pull } => self.tell(index, Event::Heartbeat { pull }),
            Down::Stored { token } => self.tell(index, Event::Stored { token }),
            Down::Park(down) => self.receive_of_park(index, down),
            Down::Answer { token } => self.tell(index, Event::Answered { token }),
            Down::Facts { token, facts } => self.tell(index, Event::Consumer { token, facts }),
            Down::Listed { token, sequences } => self.tell(index, Event::Listed { token, sequences }),
        }
    }

    fn receive_of_park(&mut self, index: usize, down: ParkDown) {
        match down {
            ParkDown::Stored { token } => self.tell(index, Event::Stored { token }),
            ParkDown::NotStored { token } => {
                self.tell(index, Event::NotStored { token, reason: "full".into() });
            }
            ParkDown::Keys { token, parked } => {
                let keys = parked.iter().map(|sequence| self.key(*sequence)).collect();
                self.tell(index, Event::ParkedKeys { token, keys });
            }
            ParkDown::List { token, parked } => {
                let message = |(stored, sequence): &(u64, u64)| ParkedMessage {
                    fence: Fence { stream_incarnation: 1, sequence: *sequence },
                    stored: vec![*stored],
                };
                let messages = parked.iter().map(message).collect();
                self.tell(index, Event::ParkedListed { token, messages });
            }
            ParkDown::Fetched { token, sequence } => {
                let message = sequence.map(|sequence| {
                    self.messages += 1;
                    self.workers[index].messages.insert(self.messages, (sequence, 0));
                    self.messages
                });
                self.tell(index, Event::ParkedFetched { token, message });
            }
            ParkDown::Deleted { token } => self.tell(index, Event::ParkedDeleted { token }),
        }
    }

    fn work(&mut self, index: usize, outcome: Outcome) {
        if self.now >= self.workers[index].frozen_until {
            self.tell(index, Event::Handled(outcome));
        }
    }

    fn suffer(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Pass(milliseconds) => self.pass(ms(milliseconds)),
            Trouble::Work(index, times) => {
                for _ in 0..times {
                    self.work(index, Outcome::Done);
                    self.pass(ms(1));
                }
            }
            Trouble::Handled(index, outcome) => self.work(index, outcome),
            Trouble::Disconnect(index) => {
                let worker = &mut self.workers[index];
                if worker.connected {
                    worker.connected = false;
                    worker.up.clear();
                    worker.down.clear();
                    self.tell(index, Event::Disconnected);
                }
            }
            Trouble::Connect(index) => self.connect(index),
            Trouble::Freeze(index, milliseconds) => {
                self.workers[index].frozen_until = self.now + ms(milliseconds);
            }
            Trouble::Slow(index, milliseconds) => self.workers[index].delay = ms(milliseconds),
            Trouble::Kill(index) => self.start(index),
            Trouble::Shutdown(index) if self.workers[index].exited => self.start(index),
            Trouble::Shutdown(index) => self.tell(index, Event::Shutdown { grace: seconds(10) }),
            Trouble::Pause(paused) => {
                self.paused = paused;
                (0..2).for_each(|index| self.assign(index));
            }
            Trouble::Unpin => self.server.unpin(),
            Trouble::ChangeLeader => self.server.change_leader(),
            Trouble::Lose(times) => self.server.losing = times,
            Trouble::ParkOrder(of, drop) => self.park_order(of, drop),
            Trouble::Order(verb, sequence, whole_key) => self.order(verb, sequence, whole_key),
            Trouble::Delete(which) => {
                if let Some(sequence) = self.server.delete(which) {
                    // Nobody need complete it any more, so nothing waits for it.
                    self.completed.insert(sequence);
                    self.deleted = true;
                }
            }
        }
    }

    fn order(&mut self, verb: Verb, sequence: u64, whole_key: bool) {
        if self.orders.len() >= MAX_ORDERS {
            return;
        }
        let order = Order {
            id: format!("order {}", self.ordered.len()),
            verb,
            key: self.key(sequence).to_string(),
            sequence: (!whole_key).then_some(sequence),
            through: whole_key.then_some(sequence),
            reason: "because".into(),
            by: "somebody".into(),
            at: String::new(),
            begun: false,
        };
        self.orders.push(order.clone());
        self.ordered.push(order);
        self.read_orders();
    }

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
        self.server.losing = 0;
        for index in 0..2 {
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
            for index in 0..2 {
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

fn due<T>(packets: &mut VecDeque<(Duration, T)>, now: Duration) -> Option<T> {
    packets.pop_front_if(|packet| packet.0 <= now).map(|packet| packet.1)
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let worker = 0usize..2;
    let outcome = prop_oneof![
        1 => Just(Outcome::Retry { reason: "no".into(), after: None }),
        1 => Just(Outcome::Permanent { reason: "400".into() }),
        1 => Just(Outcome::Wait { reason: "503".into(), after: seconds(2) }),
        1 => Just(Outcome::Unreachable { reason: "refused".into() }),
    ];
    let order = prop_oneof![
        2 => Just((Verb::Retry, false)),
        2 => Just((Verb::Skip, false)),
        1 => Just((Verb::Skip, true)),
    ];
    prop_oneof![
        8 => prop_oneof![1u64..100, 100u64..3_000, 3_000u64..20_000].prop_map(Trouble::Pass),
        8 => (worker.clone(), 1u8..4).prop_map(|(worker, times)| Trouble::Work(worker, times)),
        3 => (worker.clone(), outcome).prop_map(|(worker, outcome)| Trouble::Handled(worker, outcome)),
        1 => worker.clone().prop_map(Trouble::Disconnect),
        2 => worker.clone().prop_map(Trouble::Connect),
        1 => (worker.clone(), 1_000u64..40_000).prop_map(|(worker, time)| Trouble::Freeze(worker, time)),
        1 => (worker.clone(), prop_oneof![Just(1u64), 1u64..20_000]).prop_map(|(w, time)| Trouble::Slow(w, time)),
        2 => worker.clone().prop_map(Trouble::Kill),
        1 => worker.prop_map(Trouble::Shutdown),
        1 => any::<bool>().prop_map(Trouble::Pause),
        1 => (0usize..4).prop_map(Trouble::Delete),
        1 => Just(Trouble::Unpin),
        1 => Just(Trouble::ChangeLeader),
        2 => (1u32..3).prop_map(Trouble::Lose),
        2 => (order, 1..=MESSAGES).prop_map(|((verb, all), sequence)| Trouble::Order(verb, sequence, all)),
        1 => (0..KEYS, prop::bool::weighted(0.2)).prop_map(|(of, drop)| Trouble::ParkOrder(of, drop)),
    ]
}

fn delivery() -> impl Strategy<Value = Delivery> {
    let batch = (2u32..7, 1u32..7, prop_oneof![Just(0u64), 1u64..20_000]).prop_map(|(window, most, wait)| {
        Delivery::Batch { window, most: most.min(window), wait_milliseconds: wait }
    });
    prop_oneof![(2u32..7).prop_map(|window| Delivery::Pipelined { window }), batch]
}

fn policy() -> impl Strategy<Value = ExhaustedPolicy> {
    let breaker = Breaker { max_exhausted: 3, window_seconds: 600 };
    let (stream, subject) = ("DEAD".to_owned(), "dead".to_owned());
    prop_oneof![
        Just(ExhaustedPolicy::Block),
        Just(ExhaustedPolicy::DeadLetter { stream, subject, breaker }),
        Just(ExhaustedPolicy::Drop { breaker }),
        Just(ExhaustedPolicy::ParkKey { breaker: Breaker { max_exhausted: 1_000, window_seconds: 600 } }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn a_window_keeps_its_order_under_any_trouble_and_everything_is_handled_when_it_ends(
        delivery in delivery(), old: bool, policy in policy(), troubles in prop::collection::vec(trouble(), 0..80)
    ) {
        let mut world = World::new(delivery, old, policy);
        for trouble in troubles {
            world.suffer(trouble);
        }
        world.recover();
        let missing: Vec<u64> = (1..=MESSAGES).filter(|q| !world.completed.contains(q)).collect();
        prop_assert!(missing.is_empty(), "{missing:?} never completed\n{}", world.told());
        prop_assert!(world.orders.is_empty(), "{:?} are not over\n{}", world.orders, world.told());
        let parked = world.server.park.sequences();
        prop_assert!(parked.is_empty(), "{parked:?} are parked for ever\n{}", world.told());
    }
}
