//! A TCP proxy between a client and a server, for what networks do: cut, hold back, swallow.
//!
//! It knows nothing of the protocol: bytes are held or lost wherever they happen to be.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server sends.
    ToClient,
}

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They arrive.
    Forward,
    /// They wait, and arrive when the flow is `Forward` again.
    Hold,
    /// They are read and lost, while the connection looks healthy.
    Swallow,
}

#[derive(Debug, Clone)]
struct State {
    target: SocketAddr,
    to_server: Flow,
    to_client: Flow,
    refusing: bool,
    /// Connections of an earlier generation end.
    generation: u64,
}

/// A proxy in front of one server. It ends with the value.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    state: watch::Sender<State>,
    open: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl TcpProxy {
    /// A proxy on a port of its own that forwards to `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let start = State {
            target,
            to_server: Flow::Forward,
            to_client: Flow::Forward,
            refusing: false,
            generation: 0,
        };
        let (state, watcher) = watch::channel(start);
        let (open_sender, open) = watch::channel(0);
        let task = tokio::spawn(accept(listener, watcher, open_sender));
        Self { address, state, open, task }
    }

    /// Where clients connect: `nats://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections are open now.
    pub fn connections(&self) -> usize {
        *self.open.borrow()
    }

    /// Changes what happens to one direction, of present and future connections.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.state.send_modify(|state| match direction {
            Direction::ToServer => state.to_server = flow,
            Direction::ToClient => state.to_client = flow,
        });
    }

    /// Closes all present connections; new ones are accepted.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Closes all present connections, and every new one as soon as it is made.
    pub fn refuse(&self) {
        self.state.send_modify(|state| {
            state.refusing = true;
            state.generation += 1;
        });
    }

    /// Everything is forwarded again. Connections that lost bytes are closed first: what they carry is no
    /// protocol any more.
    pub fn restore(&self) {
        self.state.send_modify(|state| {
            if state.to_server == Flow::Swallow || state.to_client == Flow::Swallow {
                state.generation += 1;
            }
            state.refusing = false;
            state.to_server = Flow::Forward;
            state.to_client = Flow::Forward;
        });
    }

    /// Forwards new connections to another server.
    pub fn set_target(&self, target: SocketAddr) {
        self.state.send_modify(|state| state.target = target);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, state: watch::Receiver<State>, open: watch::Sender<usize>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { return };
                if state.borrow().refusing {
                    continue;
                }
                connections.spawn(connection(client, state.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
        open.send_replace(connections.len());
    }
}

async fn connection(client: TcpStream, state: watch::Receiver<State>) -> io::Result<()> {
    let (target, generation) = {
        let now = state.borrow();
        (now.target, now.generation)
    };
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut cut = state.clone();
    // Whatever ends first ends the connection: both halves are dropped together.
    tokio::select! {
        result = pump(from_client, to_server, state.clone(), Direction::ToServer) => result,
        result = pump(from_server, to_client, state, Direction::ToClient) => result,
        _ = cut.wait_for(|now| now.generation != generation) => Ok(()),
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    direction: Direction,
) -> io::Result<()> {
    let flow = |state: &State| match direction {
        Direction::ToServer => state.to_server,
        Direction::ToClient => state.to_client,
    };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        // What was read before the hold is held as well.
        let now = match state.wait_for(|state| flow(state) != Flow::Hold).await {
            Ok(now) => flow(&now),
            Err(_) => return Ok(()),
        };
        if now == Flow::Forward {
            to.write_all(&buffer[..count]).await?;
        }
    }
}
