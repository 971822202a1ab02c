//! One connection to NATS: kept up for ever, with credentials read again at each connect.
//!
//! It knows whether it is up and what the server complained of, so that every error can say why there was no answer.
//! It must not know streams or lanes.

mod auth;
mod monitor;
mod request;
mod tls;

use std::{io, sync::Arc, time::Duration};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr, jetstream};
use tokio::sync::{broadcast, watch};

use crate::{cause::Cause, files::Files};
pub use monitor::{ConnectionEvent, Health, Violation};
pub(crate) use request::RequestError;

/// How long one request may take, unless settings say otherwise.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Names of the files that are read from the folders of credentials and TLS.
pub mod file_names {
    pub use super::{
        auth::{CREDENTIALS, NKEY, PASSWORD, TOKEN, USER},
        tls::{AUTHORITIES, CERTIFICATE, KEY},
    };
}

/// Where and as whom to connect.
#[derive(Debug, Clone)]
pub struct ConnectSettings {
    /// `nats://host:port` or `tls://host:port`, servers of one cluster.
    pub servers: Vec<String>,
    /// `user.creds`, or `nkey`, or `token`, or `user` and `password`.
    pub credentials: Files,
    /// `ca.crt`, and `tls.crt` with `tls.key`.
    pub tls: Files,
    /// The `JetStream` domain; `None` is that of the servers.
    pub domain: Option<String>,
    /// The connection's name, as servers show it.
    pub name: String,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// The host that the one server stands for, when its address is that of a forwarded port: certificates must be for
    /// this name, and addresses that servers tell of each other are not used, because they cannot be reached from here.
    pub stands_for: Option<String>,
}

impl ConnectSettings {
    /// Servers without credentials, TLS or domain.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, name: impl Into<String>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            credentials: Files::None,
            tls: Files::None,
            domain: None,
            name: name.into(),
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
            stands_for: None,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A server's address makes no sense.
    #[error("'{server}' is no address of a NATS server: it must be nats://host:port or tls://host:port")]
    Address {
        /// As given.
        server: String,
    },
    /// Credentials or certificates cannot be used.
    #[error("credentials cannot be used: {0}")]
    Credentials(#[source] io::Error),
    /// TLS files cannot be used.
    #[error("TLS files cannot be used: {0}")]
    Tls(#[source] io::Error),
    /// No server accepted us.
    #[error("cannot connect to {servers}: {error}")]
    Refused {
        /// All that were tried.
        servers: String,
        /// The last failure.
        #[source]
        error: async_nats::ConnectError,
    },
}

impl ConnectError {
    /// The cause, of the closed list.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Address { .. } => Cause::NatsUnreachable,
            Self::Credentials(_) | Self::Tls(_) => Cause::CredentialsInvalid,
            Self::Refused { error, .. } => match error.kind() {
                ConnectErrorKind::AuthorizationViolation => Cause::AuthorizationFailed,
                ConnectErrorKind::Authentication => Cause::CredentialsInvalid,
                ConnectErrorKind::ServerParse
                | ConnectErrorKind::Dns
                | ConnectErrorKind::TimedOut
                | ConnectErrorKind::Tls
                | ConnectErrorKind::Io
                | ConnectErrorKind::MaxReconnects => Cause::NatsUnreachable,
            },
        }
    }
}

/// A connection; clones share it.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    context: jetstream::Context,
    monitor: Arc<monitor::Monitor>,
    servers: Arc<str>,
    domain: Option<Arc<str>>,
    request_timeout: Duration,
}

impl Connection {
    /// Connects, or says why not. Once connected it reconnects for ever.
    pub async fn connect(settings: ConnectSettings) -> Result<Self, ConnectError> {
        Self::with(settings, |options| options).await
    }

    /// Connects in the background, for ever: only settings that can never work fail here.
    pub async fn start(settings: ConnectSettings) -> Result<Self, ConnectError> {
        Self::with(settings, ConnectOptions::retry_on_initial_connect).await
    }

