//! The server, the stream and the lanes that are measured.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use lanekeeper_core::{
    consumer::ConsumerSpec,
    mapping::Mapping,
    names::SetName,
    record::{Assignment, Delivery, ExhaustedPolicy, LaneKey, LaneSettings, Ownership, Retry, VERSION},
    share::Share,
    stream::{Retention, Storage, StreamOwner, StreamSpec},
    subject::SubjectPattern,
};
use lanekeeper_nats::{Bucket, ConnectSettings, Connection, observe, provision};
use lanekeeper_tests::{LATEST, NatsServer, wait_for};

pub(crate) const STREAM: &str = "BENCH";
const SUBJECTS: &str = "bench.*";
/// Messages that are published before their answers are waited for.
const AT_ONCE: u64 = 500;
const DEADLINE: Duration = Duration::from_secs(60);
/// Everything: one lane.
pub(crate) const SHARE: Share = Share { modulus: 1, residue: 0 };

pub(crate) struct Setting {
    server: NatsServer,
    pub(crate) connection: Connection,
    bucket: Bucket,
    pub(crate) set: SetName,
    pub(crate) mapping: Mapping,
    incarnations: u64,
}

impl Setting {
    pub(crate) async fn start() -> Result<Self> {
        let server = NatsServer::start(LATEST).await;
        let connection = Connection::connect(ConnectSettings::new([server.url()], "bench")).await?;
        let source = SubjectPattern::parse(SUBJECTS).map_err(|error| anyhow::anyhow!("{error}"))?;
        let mapping = Mapping::new(STREAM, source, &[1], 256).map_err(|error| anyhow::anyhow!("{error}"))?;
        let spec = StreamSpec {
            subjects: vec![SUBJECTS.into()],
            mapping: mapping.clone(),
            replicas: 1,
            storage: Storage::File,
            retention: Retention::Limits,
            max_age_seconds: None,
            max_bytes: None,
            max_messages: None,
            duplicate_window_seconds: None,
        };
        let owner = StreamOwner { id: "bench/bench/bench".into(), uid: "bench".into() };
        provision::create_stream(&connection, &spec, &owner).await?;
        let bucket = Bucket::new(connection.clone(), "lanekeeper");
        bucket.ensure(1).await?;
        Ok(Self { server, connection, bucket, set: SetName::new("bench", "bench"), mapping, incarnations: 0 })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// What the stream has, with the key as its last wildcard.
    pub(crate) fn pattern(&self) -> String {
        let levels = self.mapping.max_partitions.ilog2();
        format!("lanes.{STREAM}.{}{SUBJECTS}", "*.".repeat(levels as usize))
    }

    /// A consumer as a lane of this delivery has it, that begins at a sequence. Its name.
    pub(crate) async fn consumer(&mut self, start: Option<u64>, delivery: Delivery) -> Result<String> {
        self.incarnations += 1;
        let consumer = self.set.consumer(0, self.incarnations);
        let spec = ConsumerSpec {
            name: consumer.clone(),
            filter: self.mapping.filter(SHARE),
            start,
            delivery,
            ack_wait_milliseconds: 15_000,
            pinned: true,
            replicas: None,
            metadata: BTreeMap::new(),
        };
        provision::create_consumer(&self.connection, STREAM, &spec).await?;
        Ok(consumer)
    }

    /// A lane of its own that begins at a sequence, assigned to partition 0. Its consumer's name.
    pub(crate) async fn open_lane(&mut self, start: Option<u64>, delivery: Delivery) -> Result<String> {
        let consumer = self.consumer(start, delivery).await?;
        let incarnation = self.incarnations;
        self.bucket.put_json(&self.set.lane_key(incarnation), &LaneKey::new(), None).await?;
        let retry =
            Retry { initial_backoff_milliseconds: 100, max_backoff_milliseconds: 1_000, max_attempts: 1 };
        let assignment = Assignment {
            v: VERSION,
            consumer: consumer.clone(),
            incarnation,
            share: SHARE,
            filter: self.mapping.filter(SHARE),
            mapping: self.mapping.clone(),
            stream_incarnation: 1,
            floors: Vec::new(),
            retiring: false,
            settings: LaneSettings {
                ack_wait_milliseconds: 15_000,
                ownership: Ownership::Pin,
                handler_timeout_milliseconds: 60_000,
                retry,
                on_exhausted: ExhaustedPolicy::Block,
                park: None,
                delivery,
                paused: false,
                journal: None,
            },
        };
        let key = self.set.assignment_key(0);
        self.bucket.put(&key, self.bucket.json(&key, &assignment)?).await?;
        Ok(consumer)
    }

    /// Stores messages of 100 keys; the first sequence.
    pub(crate) async fn publish(&self, messages: u64, payload: usize) -> Result<u64> {
        let payload = bytes::Bytes::from(vec![b'x'; payload]);
        let context = self.connection.context();
        let mut first = None;
        let mut number = 0;
        while number < messages {
            let end = messages.min(number + AT_ONCE);
            let mut answers = Vec::new();
            for number in number..end {
                answers.push(context.publish(format!("bench.k{}", number % 100), payload.clone()).await?);
            }
            for answer in answers {
                first.get_or_insert(answer.await?.sequence);
            }
            number = end;
        }
        first.context("nothing was published")
    }

    /// Waits until the server has nothing of the lane left.
    pub(crate) async fn wait_settled(&self, consumer: &str) -> Result<()> {
        wait_for(DEADLINE, "the lane to be settled", || async {
            let found =
                observe::consumer(&self.connection, STREAM, consumer).await.map_err(|e| e.to_string())?;
            let found = found.ok_or("there is no consumer")?;
            match (found.pending, found.ack_pending) {
                (0, 0) => Ok(()),
                (waiting, out) => Err(format!("{waiting} waiting, {out} out")),
            }
        })
        .await?;
        Ok(())
    }

    /// Waits until the server has nothing of the lane left, and removes its consumer.
    pub(crate) async fn close_lane(&self, consumer: &str) -> Result<()> {
        self.wait_settled(consumer).await?;
        self.remove_lane(consumer).await
    }

    /// Removes a lane's consumer, whatever is left.
    pub(crate) async fn remove_lane(&self, consumer: &str) -> Result<()> {
        provision::delete_consumer(&self.connection, STREAM, consumer).await?;
        Ok(())
    }

    /// Removes every message.
    pub(crate) async fn purge(&self) -> Result<()> {
        self.connection.context().get_stream(STREAM).await?.purge().await?;
        Ok(())
    }

    /// Waits until a pod has noted that the latest lane is its.
    pub(crate) async fn wait_owner(&self, pod: &str) -> Result<()> {
        self.wait_key("a pod to own the lane", |key| key.owner.is_some_and(|owner| owner.holder.pod == pod))
            .await
    }

    /// Waits until so many workers have joined the latest lane.
    pub(crate) async fn wait_holders(&self, holders: usize) -> Result<()> {
        self.wait_key("the workers to join the lane", |key| key.holders.len() == holders).await
    }

    async fn wait_key(&self, what: &str, wanted: impl Fn(LaneKey) -> bool) -> Result<()> {
        let key = self.set.lane_key(self.incarnations);
        wait_for(DEADLINE, what, || async {
            let found = self.bucket.get_json::<LaneKey>(&key).await.map_err(|error| error.to_string())?;
            let found = found.ok_or("the lane has no key")?.value;
            let words = format!("{found:?}");
            wanted(found).then_some(()).ok_or(words)
        })
        .await?;
        Ok(())
    }

    /// Takes a pod out of the latest lane, as the operator does when it is proven to be gone.
    pub(crate) async fn take_out(&self, pod: &str) -> Result<()> {
        let key = self.set.lane_key(self.incarnations);
        loop {
            let mut found = self.bucket.get_json::<LaneKey>(&key).await?.context("the lane has no key")?;
            found.value.holders.retain(|holder| holder.pod != pod);
            match self.bucket.put_json(&key, &found.value, Some(found.revision)).await {
                Err(error) if error.is_conflict() => {}
                written => return written.map(|_| ()).map_err(Into::into),
            }
        }
    }
}
