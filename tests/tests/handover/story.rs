//! One story: a set under load whose number of partitions changes again and again.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt::Write as _,
    io::Write as _,
    sync::Arc,
    time::Duration,
};

use lanekeeper_core::{
    names::{DEFAULT_BUCKET, SetName},
    record::{Delivery, LaneState, Record},
    share::shares,
    stream::Retention,
};
use lanekeeper_nats::{Bucket, Connection, observe};
use lanekeeper_tests::{
    TooLate,
    soak::{
        chance::{self, Chance},
        conductor::Desk,
        failures::Failures,
        ground::{Ground, PREFIX, STREAM, Shape},
        history::{Behaviour, History},
        numbers,
        pool::{Bodies, Pool},
        publisher::{Load, Publisher},
        verdict::{Verdict, judge},
    },
    wait_for,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{DEADLINE, place::Place, troubles::Trouble};

/// Stories of this program, two of which run at a time: each has its part of the minutes that were asked for.
const STORIES: u64 = 15;
/// A change that takes longer has something to say.
const LONG: Duration = Duration::from_secs(4);
/// Lines of the story that its failure shows.
const LINES: usize = 14;

/// What a story is about.
#[derive(Clone)]
pub(crate) struct Outline {
    pub(crate) name: String,
    pub(crate) retention: Retention,
    /// The highest number of partitions: as many workers run.
    pub(crate) most: u32,
    pub(crate) changes: usize,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) bodies: Bodies,
    pub(crate) behaviour: Behaviour,
    /// Messages that are handled between two changes.
    pub(crate) flow: u64,
    /// Between two messages of one of four senders.
    pub(crate) pause: Duration,
    /// Messages that may be ahead of what was handled.
    pub(crate) backlog: u64,
    /// Keys are parked, instead of lanes that stand.
    pub(crate) parks: bool,
    /// With each change, one of these ways of getting messages.
    pub(crate) deliveries: Vec<Delivery>,
}

impl Outline {
    pub(crate) fn new(name: impl Into<String>, retention: Retention, troubles: &[Trouble]) -> Self {
        Self {
            name: name.into(),
            retention,
            most: 64,
            changes: 30,
            troubles: troubles.to_vec(),
            bodies: Bodies::Tasks,
            behaviour: busy(),
            flow: 40,
            pause: Duration::from_millis(3),
            backlog: 400,
            parks: false,
            deliveries: vec![Delivery::Serial],
        }
    }
}

/// Handlers that take up to eight milliseconds, some of them none.
fn busy() -> Behaviour {
    Arc::new(|_, number| (Duration::from_millis(number % 5 * 2), true))
}

/// Tells the story, and again with the next seeds when minutes were asked for.
pub(crate) async fn tell<F: Future<Output = Place>>(outline: Outline, place: impl Fn() -> F) {
    let seed = chance::seed();
    let time = Duration::from_secs(chance::minutes().unwrap_or(0) * 60 * 2 / STORIES);
    let end = Instant::now() + time;
    let mut round = 0;
    loop {
        let mut story = Story::begin(&outline, place().await, seed + round).await;
        for _ in 0..outline.changes {
            story.change().await;
        }
        story.finish().await;
        round += 1;
        if Instant::now() >= end {
            return;
        }
    }
}

pub(crate) struct Story {
    pub(crate) outline: Outline,
    seed: u64,
    pub(crate) chance: Chance,
    pub(crate) place: Place,
    pub(crate) desk: Desk,
    pub(crate) conductor: JoinHandle<()>,
    pub(crate) pool: Pool,
    pub(crate) failures: Failures,
    pub(crate) history: History,
    pub(crate) judge: Connection,
    publisher: Option<Publisher>,
    lines: VecDeque<String>,
    times: Vec<Duration>,
}

