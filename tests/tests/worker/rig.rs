//! A set without an operator: the stream, the bucket and the lanes as the operator would make them.

use std::{collections::BTreeMap, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use lanekeeper_core::{
    consumer::{ConsumerFound, ConsumerSpec},
    mapping::Mapping,
    names::SetName,
    record::{
        Assignment, Delivery, ExhaustedPolicy, Floor, LaneKey, LaneSettings, Ownership, Report, Retry,
        VERSION,
    },
    share::Share,
    stream::{Retention, Storage, StreamOwner, StreamSpec},
    subject::SubjectPattern,
};
use lanekeeper_nats::{Bucket, ConnectSettings, Connection, observe, provision};
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use lanekeeper_worker::{BatchHandler, Handler, RunError, Status, Worker, WorkerBuilder};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::DEADLINE;

pub(crate) const STREAM: &str = "ORDERS";

pub(crate) struct Rig {
    pub server: NatsServer,
    pub connection: Connection,
    pub bucket: Bucket,
    pub set: SetName,
    pub mapping: Mapping,
    pub settings: LaneSettings,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::on(NatsServer::start(LATEST).await, Retention::Limits).await
    }

    /// A set on a server. Deadlines are short; a test that needs others sets them before it opens a lane.
    pub(crate) async fn on(server: NatsServer, retention: Retention) -> Self {
        let connection = Connection::connect(ConnectSettings::new([server.url()], "rig")).await.unwrap();
        let source = SubjectPattern::parse("orders.*").unwrap();
        let mapping = Mapping::new(STREAM, source, &[1], 4).unwrap();
        let spec = StreamSpec {
            subjects: vec!["orders.*".into()],
            mapping: mapping.clone(),
            replicas: 1,
            storage: Storage::File,
            retention,
            max_age_seconds: None,
            max_bytes: None,
            max_messages: None,
            duplicate_window_seconds: None,
        };
        let owner = StreamOwner { id: "cluster/shop/orders".into(), uid: "uid".into() };
        provision::create_stream(&connection, &spec, &owner).await.unwrap();
        let bucket = Bucket::new(connection.clone(), "lanekeeper");
        bucket.ensure(1).await.unwrap();
        let retry =
            Retry { initial_backoff_milliseconds: 100, max_backoff_milliseconds: 2_000, max_attempts: 3 };
        let settings = LaneSettings {
            ack_wait_milliseconds: 3_000,
            ownership: Ownership::Pin,
            handler_timeout_milliseconds: 60_000,
            retry,
            on_exhausted: ExhaustedPolicy::Block,
            park: None,
            delivery: Delivery::Serial,
            paused: false,
            journal: None,
        };
        Self { server, connection, bucket, set: SetName::new("shop", "orders"), mapping, settings }
    }

    pub(crate) fn assignment(&self, share: Share, incarnation: u64) -> Assignment {
        Assignment {
            v: VERSION,
            consumer: self.set.consumer(share.partition(), incarnation),
            incarnation,
            share,
            filter: self.mapping.filter(share),
            mapping: self.mapping.clone(),
            stream_incarnation: 1,
            floors: Vec::new(),
            retiring: false,
            settings: self.settings.clone(),
        }
    }

    /// The one lane of a set with one partition.
    pub(crate) async fn open(&self) -> String {
        self.open_lane(share(0, 1), 1, None, Vec::new()).await
    }

    /// The same, with this delivery.
    pub(crate) async fn open_with(&mut self, delivery: Delivery) -> String {
        self.settings.delivery = delivery;
        self.open().await
    }

    /// A lane with its consumer and key, and the assignment that names it. The consumer's name.
    pub(crate) async fn open_lane(
        &self,
        share: Share,
        incarnation: u64,
        start: Option<u64>,
        floors: Vec<Floor>,
    ) -> String {
        let spec = ConsumerSpec {
            name: self.set.consumer(share.partition(), incarnation),
            filter: self.mapping.filter(share),
            start,
            delivery: self.settings.delivery,
            ack_wait_milliseconds: self.settings.ack_wait_milliseconds,
            pinned: self.settings.ownership == Ownership::Pin,
            replicas: None,
            metadata: BTreeMap::new(),
        };
        provision::create_consumer(&self.connection, STREAM, &spec).await.unwrap();
        self.bucket.put_json(&self.set.lane_key(incarnation), &LaneKey::new(), None).await.unwrap();
        self.assign(&Assignment { floors, ..self.assignment(share, incarnation) }).await;
        spec.name
    }

    pub(crate) async fn assign(&self, assignment: &Assignment) {
        let key = self.set.assignment_key(assignment.share.partition());
        let value = self.bucket.json(&key, assignment).unwrap();
        self.bucket.put(&key, value).await.unwrap();
    }

    /// The lane retires, as its key says, then its assignment.
    pub(crate) async fn retire(&self, share: Share, incarnation: u64) {
        let key = self.set.lane_key(incarnation);
        loop {
            let mut found = self.bucket.get_json::<LaneKey>(&key).await.unwrap().unwrap();
            found.value.retiring = true;
            match self.bucket.put_json(&key, &found.value, Some(found.revision)).await {
                Ok(_) => break,
                Err(error) => assert!(error.is_conflict(), "{error}"),
            }
        }
        self.assign(&Assignment { retiring: true, ..self.assignment(share, incarnation) }).await;
    }

    pub(crate) async fn lane_key(&self, incarnation: u64) -> LaneKey {
        let key = self.set.lane_key(incarnation);
        self.bucket.get_json::<LaneKey>(&key).await.unwrap().unwrap().value
    }

    pub(crate) async fn report(&self, partition: u32, pod: &str) -> Option<Report> {
        let key = self.set.report_key(partition, pod);
        self.bucket.get_json::<Report>(&key).await.unwrap().map(|found| found.value)
    }

    /// Publishes with confirmation; the stream sequence.
    pub(crate) async fn publish(&self, key: &str, payload: &str) -> u64 {
        let context = self.connection.context();
        let stored = context.publish(format!("orders.{key}"), payload.to_owned().into()).await.unwrap();
        stored.await.unwrap().sequence
    }

    /// `count` messages of one key.
    pub(crate) async fn publish_many(&self, key: &str, count: u64) {
        for number in 0..count {
            self.publish(key, &number.to_string()).await;
        }
    }

    /// `count` messages of 20 keys in turn, not one after another, but stored in this order.
    pub(crate) async fn publish_at_once(&self, count: u64) {
        let stored = async || {
            let info = self.by_hand(&format!("STREAM.INFO.{STREAM}"), Value::Null).await;
            info["state"]["last_seq"].as_u64().unwrap()
        };
        let (before, client) = (stored().await, self.connection.client());
        for number in 0..count {
            client.publish(format!("orders.k{}", number % 20), "x".into()).await.unwrap();
        }
        wait_until(DEADLINE, "everything to be stored", || async {
            let last = stored().await;
            (last >= before + count).then_some(()).ok_or(format!("{last} are"))
        })
        .await;
    }

    pub(crate) async fn consumer(&self, name: &str) -> Option<ConsumerFound> {
        observe::consumer(&self.connection, STREAM, name).await.unwrap()
    }

    /// One request as a person with a tool would send it.
    pub(crate) async fn by_hand(&self, operation: &str, body: Value) -> Value {
        self.connection.api::<Value>(operation, &body).await.unwrap()
    }

    /// Changes the consumer as a person with a tool would.
    pub(crate) async fn edit_consumer(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let info = self.by_hand(&format!("CONSUMER.INFO.{STREAM}.{name}"), Value::Null).await;
        let mut config = info["config"].clone();
        change(&mut config);
        let body = json!({"stream_name": STREAM, "config": config});
        self.by_hand(&format!("CONSUMER.DURABLE.CREATE.{STREAM}.{name}"), body).await;
    }

    /// Everything that was published is settled.
    pub(crate) async fn wait_settled(&self, consumer: &str) {
        wait_until(DEADLINE, "the lane to settle everything", || async {
            let found = self.consumer(consumer).await.ok_or("there is no consumer")?;
            match (found.pending, found.ack_pending) {
                (0, 0) => Ok(()),
                (waiting, out) => Err(format!("{waiting} waiting, {out} out")),
            }
        })
        .await;
    }

    /// Nothing waits in the stream any more; it may be out.
    pub(crate) async fn wait_delivered(&self, consumer: &str) {
        wait_until(DEADLINE, "the lane to have everything", || async {
            let found = self.consumer(consumer).await.ok_or("there is no consumer".to_owned())?;
            if found.pending == 0 { Ok(()) } else { Err(format!("{} waiting", found.pending)) }
        })
        .await;
    }

    pub(crate) fn builder(&self, partition: u32) -> WorkerBuilder {
        self.builder_at(partition, &self.server.url())
    }

    pub(crate) fn builder_at(&self, partition: u32, url: &str) -> WorkerBuilder {
        let settings = ConnectSettings::new([url], "worker");
        Worker::builder(self.set.clone(), partition, STREAM, settings)
    }

    /// A worker of partition 0.
    pub(crate) fn start(&self, handler: impl Handler) -> Running {
        Running::start(self.builder(0), handler)
    }
}

