//! A handler behind HTTP, inside this process, that notes when it was asked and when it was done.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use tokio::{net::TcpListener, task::JoinHandle};

/// One handling.
#[derive(Debug, Clone)]
pub(crate) struct Handled {
    /// The pod that asked.
    pub(crate) pod: String,
    sequence: u64,
    pub(crate) begun: Instant,
    /// `None` while it runs, or when the pod that asked went away.
    pub(crate) ended: Option<Instant>,
}

struct Notes {
    time: Duration,
    all: Mutex<Vec<Handled>>,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Vec<Handled>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens on loopback until it is dropped. Pods ask it below `/<pod>`.
pub(crate) struct HttpHandler {
    address: SocketAddr,
    notes: Arc<Notes>,
    task: JoinHandle<std::io::Result<()>>,
}

impl HttpHandler {
    /// Each handling takes `time`.
    pub(crate) async fn start(time: Duration) -> Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let address = listener.local_addr()?;
        let notes = Arc::new(Notes { time, all: Mutex::default() });
        let router = Router::new().route("/{pod}", post(handle)).with_state(Arc::clone(&notes));
        let task = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, notes, task })
    }

    pub(crate) fn url(&self, pod: &str) -> String {
        format!("http://{}/{pod}", self.address)
    }

    pub(crate) fn count(&self) -> u64 {
        self.notes.lock().len() as u64
    }

    /// When the first handling that is looked for began.
    pub(crate) fn first(&self, wanted: impl Fn(&Handled) -> bool) -> Option<Instant> {
        self.notes.lock().iter().find(|handled| wanted(handled)).map(|handled| handled.begun)
    }

    /// When the last handling that began before this was done.
    pub(crate) fn last_ended_before(&self, begun: Instant) -> Option<Instant> {
        self.notes
            .lock()
            .iter()
            .filter(|handled| handled.begun < begun)
            .filter_map(|handled| handled.ended)
            .max()
    }

    /// What was noted since the last time. One that came before an earlier one was done, or out of order, is an error;
    /// `repeats` are allowed where a worker was killed.
    pub(crate) fn take(&self, repeats: bool) -> Result<Vec<Handled>> {
        let all = std::mem::take(&mut *self.notes.lock());
        for (one, next) in all.iter().zip(all.iter().skip(1)) {
            let again = repeats && next.sequence == one.sequence;
            if next.sequence <= one.sequence && !again {
                bail!("message {} came after message {}", next.sequence, one.sequence);
            }
        }
        Ok(all)
    }
}

impl Drop for HttpHandler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn handle(
    State(notes): State<Arc<Notes>>,
    Path(pod): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, (StatusCode, String)> {
    let sequence = sequence(&headers).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let number = {
        let mut all = notes.lock();
        all.push(Handled { pod, sequence, begun: Instant::now(), ended: None });
        all.len() - 1
    };
    if !notes.time.is_zero() {
        tokio::time::sleep(notes.time).await;
    }
    if let Some(handled) = notes.lock().get_mut(number) {
        handled.ended = Some(Instant::now());
    }
    Ok(StatusCode::NO_CONTENT)
}

fn sequence(headers: &HeaderMap) -> Result<u64> {
    let header = headers.get("ce-sequence").context("there is no header ce-sequence")?;
    Ok(header.to_str()?.parse()?)
}
