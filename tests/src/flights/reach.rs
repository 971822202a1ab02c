//! The way from this machine to a NATS Service in the cluster.
//!
//! Where this machine is the node, the Service's own address is reachable. Elsewhere `kubectl port-forward` is the
//! way; it ends when the pod behind it or the connection does, so it is started again, on the same port, as long as
//! the value lives.

use std::{net::Ipv4Addr, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
    task::JoinHandle,
};

use crate::{cluster::Cluster, kubectl::Kubectl};

const CLIENT_PORT: u16 = 4222;
/// Between two tries, so that a Service without a pod is not asked without a pause.
const PAUSE: Duration = Duration::from_millis(500);

/// A way to NATS.
#[derive(Debug)]
pub struct Reach {
    address: String,
    keeper: Option<JoinHandle<()>>,
}

impl Reach {
    /// The way to the Service `nats` of a namespace.
    pub async fn nats(cluster: &Cluster, kubectl: &Kubectl, namespace: &str) -> Result<Self> {
        if cluster.is_this_machine() {
            let path = format!("/api/v1/namespaces/{namespace}/services/nats");
            let service = kubectl.get(&path).await?.with_context(|| format!("there is no {path}"))?;
            let ip = service["spec"]["clusterIP"].as_str().context("the Service nats has no address")?;
            return Ok(Self { address: format!("nats://{ip}:{CLIENT_PORT}"), keeper: None });
        }
        Self::forwarded(kubectl, namespace).await
    }

    /// The way through `kubectl port-forward`, which every cluster has.
    pub async fn forwarded(kubectl: &Kubectl, namespace: &str) -> Result<Self> {
        // The system's choice, given back at once: kubectl has to take the same one again after each break.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port();
        let (mut child, _) = forward(kubectl, namespace, port).await?;
        let (kubectl, namespace) = (kubectl.clone(), namespace.to_owned());
        let keeper = tokio::spawn(async move {
            loop {
                // Whatever ended it, the answer is another one.
                let _ = child.wait().await;
                child = loop {
                    tokio::time::sleep(PAUSE).await;
                    if let Ok((child, _)) = forward(&kubectl, &namespace, port).await {
                        break child;
                    }
                };
            }
        });
        Ok(Self { address: format!("nats://127.0.0.1:{port}"), keeper: Some(keeper) })
    }

    /// A client that comes back after every break.
    pub async fn connect(&self) -> Result<async_nats::Client> {
        async_nats::ConnectOptions::new()
            .name("lanekeeper-flights")
            // Addresses of pods, which only the cluster can reach.
            .ignore_discovered_servers()
            .retry_on_initial_connect()
            .connect(&self.address)
            .await
            .with_context(|| format!("connecting to {}", self.address))
    }

    /// Where it leads.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            // The child goes with its task: it is killed when its handle is dropped.
            keeper.abort();
        }
    }
}

async fn forward(kubectl: &Kubectl, namespace: &str, port: u16) -> Result<(Child, String)> {
    let ports = format!("{port}:{CLIENT_PORT}");
    let mut command = Command::from(kubectl.command(&[
        "-n",
        namespace,
        "port-forward",
        "--address=127.0.0.1",
        "service/nats",
        &ports,
    ]));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("starting kubectl port-forward")?;
    let output = child.stdout.take().context("kubectl has an output")?;
    let mut lines = BufReader::new(output).lines();
    let Some(line) = lines.next_line().await.context("reading from kubectl port-forward")? else {
        bail!("kubectl port-forward of service/nats in {namespace} ended at once");
    };
    // Read on, or kubectl would block on a full pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((child, line))
}
