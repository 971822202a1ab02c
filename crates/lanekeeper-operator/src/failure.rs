//! Why a pass over a set did not come to its end: what every step's error becomes for status, Events and metrics.

use lanekeeper_api::reason::Reason;

use crate::retries::Pace;

/// Which part of a set a failure is about; decides which condition says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The specification: nothing was tried.
    Spec,
    /// The way to NATS: nothing is known.
    Nats,
    /// The stream.
    Stream,
    /// Bucket, record, consumers.
    Lanes,
    /// Deployments and disruption budgets.
    Workers,
}

/// A pass that ended early, or a part of it that did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What it is about.
    pub about: About,
    /// In one word.
    pub reason: Reason,
    /// For people; the same failure has the same words each time.
    pub message: String,
}

impl Failure {
    /// A failure.
    pub fn new(about: About, reason: Reason, message: impl Into<String>) -> Self {
        Self { about, reason, message: message.into() }
    }

    /// How soon to try again; `None` waits for the set to change.
    pub fn pace(&self) -> Option<Pace> {
        match self.reason {
            Reason::InvalidSpec => None,
            Reason::NatsUnreachable
            | Reason::JetStreamUnavailable
            | Reason::KubernetesApiError
            | Reason::InternalError
            | Reason::WaitingForNats
            | Reason::Progressing => Some(Pace::Transient),
            _ => Some(Pace::Slow),
        }
    }

    /// A request that the API server refused, or that did not reach it.
    pub fn kubernetes(about: About, what: &str, error: &kube::Error) -> Self {
        Self::new(about, Reason::KubernetesApiError, format!("{what}: {}", words(error)))
    }
}

/// The API server's own words, without the debug print of the whole answer.
pub fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => {
            // The outer error says little; the innermost one says that a connection was refused.
            let mut deepest: &dyn std::error::Error = other;
            while let Some(source) = deepest.source() {
                deepest = source;
            }
            deepest.to_string()
        }
    }
}
