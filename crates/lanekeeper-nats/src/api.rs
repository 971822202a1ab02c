//! Requests to the `JetStream` API, raw: what we do not know of a configuration is not lost on the way.
//!
//! Each error keeps the server's code and words. A missing answer has many reasons (`JetStream` off, the account
//! without it, a wrong domain, no permission, an old server), and the client cannot tell them apart: the error says
//! what is known and claims no more.

mod codes;

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    cause::Cause,
    connection::{Connection, RequestError},
};
pub use codes::Code;

/// The server's refusal of one request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Refusal {
    /// As in HTTP.
    pub code: u64,
    /// The server's own code.
    #[serde(default)]
    pub err_code: u64,
    /// Its words.
    #[serde(default)]
    pub description: Box<str>,
}

/// Why a request to the `JetStream` API failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// Not sent.
    #[error("not connected to {servers}: {why}")]
    NotConnected {
        /// As given in settings.
        servers: Box<str>,
        /// The last failure.
        why: Box<str>,
        /// Its cause.
        cause: Cause,
    },
    /// The server denied the request to this user.
    #[error("{operation} was denied: {violation}")]
    Denied {
        /// The API's operation or the subject.
        operation: Box<str>,
        /// The server's words, with the subject.
        violation: Box<str>,
    },
    /// Nobody serves the subject: nothing was done.
    #[error(
        "no answer from the JetStream API of {scope} to {operation}: nobody serves {prefix} there. JetStream may be off, the account may have none, or the domain be another{violation}"
    )]
    NoResponders {
        /// The API's operation.
        operation: Box<str>,
        /// Account or domain, and servers.
        scope: Box<str>,
        /// Subject prefix.
        prefix: Box<str>,
        /// The last violation of permissions, if there was one.
        violation: Box<str>,
    },
    /// No answer in time: it may have been carried out.
    #[error("no answer from the JetStream API of {scope} to {operation} within {timeout}{violation}")]
    NoAnswer {
        /// The API's operation.
        operation: Box<str>,
        /// Account or domain, and servers.
        scope: Box<str>,
        /// How long was waited.
        timeout: Box<str>,
        /// The last violation of permissions, if there was one.
        violation: Box<str>,
    },
    /// The server refused.
    #[error("{operation} was refused: {} (error code {})", refusal.description, refusal.err_code)]
    Refused {
        /// The API's operation.
        operation: Box<str>,
        /// What the server said.
        refusal: Refusal,
    },
    /// The answer cannot be read.
    #[error("the answer to {operation} cannot be read: {error}")]
    Unreadable {
        /// The API's operation.
        operation: Box<str>,
        /// What is wrong with it.
        error: Box<str>,
    },
    /// The answer lacks parts, because not all servers answered.
    #[error("the answer to {operation} is incomplete: {missing} did not answer")]
    Incomplete {
        /// The API's operation.
        operation: Box<str>,
        /// What lacks.
        missing: Box<str>,
    },
    /// The client could not send it.
    #[error("{operation} could not be sent: {error}")]
    Client {
        /// The API's operation.
        operation: Box<str>,
        /// The client's words.
        error: Box<str>,
    },
}

impl ApiError {
    /// The server's own code, when it refused.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { refusal, .. } => Code::of(refusal.err_code),
            _ => None,
        }
    }

    /// Whether the request may have been carried out although it failed here.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::NoAnswer { .. } | Self::Unreadable { .. } => true,
            Self::NotConnected { .. }
            | Self::Denied { .. }
            | Self::NoResponders { .. }
            | Self::Refused { .. }
            | Self::Incomplete { .. }
            | Self::Client { .. } => false,
        }
    }

    /// The cause, of the closed list.
    pub fn cause(&self) -> Cause {
        match self {
            Self::NotConnected { cause, .. } => *cause,
            Self::Denied { .. } => Cause::PermissionDenied,
            Self::NoResponders { .. } | Self::NoAnswer { .. } => Cause::JetStreamUnavailable,
            Self::Refused { refusal, .. } => {
                Code::of(refusal.err_code).map_or(Cause::NatsRefused, Code::cause)
            }
            Self::Unreadable { .. } | Self::Client { .. } => Cause::InternalError,
            Self::Incomplete { .. } => Cause::InsufficientResources,
        }
    }

    /// The word for the cause.
    pub fn reason(&self) -> &'static str {
        self.cause().reason()
    }
}