impl Story {
    pub(crate) async fn begin(outline: &Outline, place: Place, seed: u64) -> Self {
        // Every story has choices of its own.
        let name = outline.name.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
        let mut chance = Chance::new(seed ^ name);
        let partitions = 1 + u32::try_from(chance.below(u64::from(outline.most))).unwrap();
        let shape = Shape {
            retention: outline.retention,
            replicas: place.replicas(),
            max_partitions: outline.most.next_power_of_two(),
            partitions,
            ack_wait: Duration::from_secs(2),
            parks: outline.parks,
        };
        let ground = Ground::make(&place.servers(), &shape).await;
        let history = History::new();
        let failures = Failures::new(&history);
        let desk = Desk::new(&ground);
        let (bodies, behaviour) = (outline.bodies.clone(), &outline.behaviour);
        let mut pool = Pool::new(&ground, &history, behaviour, &failures, &desk.fates, bodies).await;
        pool.start(0..outline.most);
        let conductor = desk.conduct();
        let judge = place.connection().await;
        let mut story = Self {
            outline: outline.clone(),
            seed,
            chance,
            place,
            desk,
            conductor,
            pool,
            failures,
            history,
            judge,
            publisher: None,
            lines: VecDeque::new(),
            times: Vec::new(),
        };
        // Without a lane, a stream that keeps what somebody wants keeps nothing.
        story.settled(Instant::now()).await;
        let load =
            Load { prefix: PREFIX.to_owned(), keys: 200, pause: outline.pause, backlog: outline.backlog };
        let counted = story.history.clone();
        let client = story.place.client().await;
        let handled = move || counted.different();
        story.publisher = Some(Publisher::start(&client, &load, &mut story.chance, handled));
        story
    }

    /// Another number of partitions, with some trouble while lanes change.
    pub(crate) async fn change(&mut self) {
        let trouble = *self.chance.pick(&self.outline.troubles);
        let partitions = numbers::next(&mut self.chance, self.desk.wanted(), self.outline.most);
        let delivery = *self.chance.pick(&self.outline.deliveries);
        self.say(&format!("{} -> {partitions}, {delivery:?}, {trouble:?}", self.desk.wanted()));
        self.desk.deliver(delivery);
        let asked = self.desk.want(partitions);
        // Anywhere in the change, or after it.
        sleep(Duration::from_micros(self.chance.below(40_000))).await;
        self.cause(trouble).await;
        let end = self.settled(asked).await;
        self.times.push(end - asked);
        self.say(&format!("settled after {:?}", end - asked));
        self.flows().await;
    }

    /// Waits until the number that is wanted now is in force, and holds the record against it.
    pub(crate) async fn settled(&mut self, asked: Instant) -> Instant {
        let mut settled = self.desk.settled(asked, LONG).await;
        if let Err(waits) = settled {
            self.say(&format!("still after {LONG:?}: {waits}"));
            settled = self.desk.settled(asked, DEADLINE).await;
        }
        let end = self.right(settled);
        let wanted = self.desk.wanted();
        let bucket = Bucket::new(self.judge.clone(), DEFAULT_BUCKET);
        let set = SetName::new("shop", "orders");
        let lanes = wait_for(DEADLINE, "the record to name the wanted lanes and no others", || async {
            let record =
                bucket.get_json::<Record>(&set.record_key()).await.map_err(|error| error.to_string())?;
            let record = record.ok_or("there is no record")?.value;
            let open: BTreeSet<_> = record.lanes.iter().map(|lane| lane.share).collect();
            let as_wanted = open == shares(wanted).into_iter().collect::<BTreeSet<_>>()
                && record.lanes.iter().all(|lane| lane.state == LaneState::Open)
                && record.lanes.len() == open.len();
            as_wanted.then_some(()).ok_or(format!("{:?}", record.lanes))
        })
        .await;
        self.right(lanes);
        end
    }

    /// Waits until messages flow.
    pub(crate) async fn flows(&mut self) {
        let wanted = self.history.different() + self.outline.flow;
        let flows = self.handled(wanted).await;
        self.right(flows);
    }

    /// Waits until so many different messages were handled.
    async fn handled(&mut self, wanted: u64) -> Result<(), TooLate> {
        let history = self.history.clone();
        let handled = |deadline| {
            wait_for(deadline, "messages to be handled", || async {
                let now = history.different();
                (now >= wanted).then_some(()).ok_or(format!("{now} of {wanted}"))
            })
        };
        if handled(LONG).await.is_err() {
            let lanes = self.lanes().await;
            self.say(&format!("{} of {wanted} were handled after {LONG:?}; {lanes}", history.different()));
            return handled(DEADLINE).await;
        }
        Ok(())
    }

