//! Handlers of batches that do as they are told and remember what they were given.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use lanekeeper_worker::{BatchHandler, Handler, HandlerError, Message};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::journal::End;

/// One call of a handler.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub sequences: Vec<u64>,
    pub attempt: u64,
    pub start: Instant,
    pub end: End,
    pub ended: Option<Instant>,
}

/// Shared by all handlers of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<Given>>>);

impl Calls {
    pub(crate) fn all(&self) -> Vec<Given> {
        self.0.lock().unwrap().clone()
    }

    /// What was given, with the attempt, in the order of the calls.
    pub(crate) fn given(&self) -> Vec<(Vec<u64>, u64)> {
        self.all().into_iter().map(|call| (call.sequences, call.attempt)).collect()
    }

    pub(crate) fn done(&self) -> Vec<u64> {
        let done = |call: &Given| call.end == End::Done;
        self.all().into_iter().filter(done).flat_map(|call| call.sequences).collect()
    }

    /// The largest batch.
    pub(crate) fn largest(&self) -> usize {
        self.all().iter().map(|call| call.sequences.len()).max().unwrap_or_default()
    }

    pub(crate) fn begin(&self, sequences: Vec<u64>, attempt: u64) -> Running {
        let mut calls = self.0.lock().unwrap();
        let start = Instant::now();
        calls.push(Given { sequences, attempt, start, end: End::Running, ended: None });
        Running { calls: self.clone(), index: calls.len() - 1, end: End::Cut }
    }

    /// Nothing of the lane began before everything earlier was done, no two calls ran at once, and at most so much was repeated.
    pub(crate) fn assert_lane_in_order(&self, most_repeats: usize) {
        let (mut done, mut repeats) = (BTreeSet::new(), 0);
        let mut before: Option<Given> = None;
        for call in self.all() {
            let ended = before.as_ref().is_none_or(|before| before.ended.is_some_and(|at| at <= call.start));
            assert!(ended, "{call:?} began while {before:?} ran");
            for (index, sequence) in call.sequences.iter().enumerate() {
                let ahead = &call.sequences[..index];
                let missing =
                    (1..*sequence).find(|earlier| !done.contains(earlier) && !ahead.contains(earlier));
                assert_eq!(missing, None, "{call:?} began before that one was done");
                repeats += usize::from(done.contains(sequence));
            }
            if call.end == End::Done {
                done.extend(call.sequences.iter().copied());
            }
            before = Some(call);
        }
        assert!(repeats <= most_repeats, "{repeats} repeats");
    }
}

/// A call that runs; one that is dropped was cut.
pub(crate) struct Running {
    calls: Calls,
    index: usize,
    pub end: End,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut calls = self.calls.0.lock().unwrap();
        calls[self.index].end = self.end;
        calls[self.index].ended = Some(Instant::now());
    }
}

type Behaviour = dyn Fn(&[u64], u64) -> (Duration, Result<(), HandlerError>) + Send + Sync;

/// In the lane's own process: handles by a function of sequences and attempt that says how long it takes and how it ends.
pub(crate) struct Embedded {
    calls: Calls,
    behaviour: Box<Behaviour>,
}

impl Embedded {
    pub(crate) fn new(
        calls: &Calls,
        behaviour: impl Fn(&[u64], u64) -> (Duration, Result<(), HandlerError>) + Send + Sync + 'static,
    ) -> Self {
        Self { calls: calls.clone(), behaviour: Box::new(behaviour) }
    }

    /// Each call takes this long and works.
    pub(crate) fn taking(calls: &Calls, time: Duration) -> Self {
        Self::new(calls, move |_, _| (time, Ok(())))
    }
}

impl Handler for Embedded {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        panic!("sequence {} came without a batch", message.sequence());
    }
}

impl BatchHandler for Embedded {
    async fn handle_batch(&self, messages: &[Message]) -> Result<(), HandlerError> {
        let sequences: Vec<u64> = messages.iter().map(Message::sequence).collect();
        let attempt = messages[0].attempt();
        assert!(messages.iter().all(|message| message.attempt() == attempt));
        let mut running = self.calls.begin(sequences.clone(), attempt);
        let (time, result) = (self.behaviour)(&sequences, attempt);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        running.end = if result.is_ok() { End::Done } else { End::Failed };
        result
    }
}

/// What came over HTTP, as it is.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub content_type: String,
    pub events: Vec<Value>,
}

struct Inner {
    calls: Calls,
    bodies: Mutex<Vec<Body>>,
    behaviour: Box<Answers>,
}

type Answers = dyn Fn(&[u64], u64) -> (Duration, StatusCode) + Send + Sync;

/// Behind HTTP: answers by a function of sequences and attempt that says how long it takes, and the status.
pub(crate) struct OverHttp {
    address: SocketAddr,
    inner: Arc<Inner>,
    task: tokio::task::JoinHandle<()>,
}

impl OverHttp {
    /// Each call takes this long and works.
    pub(crate) async fn taking(calls: &Calls, time: Duration) -> Self {
        Self::new(calls, move |_, _| (time, StatusCode::NO_CONTENT)).await
    }

    pub(crate) async fn new(
        calls: &Calls,
        behaviour: impl Fn(&[u64], u64) -> (Duration, StatusCode) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            calls: calls.clone(),
            bodies: Mutex::default(),
            behaviour: Box::new(behaviour),
        });
        let router = Router::new()
            .route("/in", post(answer))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&inner));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, inner, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/in", self.address)
    }

    pub(crate) fn bodies(&self) -> Vec<Body> {
        self.inner.bodies.lock().unwrap().clone()
    }
}

impl Drop for OverHttp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    let events: Vec<Value> = serde_json::from_slice(&body).expect("a list of events");
    let sequence = |event: &Value| event["sequence"].as_str().unwrap().parse().unwrap();
    let attempt = events[0]["laneattempt"].as_u64().unwrap();
    let sequences: Vec<u64> = events.iter().map(sequence).collect();
    let mut running = inner.calls.begin(sequences.clone(), attempt);
    let content_type = headers[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    inner.bodies.lock().unwrap().push(Body { content_type, events });
    let (time, status) = (inner.behaviour)(&sequences, attempt);
    tokio::time::sleep(time).await;
    running.end = if status.is_success() { End::Done } else { End::Failed };
    drop(running);
    status.into_response()
}
