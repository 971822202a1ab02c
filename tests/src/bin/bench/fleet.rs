//! Workers of many partitions under a conductor, with a handler that notes when it got what.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail};
use lanekeeper_core::stream::Retention;
use lanekeeper_nats::observe;
use lanekeeper_tests::{
    LATEST, NatsServer,
    soak::{
        conductor::Desk,
        ground::{Ground, STREAM, Shape},
    },
};
use lanekeeper_worker::{Handler, HandlerError, Message, RunError, Worker};
use tokio::{sync::oneshot, task::JoinHandle};

/// Longest time a change may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// One handling.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) key: String,
    /// When the server stored the message.
    pub(crate) stored: SystemTime,
    /// From then until the handler had it.
    pub(crate) late: Duration,
}

#[derive(Default)]
struct Notes {
    samples: Vec<Sample>,
    last: HashMap<String, u64>,
    wrong: Option<String>,
}

/// Notes, and checks that nothing is out of order or twice.
pub(crate) struct Noting {
    time: Duration,
    handled: AtomicU64,
    notes: Mutex<Notes>,
}

impl Noting {
    fn new(time: Duration) -> Self {
        Self { time, handled: AtomicU64::new(0), notes: Mutex::default() }
    }

    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// What was noted since the last time; an error when something was out of order.
    pub(crate) fn take(&self) -> Result<Vec<Sample>> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        match notes.wrong.take() {
            Some(wrong) => bail!(wrong),
            None => Ok(std::mem::take(&mut notes.samples)),
        }
    }
}

impl Handler for Noting {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let stored = message.published();
        let late = SystemTime::now().duration_since(stored).unwrap_or_default();
        {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            let (key, sequence) = (message.key(), message.sequence());
            if let Some(last) = notes.last.insert(key.clone(), sequence)
                && last >= sequence
            {
                notes.wrong = Some(format!("message {sequence} of {key} came after {last}"));
            }
            notes.samples.push(Sample { key, stored, late });
        }
        if !self.time.is_zero() {
            tokio::time::sleep(self.time).await;
        }
        self.handled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A worker, and how to end it.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

/// A server, a set, its workers and a conductor.
pub(crate) struct Fleet {
    _server: NatsServer,
    ground: Ground,
    pub(crate) desk: Desk,
    conductor: JoinHandle<()>,
    pub(crate) noting: Arc<Noting>,
    workers: Vec<Running>,
}

impl Fleet {
    /// Lanes without workers. Each handling takes `time`.
    pub(crate) async fn start(partitions: u32, most: u32, time: Duration) -> Result<Self> {
        let server = NatsServer::start(LATEST).await;
        let shape = Shape {
            retention: Retention::Limits,
            replicas: 1,
            max_partitions: most.next_power_of_two(),
            partitions,
            ack_wait: Duration::from_secs(15),
            parks: false,
        };
        let ground = Ground::make(&[server.url()], &shape).await;
        let desk = Desk::new(&ground);
        let conductor = desk.conduct();
        let noting = Arc::new(Noting::new(time));
        let fleet = Self { _server: server, ground, desk, conductor, noting, workers: Vec::new() };
        fleet.settled(Instant::now()).await?;
        Ok(fleet)
    }

    /// Workers of these partitions, ready before any change.
    pub(crate) async fn work(&mut self, partitions: std::ops::Range<u32>) -> Result<()> {
        let mut connected = Vec::new();
        for partition in partitions {
            let settings = self.ground.settings("worker");
            let worker = Worker::builder(self.ground.wanted.set.clone(), partition, STREAM, settings).build();
            connected.push(worker.status());
            let (stop, stopped) = oneshot::channel::<()>();
            let shutdown = async move {
                let _ = stopped.await;
            };
            let task = tokio::spawn(worker.run_until(Arc::clone(&self.noting), shutdown));
            self.workers.push(Running { stop, task });
        }
        lanekeeper_tests::wait_for(DEADLINE, "the workers to be in place", || async {
            connected.iter().all(|status| status().connected && status().in_place)
        })
        .await?;
        Ok(())
    }

    /// Changes the number of partitions; how long it took.
    pub(crate) async fn change(&self, partitions: u32) -> Result<Duration> {
        let asked = self.desk.want(partitions);
        let end = self.settled(asked.into()).await?;
        Ok(end - Instant::from(asked))
    }

    async fn settled(&self, asked: Instant) -> Result<Instant> {
        let end = self.desk.settled(asked.into(), DEADLINE).await.map_err(anyhow::Error::msg)?;
        Ok(end.into())
    }

    /// A connection for publishing.
    pub(crate) async fn client(&self) -> Result<async_nats::Client> {
        Ok(async_nats::connect(self.ground.servers.as_slice()).await?)
    }

    /// How many messages the stream has.
    pub(crate) async fn stored(&self) -> Result<u64> {
        let connection = self.ground.connect("bench").await;
        Ok(observe::stream(&connection, STREAM).await?.context("there is no stream")?.messages)
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.conductor.abort();
        // All at once: each one cancels its pull first, which takes a moment.
        let ends = self.workers.into_iter().map(|Running { stop, task }| {
            let _ = stop.send(());
            task
        });
        for ended in futures::future::join_all(ends).await {
            ended??;
        }
        Ok(())
    }
}
