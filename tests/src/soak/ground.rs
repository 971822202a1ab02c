//! A set on servers without Kubernetes: its stream, its bucket, and what is wanted of its lanes.

use std::time::Duration;

use lanekeeper_core::{
    aside::{Aside, Kind},
    mapping::Mapping,
    names::{DEFAULT_BUCKET, SetName},
    plan::{Start, Wanted},
    record::{Breaker, Delivery, ExhaustedPolicy, LaneSettings, Owner, Ownership, Park, Retry},
    stream::{Retention, Storage, StreamOwner, StreamSpec},
    subject::SubjectPattern,
};
use lanekeeper_nats::{Bucket, ConnectSettings, Connection, provision};

use crate::wait_until;

/// The stream's name.
pub const STREAM: &str = "ORDERS";
/// The stream of parked messages.
pub const PARK: &str = "PARK";
/// Subjects are this, a dot, and the key.
pub const PREFIX: &str = "orders";
/// A request that is not answered in this time was lost: shorter than a user would have it, so that runs go on.
const REQUEST: Duration = Duration::from_secs(1);

/// Until servers take a stream.
const START: Duration = Duration::from_secs(30);

/// Where a set is.
#[derive(Debug, Clone)]
pub struct Ground {
    /// Servers, as the workers and the conductor see them.
    pub servers: Vec<String>,
    /// What is wanted; the number of partitions is the first one.
    pub wanted: Wanted,
}

/// What a set is to be like.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Of the stream.
    pub retention: Retention,
    /// Copies of everything.
    pub replicas: u32,
    /// A power of two.
    pub max_partitions: u32,
    /// The first number of partitions.
    pub partitions: u32,
    /// The deadline of a message.
    pub ack_wait: Duration,
    /// Keys of messages without attempts left are parked, in [`PARK`].
    pub parks: bool,
}

impl Ground {
    /// Makes the stream and the bucket.
    pub async fn make(servers: &[String], shape: &Shape) -> Self {
        let source = SubjectPattern::parse("orders.*").expect("it is a pattern");
        let mapping = Mapping::new(STREAM, source, &[1], i64::from(shape.max_partitions));
        let mapping = mapping.expect("it is a mapping");
        let set = SetName::new("shop", "orders");
        let breaker = Breaker { max_exhausted: 1_000_000, window_seconds: 600 };
        let park = shape.parks.then(|| Park { stream: PARK.into(), prefix: set.park_prefix() });
        let settings = LaneSettings {
            ack_wait_milliseconds: u64::try_from(shape.ack_wait.as_millis()).expect("it is short"),
            ownership: Ownership::Pin,
            handler_timeout_milliseconds: 10_000,
            retry: Retry { initial_backoff_milliseconds: 50, max_backoff_milliseconds: 300, max_attempts: 3 },
            on_exhausted: if shape.parks {
                ExhaustedPolicy::ParkKey { breaker }
            } else {
                ExhaustedPolicy::Block
            },
            park,
            delivery: Delivery::Serial,
            paused: false,
            journal: None,
        };
        let owner = Owner {
            cluster: "bare".to_owned(),
            namespace: set.namespace.clone(),
            name: set.name.clone(),
            uid: "uid".to_owned(),
        };
        let wanted = Wanted {
            owner,
            set,
            mapping,
            partitions: shape.partitions,
            retention: shape.retention,
            start: Start::All,
            consumer_replicas: None,
            settings,
            // No interval between changes is asked for, so nobody looks at the time.
            lanes_at_once: lanekeeper_core::plan::LANES_AT_ONCE,
            now_seconds: 0,
        };
        let ground = Self { servers: servers.to_vec(), wanted };
        let connection = ground.connect("ground").await;
        let spec = StreamSpec {
            subjects: vec![format!("{PREFIX}.*")],
            mapping: ground.wanted.mapping.clone(),
            replicas: shape.replicas,
            storage: Storage::File,
            retention: shape.retention,
            max_age_seconds: None,
            max_bytes: None,
            max_messages: None,
            duplicate_window_seconds: None,
        };
        let owner = StreamOwner { id: "bare/shop/orders".into(), uid: "uid".into() };
        // Servers that have just become a cluster refuse for a moment what needs all of them.
        wait_until(START, "the stream to be made", || provision::create_stream(&connection, &spec, &owner))
            .await;
        if shape.parks {
            let park = Aside::new(Kind::Parked, &ground.wanted.set, Some(PARK));
            provision::create_aside(&connection, &park, &spec, &owner).await.expect("the park is made");
        }
        let bucket = Bucket::new(connection, DEFAULT_BUCKET);
        wait_until(START, "the bucket to be made", || bucket.ensure(shape.replicas)).await;
        ground
    }

    /// Settings of a connection.
    pub fn settings(&self, name: &str) -> ConnectSettings {
        let settings = ConnectSettings::new(self.servers.iter().cloned(), name);
        ConnectSettings { request_timeout: REQUEST, ..settings }
    }

    /// A connection of its own.
    pub async fn connect(&self, name: &str) -> Connection {
        Connection::connect(self.settings(name)).await.expect("the servers accept connections")
    }
}
