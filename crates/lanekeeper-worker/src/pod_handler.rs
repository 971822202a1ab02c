//! The handler that a pod's environment names.

use crate::{
    environment::HandlerVariable,
    exec::{ExecHandler, ExecHandlerError},
    handler::{BatchHandler, Handler, HandlerError},
    http::{HttpHandler, HttpHandlerError},
    message::Message,
};

/// Why there is no handler in the environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodHandlerError {
    /// None is given.
    #[error(
        "neither LANEKEEPER_HANDLER_URL nor LANEKEEPER_HANDLER_EXEC is set: one must be, http://host:port/path or a JSON list of a program and its arguments"
    )]
    Missing,
    /// The address is not usable.
    #[error("LANEKEEPER_HANDLER_URL: {0}")]
    Url(#[source] HttpHandlerError),
    /// The command is not usable.
    #[error("LANEKEEPER_HANDLER_EXEC: {0}")]
    Command(#[source] ExecHandlerError),
}

/// A handler beside the lane, or below it.
#[derive(Debug, Clone)]
pub enum PodHandler {
    /// Behind HTTP.
    Http(Box<HttpHandler>),
    /// A child process.
    Exec(ExecHandler),
}

impl PodHandler {
    pub(crate) fn new(given: Option<&HandlerVariable>) -> Result<Self, PodHandlerError> {
        match given {
            None => Err(PodHandlerError::Missing),
            Some(HandlerVariable::Url(url)) => {
                HttpHandler::new(url).map(|http| Self::Http(Box::new(http))).map_err(PodHandlerError::Url)
            }
            Some(HandlerVariable::Exec(command)) => {
                ExecHandler::start(command).map(Self::Exec).map_err(PodHandlerError::Command)
            }
        }
    }
}

impl Handler for PodHandler {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        match self {
            Self::Http(http) => http.handle(message).await,
            Self::Exec(exec) => exec.handle(message).await,
        }
    }

    async fn reachable(&self) -> Result<(), String> {
        match self {
            Self::Http(http) => http.reachable().await,
            Self::Exec(exec) => exec.reachable().await,
        }
    }

    async fn close(&self) {
        match self {
            Self::Http(http) => http.close().await,
            Self::Exec(exec) => exec.close().await,
        }
    }
}

impl BatchHandler for PodHandler {
    async fn handle_batch(&self, messages: &[Message]) -> Result<(), HandlerError> {
        match self {
            Self::Http(http) => http.handle_batch(messages).await,
            Self::Exec(exec) => exec.handle_batch(messages).await,
        }
    }
}
