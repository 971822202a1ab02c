//! The lane: serves one partition of a set, in order.
//!
//! ```no_run
//! use lanekeeper_worker::{HandlerError, Message, Worker, handler};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let worker = Worker::from_environment(std::env::vars())?;
//! worker
//!     .run(handler(|message: std::sync::Arc<Message>| async move {
//!         println!("{} {}", message.fence(), message.subject());
//!         Ok::<(), HandlerError>(())
//!     }))
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! What decides about order is `lanekeeper_core::lane`; this crate gives it sockets and clocks ([`Worker`]), a handler
//! ([`Handler`], or [`BatchHandler`] for several messages at once; [`HttpHandler`] for any program behind HTTP, [`ExecHandler`] for one that reads lines), and says how it is (logs, metrics, health).
//! It must not decide what is sent when, and must not know Kubernetes.
//!
//! Messages come again, and a handling that was given up may still write. Compare [`Message::fence`] in every side effect:
//! [`sink`] does it for PostgreSQL (feature `postgres`).

mod admin;
mod cloudevent;
mod driver;
mod environment;
mod event;
mod exec;
mod handler;
mod hot;
mod http;
pub mod install;
mod journal;
mod keys;
mod letter;
pub mod logging;
mod message;
mod metrics;
mod parked;
mod pod_handler;
pub mod sink;
mod status;
mod time;
mod worker;

pub use environment::EnvironmentError;
pub use exec::{ExecHandler, ExecHandlerError};
pub use handler::{BatchHandler, Handler, HandlerError, batch_handler, handler};
pub use http::{HttpHandler, HttpHandlerError};
pub use lanekeeper_core::fence::Fence;
pub use lanekeeper_nats::async_nats::HeaderMap;
pub use message::Message;
pub use pod_handler::{PodHandler, PodHandlerError};
pub use status::Status;
pub use worker::{RunError, Worker, WorkerBuilder};