    /// The lanes that have something to do, and their workers.
    async fn lanes(&self) -> String {
        let found = match observe::consumers(&self.judge, STREAM).await {
            Ok(found) => found,
            Err(error) => return error.to_string(),
        };
        let set = SetName::new("shop", "orders");
        let mut text = String::new();
        for one in found.iter().filter(|one| one.pending + one.ack_pending > 0) {
            let worker = set.parse_consumer(&one.name).and_then(|(partition, _)| self.pool.status(partition));
            let _ = write!(
                text,
                "\n    {}: {} waiting, {} out, {worker:?}",
                one.name, one.pending, one.ack_pending
            );
        }
        text
    }

    /// Nothing more is published, and what was is handled: the verdict, and what was still missing.
    pub(crate) async fn verdict(&mut self) -> (Verdict, Result<(), TooLate>) {
        let publisher = self.publisher.take().unwrap();
        let published = publisher.stop().await;
        let handled = self.handled(u64::try_from(published.messages()).unwrap()).await;
        (judge(&published, &self.history.entries(), &self.failures.all()), handled)
    }

    /// Everything that was published is handled in order, and the servers know it.
    pub(crate) async fn finish(mut self) {
        let (verdict, handled) = self.verdict().await;
        if !verdict.is_clean() || handled.is_err() {
            self.fail(&format!("{verdict}\n{handled:?}"));
        }
        self.settled(Instant::now()).await;
        let kept = self.outline.retention == Retention::Limits;
        let empty = wait_for(DEADLINE, "the servers to have nothing left to deliver", || async {
            let found = observe::consumers(&self.judge, STREAM).await.map_err(|error| error.to_string())?;
            let left: u64 = found.iter().map(|one| one.pending + one.ack_pending).sum();
            let stream = observe::stream(&self.judge, STREAM).await.map_err(|error| error.to_string())?;
            let stored = stream.ok_or("there is no stream")?.messages;
            let done = left == 0 && (kept || stored == 0) && found.len() == shares(self.desk.wanted()).len();
            done.then_some(()).ok_or(format!("{left} left, {stored} stored, {} consumers", found.len()))
        })
        .await;
        self.right(empty);
        self.conductor.abort();
        // Past the capture of tests that pass: the figures are for people.
        let _ = writeln!(
            std::io::stderr(),
            "{} (seed {}): {verdict}\n  {}\n  {:?}",
            self.outline.name,
            self.seed,
            self.figures(),
            self.failures.counts()
        );
        self.pool.stop().await;
    }

    fn figures(&self) -> String {
        let mut times = self.times.clone();
        times.sort();
        let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
        let at = |part| at(part).copied().unwrap_or_default().as_millis();
        format!(
            "{} changes with troubles in between took {} ms (median), {} ms (90 of 100), {} ms (longest)",
            times.len(),
            at(50),
            at(90),
            at(100)
        )
    }

    /// A line of the story.
    pub(crate) fn say(&mut self, line: &str) {
        let at = self.history.seconds(self.history.now());
        let line = format!("{at:.3} {line}");
        if std::env::var_os("LANEKEEPER_SOAK_TELL").is_some() {
            eprintln!("{line}");
        }
        self.lines.push_back(line);
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }

    pub(crate) fn right<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> T {
        match result {
            Ok(right) => right,
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn fail(&self, why: &str) -> ! {
        panic!("{}: {why}", self.outline.name);
    }
}

/// However a story fails, it says how to repeat it and what happened last.
impl Drop for Story {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut text = format!("{}: repeat it with {}={}", self.outline.name, chance::SEED, self.seed);
        for line in &self.lines {
            let _ = write!(text, "\n  {line}");
        }
        for failure in self.failures.all().iter().rev().take(LINES) {
            let (from, until) = (self.history.seconds(failure.from), self.history.seconds(failure.until));
            let _ =
                write!(text, "\n  broken from {from:.3} to {until:.3}: {} {:?}", failure.what, failure.whose);
        }
        eprintln!("{text}");
    }
}
