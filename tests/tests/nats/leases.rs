//! P17: many contenders for each lease, of which one at a time has it, whatever happens to the key and to its holder.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::jetstream::consumer::pull::OrderedConfig;
use futures::StreamExt;
use lanekeeper_core::{
    lease::{Lease, Lessee, Terms},
    record::Holder,
};
use lanekeeper_nats::{
    Bucket,
    lease::{Tenure, contend},
};
use lanekeeper_tests::{LATEST, NatsServer, NatsTrio, VERSIONS, wait_until};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

use crate::common::{DEADLINE, by_hand, connect};

const TIME: Duration = Duration::from_secs(1);
const CONTENDERS: usize = 20;

/// One time in which a contender had the lease.
#[derive(Debug, Clone)]
struct Grant {
    who: String,
    from: Instant,
    until: Instant,
    ended: Option<Instant>,
    revision: u64,
}

/// What all contenders of one key were told.
#[derive(Debug, Clone, Default)]
struct Ledger(Arc<Mutex<Vec<Grant>>>);

impl Ledger {
    fn tell(&self, who: &str, tenure: Tenure) {
        let now = Instant::now();
        let mut grants = self.0.lock().unwrap();
        let open = grants.iter_mut().rev().find(|grant| grant.who == who).filter(|grant| grant.is_open(now));
        match (open, tenure.until) {
            (Some(grant), Some(until)) => grant.until = until,
            (Some(grant), None) => grant.ended = Some(now),
            (None, Some(until)) => {
                let revision = tenure.revision.expect("it wrote the key");
                grants.push(Grant { who: who.into(), from: now, until, ended: None, revision });
            }
            (None, None) => {}
        }
    }

    fn all(&self) -> Vec<Grant> {
        self.0.lock().unwrap().clone()
    }

    /// Who has it now.
    fn holder(&self) -> Option<Grant> {
        let now = Instant::now();
        self.all().into_iter().find(|grant| grant.is_open(now))
    }

    /// The process of this contender has ended.
    fn killed(&self, who: &str) {
        self.tell(who, Tenure { until: None, revision: None });
    }
}

impl Grant {
    fn is_open(&self, now: Instant) -> bool {
        self.ended.is_none() && now < self.until
    }

    fn end(&self) -> Instant {
        self.ended.map_or(self.until, |ended| ended.min(self.until))
    }
}

/// A contender as a worker runs it.
struct Contender {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<u64>,
}

/// One key with its contenders.
struct Contest {
    bucket: Bucket,
    /// Connections of contenders, which take turns.
    buckets: Vec<Bucket>,
    key: String,
    ledger: Ledger,
    contenders: BTreeMap<String, Contender>,
    started: usize,
}

impl Contest {
    fn new(buckets: Vec<Bucket>, key: &str) -> Self {
        let mut contest = Self {
            bucket: buckets[0].clone(),
            buckets,
            key: key.to_owned(),
            ledger: Ledger::default(),
            contenders: BTreeMap::new(),
            started: 0,
        };
        for _ in 0..CONTENDERS {
            contest.start();
        }
        contest
    }

    fn start(&mut self) {
        self.started += 1;
        let who = self.started.to_string();
        let us = Holder { pod: "pod".into(), instance: who.clone() };
        let terms = Terms::new(TIME);
        let start = Instant::now();
        let first = (self.started == 1).then(|| terms.first_time());
        let lessee = Lessee::new(us, terms, 0, first);
        let (stop, stopped) = oneshot::channel::<()>();
        let bucket = self.buckets[self.started % self.buckets.len()].clone();
        let (key, ledger, name) = (self.key.clone(), self.ledger.clone(), who.clone());
        let task = tokio::spawn(async move {
            let leave = async move {
                let _ = stopped.await;
            };
            contend(&bucket, &key, lessee, start, |tenure| ledger.tell(&name, tenure), leave).await
        });
        self.contenders.insert(who, Contender { stop: Some(stop), task });
    }

    async fn wait_holder(&self) -> Grant {
        wait_until(DEADLINE, "somebody to have the lease", || async { self.ledger.holder() }).await
    }

    async fn release(&mut self, who: &str) {
        let mut contender = self.contenders.remove(who).expect("it contends");
        drop(contender.stop.take());
        contender.task.await.expect("it gives back without a defect");
    }

    fn kill(&mut self, who: &str) {
        let contender = self.contenders.remove(who).expect("it contends");
        contender.task.abort();
        self.ledger.killed(who);
    }

