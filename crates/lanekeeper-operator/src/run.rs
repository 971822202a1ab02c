//! The life of the operator's process: start, checks, work, an orderly end.

use std::{future::Future, io, sync::Arc};

use futures::{FutureExt, future::Shared};
use kube::Client;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    admin::{self, NotReady},
    context::Context,
    controller,
    failure::words,
    metrics::Metrics,
    preflight,
    settings::Settings,
};

/// Why the operator cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The admin address is taken or not ours.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// As configured.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// No way to the API server is known.
    #[error("no Kubernetes client: {}", words(error))]
    Client {
        /// Why.
        #[source]
        error: Box<kube::Error>,
    },
    /// This cluster cannot run it.
    #[error(transparent)]
    Preflight(#[from] preflight::PreflightError),
}

/// Runs with the client of the environment (in the cluster, or a kubeconfig) until `end`.
pub async fn until(
    settings: Settings,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let client = Client::try_default().await.map_err(|error| RunError::Client { error: Box::new(error) })?;
    with_client(client, settings, end).await
}

/// Runs with this client until `end`; then passes that run come to their end, and nothing new begins.
pub async fn with_client(
    client: Client,
    settings: Settings,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let address = settings.admin_address;
    let listener = TcpListener::bind(address).await.map_err(|error| RunError::Listen { address, error })?;
    let end = end.boxed().shared();
    let metrics = Arc::new(Metrics::default());
    let (not_ready, watched) = watch::channel(Some("starting".to_owned()));
    let admin = tokio::spawn(admin::serve(listener, Arc::clone(&metrics), watched, end.clone()));
    let work = work(client, settings, metrics, not_ready, end.clone());
    tokio::select! {
        result = work => result?,
        () = patience(end) => {}
    }
    match admin.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the admin server failed"),
        Err(error) => tracing::warn!(%error, "the admin server ended in a defect"),
    }
    Ok(())
}

type End = Shared<futures::future::BoxFuture<'static, ()>>;

async fn work(
    client: Client,
    settings: Settings,
    metrics: Arc<Metrics>,
    not_ready: watch::Sender<NotReady>,
    end: End,
) -> Result<(), RunError> {
    let cluster = tokio::select! {
        cluster = preflight::wait(&client, &not_ready) => cluster?,
        () = end.clone() => return Ok(()),
    };
    let namespaces = scopes(&settings);
    let context = Arc::new(Context::new(client, settings, cluster, metrics));
    not_ready.send_replace(None);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?namespaces, "the operator works");
    let controllers =
        namespaces.into_iter().map(|namespace| controller::run(Arc::clone(&context), namespace, end.clone()));
    futures::future::join_all(controllers).await;
    tracing::info!("the operator has ended its work");
    Ok(())
}

/// How long passes may take to come to their end after the signal.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

async fn patience(end: End) {
    end.await;
    tokio::time::sleep(PATIENCE).await;
    tracing::warn!("not everything came to its end in time");
}

fn scopes(settings: &Settings) -> Vec<Option<String>> {
    let named: Vec<_> =
        settings.watch_namespaces.iter().filter(|one| !one.is_empty()).cloned().map(Some).collect();
    if named.is_empty() { vec![None] } else { named }
}

/// Ends with SIGTERM or SIGINT.
pub async fn signalled() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        tracing::warn!("SIGTERM cannot be caught; only the kernel will end this process");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!("the operator was asked to end");
}
