//! The server, the stream and the lanes that are measured.

use std::collections::BTreeMap;

use anyhow::Result;
use lanekeeper_core::{
    consumer::ConsumerSpec,
    mapping::Mapping,
    names::SetName,
    record::{Assignment, ExhaustedPolicy, LaneKey, LaneSettings, Retry, VERSION},
    share::Share,
    stream::{Retention, Storage, StreamOwner, StreamSpec},
    subject::SubjectPattern,
};
use lanekeeper_nats::{Bucket, ConnectSettings, Connection, observe, provision};
use lanekeeper_tests::{LATEST, NatsServer};

pub(crate) const STREAM: &str = "BENCH";
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
        let source = SubjectPattern::parse("bench.*").map_err(|error| anyhow::anyhow!("{error}"))?;
        let mapping = Mapping::new(STREAM, source, &[1], 256).map_err(|error| anyhow::anyhow!("{error}"))?;
        let spec = StreamSpec {
            subjects: vec!["bench.*".into()],
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

    /// A lane of its own that begins at a sequence, assigned to partition 0. Its consumer's name.
    pub(crate) async fn open_lane(&mut self, start: Option<u64>) -> Result<String> {
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let consumer = self.set.consumer(0, incarnation);
        let spec = ConsumerSpec {
            name: consumer.clone(),
            filter: self.mapping.filter(SHARE),
            start,
            ack_wait_milliseconds: 15_000,
            replicas: None,
            metadata: BTreeMap::new(),
        };
        provision::create_consumer(&self.connection, STREAM, &spec).await?;
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
                handler_timeout_milliseconds: 60_000,
                retry,
                on_exhausted: ExhaustedPolicy::Block,
                paused: false,
                journal: None,
            },
        };
        let key = self.set.assignment_key(0);
        self.bucket.put(&key, self.bucket.json(&key, &assignment)?).await?;
        Ok(consumer)
    }

    /// Waits until the server has nothing of the lane left, and removes its consumer.
    pub(crate) async fn close_lane(&self, consumer: &str) -> Result<()> {
        lanekeeper_tests::wait_until(
            std::time::Duration::from_secs(60),
            "the lane to be settled",
            || async {
                let found =
                    observe::consumer(&self.connection, STREAM, consumer).await.map_err(|e| e.to_string())?;
                let found = found.ok_or("there is no consumer")?;
                match (found.pending, found.ack_pending) {
                    (0, 0) => Ok(()),
                    (waiting, out) => Err(format!("{waiting} waiting, {out} out")),
                }
            },
        )
        .await;
        provision::delete_consumer(&self.connection, STREAM, consumer).await?;
        Ok(())
    }
}
