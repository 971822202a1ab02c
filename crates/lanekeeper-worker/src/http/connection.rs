//! One connection to the handler, kept from message to message, and driven by whoever waits for an answer on it.
//!
//! A pool with a task for each connection would cost four switches between tasks for each message, and a lane never has
//! two requests at once. So nothing happens on the connection between two requests: that the handler closed it in the
//! meantime is found out when the next one is about to be sent.
//!
//! Must not know what is asked or what an answer means.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// One that was not used for so long is not used again: what is between may have forgotten it without a word.
const IDLE: Duration = Duration::from_secs(90);

type Wire = hyper::client::conn::http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    wire: Wire,
    /// Nothing can be asked on it any more, and it must not be polled.
    over: bool,
    used: Instant,
}

/// Why there is no answer.
pub(super) struct NoAnswer {
    pub(super) error: hyper::Error,
    /// The request, if nothing of it was sent.
    pub(super) unsent: Option<Request<Full<Bytes>>>,
}

impl Connection {
    pub(super) async fn open(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, wire) =
            Builder::new().handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        Ok(Self { sender, wire, over: false, used: Instant::now() })
    }

    /// The head of the answer to a request.
    pub(super) async fn ask(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let Self { sender, wire, over, .. } = self;
        if let Err(error) = drive(wire, over, sender.ready()).await {
            return Err(NoAnswer { error, unsent: Some(request) });
        }
        let answer = drive(wire, over, sender.try_send_request(request)).await;
        answer.map_err(|mut error| {
            let unsent = error.take_message();
            NoAnswer { error: error.into_error(), unsent }
        })
    }

    /// Lets the connection go on while something that it brings is waited for.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        drive(&mut self.wire, &mut self.over, work).await
    }

    /// Whether another request can be sent, as far as is known now.
    pub(super) async fn is_usable(&mut self) -> bool {
        // One look, which also takes note of what the handler did meanwhile.
        self.during(async {}).await;
        !self.over && !self.sender.is_closed() && self.used.elapsed() < IDLE
    }

    /// An answer was read to its end.
    pub(super) fn used(&mut self) {
        self.used = Instant::now();
    }
}

/// Both in one task: the connection first, because the other waits for it.
async fn drive<T>(wire: &mut Wire, over: &mut bool, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        if !*over {
            // Why it ended is told to whoever waits for an answer.
            *over = Pin::new(&mut *wire).poll(context).is_ready();
        }
        work.as_mut().poll(context)
    })
    .await
}
