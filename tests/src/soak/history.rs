//! What was handled, by whom and when: the handler of a run, and what it writes down.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use lanekeeper_worker::{Handler, HandlerError, Message};

use crate::journal::Entry;

/// All handlings of a run, on one clock.
#[derive(Debug, Clone)]
pub struct History {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    /// The start in nanoseconds since 1970; a wall clock that is set does not disturb a run.
    epoch: i64,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    entries: Vec<Entry>,
    /// The highest number of each key that was handled.
    highest: HashMap<String, u64>,
    different: u64,
    /// Handlings that have begun and not ended, by pod.
    running: HashMap<String, usize>,
}

impl History {
    /// Nothing was handled yet.
    pub fn new() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        let epoch = i64::try_from(epoch.as_nanos()).expect("64 bits of nanoseconds last until 2262");
        let shared = Shared { start: Instant::now(), epoch, told: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Nanoseconds since 1970.
    pub fn now(&self) -> i64 {
        let since = i64::try_from(self.shared.start.elapsed().as_nanos());
        self.shared.epoch + since.expect("a run takes less than 292 years")
    }

    /// Seconds since the run began.
    pub fn seconds(&self, at: i64) -> f64 {
        Duration::from_nanos(at.abs_diff(self.shared.epoch)).as_secs_f64()
    }

    /// One handling that was done.
    pub fn add(&self, entry: Entry) {
        let mut told = self.told();
        let highest = told.highest.get(&entry.key).copied().unwrap_or_default();
        if entry.number > highest {
            told.highest.insert(entry.key.clone(), entry.number);
            told.different += 1;
        }
        told.entries.push(entry);
    }

    /// How many different messages were handled.
    pub fn different(&self) -> u64 {
        self.told().different
    }

    /// Every handling, in the order in which they were done.
    pub fn entries(&self) -> Vec<Entry> {
        self.told().entries.clone()
    }

    /// Whether a handling of a pod has begun and not ended.
    pub fn is_busy(&self, pod: &str) -> bool {
        self.told().running.get(pod).is_some_and(|running| *running > 0)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.shared.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

/// A handling that has begun; it ends when this is dropped.
struct Running<'a>(&'a Recorder);

impl<'a> Running<'a> {
    fn begin(recorder: &'a Recorder) -> Self {
        *recorder.history.told().running.entry(recorder.pod.clone()).or_default() += 1;
        Self(recorder)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.0.history.told().running.get_mut(&self.0.pod) {
            *running -= 1;
        }
    }
}

/// How long the handling of a message takes, and whether it succeeds.
pub type Behaviour = Arc<dyn Fn(&str, u64) -> (Duration, bool) + Send + Sync>;

/// The handler of one pod: does as it is told, and writes down what it did.
#[derive(Clone)]
pub struct Recorder {
    pod: String,
    history: History,
    behaviour: Behaviour,
}

impl Recorder {
    /// Of a pod.
    pub fn new(pod: &str, history: &History, behaviour: &Behaviour) -> Self {
        Self { pod: pod.to_owned(), history: history.clone(), behaviour: Arc::clone(behaviour) }
    }

    /// One handling; whether it succeeded. Nothing is written down of one that fails or is cut off.
    pub async fn handle(
        &self,
        key: String,
        number: u64,
        fence: String,
        partition: i64,
        attempt: i64,
    ) -> bool {
        let _running = Running::begin(self);
        let start = self.history.now();
        let (time, succeeds) = (self.behaviour)(&key, number);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        if succeeds {
            let (end, pod) = (self.history.now(), self.pod.clone());
            self.history.add(Entry { key, number, fence, partition, attempt, start, end, pod });
        }
        succeeds
    }
}

impl Handler for Recorder {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let number = std::str::from_utf8(message.payload()).ok().and_then(|text| text.parse().ok());
        let Some(number) = number else { return Err(HandlerError::permanent("its payload is no number")) };
        let (fence, partition) = (message.fence().to_string(), i64::from(message.partition()));
        let attempt = i64::try_from(message.attempt()).unwrap_or(i64::MAX);
        let succeeded = Recorder::handle(self, message.key(), number, fence, partition, attempt).await;
        if succeeded { Ok(()) } else { Err(HandlerError::retry("told to fail")) }
    }
}
