//! The workers of a run: one for each partition that there will ever be, as pods would be.
//!
//! A worker is a task of this process, or the real program as a process of its own. It is ended in an orderly way, as
//! a crash would, or stopped and continued; whoever must know of its end is told.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::ExitStatusExt,
    path::{self, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use lanekeeper_worker::{RunError, Status, Worker};
use tokio::{net::TcpListener, process::Child, sync::oneshot, task::JoinHandle, time::timeout};

use super::{
    conductor::Fates,
    failures::{Failures, Whose},
    ground::{Ground, STREAM},
    history::{Behaviour, History, Recorder},
};
use crate::{lane, wait_until};

/// Longer than any handling of a run.
const END: Duration = Duration::from_secs(60);

/// The number of SIGTERM.
const TERMINATED: i32 = 15;

/// How workers run.
#[derive(Debug, Clone)]
pub enum Bodies {
    /// As tasks of this process.
    Tasks,
    /// As processes of this program.
    Processes(PathBuf),
}

/// All workers of a run.
pub struct Pool {
    ground: Ground,
    history: History,
    behaviour: Behaviour,
    failures: Failures,
    fates: Fates,
    bodies: Bodies,
    handler: Option<(SocketAddr, JoinHandle<()>)>,
    pods: BTreeMap<u32, Pod>,
    made: u64,
}

struct Pod {
    name: String,
    body: Body,
}

enum Body {
    Task {
        stop: oneshot::Sender<()>,
        task: JoinHandle<Result<(), RunError>>,
        status: Box<dyn Fn() -> Status + Send + Sync>,
    },
    Process(Child),
}

impl Pool {
    /// No worker yet.
    pub async fn new(
        ground: &Ground,
        history: &History,
        behaviour: &Behaviour,
        failures: &Failures,
        fates: &Fates,
        bodies: Bodies,
    ) -> Self {
        let handler = match bodies {
            Bodies::Tasks => None,
            Bodies::Processes(_) => Some(serve(history.clone(), Behaviour::clone(behaviour)).await),
        };
        Self {
            ground: ground.clone(),
            history: history.clone(),
            behaviour: Behaviour::clone(behaviour),
            failures: failures.clone(),
            fates: fates.clone(),
            bodies,
            handler,
            pods: BTreeMap::new(),
            made: 0,
        }
    }

    /// Workers of these partitions.
    pub fn start(&mut self, partitions: impl IntoIterator<Item = u32>) {
        for partition in partitions {
            let name = self.new_name(partition);
            self.put(partition, name);
        }
    }

    /// A worker's process ends without a word, and its container starts again under the same name.
    pub async fn crash(&mut self, partition: u32) {
        if let Some(name) = self.end_at_once(partition, "a crashed worker").await {
            self.put(partition, name);
        }
    }

    /// A worker's process ends without a word, its pod is replaced by another, and its end is known.
    pub async fn replace(&mut self, partition: u32) {
        if let Some(name) = self.end_at_once(partition, "a replaced worker").await {
            self.fates.terminated(&name);
            self.start([partition]);
        }
    }

    /// A worker ends in an orderly way, and another pod follows. Nothing may be repeated.
    pub async fn roll(&mut self, partition: u32) {
        if let Some(pod) = self.pods.remove(&partition) {
            self.failures.moment("a rolled worker", Whose::Nobodys);
            let name = pod.name.clone();
            end(pod).await;
            self.fates.terminated(&name);
            self.start([partition]);
        }
    }

    /// A worker's process is stopped as it is: its node does not answer.
    pub fn freeze(&mut self, partition: u32) {
        if let Some(Pod { name, body: Body::Process(child) }) = self.pods.get(&partition) {
            signal(child, "STOP");
            self.fates.unreachable(name, true);
        }
    }

    /// It goes on where it was.
    pub fn thaw(&mut self, partition: u32) {
        if let Some(Pod { name, body: Body::Process(child) }) = self.pods.get(&partition) {
            signal(child, "CONT");
            self.fates.unreachable(name, false);
        }
    }

    /// The name of a partition's pod.
    pub fn name(&self, partition: u32) -> Option<&str> {
        self.pods.get(&partition).map(|pod| pod.name.as_str())
    }

    /// How a partition's worker is, when it is a task.
    pub fn status(&self, partition: u32) -> Option<Status> {
        match &self.pods.get(&partition)?.body {
            Body::Task { status, .. } => Some(status()),
            Body::Process(_) => None,
        }
    }

    /// All end in an orderly way.
    pub async fn stop(&mut self) {
        let ends = std::mem::take(&mut self.pods).into_values().map(end);
        futures::future::join_all(ends).await;
        if let Some((_, task)) = self.handler.take() {
            task.abort();
        }
    }

    fn new_name(&mut self, partition: u32) -> String {
        self.made += 1;
        format!("orders-{partition}-{}", self.made)
    }

    fn put(&mut self, partition: u32, name: String) {
        let body = match &self.bodies {
            Bodies::Tasks => self.task(partition, &name),
            Bodies::Processes(program) => Body::Process(self.process(program, partition, &name)),
        };
        self.pods.insert(partition, Pod { name, body });
    }

    fn task(&self, partition: u32, name: &str) -> Body {
        let settings = self.ground.settings(name);
        let worker = Worker::builder(self.ground.wanted.set.clone(), partition, STREAM, settings);
        let recorder = Recorder::new(name, &self.history, &self.behaviour);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let worker = worker.pod(name).build();
        let status = Box::new(worker.status());
        let task = tokio::spawn(worker.run_until(recorder, shutdown));
        Body::Task { stop, task, status }
    }

    fn process(&self, program: &path::Path, partition: u32, name: &str) -> Child {
        let (address, _) = self.handler.as_ref().expect("processes have a handler");
        let servers = self.ground.servers.join(",");
        lane::program(program, &self.ground.wanted.set, name, STREAM, &servers)
            .args(["--admin-address", "127.0.0.1:0"])
            .env("LANEKEEPER_PARTITION", partition.to_string())
            .env("LANEKEEPER_HANDLER_URL", format!("http://{address}/{name}"))
            .stderr(Stdio::null())
            .spawn()
            .expect("the worker can be started")
    }

    /// The name of the pod whose process was ended.
    async fn end_at_once(&mut self, partition: u32, what: &'static str) -> Option<String> {
        let Pod { name, body } = self.pods.remove(&partition)?;
        let lasting = self.failures.begin(what, Whose::Pod(name.clone()));
        match body {
            Body::Task { task, .. } => {
                task.abort();
                let _ = task.await;
            }
            Body::Process(mut child) => child.kill().await.expect("a running child can be killed"),
        }
        // The end of a pod is the end of its handler, too.
        let history = &self.history;
        wait_until(END, "the handler of a pod to end", || async { !history.is_busy(&name) }).await;
        lasting.end();
        Some(name)
    }
}

async fn end(pod: Pod) {
    match pod.body {
        Body::Task { stop, task, .. } => {
            let _ = stop.send(());
            let ended = timeout(END, task).await.expect("the worker ends");
            ended.expect("it does not panic").expect("it ends well");
        }
        Body::Process(mut child) => {
            signal(&child, "TERM");
            let ended = timeout(END, child.wait()).await.expect("the worker ends");
            let ended = ended.expect("it is a child");
            // Told before it listens to signals, it ends by the signal itself: it has nothing in hand by then.
            let at_once = ended.signal() == Some(TERMINATED);
            assert!(ended.success() || at_once, "{} ended badly: {ended}", pod.name);
        }
    }
}

fn signal(child: &Child, signal: &str) {
    let Some(pid) = child.id() else { return };
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "SIG{signal} could not be sent to a worker");
}

/// The handler of all processes, behind HTTP; each pod has a path of its own.
async fn serve(history: History, behaviour: Behaviour) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let router = Router::new().route("/{pod}", post(handled)).with_state((history, behaviour));
    let task = tokio::spawn(async move {
        axum::serve(listener, router).await.expect("a listener does not fail");
    });
    (address, task)
}

async fn handled(
    State((history, behaviour)): State<(History, Behaviour)>,
    Path(pod): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let text = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let number = |text: &str| text.parse::<i64>().unwrap_or(-1);
    let Some(message) = std::str::from_utf8(&body).ok().and_then(|text| text.parse().ok()) else {
        return StatusCode::BAD_REQUEST;
    };
    let recorder = Recorder::new(&pod, &history, &behaviour);
    let (partition, attempt) = (number(&text("lane-partition")), number(&text("lane-attempt")));
    // It is dropped when its caller is gone.
    let handled =
        recorder.handle(text("ce-partitionkey"), message, text("lane-fence"), partition, attempt).await;
    if handled { StatusCode::NO_CONTENT } else { StatusCode::INTERNAL_SERVER_ERROR }
}
