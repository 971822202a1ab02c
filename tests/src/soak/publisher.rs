//! Publishing under load: numbered messages of keys of which few are hot, each stored exactly once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{HeaderMap, jetstream};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::chance::{Chance, Zipf};
use crate::journal::Published;

/// Tasks that publish at the same time, each the messages of its own keys.
const SENDERS: usize = 4;
/// A confirmation that does not come in this time is asked for again, with the same message id.
const CONFIRMATION: Duration = Duration::from_secs(1);
/// The server forgets message ids after two minutes; by then it is not the same message any more.
const GIVE_UP: Duration = Duration::from_secs(90);

/// What is published.
#[derive(Debug, Clone)]
pub struct Load {
    /// Subjects are this, a dot, and the key.
    pub prefix: String,
    /// Different keys.
    pub keys: usize,
    /// At least this long between two messages of one sender, of which there are four.
    pub pause: Duration,
    /// Never more messages ahead of what was handled.
    pub backlog: u64,
}

/// Publishes until it is stopped.
#[derive(Debug)]
pub struct Publisher {
    stop: watch::Sender<bool>,
    count: Arc<AtomicU64>,
    senders: Vec<JoinHandle<Vec<(String, u64)>>>,
}

impl Publisher {
    /// `handled` says how many different messages were handled so far.
    pub fn start(
        client: &async_nats::Client,
        load: &Load,
        chance: &mut Chance,
        handled: impl Fn() -> u64 + Clone + Send + 'static,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let count = Arc::new(AtomicU64::new(0));
        let senders = (0..SENDERS).map(|number| {
            let sender = Sender {
                context: jetstream::new(client.clone()),
                load: load.clone(),
                number,
                chance: chance.fork(),
                count: Arc::clone(&count),
                stopped: stopped.clone(),
            };
            tokio::spawn(sender.run(handled.clone()))
        });
        let senders = senders.collect();
        Self { stop, count, senders }
    }

    /// How many messages were stored so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Ends, and says what was stored.
    pub async fn stop(self) -> Published {
        self.stop.send_replace(true);
        let mut all = Vec::new();
        for sender in self.senders {
            all.extend(sender.await.expect("publishing does not fail"));
        }
        Published::new(all).expect("the numbers of a key rise")
    }
}

struct Sender {
    context: jetstream::Context,
    load: Load,
    number: usize,
    chance: Chance,
    count: Arc<AtomicU64>,
    stopped: watch::Receiver<bool>,
}

impl Sender {
    async fn run(mut self, handled: impl Fn() -> u64) -> Vec<(String, u64)> {
        let keys = (self.load.keys / SENDERS).max(1);
        let zipf = Zipf::new(keys);
        let mut numbers = vec![0_u64; keys];
        let mut stored = Vec::new();
        while !*self.stopped.borrow() {
            if self.count.load(Ordering::Relaxed) >= handled() + self.load.backlog {
                sleep(Duration::from_millis(5)).await;
                continue;
            }
            let index = zipf.pick(&mut self.chance);
            let key = format!("k{}", index * SENDERS + self.number);
            numbers[index] += 1;
            self.store(&key, numbers[index]).await;
            self.count.fetch_add(1, Ordering::Relaxed);
            stored.push((key, numbers[index]));
            if !self.load.pause.is_zero() {
                sleep(self.load.pause).await;
            }
        }
        stored
    }

    /// Until the server has confirmed it.
    async fn store(&self, key: &str, number: u64) {
        let end = Instant::now() + GIVE_UP;
        let mut last = String::new();
        while Instant::now() < end {
            match timeout(CONFIRMATION, self.publish(key, number)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    last = error;
                    sleep(Duration::from_millis(50)).await;
                }
                Err(_) => "no confirmation".clone_into(&mut last),
            }
        }
        panic!("number {number} of {key} could not be stored in {GIVE_UP:?}: {last}");
    }

    async fn publish(&self, key: &str, number: u64) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{key}-{number}"));
        let subject = format!("{}.{key}", self.load.prefix);
        let sent = self.context.publish_with_headers(subject, headers, number.to_string().into()).await;
        sent.map_err(|error| error.to_string())?.await.map(drop).map_err(|error| error.to_string())
    }
}
