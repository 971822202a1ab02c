//! A port on this machine that leads to a ready pod of a Service, through the API server, as `kubectl port-forward` does
//! it.

use std::{io, net::SocketAddr};

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, api::ListParams, api::Portforwarder};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::address::{Address, InCluster};
use crate::cluster::words;

/// Why no port is forwarded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("{host} cannot be resolved here, and there is no Service '{service}' in namespace '{namespace}'")]
    NoService { host: String, service: String, namespace: String },
    #[error("Service '{service}' in namespace '{namespace}' has no port {port}")]
    NoPort { service: String, namespace: String, port: u16 },
    #[error("Service '{service}' in namespace '{namespace}' has no ready pod to forward port {port} to")]
    NoPod { service: String, namespace: String, port: u16 },
    #[error("{host} cannot be resolved here, and {what} cannot be read: {}", words(error))]
    Unreadable { host: String, what: String, error: Box<kube::Error> },
    #[error(
        "port {port} of pod '{pod}' in namespace '{namespace}' cannot be forwarded (the right to `create` pods/portforward is needed): {}",
        words(error)
    )]
    Refused { pod: String, namespace: String, port: u16, error: Box<kube::Error> },
    #[error("no local port can be opened: {0}")]
    Listen(io::Error),
}

/// A forwarded port; it is closed with this value.
pub(super) struct Forward {
    local: SocketAddr,
    target: Target,
    host: String,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    namespace: String,
    pod: String,
    port: u16,
}