    /// A person deletes the key: a mark stays.
    async fn delete(&self) {
        wait_until(DEADLINE, "the key to be deleted", || async {
            match self.bucket.get(&self.key).await {
                Ok(Some(found)) => self.bucket.delete(&self.key, found.revision).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await;
    }

    /// A person takes it out of the stream: nothing stays.
    async fn purge(&self) {
        let (operation, subject) =
            (format!("STREAM.PURGE.{}", self.bucket.stream()), self.bucket.subject(&self.key));
        by_hand(self.bucket.connection(), &operation, &json!({ "filter": subject })).await.unwrap();
    }

    /// The holder of each round gives it back or dies; how long the next one then took.
    async fn rounds(&mut self, rounds: usize, history: &History) -> Vec<Duration> {
        let mut gaps = Vec::new();
        for round in 0..rounds {
            let holder = self.wait_holder().await;
            let who = holder.who.clone();
            match round % 4 {
                0 => self.release(&who).await,
                kind => {
                    self.kill(&who);
                    if kind == 2 {
                        self.delete().await;
                    }
                    if kind == 3 {
                        // What a purge takes away was seen.
                        history.wait_for(&self.bucket, &self.key).await;
                        self.purge().await;
                    }
                }
            }
            let ended = Instant::now();
            self.start();
            let next = self.wait_holder().await;
            assert_ne!(next.who, who);
            gaps.push(next.from.saturating_duration_since(ended));
        }
        gaps
    }

    /// At no instant two have it, and each had it by a write of its own that the server took.
    fn assert_one_at_a_time(&self, history: &History) {
        let mut grants = self.ledger.all();
        grants.sort_by_key(|grant| grant.from);
        for pair in grants.windows(2) {
            assert!(pair[0].end() <= pair[1].from, "{}: two at once: {pair:?}", self.key);
        }
        let written = history.of(&self.bucket.subject(&self.key));
        for grant in &grants {
            let by = written.get(&grant.revision).and_then(|lease| lease.as_ref()?.holder.as_ref());
            assert_eq!(by.map(|by| &by.instance), Some(&grant.who), "{}: {grant:?}", self.key);
        }
        // Revision by revision, whoever has it is followed by the one that was granted it next, and by nobody else.
        let mut holders: Vec<&str> = Vec::new();
        for holder in written.values().flatten().filter_map(|lease| lease.holder.as_ref()) {
            // A mark where there was nothing is nobody's.
            let is_somebody = !holder.instance.is_empty();
            if is_somebody && holders.last() != Some(&holder.instance.as_str()) {
                holders.push(&holder.instance);
            }
        }
        let mut granted: Vec<&str> = grants.iter().map(|grant| grant.who.as_str()).collect();
        granted.dedup();
        assert_eq!(holders, granted, "{}", self.key);
    }
}

/// By subject and revision.
type Revisions = BTreeMap<String, BTreeMap<u64, Option<Lease>>>;

/// Every write that the server took.
#[derive(Clone, Default)]
struct History(Arc<Mutex<Revisions>>);

impl History {
    /// Follows the bucket's stream, which keeps everything.
    async fn follow(server: &NatsServer, bucket: &Bucket) -> Self {
        let (info, update) =
            (format!("STREAM.INFO.{}", bucket.stream()), format!("STREAM.UPDATE.{}", bucket.stream()));
        let mut config = by_hand(bucket.connection(), &info, &Value::Null).await.unwrap()["config"].clone();
        config["max_msgs_per_subject"] = json!(-1);
        by_hand(bucket.connection(), &update, &config).await.unwrap();
        let history = Self::default();
        let context = async_nats::jetstream::new(server.client().await);
        let stream = context.get_stream(bucket.stream()).await.unwrap();
        let consumer = stream.create_consumer(OrderedConfig::default()).await.unwrap();
        let mut messages = consumer.messages().await.unwrap();
        let seen = history.clone();
        tokio::spawn(async move {
            while let Some(Ok(message)) = messages.next().await {
                let revision = message.info().unwrap().stream_sequence;
                let lease = serde_json::from_slice(&message.payload).ok();
                let mut seen = seen.0.lock().unwrap();
                seen.entry(message.subject.to_string()).or_default().insert(revision, lease);
            }
        });
        history
    }

    fn of(&self, subject: &str) -> BTreeMap<u64, Option<Lease>> {
        self.0.lock().unwrap().get(subject).cloned().unwrap_or_default()
    }

    /// Everything that the key has by now was seen.
    async fn wait_for(&self, bucket: &Bucket, key: &str) {
        let last = bucket.get(key).await.unwrap().map_or(0, |found| found.revision);
        wait_until(DEADLINE, "the last write to be seen", || async {
            self.of(&bucket.subject(key)).keys().last().is_some_and(|seen| *seen >= last)
        })
        .await;
    }
}

/// Contests on servers that are one system, all at the same time; how long each next holder took.
async fn contests(servers: &[NatsServer], keys: usize, rounds: usize) -> Vec<Duration> {
    let bucket = Bucket::new(connect(&servers[0]).await, "lanekeeper");
    let copies = u32::try_from(servers.len()).unwrap();
    wait_until(DEADLINE, "the bucket", || bucket.ensure(copies)).await;
    let history = History::follow(&servers[0], &bucket).await;
    let contests = (0..keys).map(|number| {
        let history = &history;
        async move {
            let mut buckets = Vec::new();
            for server in servers {
                buckets.push(Bucket::new(connect(server).await, "lanekeeper"));
            }
            let mut contest = Contest::new(buckets, &format!("set.shop.orders.lane.{number}.lease"));
            let gaps = contest.rounds(rounds, history).await;
            history.wait_for(&contest.bucket, &contest.key).await;
            contest.assert_one_at_a_time(history);
            for contender in contest.contenders.into_values() {
                contender.task.abort();
            }
            gaps
        }
    });
    futures::future::join_all(contests).await.concat()
}

/// How soon is for people; that there is a next holder, each round has waited for. Each wait ends one lease after the last renewal was seen, which may have been a moment before the holder died. A machine
/// that is busy may add to it.
fn tell_how_soon(mut gaps: Vec<Duration>, rounds: usize) {
    assert_eq!(gaps.len(), rounds);
    gaps.sort_unstable();
    let (median, longest) = (gaps[rounds / 2], gaps[rounds - 1]);
    eprintln!("the next holder: median {median:?}, longest {longest:?}, leases of {TIME:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_contenders_one_has_the_lease_in_each_of_two_hundred_rounds() {
    tell_how_soon(contests(&[NatsServer::start(LATEST).await], 5, 40).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn likewise_on_older_servers() {
    for version in VERSIONS.iter().filter(|version| **version != LATEST) {
        tell_how_soon(contests(&[NatsServer::start(version).await], 2, 8).await, 16);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_copies_that_lag_give_anybody_a_second_one() {
    // A server prefers to answer reads itself, and two of the three are not the leader.
    tell_how_soon(contests(&NatsTrio::start(LATEST).await.nodes, 2, 8).await, 16);
}

#[tokio::test]
async fn a_lease_whose_key_is_deleted_under_its_holder_has_no_second_holder() {
    let server = NatsServer::start(LATEST).await;
    let bucket = Bucket::new(connect(&server).await, "lanekeeper");
    bucket.ensure(1).await.unwrap();
    let history = History::follow(&server, &bucket).await;
    let contest = Contest::new(vec![bucket], "set.shop.orders.lane.1.lease");
    for _ in 0..4 {
        let holder = contest.wait_holder().await;
        contest.delete().await;
        wait_until(DEADLINE, "the holder to notice", || async {
            contest.ledger.holder().is_none_or(|now| now.from != holder.from)
        })
        .await;
    }
    contest.wait_holder().await;
    history.wait_for(&contest.bucket, &contest.key).await;
    contest.assert_one_at_a_time(&history);
}

#[tokio::test]
async fn a_value_that_is_no_lease_is_taken_over_when_it_stays() {
    let server = NatsServer::start(LATEST).await;
    let bucket = Bucket::new(connect(&server).await, "lanekeeper");
    bucket.ensure(1).await.unwrap();
    for value in ["{\"v\":1}", "no JSON", "{\"v\":99}"] {
        let contest = Contest::new(vec![bucket.clone()], "set.shop.orders.lane.1.lease");
        let holder = contest.wait_holder().await;
        bucket.put(&contest.key, value.into()).await.unwrap();
        wait_until(DEADLINE, "another lease", || async {
            contest.ledger.holder().filter(|now| now.from != holder.from)
        })
        .await;
        for contender in contest.contenders.into_values() {
            contender.task.abort();
        }
    }
}