#[derive(Deserialize)]
struct Answer {
    error: Option<Refusal>,
}

impl Connection {
    /// One request to the API, for example `STREAM.INFO.ORDERS`. `Value::Null` as body sends none.
    pub async fn api<T: DeserializeOwned>(
        &self,
        operation: &str,
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        let unreadable = |error: serde_json::Error| ApiError::Unreadable {
            operation: operation.into(),
            error: error.to_string().into(),
        };
        let body = serde_json::to_value(body).map_err(unreadable)?;
        let payload = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let subject = format!("{}.{operation}", self.api_prefix());
        let message =
            self.request(&subject, None, payload).await.map_err(|error| self.explain(operation, error))?;
        read_answer(operation, &message.payload)
    }

    /// Puts what is known into the words of an error.
    pub(crate) fn explain(&self, operation: &str, error: RequestError) -> ApiError {
        let operation: Box<str> = operation.into();
        let scope: Box<str> = match self.domain() {
            Some(domain) => format!("domain '{domain}' at {}", self.servers()).into(),
            None => format!("this account at {}", self.servers()).into(),
        };
        let violation = || -> Box<str> {
            let last = self.health().last_violation;
            last.map(|text| format!("; the server's last word on permissions was: {text}"))
                .unwrap_or_default()
                .into()
        };
        match error {
            RequestError::NotConnected { servers, why, cause } => {
                ApiError::NotConnected { servers: servers.into(), why: why.into(), cause }
            }
            RequestError::Denied(denied) => ApiError::Denied { operation, violation: denied.text.into() },
            RequestError::NoResponders => ApiError::NoResponders {
                operation,
                scope,
                prefix: self.api_prefix().into(),
                violation: violation(),
            },
            RequestError::TimedOut(timeout) => ApiError::NoAnswer {
                operation,
                scope,
                timeout: format!("{timeout:?}").into(),
                violation: violation(),
            },
            RequestError::Client(error) => ApiError::Client { operation, error: error.into() },
        }
    }
}

/// Reads an answer: a refusal, or what was asked for.
pub(crate) fn read_answer<T: DeserializeOwned>(operation: &str, payload: &[u8]) -> Result<T, ApiError> {
    let unreadable = |error: serde_json::Error| ApiError::Unreadable {
        operation: operation.into(),
        error: error.to_string().into(),
    };
    let value: Value = serde_json::from_slice(payload).map_err(unreadable)?;
    if let Some(refusal) = Answer::deserialize(&value).map_err(unreadable)?.error {
        return Err(ApiError::Refused { operation: operation.into(), refusal });
    }
    T::deserialize(value).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_code_and_words() {
        let payload = br#"{"type":"io.nats.jetstream.api.v1.stream_create_response",
            "error":{"code":400,"err_code":10065,"description":"subjects overlap with an existing stream"}}"#;
        let error = read_answer::<Value>("STREAM.CREATE.X", payload).unwrap_err();
        assert_eq!(error.cause(), Cause::SubjectsOverlap);
        assert_eq!(error.code(), Some(Code::SubjectsOverlap));
        assert_eq!(
            error.to_string(),
            "STREAM.CREATE.X was refused: subjects overlap with an existing stream (error code 10065)"
        );
        assert!(!error.is_outcome_unknown());
    }

    #[test]
    fn a_code_that_nobody_knows_is_still_said() {
        let payload = br#"{"error":{"code":500,"err_code":99999,"description":"new in 2.99"}}"#;
        let error = read_answer::<Value>("X", payload).unwrap_err();
        assert_eq!((error.cause(), error.code()), (Cause::NatsRefused, None));
        assert!(error.to_string().contains("99999"));
    }
}
