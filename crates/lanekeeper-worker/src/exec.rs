//! A handler that is a program: a child process that is started once and kept, one JSON object per line in and out.
//!
//! What goes over the pipes is frozen, see [`ExecHandler`]. What a program does wrong never stops the lane: it is
//! killed with its whole process group and started anew, and whether that was an attempt is decided by whether it had
//! begun to read the message.

mod answer;
mod child;
mod keeper;
mod lines;
mod log;

use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use tracing::Instrument;

use self::keeper::{Health, Job, Keeper, Request};
use crate::{
    event::Event,
    handler::{BatchHandler, Handler, HandlerError},
    message::Message,
};

/// The most words of a command.
const MOST_WORDS: usize = 64;
/// A program that lived for this long since its start counts as there before it has answered anything.
const STEADY: Duration = Duration::from_secs(1);
/// An orderly end may take the program [`child::PATIENCE`]; whatever takes longer is not waited for.
const CLOSING: Duration = Duration::from_secs(4);
/// Of the lane's variables the program gets these: what it serves, and nothing about the way to NATS.
const SHARED: [&str; 5] = ["NAMESPACE", "SET", "PARTITION", "POD", "STREAM"];
const PREFIX: &str = "LANEKEEPER_";

/// Why a command cannot be a handler's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{command:?} is no command of a handler: it must have 1 to {MOST_WORDS} words, the first not empty, none with a NUL"
)]
pub struct ExecHandlerError {
    command: Vec<String>,
}

/// Gives each message to a child process as one line of JSON on its standard input, and takes one line from its
/// standard output as the answer.
///
/// In: a `CloudEvent` in the JSON format, with the payload in `data_base64` and the publisher's headers in `headers`.
/// Out: `{"id": …, "result": …}` with the event's `id`; `result` is `done`, `retry`, `permanent` or `wait`. Anything else on
/// the standard output, and an end in the middle of a message, are a failed attempt. A program that cannot be started,
/// or ends without having read anything of the message, is not. When the handling is dropped the program is killed, so
/// that it cannot go on with a message that may be somebody else's.
#[derive(Debug, Clone)]
pub struct ExecHandler {
    jobs: mpsc::UnboundedSender<Job>,
    health: watch::Receiver<Health>,
}

impl ExecHandler {
    /// Starts the program, with the variables of this process except those that concern the lane alone. It lives until
    /// the handler is closed or dropped. Must be called inside a runtime.
    pub fn start(command: &[String]) -> Result<Self, ExecHandlerError> {
        Self::start_with(command, std::env::vars_os())
    }

    /// Whether a program can be started like this at all.
    pub(crate) fn is_command(command: &[String]) -> bool {
        let program = command.first().filter(|program| !program.is_empty());
        program.is_some() && command.len() <= MOST_WORDS && command.iter().all(|word| !word.contains('\0'))
    }

    pub(crate) fn start_with(
        command: &[String],
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ExecHandlerError> {
        if !Self::is_command(command) {
            return Err(ExecHandlerError { command: command.to_vec() });
        }
        let (jobs, queue) = mpsc::unbounded_channel();
        let (health, watched) = watch::channel(Health::starting());
        let variables = variables.into_iter().filter(|(name, _)| is_shared(name)).collect();
        let keeper = Keeper::new(command.to_vec(), variables, queue, health);
        tokio::spawn(keeper.run().in_current_span());
        Ok(Self { jobs, health: watched })
    }
}

/// Whether the program may see a variable.
fn is_shared(name: &OsString) -> bool {
    // A name that is no text cannot be one of ours.
    let Some(name) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { return true };
    SHARED.contains(&name)
}

impl ExecHandler {
    /// One line, with its line feed, and its answer.
    async fn exchange(&self, id: String, line: serde_json::Result<Vec<u8>>) -> Result<(), HandlerError> {
        let gone = || HandlerError::Unreachable { reason: "the handler's program was closed".to_owned() };
        let mut line = line.map_err(|error| HandlerError::permanent(error.to_string()))?;
        line.push(b'\n');
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Handle(Request { id, line, reply })).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Handler for ExecHandler {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let event = Event::for_program(message);
        let line = serde_json::to_vec(&event);
        self.exchange(event.id, line).await
    }

    async fn reachable(&self) -> Result<(), String> {
        let health = self.health.borrow();
        match health.since {
            Some(since) if health.answered || since.elapsed() >= STEADY => Ok(()),
            _ => Err(health.trouble.clone()),
        }
    }

    async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.jobs.send(Job::Close(done)).is_ok() {
            let start = Instant::now();
            let in_time = timeout(CLOSING, closed).await.is_ok();
            tracing::debug!(in_time, took = ?start.elapsed(), "the handler's program was closed");
        }
    }
}

/// A line is a list of events, also of one, and the answer has the id of the first.
impl BatchHandler for ExecHandler {
    async fn handle_batch(&self, messages: &[Message]) -> Result<(), HandlerError> {
        let events: Vec<Event<'_>> = messages.iter().map(Event::for_program).collect();
        let line = serde_json::to_vec(&events);
        let id = events.into_iter().next().map(|event| event.id).unwrap_or_default();
        self.exchange(id, line).await
    }
}

#[cfg(test)]
mod tests;
