//! Three real servers in one cluster, for replicated streams and leader changes.

use std::{net::TcpListener, time::Duration};

use crate::{server::NatsServer, waiting::wait_until};

/// Three servers; each can be killed and started again on its own.
#[derive(Debug)]
pub struct NatsTrio {
    /// The servers, `n0` to `n2`.
    pub nodes: Vec<NatsServer>,
}

impl NatsTrio {
    /// Starts three servers of a version and waits until JetStream has a leader.
    pub async fn start(version: &str) -> Self {
        Self::start_with(version, "").await
    }

    /// With more configuration text in each server, for example accounts.
    pub async fn start_with(version: &str, config: &str) -> Self {
        // Routes must be known before the servers start. The ports are free a moment before they are used; a
        // stranger that takes one in between makes the start fail with words, not hang.
        let ports: Vec<u16> = {
            let listeners: Vec<TcpListener> =
                (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free")).collect();
            listeners.iter().map(|one| one.local_addr().expect("it is bound").port()).collect()
        };
        let routes: Vec<String> = ports.iter().map(|port| format!("nats-route://127.0.0.1:{port}")).collect();
        let mut nodes: Vec<NatsServer> = ports
            .iter()
            .enumerate()
            .map(|(number, port)| {
                NatsServer::builder(version)
                    .name(&format!("n{number}"))
                    .config(&format!(
                        "cluster {{\n  name: trio\n  listen: \"127.0.0.1:{port}\"\n  routes: [{}]\n  no_advertise: true\n}}\n{config}",
                        routes.join(", ")
                    ))
                    .spawn()
            })
            .collect();
        for node in &mut nodes {
            node.wait_for_start().await;
        }
        let trio = Self { nodes };
        trio.wait_for_leader().await;
        trio
    }

    /// All client addresses.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(NatsServer::url).collect()
    }

    /// Waits until some node logged that JetStream's metadata has a leader and all nodes know it.
    pub async fn wait_for_leader(&self) {
        wait_until(Duration::from_secs(60), "the three servers to elect a leader", || async {
            self.nodes.iter().any(|node| node.log().contains("Self is new JetStream cluster metadata leader"))
        })
        .await;
    }
}
