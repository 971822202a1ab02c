//! Health and metrics over HTTP. Nothing here can change anything.

use std::{future::Future, io, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};

use crate::metrics::Metrics;

/// Why the operator is not ready; `None` once it is.
pub type NotReady = Option<String>;

#[derive(Clone)]
struct Admin {
    metrics: Arc<Metrics>,
    not_ready: watch::Receiver<NotReady>,
}

/// Serves until `end`.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    not_ready: watch::Receiver<NotReady>,
    end: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(Admin { metrics, not_ready });
    axum::serve(listener, router).with_graceful_shutdown(end).await
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, String) {
    match &*admin.not_ready.borrow() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn scrape(State(admin): State<Admin>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], admin.metrics.text()).into_response()
}
