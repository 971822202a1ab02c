//! A handler behind HTTP: any program in any language, in a container beside the lane.
//!
//! One request per message, or batch of messages, over a connection that is kept. What each answer means is frozen, see [`HttpHandler`].

mod answer;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{net::TcpStream, time::timeout};

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
    client: Client<HttpConnector, Full<Bytes>>,
    url: Uri,
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
        let address = format!("{host}:{}", parsed.port_u16().unwrap_or(80));
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector);
        Ok(Self { client, url: parsed, address })
    }
}

impl HttpHandler {
    async fn post(&self, headers: HeaderMap, body: Bytes) -> Result<(), HandlerError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = headers;
        match self.client.request(request).await {
            Ok(response) => answer::outcome(response).await,
            Err(error) if error.is_connect() => {
                Err(HandlerError::Unreachable { reason: format!("{}: {}", self.address, words(&error)) })
            }
            Err(error) => Err(HandlerError::retry(format!("{}: {}", self.address, words(&error)))),
        }
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
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_a_handlers_is_refused_by_name() {
        for url in ["", "handler", "https://127.0.0.1:8080/", "http://", "/path", "http://a b/"] {
            let error = HttpHandler::new(url).unwrap_err();
            assert!(error.to_string().contains(&format!("'{url}'")), "{error}");
        }
        assert_eq!(HttpHandler::new("http://127.0.0.1:8080/in").unwrap().address, "127.0.0.1:8080");
        assert_eq!(HttpHandler::new("http://localhost").unwrap().address, "localhost:80");
    }
}
