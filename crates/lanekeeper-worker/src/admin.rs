//! `/healthz`, `/readyz` and `/metrics`.
//!
//! Health is red only when the lane cannot recover by itself: a restart must not be the cure for NATS being away.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::net::TcpListener;

use crate::{handler::Handler, metrics::Metrics, status::Board};

struct Admin<H> {
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    handler: Arc<H>,
}

impl<H> Clone for Admin<H> {
    fn clone(&self) -> Self {
        Self {
            board: Arc::clone(&self.board),
            metrics: Arc::clone(&self.metrics),
            handler: Arc::clone(&self.handler),
        }
    }
}

/// Serves in the background; the address it really has.
pub(crate) async fn serve<H: Handler>(
    address: SocketAddr,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    handler: Arc<H>,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/healthz", get(health::<H>))
        .route("/readyz", get(ready::<H>))
        .route("/metrics", get(metrics_text::<H>))
        .with_state(Admin { board, metrics, handler });
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn health<H: Handler>(State(admin): State<Admin<H>>) -> (StatusCode, String) {
    if admin.board.is_dead() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the lane's loop does not come around any more\n".into());
    }
    (StatusCode::OK, "ok\n".into())
}

async fn ready<H: Handler>(State(admin): State<Admin<H>>) -> (StatusCode, String) {
    let status = admin.board.status();
    if let Some(reason) = status.not_ready() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"));
    }
    match admin.handler.reachable().await {
        Ok(()) => (StatusCode::OK, format!("ok: {}\n", status.state.name())),
        Err(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("the handler cannot be reached: {reason}\n"))
        }
    }
}

async fn metrics_text<H: Handler>(State(admin): State<Admin<H>>) -> impl IntoResponse {
    let text = admin.metrics.text(admin.board.status().state);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
