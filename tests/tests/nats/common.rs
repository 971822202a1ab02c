//! What several modules of these tests need.

use std::time::Duration;

use lanekeeper_nats::{ConnectSettings, Connection};
use lanekeeper_tests::NatsServer;

/// Long enough for a busy machine; nothing is decided by it but a failure.
pub const DEADLINE: Duration = Duration::from_secs(30);

pub async fn connect(server: &NatsServer) -> Connection {
    Connection::connect(settings(server)).await.expect("the server accepts us")
}

pub fn settings(server: &NatsServer) -> ConnectSettings {
    ConnectSettings::new([server.url()], "tests")
}
