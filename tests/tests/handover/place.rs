//! The servers of a story, and what can happen to them.

use std::time::Duration;

use async_nats::Client;
use lanekeeper_nats::{ConnectSettings, Connection};
use lanekeeper_tests::{NatsServer, NatsTrio, TcpProxy};

/// Where a story takes place.
pub(crate) enum Place {
    /// One server, behind a proxy for the workers and the conductors.
    One { server: Box<NatsServer>, proxy: TcpProxy },
    /// Three servers, three copies of everything.
    Three(NatsTrio),
}

impl Place {
    pub(crate) async fn one(version: &str) -> Self {
        let server = NatsServer::start(version).await;
        let proxy = TcpProxy::start(server.address()).await;
        Self::One { server: Box::new(server), proxy }
    }

    pub(crate) async fn three(version: &str) -> Self {
        Self::Three(NatsTrio::start(version).await)
    }

    /// What workers and conductors connect to.
    pub(crate) fn servers(&self) -> Vec<String> {
        match self {
            Self::One { proxy, .. } => vec![proxy.url()],
            Self::Three(trio) => trio.urls(),
        }
    }

    /// What the publisher and the judge connect to.
    fn straight(&self) -> Vec<String> {
        match self {
            Self::One { server, .. } => vec![server.url()],
            Self::Three(trio) => trio.urls(),
        }
    }

    pub(crate) async fn client(&self) -> Client {
        async_nats::connect(self.straight()).await.unwrap()
    }

    pub(crate) async fn connection(&self) -> Connection {
        let settings = ConnectSettings::new(self.straight(), "judge");
        // The server collects a list of consumers for four seconds when one of them has no leader.
        let settings = ConnectSettings { request_timeout: Duration::from_secs(1), ..settings };
        Connection::connect(settings).await.unwrap()
    }

    pub(crate) fn replicas(&self) -> u32 {
        match self {
            Self::One { .. } => 1,
            Self::Three(_) => 3,
        }
    }
}
