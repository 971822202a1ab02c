//! The operator's part of a change without Kubernetes: the same looking, planning and carrying out, again and again.
//!
//! What the kubelet says in a cluster, [`Fates`] say here: the harness knows whom it killed. Nothing is decided here but
//! when to look again. A conductor is a task that may be aborted anywhere, as an operator may be killed anywhere, and
//! several may be at work at once.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lanekeeper_core::{
    names::DEFAULT_BUCKET,
    plan::{self, Observed, Plan, Step, Wanted},
    record::{Delivery, Holder},
};
use lanekeeper_nats::{Bucket, kv::Wakeups, observe as nats};
use lanekeeper_operator::{
    carry_out::{Target, carry_out},
    events::News,
    fences::Fences,
    metrics::Metrics,
    observe,
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::ground::{Ground, STREAM};

/// At rest and while it waits it looks this often all the same.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After something went wrong.
const AGAIN: Duration = Duration::from_millis(20);

/// What is known of the ends of pods.
#[derive(Debug, Clone, Default)]
pub struct Fates {
    known: Arc<Mutex<(BTreeSet<String>, BTreeSet<String>)>>,
}

impl Fates {
    /// A pod's process has ended, and none of its name will follow.
    pub fn terminated(&self, pod: &str) {
        self.known().0.insert(pod.to_owned());
    }

    /// Nobody can say how a pod is, or somebody can again.
    pub fn unreachable(&self, pod: &str, unreachable: bool) {
        if unreachable {
            self.known().1.insert(pod.to_owned());
        } else {
            self.known().1.remove(pod);
        }
    }

    fn judge(&self, observed: &mut Observed) {
        let known = self.known();
        let of = |pods: &BTreeSet<String>| -> BTreeSet<Holder> {
            let holders = observed.lane_keys.values().flat_map(|key| &key.value.holders);
            holders.filter(|holder| pods.contains(&holder.pod)).cloned().collect()
        };
        let (terminated, unreachable) = (of(&known.0), of(&known.1));
        observed.terminated = terminated;
        observed.unreachable = unreachable;
    }

    fn known(&self) -> MutexGuard<'_, (BTreeSet<String>, BTreeSet<String>)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look that found everything as wanted.
#[derive(Debug, Clone, Copy)]
pub struct Settled {
    /// The number of partitions.
    pub partitions: u32,
    /// How messages come.
    pub delivery: Delivery,
    /// When the look began.
    pub looked: Instant,
}

/// What all conductors of a set share.
#[derive(Debug, Clone)]
pub struct Desk {
    ground: Ground,
    /// Of pods.
    pub fates: Fates,
    numbers: watch::Sender<u32>,
    deliveries: watch::Sender<Delivery>,
    settled: watch::Sender<Option<Settled>>,
    trouble: watch::Sender<String>,
}

impl Desk {
    /// The first number of partitions is the ground's.
    pub fn new(ground: &Ground) -> Self {
        Self {
            ground: ground.clone(),
            fates: Fates::default(),
            numbers: watch::Sender::new(ground.wanted.partitions),
            deliveries: watch::Sender::new(ground.wanted.settings.delivery),
            settled: watch::Sender::new(None),
            trouble: watch::Sender::new(String::new()),
        }
    }

    /// Asks for another way of getting messages, with the next number of partitions.
    pub fn deliver(&self, delivery: Delivery) {
        self.deliveries.send_replace(delivery);
    }

    /// Asks for a number of partitions; when.
    pub fn want(&self, partitions: u32) -> Instant {
        let now = Instant::now();
        self.numbers.send_replace(partitions);
        now
    }

    /// The number that is wanted.
    pub fn wanted(&self) -> u32 {
        *self.numbers.borrow()
    }

    /// Waits until some conductor looked after `asked` and found everything as wanted; when it saw that.
    ///
    /// # Errors
    /// What stands in the way, when `deadline` passes first.
    pub async fn settled(&self, asked: Instant, deadline: Duration) -> Result<Instant, String> {
        let (wanted, delivery) = (self.wanted(), *self.deliveries.borrow());
        let mut settled = self.settled.subscribe();
        let done = |last: &Option<Settled>| {
            last.is_some_and(|last| {
                (last.partitions, last.delivery) == (wanted, delivery) && last.looked >= asked
            })
        };
        match timeout(deadline, settled.wait_for(done)).await {
            Ok(_) => Ok(Instant::now()),
            Err(_) => Err(format!("{wanted} partitions are not settled: {}", self.trouble.borrow().as_str())),
        }
    }

    /// A conductor at work, until the task is aborted.
    pub fn conduct(&self) -> JoinHandle<()> {
        let desk = self.clone();
        tokio::spawn(async move {
            let connection = desk.ground.connect("conductor").await;
            let bucket = Bucket::new(connection, DEFAULT_BUCKET);
            let conductor =
                Conductor { bucket, fences: Fences::default(), metrics: Metrics::default(), desk };
            conductor.run().await;
        })
    }
}

struct Conductor {
    bucket: Bucket,
    fences: Fences,
    metrics: Metrics,
    desk: Desk,
}

impl Conductor {
    async fn run(self) {
        let mut numbers = self.desk.numbers.subscribe();
        let mut wakeups: Option<Wakeups> = None;
        loop {
            let partitions = *numbers.borrow_and_update();
            let delivery = *self.desk.deliveries.borrow();
            let mut wanted = Wanted { partitions, ..self.desk.ground.wanted.clone() };
            wanted.settings.delivery = delivery;
            let looked = Instant::now();
            let (observed, plan) = match self.look(&wanted).await {
                Ok(looked) => looked,
                Err(error) => {
                    self.desk.trouble.send_replace(error);
                    sleep(AGAIN).await;
                    continue;
                }
            };
            assert!(plan.refusal.is_none(), "the set is refused: {:?}", plan.refusal);
            if !plan.steps.is_empty() {
                self.desk.trouble.send_replace(format!("steps are left: {:?}", plan.steps));
                if let Err(error) = self.carry_out(&wanted, &observed, plan.steps).await {
                    self.desk.trouble.send_replace(error);
                    // Somebody was faster, or nobody knows: a real operator waits longer after other failures.
                    sleep(AGAIN).await;
                }
                continue;
            }
            if plan.is_settled() {
                self.desk.settled.send_replace(Some(Settled { partitions, delivery, looked }));
                if let Some(step) = plan.checkpoint {
                    let _ = self.carry_out(&wanted, &observed, vec![step]).await;
                }
                let _ = timeout(LOOK_EVERY, numbers.changed()).await;
                continue;
            }
            self.desk.trouble.send_replace(format!("waits: {:?}", plan.waits));
            // What happens between the look and the first subscription would not be heard, so the first turn looks
            // again at once.
            let Some(wakeups) = &mut wakeups else {
                let keys = format!("{}lane.*", wanted.set.key_prefix());
                wakeups = self.bucket.wakeups(&keys).await.ok();
                continue;
            };
            tokio::select! {
                _ = wakeups.next() => {}
                _ = numbers.changed() => {}
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn look(&self, wanted: &Wanted) -> Result<(Observed, Plan), String> {
        let stream =
            nats::stream(self.bucket.connection(), STREAM).await.map_err(|error| error.to_string())?;
        let stream = stream.ok_or("there is no stream")?;
        let seen = observe::in_nats(&self.bucket, wanted, &stream, false).await;
        let mut observed = seen.map_err(|error| error.to_string())?.observed;
        observe::measure_fences(&self.fences, wanted, &mut observed);
        self.desk.fates.judge(&mut observed);
        let plan = plan::plan(wanted, &observed);
        Ok((observed, plan))
    }

    async fn carry_out(&self, wanted: &Wanted, observed: &Observed, steps: Vec<Step>) -> Result<(), String> {
        let target = Target { set: &wanted.set, stream: STREAM, bucket: &self.bucket };
        let record = observed.record.as_ref().map(|record| &record.value);
        let done = carry_out(target, record, steps, &self.metrics, &mut News::default()).await;
        done.map_err(|error| error.to_string())
    }
}
