//! The real `lanekeeper-worker`, as a process of its own, in front of a handler behind HTTP.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use lanekeeper_tests::{binary, lane, wait_until};
use tokio::{net::TcpListener, process::Child};

use crate::{
    DEADLINE,
    journal::{End, Journal},
    rig::{Rig, STREAM},
};

/// A worker as a process. It is killed when the value is dropped.
pub(crate) struct WorkerProcess {
    child: Child,
    pub admin: SocketAddr,
    folder: tempfile::TempDir,
}

impl WorkerProcess {
    pub(crate) async fn start(rig: &Rig, pod: &str, handler: &str) -> Self {
        Self::start_with(rig, pod, handler, &[], &[]).await
    }

    pub(crate) async fn start_with(
        rig: &Rig,
        pod: &str,
        handler: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let arguments = [&["--admin-address", "127.0.0.1:0"], arguments].concat();
        let variables = [&[("LANEKEEPER_HANDLER_URL", handler)], variables].concat();
        Self::of(binary::worker(), rig, pod, &arguments, &variables).await
    }

    /// Another program that runs a lane, and says its admin address as the worker does.
    pub(crate) async fn of(
        program: &Path,
        rig: &Rig,
        pod: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = lane::program(program, &rig.set, pod, STREAM, &rig.server.url())
            .args(arguments)
            .envs(variables.iter().copied())
            .stderr(log)
            .spawn()
            .expect("the worker can be started");
        let mut process = Self { child, admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), folder };
        process.admin = wait_until(DEADLINE, "the worker to say its admin address", || {
            let address =
                process.logged("health and metrics").and_then(|line| line["address"].as_str()?.parse().ok());
            let log = process.log();
            async move { address.ok_or(log) }
        })
        .await;
        process
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The first line of the log with this message.
    pub(crate) fn logged(&self, message: &str) -> Option<serde_json::Value> {
        let parsed = self
            .log()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect::<Vec<serde_json::Value>>();
        parsed.into_iter().find(|line| line["message"] == message)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        assert!(sent.success(), "SIG{signal} could not be sent");
    }

    /// Ends it with SIGKILL and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Its exit code once it ended by itself.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(DEADLINE, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("the worker does not end: {}", self.log())).unwrap().code()
    }

    /// Status and body of a path of its admin server.
    pub(crate) async fn ask(&self, path: &str) -> (u16, String) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(self.admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

/// What a handler got.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// How long a request takes, and its answer.
pub(crate) type Answer = (Duration, StatusCode, Vec<(&'static str, String)>);
type Behaviour = dyn Fn(&Got) -> Answer + Send + Sync;

struct Inner {
    journal: Journal,
    got: Mutex<Vec<Got>>,
    behaviour: Box<Behaviour>,
}

/// A handler behind HTTP.
pub(crate) struct HttpScript {
    address: SocketAddr,
    inner: Arc<Inner>,
    task: tokio::task::JoinHandle<()>,
}

struct Entry<'a> {
    journal: &'a Journal,
    index: usize,
    ended: bool,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.journal.end(self.index, End::Cut);
        }
    }
}

impl HttpScript {
    pub(crate) async fn start(
        journal: &Journal,
        behaviour: impl Fn(&Got) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), journal, behaviour).await
    }

    pub(crate) async fn start_at(
        address: SocketAddr,
        journal: &Journal,
        behaviour: impl Fn(&Got) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("the address is free");
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            journal: journal.clone(),
            got: Mutex::default(),
            behaviour: Box::new(behaviour),
        });
        let router = Router::new().route("/in", post(handle)).with_state(Arc::clone(&inner));
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { address, inner, task }
    }

    /// Each message takes this long and works.
    pub(crate) async fn taking(journal: &Journal, time: Duration) -> Self {
        Self::start(journal, move |_| (time, StatusCode::NO_CONTENT, Vec::new())).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/in", self.address)
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.inner.got.lock().unwrap().clone()
    }
}

impl Drop for HttpScript {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn handle(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers: BTreeMap<String, String> =
        headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let number = |name: &str| headers.get(name).and_then(|value| value.parse().ok()).unwrap_or_default();
    let key = headers.get("ce-partitionkey").cloned().unwrap_or_default();
    let index = inner.journal.begin("http", number("ce-sequence"), key, number("lane-attempt"));
    let mut entry = Entry { journal: &inner.journal, index, ended: false };
    let got = Got { headers, body: body.to_vec() };
    inner.got.lock().unwrap().push(got.clone());
    let (time, status, more) = (inner.behaviour)(&got);
    tokio::time::sleep(time).await;
    let works = status.is_success() || status == StatusCode::CONFLICT;
    inner.journal.end(index, if works { End::Done } else { End::Failed });
    entry.ended = true;
    let mut response = (status, "said the handler").into_response();
    for (name, value) in more {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}
