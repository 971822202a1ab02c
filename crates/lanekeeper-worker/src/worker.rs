//! A worker: one process that serves one partition.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration, time::SystemTime};

use lanekeeper_core::{
    lane::{Lane, Options},
    names::{DEFAULT_BUCKET, SetName},
    record::Holder,
};
use lanekeeper_nats::{Bucket, ConnectError, ConnectSettings, Connection, lane::LaneLink};
use tokio::signal::unix::{SignalKind, signal};
use tracing::Instrument;

use crate::{
    admin::{self, Admin},
    driver::{Driver, Parts},
    environment::{Environment, EnvironmentError, HandlerVariable},
    handler::{BatchHandler, Handler, OneByOne},
    hot::Hot,
    journal::Journal,
    keys::{Identity, Keys},
    metrics::Metrics,
    pod_handler::{PodHandler, PodHandlerError},
    status::{Board, Status},
    time::rfc3339,
};

/// Why a worker cannot run at all. Everything that may get better by itself is waited for instead.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The NATS settings can never work.
    #[error("NATS cannot be connected to: {0}")]
    Connect(#[source] ConnectError),
    /// The lane's inbox cannot be subscribed.
    #[error("the lane has no inbox: {0}")]
    Inbox(#[source] lanekeeper_nats::lane::LinkError),
    /// The admin address is taken, or not ours.
    #[error("the admin address {address} cannot be listened on: {error}")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The process cannot be told to end.
    #[error("signals cannot be received: {0}")]
    Signals(#[source] io::Error),
}

/// Serves one partition. See [`Worker::from_environment`] for pods, [`Worker::builder`] for everything else.
#[derive(Debug)]
pub struct Worker {
    set: SetName,
    partition: u32,
    pod: String,
    stream: String,
    bucket: String,
    connect: ConnectSettings,
    handler: Option<HandlerVariable>,
    admin: Option<SocketAddr>,
    grace: Option<Duration>,
    options: Options,
    board: Arc<Board>,
}

/// Chooses what a worker serves and how.
#[derive(Debug)]
pub struct WorkerBuilder {
    worker: Worker,
}

impl Worker {
    /// A worker of one partition of a set.
    pub fn builder(set: SetName, partition: u32, stream: &str, connect: ConnectSettings) -> WorkerBuilder {
        let worker = Self {
            pod: format!("{}-{partition}", set.name),
            set,
            partition,
            stream: stream.to_owned(),
            bucket: DEFAULT_BUCKET.to_owned(),
            connect,
            handler: None,
            admin: None,
            grace: None,
            options: Options::default(),
            board: Arc::new(Board::new()),
        };
        WorkerBuilder { worker }
    }

    /// A worker as the operator's pods describe it, by `LANEKEEPER_…` variables.
    pub fn from_environment(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, EnvironmentError> {
        let read = Environment::read(variables)?;
        let mut builder = Self::builder(read.set, read.partition, &read.stream, read.connect);
        builder.worker.handler = read.handler;
        Ok(builder.pod(&read.pod).bucket(&read.bucket).build())
    }

    /// Changes a worker that was read from the environment.
    pub fn into_builder(self) -> WorkerBuilder {
        WorkerBuilder { worker: self }
    }

    /// The handler that the environment names; a program is started. Must be called inside a runtime.
    pub fn pod_handler(&self) -> Result<PodHandler, PodHandlerError> {
        let _lane = self.span().entered();
        PodHandler::new(self.handler.as_ref())
    }

    fn span(&self) -> tracing::Span {
        tracing::info_span!("lane", set = %self.set, partition = self.partition, pod = self.pod)
    }

    /// How the worker is, while it runs; for whoever embeds it.
    pub fn status(&self) -> impl Fn() -> Status + Send + Sync + 'static {
        let board = Arc::clone(&self.board);
        move || board.status()
    }

    /// Serves until the process is told to end by SIGTERM or SIGINT, and what is in hand is settled. The handler gets one
    /// message at a time, whatever the set's `delivery.mode` is.
    pub async fn run(self, handler: impl Handler) -> Result<(), RunError> {
        let shutdown = told_to_end()?;
        self.run_until(handler, shutdown).await
    }

    /// As [`Worker::run`], but where the set's `delivery.mode` is `Batch` the handler gets several messages at once.
    pub async fn run_batches(self, handler: impl BatchHandler) -> Result<(), RunError> {
        let shutdown = told_to_end()?;
        self.run_batches_until(handler, shutdown).await
    }

    /// Serves until `shutdown` completes, and what is in hand is settled.
    pub async fn run_until(
        self,
        handler: impl Handler,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        self.serve_in_span(OneByOne(handler), shutdown, false).await
    }

    /// As [`Worker::run_until`], but where the set's `delivery.mode` is `Batch` the handler gets several messages at once.
    pub async fn run_batches_until(
        self,
        handler: impl BatchHandler,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        self.serve_in_span(handler, shutdown, true).await
    }

    async fn serve_in_span(
        mut self,
        handler: impl BatchHandler,
        shutdown: impl Future<Output = ()>,
        batches: bool,
    ) -> Result<(), RunError> {
        let span = self.span();
        self.options.batches = batches;
        // Whoever embeds it need not carry its many kilobytes.
        Box::pin(self.serve(handler, shutdown)).instrument(span).await
    }

    async fn serve(
        self,
        handler: impl BatchHandler,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        let handler = Arc::new(handler);
        let metrics = Arc::new(Metrics::new(&self.set, self.partition));
        let hot = Arc::new(Hot::new(self.partition));
        if let Some(address) = self.admin {
            let (board, metrics, hot) = (Arc::clone(&self.board), Arc::clone(&metrics), Arc::clone(&hot));
            let address = admin::serve(address, Admin { board, metrics, hot, handler: Arc::clone(&handler) })
                .await
                .map_err(|error| RunError::Admin { address, error })?;
            tracing::info!(%address, "health and metrics");
        }
        let connection = Connection::start(self.connect).await.map_err(RunError::Connect)?;
        let link = LaneLink::open(&connection).await.map_err(RunError::Inbox)?;
        let identity = Identity {
            holder: Holder { pod: self.pod, instance: instance(&connection) },
            bucket: Bucket::new(connection.clone(), &self.bucket),
            set: self.set,
            partition: self.partition,
        };
        tracing::info!(instance = identity.holder.instance, "starting");
        let journal =
            Journal::new(identity.set.clone(), self.partition, identity.holder.clone(), connection.clone());
        let set = identity.set.clone();
        let keys = Keys::start(identity.clone(), Arc::clone(&self.board));
        let parts = Parts {
            lane: Lane::new(self.options),
            link,
            keys,
            identity,
            journal,
            connection,
            handler: Arc::clone(&handler),
            board: self.board,
            metrics,
            hot,
            set,
            stream: self.stream,
            grace: self.grace,
        };
        Driver::new(parts).run(shutdown).await;
        handler.close().await;
        tracing::info!("ended");
        Ok(())
    }
}

/// Completes when the process is told to end.
fn told_to_end() -> Result<impl Future<Output = ()>, RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// One start of the process: when it was, and something that no other start has.
fn instance(connection: &Connection) -> String {
    let inbox = connection.client().new_inbox();
    let unique = inbox.rsplit('.').next().unwrap_or_default().to_owned();
    format!("{} {unique}", rfc3339(SystemTime::now()))
}

impl WorkerBuilder {
    /// The pod's name: part of who holds a lane, and of the report's key.
    #[must_use]
    pub fn pod(mut self, pod: &str) -> Self {
        pod.clone_into(&mut self.worker.pod);
        self
    }

    /// The KV bucket of the records.
    #[must_use]
    pub fn bucket(mut self, bucket: &str) -> Self {
        bucket.clone_into(&mut self.worker.bucket);
        self
    }

    /// Where health and metrics are served; by default nowhere.
    #[must_use]
    pub fn admin(mut self, address: SocketAddr) -> Self {
        self.worker.admin = Some(address);
        self
    }

    /// How long what is in hand may take after a shutdown began; by default the set's handler timeout and ten
    /// seconds. Less than the time until the process is killed.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.worker.grace = Some(grace);
        self
    }

    /// Without in-progress acks, to test what happens then.
    #[doc(hidden)]
    #[must_use]
    pub fn without_progress(mut self) -> Self {
        self.worker.options.progress = false;
        self
    }

    /// The worker.
    pub fn build(self) -> Worker {
        self.worker
    }
}
