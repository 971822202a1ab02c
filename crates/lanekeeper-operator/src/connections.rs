//! Connections to NATS, one for each set of servers, domain and credentials; never shared between different ones.
//!
//! The key is the content itself, so that a rotated Secret is another connection and two accounts can never meet in
//! one. A connection that no set used for a while is closed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use lanekeeper_api::validate::NatsAccess;
use lanekeeper_nats::{ConnectError, ConnectSettings, Connection, Files};

use crate::secrets::Secrets;

/// The name that servers show.
const NAME: &str = "lanekeeper-operator";

/// What makes a connection different from another.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    servers: Vec<String>,
    domain: Option<String>,
    credentials: Vec<(String, Vec<u8>)>,
    tls: Vec<(String, Vec<u8>)>,
}

struct Cached {
    connection: Connection,
    used: Instant,
}

/// All connections.
pub struct Connections {
    request_timeout: Duration,
    unused: Duration,
    cached: Mutex<HashMap<Arc<Key>, Cached>>,
    last: Mutex<HashMap<String, Connection>>,
}

impl Connections {
    /// None yet. A connection is closed when it was not asked for within `unused`.
    pub fn new(request_timeout: Duration, unused: Duration) -> Self {
        Self { request_timeout, unused, cached: Mutex::default(), last: Mutex::default() }
    }

    /// The connection for these servers and Secrets of one set; connects when there is none.
    pub async fn get(
        &self,
        uid: &str,
        nats: &NatsAccess,
        secrets: &Secrets,
    ) -> Result<Connection, ConnectError> {
        let connection = self.shared(nats, secrets).await?;
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), connection.clone());
        Ok(connection)
    }

    /// The last connection of a set: when a whole namespace goes, its Secret may go first.
    pub fn last(&self, uid: &str) -> Option<Connection> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    /// A set is gone.
    pub fn forget(&self, uid: &str) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    async fn shared(&self, nats: &NatsAccess, secrets: &Secrets) -> Result<Connection, ConnectError> {
        let key = Arc::new(Key {
            servers: nats.servers.clone(),
            domain: nats.domain.clone(),
            credentials: content(&secrets.credentials),
            tls: content(&secrets.tls),
        });
        if let Some(connection) = self.cached(&key) {
            return Ok(connection);
        }
        let settings = ConnectSettings {
            credentials: secrets.credentials.clone(),
            tls: secrets.tls.clone(),
            domain: nats.domain.clone(),
            request_timeout: self.request_timeout,
            ..ConnectSettings::new(nats.servers.clone(), NAME)
        };
        let made = Connection::connect(settings).await?;
        // Two passes may have connected at once; the first one's connection is kept for all.
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = cached.entry(key).or_insert(Cached { connection: made, used: Instant::now() });
        Ok(entry.connection.clone())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn cached(&self, key: &Key) -> Option<Connection> {
        let now = Instant::now();
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cached.get_mut(key).map(|one| {
            one.used = now;
            one.connection.clone()
        });
        cached.retain(|_, one| now.saturating_duration_since(one.used) < self.unused);
        found
    }
}

fn content(files: &Files) -> Vec<(String, Vec<u8>)> {
    match files {
        Files::Memory(files) => files.iter().map(|(name, content)| (name.clone(), content.clone())).collect(),
        Files::None | Files::Folder(_) => Vec::new(),
    }
}