impl Forward {
    /// Finds a pod behind the address and forwards a local port to it. `from` is the namespace in which the address is
    /// used.
    pub(super) async fn start(client: &Client, address: &Address, from: &str) -> Result<Self, ForwardError> {
        let host = address.host.clone();
        let Some(named) = address.in_cluster(from) else {
            let (service, namespace) = (host.clone(), from.to_owned());
            return Err(ForwardError::NoService { host, service, namespace });
        };
        let target = target(client, address, &named).await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), &target.namespace);
        // The first one shows whether it is allowed at all.
        let first = pods.portforward(&target.pod, &[target.port]).await;
        let first = first.map_err(|error| ForwardError::Refused {
            pod: target.pod.clone(),
            namespace: target.namespace.clone(),
            port: target.port,
            error: Box::new(error),
        })?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(ForwardError::Listen)?;
        let local = listener.local_addr().map_err(ForwardError::Listen)?;
        let task = tokio::spawn(serve(listener, pods, target.clone(), first));
        Ok(Self { local, target, host, task })
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// What is done, and why.
    pub(super) fn describe(&self) -> String {
        let Target { namespace, pod, port } = &self.target;
        format!(
            "{} cannot be resolved here: forwarding {} to port {port} of pod {namespace}/{pod} through the API server",
            self.host, self.local
        )
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One forwarding for each connection, the first with what was opened already.
async fn serve(listener: TcpListener, pods: Api<Pod>, target: Target, first: Portforwarder) {
    let mut opened = Some(first);
    while let Ok((client, _)) = listener.accept().await {
        let forwarder = match opened.take() {
            Some(forwarder) => forwarder,
            None => match pods.portforward(&target.pod, &[target.port]).await {
                Ok(forwarder) => forwarder,
                Err(error) => {
                    eprintln!("forwarding to pod {}/{}: {}", target.namespace, target.pod, words(&error));
                    continue;
                }
            },
        };
        tokio::spawn(carry(client, forwarder, target.clone()));
    }
}

async fn carry(mut client: TcpStream, mut forwarder: Portforwarder, target: Target) {
    let Some(mut pod) = forwarder.take_stream(target.port) else { return };
    let error = forwarder.take_error(target.port);
    let failed = async {
        match error {
            Some(error) => error.await,
            None => None,
        }
    };
    tokio::select! {
        // An end on either side is the end of the connection, which the client of NATS notices and tells.
        _ = copy_bidirectional(&mut client, &mut pod) => {}
        Some(words) = failed => {
            eprintln!("forwarding to pod {}/{}: {}", target.namespace, target.pod, words.trim());
        }
    }
}

async fn target(client: &Client, address: &Address, named: &InCluster<'_>) -> Result<Target, ForwardError> {
    let InCluster { namespace, service: name, .. } = *named;
    let unreadable = |what: &str, error| ForwardError::Unreadable {
        host: address.host.clone(),
        what: format!("{what} in namespace '{namespace}'"),
        error: Box::new(error),
    };
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get_opt(name).await;
    let service = service.map_err(|error| unreadable(&format!("Service '{name}'"), error))?;
    let service = service.ok_or_else(|| ForwardError::NoService {
        host: address.host.clone(),
        service: name.to_owned(),
        namespace: namespace.to_owned(),
    })?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    let slices = slices.list(&of_service).await;
    let slices = slices.map_err(|error| unreadable(&format!("EndpointSlices of Service '{name}'"), error))?;
    choose(&service, &slices.items, address.port, named)
}

/// The first ready pod by name, and its port. Pure.
fn choose(
    service: &Service,
    slices: &[EndpointSlice],
    port: u16,
    named: &InCluster<'_>,
) -> Result<Target, ForwardError> {
    let (name, namespace) = (named.service.to_owned(), named.namespace.to_owned());
    let spec = service.spec.clone().unwrap_or_default();
    let declared = spec.ports.iter().flatten().find(|one| one.port == i32::from(port));
    // The name of a headless Service leads to its pods, whatever their ports are.
    let headless = spec.cluster_ip.as_deref() == Some("None");
    if declared.is_none() && !headless {
        return Err(ForwardError::NoPort { service: name, namespace, port });
    }
    let port_name = declared.map(|one| one.name.clone().unwrap_or_default());
    let mut found: Vec<Target> =
        slices.iter().flat_map(|slice| targets(slice, port, port_name.as_deref(), named)).collect();
    found.sort_by(|one, other| one.pod.cmp(&other.pod));
    found.into_iter().next().ok_or(ForwardError::NoPod { service: name, namespace, port })
}

/// The ready pods of one slice. `port_name` is that of the Service's port; `None` when the pod's port is `port` itself.
fn targets(slice: &EndpointSlice, port: u16, port_name: Option<&str>, named: &InCluster<'_>) -> Vec<Target> {
    let of_name = |wanted: &str| {
        let ports = slice.ports.iter().flatten();
        let mut fitting = ports.filter(|one| one.name.as_deref().unwrap_or_default() == wanted);
        fitting.next().and_then(|one| u16::try_from(one.port?).ok())
    };
    let Some(port) = port_name.map_or(Some(port), of_name) else { return Vec::new() };
    let endpoints = slice.endpoints.iter().flatten();
    let ready = endpoints
        .filter(|one| one.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true));
    let pods =
        ready.filter_map(|one| one.target_ref.as_ref()).filter(|one| one.kind.as_deref() == Some("Pod"));
    pods.filter_map(|pod| pod.name.clone())
        .filter(|pod| named.pod.is_none_or(|wanted| wanted == pod))
        .map(|pod| Target { namespace: named.namespace.to_owned(), pod, port })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chosen(service: &Value, slice: &Value, port: u16, pod: Option<&str>) -> Result<(String, u16), String> {
        let service: Service = serde_json::from_value(json!({"spec": service})).unwrap();
        let slice: EndpointSlice = serde_json::from_value(slice.clone()).unwrap();
        let named = InCluster { namespace: "messaging", service: "nats", pod };
        choose(&service, &[slice], port, &named)
            .map(|target| (target.pod, target.port))
            .map_err(|error| error.to_string())
    }

    fn endpoint(pod: &str, ready: bool) -> Value {
        json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": pod}})
    }

    #[test]
    fn the_first_ready_pod_is_chosen_with_the_port_that_the_service_leads_to() {
        let service = json!({"clusterIP": "10.1.1.1", "ports": [{"name": "client", "port": 4222}, {"name": "x", "port": 1}]});
        let slice = json!({
            "addressType": "IPv4", "ports": [{"name": "x", "port": 2}, {"name": "client", "port": 14222}],
            "endpoints": [endpoint("nats-2", true), endpoint("nats-0", false), endpoint("nats-1", true)],
        });
        assert_eq!(chosen(&service, &slice, 4222, None), Ok(("nats-1".into(), 14222)));
        let words = chosen(&service, &slice, 4223, None).unwrap_err();
        assert_eq!(words, "Service 'nats' in namespace 'messaging' has no port 4223");
        let words = chosen(&service, &slice, 4222, Some("nats-0")).unwrap_err();
        assert_eq!(words, "Service 'nats' in namespace 'messaging' has no ready pod to forward port 4222 to");
    }

    #[test]
    fn a_headless_service_leads_to_any_port_of_the_pod_that_is_named() {
        let service = json!({"clusterIP": "None"});
        let slice = json!({"addressType": "IPv4", "ports": [], "endpoints": [endpoint("nats-0", true), endpoint("nats-1", true)]});
        assert_eq!(chosen(&service, &slice, 4222, Some("nats-1")), Ok(("nats-1".into(), 4222)));
    }
}
