//! `/healthz`, `/readyz`, `/metrics`, and `/keys` for this pod alone: keys are the user's data, and anybody in the cluster may
//! ask for the others. A forwarded port (`kubectl port-forward`) ends inside the pod, so it takes the right to that.
//!
//! Health is red only when the lane cannot recover by itself: a restart must not be the cure for NATS being away.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    extract::{ConnectInfo, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use crate::{handler::Handler, hot::Hot, metrics::Metrics, status::Board};

/// What is told.
pub(crate) struct Admin<H> {
    pub(crate) board: Arc<Board>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) hot: Arc<Hot>,
    pub(crate) handler: Arc<H>,
}

impl<H> Clone for Admin<H> {
    fn clone(&self) -> Self {
        Self {
            board: Arc::clone(&self.board),
            metrics: Arc::clone(&self.metrics),
            hot: Arc::clone(&self.hot),
            handler: Arc::clone(&self.handler),
        }
    }
}

/// Serves in the background; the address it really has.
pub(crate) async fn serve<H: Handler>(address: SocketAddr, admin: Admin<H>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/healthz", get(health::<H>))
        .route("/readyz", get(ready::<H>))
        .route("/metrics", get(metrics_text::<H>))
        .route("/keys", get(keys::<H>))
        .with_state(admin)
        .into_make_service_with_connect_info::<SocketAddr>();
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

/// A socket for both families shows an IPv4 peer as an IPv6 address.
fn is_this_pod(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}

async fn keys<H: Handler>(
    State(admin): State<Admin<H>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> Response {
    if !is_this_pod(peer.ip()) {
        let words = "keys are told to this pod alone: ask with `kubectl lanes keys`, or through `kubectl port-forward`\n";
        return (StatusCode::FORBIDDEN, words).into_response();
    }
    match serde_json::to_string(&admin.hot.report()) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_pods_own_addresses_are_told_keys() {
        for (peer, ours) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.42.0.7", false),
            ("::ffff:10.42.0.7", false),
            ("fd00::7", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(is_this_pod(peer.parse().unwrap()), ours, "{peer}");
        }
    }
}