/// A worker inside this process.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), RunError>>,
    status: Box<dyn Fn() -> Status + Send + Sync>,
}

impl Running {
    pub(crate) fn start(builder: WorkerBuilder, handler: impl Handler) -> Self {
        Self::spawn(builder, |worker, shutdown| tokio::spawn(worker.run_until(handler, shutdown)))
    }

    pub(crate) fn start_batches(builder: WorkerBuilder, handler: impl BatchHandler) -> Self {
        Self::spawn(builder, |worker, shutdown| tokio::spawn(worker.run_batches_until(handler, shutdown)))
    }

    fn spawn(
        builder: WorkerBuilder,
        run: impl FnOnce(Worker, BoxFuture<'static, ()>) -> JoinHandle<Result<(), RunError>>,
    ) -> Self {
        let worker = builder.build();
        let status = Box::new(worker.status());
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            // A test that ends without stopping it does not stop it.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let task = run(worker, shutdown.boxed());
        Self { stop: Some(stop), task, status }
    }

    pub(crate) fn status(&self) -> Status {
        (self.status)()
    }

    /// Asks it to end.
    pub(crate) fn ask_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Asks it to end and waits until it did.
    pub(crate) async fn stop(mut self) {
        self.ask_to_stop();
        self.ended().await;
    }

    pub(crate) async fn ended(&mut self) {
        let ended = tokio::time::timeout(DEADLINE, &mut self.task).await;
        ended.expect("the worker ends").expect("it does not panic").expect("it ends well");
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends it as a crash would: nothing is settled, nobody is told.
    pub(crate) fn crash(self) {
        self.task.abort();
    }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The share of one partition of so many.
pub(crate) fn share(partition: u32, partitions: u32) -> Share {
    Share::of_partition(partition, partitions).unwrap()
}
