//! Real programs, and everything that they can do wrong.

mod faults;
mod processes;
mod talking;

use std::{
    ffi::OsString,
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use lanekeeper_nats::async_nats::HeaderMap;
use tempfile::TempDir;

use super::*;
use crate::cloudevent::tests::message_with;

/// Long enough for a busy machine; nothing is decided by it but a failure.
const DEADLINE: Duration = Duration::from_secs(60);

/// A program in Python with a folder of its own in the variable `FOLDER`. `handle` is called with each event and the
/// line, and gives the answer's members besides the id.
struct Rig {
    handler: ExecHandler,
    folder: TempDir,
}

const LOOP: &str = r#"
import base64, json, os, subprocess, sys, time

def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def note(name, text=""):
    path = os.path.join(os.environ["FOLDER"], name)
    with open(path + ".new", "w") as file:
        file.write(str(text))
    os.rename(path + ".new", path)

def noted(name):
    return os.path.exists(os.path.join(os.environ["FOLDER"], name))

def answer(event, **members):
    return json.dumps({"id": event["id"], **members}) + "\n"

def pid(event):
    return answer(event, result="retry", reason=str(os.getpid()))

def serve(handle):
    for line in sys.stdin:
        say(handle(json.loads(line)))
"#;

impl Rig {
    /// A program that begins with what is above.
    fn python(code: &str) -> Self {
        Self::start(&["python3", "-u", "-c", &format!("{LOOP}\n{code}")])
    }

    fn shell(code: &str) -> Self {
        Self::start(&["sh", "-c", code])
    }

    fn start(command: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let more =
            [("FOLDER", folder.path().as_os_str().to_owned()), ("LANEKEEPER_NATS_SERVERS", "secret".into())];
        let more = more.map(|(name, value)| (OsString::from(name), value));
        let handler = ExecHandler::start_with(&command, std::env::vars_os().chain(more)).unwrap();
        Self { handler, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn give(&self, payload: impl Into<Bytes>) -> Result<(), HandlerError> {
        let message = message_with("orders.k", HeaderMap::new(), payload.into());
        within(self.handler.handle(&message)).await
    }

    /// The process that answers now, of a program that answers with [`pid`](LOOP).
    async fn pid(&self) -> i32 {
        match self.give("x").await {
            Err(HandlerError::Retry { reason, .. }) => {
                reason.parse().unwrap_or_else(|_| panic!("'{reason}' is no pid"))
            }
            other => panic!("{other:?}"),
        }
    }

    /// What a program has noted, once it has.
    async fn noted(&self, name: &str) -> String {
        let path = self.path(name);
        until(|| path.exists()).await;
        std::fs::read_to_string(path).unwrap()
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it comes to an end")
}

async fn until(mut is_so: impl FnMut() -> bool) {
    within(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Gone altogether: not even a zombie is left.
fn is_gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// Not running any more; whoever is its parent now may not have collected it yet.
fn is_dead(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with('Z'))
}

/// The reason of a failed attempt.
#[track_caller]
fn attempt(outcome: Result<(), HandlerError>) -> String {
    match outcome {
        Err(HandlerError::Retry { reason, after: None }) => reason,
        other => panic!("no failed attempt: {other:?}"),
    }
}

/// The reason of what was no attempt.
#[track_caller]
fn no_attempt(outcome: Result<(), HandlerError>) -> String {
    match outcome {
        Err(HandlerError::Unreachable { reason }) => reason,
        other => panic!("it was an attempt: {other:?}"),
    }
}
