//! Addresses of NATS servers: what of them is a Service's name.

use std::{net::IpAddr, time::Duration};

use tokio::{net::lookup_host, time::timeout};

/// The port of NATS when an address has none.
const DEFAULT_PORT: u16 = 4222;
/// A resolver that does not answer knows the name as little as one that says so.
const PATIENCE: Duration = Duration::from_secs(5);

/// `nats://host:port`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// `nats` or `tls`.
    pub(super) scheme: &'static str,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

/// A name of the cluster's own DNS.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InCluster<'a> {
    pub(super) namespace: &'a str,
    pub(super) service: &'a str,
    /// One pod of a headless Service.
    pub(super) pod: Option<&'a str>,
}

impl Address {
    /// `None` when it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = [("nats", "nats://"), ("tls", "tls://")]
            .into_iter()
            .find_map(|(scheme, prefix)| Some((scheme, text.strip_prefix(prefix)?)))?;
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':').or((rest.is_empty()).then_some(""))?),
            None => rest.split_once(':').unwrap_or((rest, "")),
        };
        let port = if port.is_empty() { DEFAULT_PORT } else { port.parse().ok()? };
        let right = !host.is_empty() && port > 0 && !host.contains(['/', '@', '[', ']']);
        right.then(|| Self { scheme, host: host.to_owned(), port })
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }

    /// Whether this machine knows the host.
    pub(super) async fn resolves(&self) -> bool {
        let found = timeout(PATIENCE, lookup_host((self.host.as_str(), self.port))).await;
        found.is_ok_and(|found| found.is_ok_and(|mut found| found.next().is_some()))
    }

    /// What the host is to a pod in a namespace, if it has the form of a Service's name.
    pub(super) fn in_cluster<'a>(&'a self, from: &'a str) -> Option<InCluster<'a>> {
        if self.host.parse::<IpAddr>().is_ok() {
            return None;
        }
        let labels: Vec<&str> = self.host.trim_end_matches('.').split('.').collect();
        let before = labels.iter().position(|label| *label == "svc").unwrap_or(labels.len());
        let of = |service, namespace, pod| Some(InCluster { namespace, service, pod });
        match labels[..before] {
            [service] if before == labels.len() => of(service, from, None),
            [service, namespace] => of(service, namespace, None),
            [pod, service, namespace] if before < labels.len() => of(service, namespace, Some(pod)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        Address::parse(text).unwrap_or_else(|| panic!("{text} is an address"))
    }

    #[test]
    fn addresses_are_taken_apart_and_others_are_refused() {
        let address = |scheme, host: &str, port| Address { scheme, host: host.to_owned(), port };
        assert_eq!(parse("nats://nats.messaging:14222"), address("nats", "nats.messaging", 14222));
        assert_eq!(parse("tls://[::1]"), address("tls", "::1", 4222));
        assert_eq!(parse("nats://10.0.0.1:4222/"), address("nats", "10.0.0.1", 4222));
        for bad in [
            "nats:4222",
            "http://nats",
            "nats://",
            "nats://n:0",
            "nats://n:x",
            "nats://me:pw@n:1",
            "nats://[::1",
        ] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
        assert!(parse("nats://localhost").is_loopback() && parse("nats://[::1]:1").is_loopback());
        assert!(!parse("nats://10.0.0.1").is_loopback());
    }

    #[test]
    fn names_of_services_are_told_from_others() {
        let service = |namespace, service, pod| Some(InCluster { namespace, service, pod });
        for (host, found) in [
            ("nats", service("shop", "nats", None)),
            ("nats.messaging", service("messaging", "nats", None)),
            ("nats.messaging.svc", service("messaging", "nats", None)),
            ("nats.messaging.svc.cluster.local.", service("messaging", "nats", None)),
            ("nats-0.nats.messaging.svc.example", service("messaging", "nats", Some("nats-0"))),
            ("nats.example.com", None),
            ("10.0.0.1", None),
            ("::1", None),
            ("svc", None),
        ] {
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            assert_eq!(parse(&format!("nats://{host}:4222")).in_cluster("shop"), found, "{host}");
        }
    }
}