    async fn with(
        settings: ConnectSettings,
        adjust: impl FnOnce(ConnectOptions) -> ConnectOptions,
    ) -> Result<Self, ConnectError> {
        let addresses = addresses(&settings.servers)?;
        if matches!(settings.credentials, Files::Memory(_)) {
            // What is in memory does not get better by itself; a folder may.
            auth::check(&settings.credentials).map_err(ConnectError::Credentials)?;
        }
        let monitor = Arc::new(monitor::Monitor::new());
        let mut options =
            tls::apply(options(&settings, &monitor), &settings.tls, settings.stands_for.as_deref())
                .map_err(ConnectError::Tls)?;
        if settings.stands_for.is_some() {
            options = options.ignore_discovered_servers();
        }
        let servers: Arc<str> = settings.servers.join(", ").into();
        let client = adjust(options)
            .connect(addresses)
            .await
            .map_err(|error| ConnectError::Refused { servers: servers.to_string(), error })?;
        let context = match &settings.domain {
            Some(domain) => jetstream::with_domain(client.clone(), domain),
            None => jetstream::new(client.clone()),
        };
        let domain = settings.domain.map(Arc::from);
        Ok(Self { client, context, monitor, servers, domain, request_timeout: settings.request_timeout })
    }

    /// Whether the other is a clone of this one.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.monitor, &other.monitor)
    }

    /// The client itself.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The client's `JetStream` context, in the right domain.
    pub fn context(&self) -> &jetstream::Context {
        &self.context
    }

    /// Subject prefix of the `JetStream` API: `$JS.API`, or `$JS.<domain>.API`.
    pub fn api_prefix(&self) -> String {
        self.domain.as_ref().map_or_else(|| "$JS.API".into(), |domain| format!("$JS.{domain}.API"))
    }

    /// The `JetStream` domain, when one was given.
    pub fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    /// The servers, as given.
    pub fn servers(&self) -> &str {
        &self.servers
    }

    /// What is known of the connection now.
    pub fn health(&self) -> Health {
        self.monitor.health().borrow().clone()
    }

    /// Changes of what is known.
    pub fn watch_health(&self) -> watch::Receiver<Health> {
        self.monitor.health()
    }

    /// What happens from now on. A receiver that falls behind loses the oldest events.
    pub fn events(&self) -> broadcast::Receiver<ConnectionEvent> {
        self.monitor.events()
    }

    /// How long one request may take.
    pub fn request_timeout(&self) -> Duration {
        self.request_timeout
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("servers", &self.servers)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

fn addresses(servers: &[String]) -> Result<Vec<ServerAddr>, ConnectError> {
    let parse =
        |server: &String| server.parse().map_err(|_| ConnectError::Address { server: server.clone() });
    let addresses: Vec<ServerAddr> = servers.iter().map(parse).collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Err(ConnectError::Address { server: String::new() });
    }
    Ok(addresses)
}

fn options(settings: &ConnectSettings, monitor: &Arc<monitor::Monitor>) -> ConnectOptions {
    let credentials = settings.credentials.clone();
    let options = match credentials {
        Files::None => ConnectOptions::new(),
        credentials => ConnectOptions::with_auth_callback(move |nonce| {
            let auth = auth::authenticate(&credentials, &nonce);
            async move { auth }
        }),
    };
    let (events, attempts, delays) = (Arc::clone(monitor), Arc::clone(monitor), Arc::clone(monitor));
    options
        .name(&settings.name)
        .request_timeout(Some(settings.request_timeout))
        // A half-open connection is noticed within two of these.
        .ping_interval(Duration::from_secs(10))
        .event_callback(move |event| {
            events.on_event(&event);
            async {}
        })
        .reconnect_to_server_callback(move |servers, _| {
            attempts.on_attempt(&servers);
            // No choice of our own: this callback is the only place that shows why attempts failed.
            async { None }
        })
        .reconnect_delay_callback(move |attempt| delays.delay(attempt))
}
