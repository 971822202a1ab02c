//! What several modules of these tests need.

use std::{collections::BTreeMap, time::Duration};

use lanekeeper_core::{
    consumer::{ConsumerSpec, metadata},
    mapping::Mapping,
    names::SetName,
    record::Delivery,
    share::Share,
    stream::{Retention, Storage, StreamOwner, StreamSpec},
    subject::SubjectPattern,
};
use lanekeeper_nats::{ConnectSettings, Connection, kv::Wakeups, provision};
use lanekeeper_tests::NatsServer;
use serde_json::{Map, Value};

/// Long enough for a busy machine; nothing is decided by it but a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) async fn connect(server: &NatsServer) -> Connection {
    Connection::connect(settings(server)).await.expect("the server accepts us")
}

pub(crate) fn settings(server: &NatsServer) -> ConnectSettings {
    ConnectSettings::new([server.url()], "tests")
}

/// A mapping of a stream; `maximum` is a power of two.
pub(crate) fn mapping(stream: &str, source: &str, tokens: &[i64], maximum: i64) -> Mapping {
    let source = SubjectPattern::parse(source).expect("it is a pattern");
    Mapping::new(stream, source, tokens, maximum).expect("it is a mapping")
}

pub(crate) fn stream_spec(mapping: Mapping) -> StreamSpec {
    StreamSpec {
        subjects: vec![mapping.source.to_string()],
        mapping,
        replicas: 1,
        storage: Storage::Memory,
        retention: Retention::Limits,
        max_age_seconds: None,
        max_bytes: None,
        max_messages: None,
        duplicate_window_seconds: None,
    }
}

pub(crate) fn owner(name: &str) -> StreamOwner {
    StreamOwner { id: format!("cluster/shop/{name}"), uid: format!("uid-of-{name}") }
}

/// A stream `ORDERS` with `orders.*`, owned by the set `orders`.
pub(crate) async fn orders(connection: &Connection) -> StreamSpec {
    let spec = stream_spec(mapping("ORDERS", "orders.*", &[1], 4));
    let created = provision::create_stream(connection, &spec, &owner("orders")).await;
    assert!(created.expect("the stream can be made").new);
    spec
}

/// The consumer of one lane of the set `shop/orders`.
pub(crate) fn consumer_spec(mapping: &Mapping, share: Share, incarnation: u64) -> ConsumerSpec {
    let set = SetName::new("shop", "orders");
    ConsumerSpec {
        name: set.consumer(share.partition(), incarnation),
        filter: mapping.filter(share),
        start: None,
        delivery: Delivery::Serial,
        ack_wait_milliseconds: 15_000,
        pinned: true,
        replicas: None,
        metadata: BTreeMap::from([
            (metadata::SET.to_owned(), set.to_string()),
            (metadata::INCARNATION.to_owned(), incarnation.to_string()),
        ]),
    }
}

/// One request as a person with a tool would send it.
pub(crate) async fn by_hand(connection: &Connection, operation: &str, body: &Value) -> Result<Value, String> {
    connection.api(operation, body).await.map_err(|error| error.to_string())
}

/// The key of the next wake-up.
pub(crate) async fn woken(wakeups: &mut Wakeups) -> String {
    let key = tokio::time::timeout(DEADLINE, wakeups.next()).await.expect("a wake-up comes in time");
    key.expect("the subscription lives")
}

/// A configuration with some fields changed as a person would; `null` takes a field away.
pub(crate) fn changed(config: &Value, fields: &Value) -> Map<String, Value> {
    let mut config = config.as_object().expect("a configuration is an object").clone();
    config.extend(fields.as_object().expect("fields are an object").clone());
    config.retain(|_, value| !value.is_null());
    config
}
