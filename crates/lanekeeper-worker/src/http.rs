//! A handler behind HTTP: any program in any language, in a container beside the lane.
//!
//! One request per message, or batch of messages, over a connection that is kept. What each answer means is frozen, see [`HttpHandler`].

mod answer;
mod connection;

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use tokio::{net::TcpStream, time::timeout};

use self::connection::{Connection, NoAnswer};
use crate::{
    cloudevent,
    event::Event,
    handler::{BatchHandler, Handler, HandlerError},
    message::Message,
};

/// How long connecting may take: the handler is beside the lane.
const CONNECT: Duration = Duration::from_secs(2);

/// The batched content mode: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md>.
const BATCH: &str = "application/cloudevents-batch+json";

/// Why an address cannot be a handler's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{url}' is no address of a handler: it must be http://host:port/path")]
pub struct HttpHandlerError {
    url: String,
}

/// Sends each message as a `CloudEvent` in binary mode, by POST; a batch as one request in batched mode.
///
/// 2xx: done. 409: it was applied already, done. 400 and 422: it will never work. 429 and 503 with `Retry-After`: wait,
/// not an attempt. Connection refused: not an attempt. Anything else, no answer included: a failed attempt.
#[derive(Debug, Clone)]
pub struct HttpHandler {
    /// Whoever asks takes it out: one whose answer was not waited for is closed.
    kept: Arc<Mutex<Option<Box<Connection>>>>,
    path: Uri,
    host: HeaderValue,
    address: String,
}

impl HttpHandler {
    /// A handler at this address.
    pub fn new(url: &str) -> Result<Self, HttpHandlerError> {
        let wrong = || HttpHandlerError { url: url.to_owned() };
        let parsed: Uri = url.parse().map_err(|_| wrong())?;
        let host = parsed.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        if parsed.scheme_str() != Some("http") {
            return Err(wrong());
        }
        let port = parsed.port_u16().unwrap_or(80);
        let address = format!("{host}:{port}");
        // The usual port is not named.
        let named = if port == 80 { host } else { &address };
        let host = HeaderValue::from_str(named).map_err(|_| wrong())?;
        let path = parsed.path_and_query().map_or("/", |path| path.as_str());
        let path = path.parse().map_err(|_| wrong())?;
        Ok(Self { kept: Arc::default(), path, host, address })
    }

    /// What the handler makes of a request.
    async fn post(&self, headers: HeaderMap, body: Bytes) -> Result<(), HandlerError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = headers;
        request.headers_mut().insert(header::HOST, self.host.clone());
        loop {
            let mut kept = self.kept().take();
            if let Some(connection) = &mut kept
                && !connection.is_usable().await
            {
                kept = None;
            }
            let is_new = kept.is_none();
            let mut connection = match kept {
                Some(connection) => connection,
                None => Box::new(self.connect().await?),
            };
            match connection.ask(request).await {
                Ok(response) => {
                    let answer = connection.during(answer::read(response)).await;
                    if answer.ended {
                        connection.used();
                        *self.kept() = Some(connection);
                    }
                    return answer.outcome;
                }
                // Closed by the handler since the last answer; no handler has seen anything of it.
                Err(NoAnswer { unsent: Some(unsent), .. }) if !is_new => request = unsent,
                Err(NoAnswer { error, .. }) => {
                    return Err(HandlerError::retry(format!("{}: {}", self.address, words(&error))));
                }
            }
        }
    }

    async fn connect(&self) -> Result<Connection, HandlerError> {
        let opened = timeout(CONNECT, Connection::open(&self.address)).await;
        opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
            HandlerError::Unreachable { reason: format!("{}: cannot connect: {error}", self.address) }
        })
    }

    fn kept(&self) -> MutexGuard<'_, Option<Box<Connection>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for HttpHandler {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        self.post(cloudevent::headers(message), message.payload().clone()).await
    }

    async fn reachable(&self) -> Result<(), String> {
        match timeout(CONNECT, TcpStream::connect(&self.address)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("{}: {error}", self.address)),
            Err(_) => Err(format!("{}: no connection within {CONNECT:?}", self.address)),
        }
    }
}

/// A request is a list of events in the JSON format, also of one.
impl BatchHandler for HttpHandler {
    async fn handle_batch(&self, messages: &[Message]) -> Result<(), HandlerError> {
        let events: Vec<Event<'_>> = messages.iter().map(Event::for_http).collect();
        let body = serde_json::to_vec(&events).map_err(|error| HandlerError::permanent(error.to_string()))?;
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(BATCH));
        self.post(headers, body.into()).await
    }
}

/// An error with all of its causes: the client's own words alone say nothing.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests;
