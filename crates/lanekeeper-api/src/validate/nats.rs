//! How to reach NATS.

use crate::{
    invalid::{Findings, Invalid},
    spec::{Nats, SecretKeyRef, Tls},
};

const SERVERS: &str = "spec.nats.servers";

/// How to reach NATS, checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NatsAccess {
    /// `nats://` or `tls://` addresses without user or password, at least one.
    pub servers: Vec<String>,
    /// The operator's credentials file.
    pub credentials: Option<SecretKeyRef>,
    /// The workers' credentials file: their own, else the operator's.
    pub worker_credentials: Option<SecretKeyRef>,
    /// TLS is required when given.
    pub tls: Option<Tls>,
    /// The JetStream domain.
    pub domain: Option<String>,
}

pub(super) fn check(nats: &Nats, findings: &mut Findings) -> NatsAccess {
    if nats.servers.is_empty() || nats.servers.len() > 32 {
        findings.add(Invalid::value(SERVERS, format!("{} entries", nats.servers.len()), "must have 1 to 32"));
    }
    for server in &nats.servers {
        findings.bound_text(SERVERS, server, 512);
        if server.contains('@') {
            // Not quoted: it may hold a password.
            let allowed = "must not hold a user or password; use spec.nats.credentialsSecretRef";
            findings.add(Invalid::value(SERVERS, "an address with '@'", allowed));
        } else {
            let allowed = "must be nats://host:port or tls://host:port, with a port from 1 to 65535";
            findings.require_text(is_server(server), SERVERS, server, allowed);
        }
    }
    for (field, secret) in [
        ("spec.nats.credentialsSecretRef", &nats.credentials_secret_ref),
        ("spec.nats.workerCredentialsSecretRef", &nats.worker_credentials_secret_ref),
    ] {
        if let Some(secret) = secret {
            check_secret(field, secret, findings);
        }
    }
    if let Some(tls) = &nats.tls {
        check_tls(tls, findings);
    }
    if let Some(domain) = &nats.jet_stream_domain {
        let right = (1..=255).contains(&domain.chars().count())
            && !domain.contains(|c: char| c.is_whitespace() || ".*>".contains(c));
        let allowed = "must be one token of 1 to 255 characters, without white space, '.', '*' or '>'";
        findings.require_text(right, "spec.nats.jetStreamDomain", domain, allowed);
    }
    let worker = nats.worker_credentials_secret_ref.as_ref().or(nats.credentials_secret_ref.as_ref());
    NatsAccess {
        servers: nats.servers.clone(),
        credentials: nats.credentials_secret_ref.clone(),
        worker_credentials: worker.cloned(),
        tls: nats.tls.clone(),
        domain: nats.jet_stream_domain.clone(),
    }
}

fn check_secret(field: &str, secret: &SecretKeyRef, findings: &mut Findings) {
    check_secret_name(&format!("{field}.name"), &secret.name, findings);
    let key_is_right = (1..=253).contains(&secret.key.len())
        && secret.key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let allowed = "must be a key of a Secret: 1 to 253 letters, digits, '-', '_' and '.'";
    findings.require_text(key_is_right, &format!("{field}.key"), &secret.key, allowed);
}

fn check_secret_name(field: &str, name: &str, findings: &mut Findings) {
    let right = name.len() <= 253 && name.split('.').all(super::is_label);
    findings.require_text(right, field, name, "must be the name of a Secret in the set's own namespace");
}

fn check_tls(tls: &Tls, findings: &mut Findings) {
    if tls.ca_secret_ref.is_none() && tls.client_secret_ref.is_none() {
        let allowed = "must have caSecretRef or clientSecretRef; for TLS with well-known authorities use tls:// in spec.nats.servers";
        findings.add(Invalid::value("spec.nats.tls", "empty", allowed));
    }
    if let Some(secret) = &tls.ca_secret_ref {
        check_secret("spec.nats.tls.caSecretRef", secret, findings);
    }
    if let Some(secret) = &tls.client_secret_ref {
        check_secret_name("spec.nats.tls.clientSecretRef.name", &secret.name, findings);
    }
}

/// Whether a text is `nats://` or `tls://`, a host and perhaps a port, and nothing else.
fn is_server(text: &str) -> bool {
    let Some(address) = text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://")) else {
        return false;
    };
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => return false,
        },
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let host_is_right =
        !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/?#[]".contains(c));
    host_is_right && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_other_texts() {
        for good in [
            "nats://nats:4222",
            "tls://nats.messaging.svc",
            "nats://127.0.0.1:1",
            "nats://[::1]:4222",
            "nats://[::1]",
        ] {
            assert!(is_server(good), "{good}");
        }
        for bad in [
            "nats",
            "nats:4222",
            "http://nats:4222",
            "nats://",
            "nats://:4222",
            "nats://n:0",
            "nats://n:65536",
            "nats://n:4222/x",
            "nats://[::1",
            "nats://a b",
        ] {
            assert!(!is_server(bad), "{bad}");
        }
    }

    #[test]
    fn a_password_is_never_quoted_back() {
        let mut findings = Findings::default();
        let nats = Nats {
            servers: vec!["nats://me:secret@nats:4222".into()],
            credentials_secret_ref: None,
            worker_credentials_secret_ref: None,
            tls: None,
            jet_stream_domain: None,
        };
        check(&nats, &mut findings);
        let errors = findings.finish(Some(())).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert!(!errors[0].to_string().contains("secret@"), "{}", errors[0]);
    }
}
