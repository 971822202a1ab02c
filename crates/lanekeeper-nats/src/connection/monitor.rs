//! What the server and the client say outside of answers.
//!
//! A permission violation never comes as the answer to the request that it is about: it arrives as an error of the
//! connection, while the request just gets no answer. So it is kept here, and put into the error.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_nats::{Event, Server, ServerError};
use tokio::sync::{broadcast, watch};

use crate::cause::Cause;

/// What is known of a connection now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether it is up.
    pub connected: bool,
    /// How often it came up.
    pub connects: u64,
    /// Why it is not up, or what the server complained of last; cleared when it comes up.
    pub last_error: Option<String>,
    /// The server's last word on permissions, since the connection came up.
    pub last_violation: Option<String>,
}

impl Health {
    /// The cause while it is not connected.
    pub fn cause(&self) -> Cause {
        let text = self.last_error.as_deref().unwrap_or_default().to_lowercase();
        if text.contains("autherror") || text.contains("signing nonce") {
            Cause::CredentialsInvalid
        } else if text.contains("authorization") || text.contains("authentication") {
            Cause::AuthorizationFailed
        } else {
            Cause::NatsUnreachable
        }
    }
}

/// Something happened to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// It is up (again): subscriptions are restored, what was missed meanwhile is not.
    Connected,
    /// It went down.
    Disconnected,
    /// The server denied something.
    Violation(Violation),
}

/// The server denied a publish or a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What it was about.
    pub subject: String,
    /// Whether it was a subscription.
    pub subscription: bool,
    /// The server's words.
    pub text: String,
}

impl Violation {
    /// Reads `Permissions Violation for Publish to "subject"` and its like.
    fn parse(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        if !lower.contains("permissions violation") {
            return None;
        }
        let subject = text.split('"').nth(1)?.to_owned();
        Some(Self { subject, subscription: lower.contains("subscription"), text: text.to_owned() })
    }
}

pub(crate) struct Monitor {
    health: watch::Sender<Health>,
    events: broadcast::Sender<ConnectionEvent>,
    last_connect: Mutex<Option<Instant>>,
}

impl Monitor {
    pub(super) fn new() -> Self {
        Self {
            health: watch::Sender::new(Health::default()),
            events: broadcast::Sender::new(64),
            last_connect: Mutex::new(None),
        }
    }

    pub(super) fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    pub(super) fn events(&self) -> broadcast::Receiver<ConnectionEvent> {
        self.events.subscribe()
    }

    /// Every event of the client passes here, in order.
    pub(super) fn on_event(&self, event: &Event) {
        match event {
            Event::Connected => {
                *self.last_connect.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                self.health.send_modify(|health| {
                    let connects = health.connects + 1;
                    *health = Health { connected: true, connects, ..Health::default() };
                });
                self.tell(ConnectionEvent::Connected);
            }
            Event::Disconnected | Event::Closed => {
                self.health.send_modify(|health| health.connected = false);
                self.tell(ConnectionEvent::Disconnected);
            }
            Event::ServerError(error) => self.on_server_error(error),
            Event::ClientError(error) => self.health.send_modify(|health| {
                // The snapshot of the servers has more to say; this is for the first round.
                health.last_error.get_or_insert_with(|| error.to_string());
            }),
            Event::LameDuckMode | Event::Draining | Event::SlowConsumer(_) => {}
        }
    }

    fn on_server_error(&self, error: &ServerError) {
        let text = match error {
            ServerError::Other(text) => text.clone(),
            other => other.to_string(),
        };
        if let Some(violation) = Violation::parse(&text) {
            self.health.send_modify(|health| health.last_violation = Some(text));
            self.tell(ConnectionEvent::Violation(violation));
        } else {
            self.health.send_modify(|health| health.last_error = Some(text));
        }
    }

    /// Before each round of attempts the client shows its servers, with what came of the last attempt at each.
    pub(super) fn on_attempt(&self, servers: &[Server]) {
        let errors: Vec<String> = servers
            .iter()
            .filter_map(|server| Some(format!("{server}: {}", server.last_error.as_ref()?)))
            .collect();
        if !errors.is_empty() {
            self.health.send_modify(|health| health.last_error = Some(errors.join("; ")));
        }
    }

    /// How long to wait before an attempt. The first is immediate, except when the connection was lost right after
    /// it was made: a server that accepts and drops us would otherwise be asked thousands of times a second.
    pub(super) fn delay(&self, attempts: usize) -> Duration {
        let since = self.last_connect.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed());
        let floor = if since.is_some_and(|since| since < Duration::from_secs(1)) { 250 } else { 0 };
        let doubled = 1_u64 << attempts.saturating_sub(1).min(12);
        let grown = if attempts <= 1 { 0 } else { 10 * doubled };
        Duration::from_millis(grown.clamp(floor, 4000))
    }

    fn tell(&self, event: ConnectionEvent) {
        // Nobody listening is fine.
        let _ = self.events.send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_violation_is_read() {
        let text = r#"Permissions Violation for Publish to "$JS.API.INFO""#;
        let violation = Violation::parse(text).unwrap();
        assert_eq!((violation.subject.as_str(), violation.subscription), ("$JS.API.INFO", false));
        let text = r#"Permissions Violation for Subscription to "_INBOX.x.*" using queue "q""#;
        let violation = Violation::parse(text).unwrap();
        assert_eq!((violation.subject.as_str(), violation.subscription), ("_INBOX.x.*", true));
        assert_eq!(Violation::parse("Maximum Connections Exceeded"), None);
    }

    #[test]
    fn coming_up_clears_what_was_wrong_and_counts() {
        let monitor = Monitor::new();
        let violation = ServerError::Other(r#"Permissions Violation for Publish to "x""#.into());
        monitor.on_event(&Event::ServerError(violation));
        monitor.on_event(&Event::ServerError(ServerError::AuthorizationViolation));
        monitor.on_event(&Event::Disconnected);
        let health = monitor.health().borrow().clone();
        assert!(health.last_violation.is_some() && !health.connected);
        assert_eq!(health.cause(), Cause::AuthorizationFailed);
        monitor.on_event(&Event::Connected);
        assert_eq!(*monitor.health().borrow(), Health { connected: true, connects: 1, ..Health::default() });
    }

    #[test]
    fn delays_grow_to_four_seconds_and_a_connection_lost_at_once_is_no_hot_loop() {
        let monitor = Monitor::new();
        assert_eq!(monitor.delay(1), Duration::ZERO);
        assert!(monitor.delay(3) < monitor.delay(6));
        assert_eq!(monitor.delay(500), Duration::from_secs(4));
        monitor.on_event(&Event::Connected);
        assert_eq!(monitor.delay(1), Duration::from_millis(250));
    }
}
