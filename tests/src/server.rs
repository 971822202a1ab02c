//! One real NATS server, with a store and a configuration of its own, on loopback.
//!
//! Its ports are chosen by the operating system and kept over restarts. It ends with the value.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::{binary, waiting::wait_until};

const START_DEADLINE: Duration = Duration::from_secs(30);

/// How a server is to be started.
#[derive(Debug, Clone)]
pub struct ServerBuilder {
    version: String,
    name: String,
    jetstream: Option<String>,
    config: String,
    port: u16,
}

impl ServerBuilder {
    /// JetStream's block gets more lines, for example `domain: hub`.
    #[must_use]
    pub fn jetstream(mut self, lines: &str) -> Self {
        self.jetstream = Some(lines.to_owned());
        self
    }

    /// Without JetStream.
    #[must_use]
    pub fn without_jetstream(mut self) -> Self {
        self.jetstream = None;
        self
    }

    /// More configuration, for example accounts and users.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        text.clone_into(&mut self.config);
        self
    }

    /// `server_name`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// A port instead of one that the operating system chooses.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Starts it and waits until it accepts clients.
    pub async fn start(self) -> NatsServer {
        let mut server = self.spawn();
        server.wait_for_start().await;
        server
    }

    /// Starts it without waiting, for servers that become ready only together.
    pub fn spawn(self) -> NatsServer {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut server = NatsServer { settings: self, folder, process: None, address: None };
        server.launch();
        server
    }
}

/// A running (or stopped) server.
#[derive(Debug)]
pub struct NatsServer {
    settings: ServerBuilder,
    folder: TempDir,
    process: Option<Child>,
    address: Option<SocketAddr>,
}

impl NatsServer {
    /// A server of a version (`2.11`, `2.12`, `2.15`) with JetStream and without accounts.
    pub fn builder(version: &str) -> ServerBuilder {
        ServerBuilder {
            version: version.to_owned(),
            name: "single".into(),
            jetstream: Some(String::new()),
            config: String::new(),
            port: 0,
        }
    }

    /// [`NatsServer::builder`] with nothing changed.
    pub async fn start(version: &str) -> Self {
        Self::builder(version).start().await
    }

    /// Where clients connect: `nats://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("the server was started and waited for")
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// A plain client, as a user of the given name and password would have.
    pub async fn client_as(&self, user: &str, password: &str) -> async_nats::Client {
        async_nats::ConnectOptions::with_user_and_password(user.into(), password.into())
            .connect(self.url())
            .await
            .expect("the server accepts this user")
    }

    /// A plain client without credentials.
    pub async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.url()).await.expect("the server accepts clients")
    }

    /// Kills it with SIGKILL: nothing is flushed, no client is told.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("a running child can be killed");
            process.wait().expect("a killed child ends");
        }
    }

    /// Stops it in an orderly way (SIGTERM) and waits for its end.
    pub async fn stop(&mut self) {
        self.signal("TERM");
        let process = &mut self.process;
        if let Some(child) = process.as_mut() {
            while child.try_wait().expect("a child can be waited for").is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        *process = None;
    }

    /// Starts it again, on the same port and store.
    pub async fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server runs already");
        self.launch();
        self.wait_for_start().await;
    }

    /// Stops it and starts it again, on the same port and store.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }

    /// Restarts it with other configuration text.
    pub async fn restart_with(&mut self, change: impl FnOnce(ServerBuilder) -> ServerBuilder) {
        self.stop().await;
        self.settings = change(self.settings.clone());
        self.start_again().await;
    }

    /// Writes other configuration and has the running server read it (SIGHUP).
    pub fn reload_with(&mut self, change: impl FnOnce(ServerBuilder) -> ServerBuilder) {
        self.settings = change(self.settings.clone());
        self.write_config();
        self.signal("HUP");
    }

    /// Freezes the process: connections stay, nothing answers.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    /// What the server logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default()
    }

    fn signal(&self, signal: &str) {
        let Some(pid) = self.pid() else { return };
        let status = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "SIG{signal} could not be sent to the server");
    }

    fn launch(&mut self) {
        // A stale file of an earlier life would name a port that nobody has.
        for stale in self.ports_files() {
            fs::remove_file(stale).expect("an old ports file can be removed");
        }
        self.write_config();
        let binary = binary::nats_server(&self.settings.version);
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("server.log"));
        let log = log.expect("a log file can be made");
        let child = Command::new(&binary)
            .arg("-c")
            .arg(self.config_path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{} could not be started: {error}", binary.display()));
        self.process = Some(child);
    }

    /// Waits until the server has said its port and accepts connections.
    pub async fn wait_for_start(&mut self) {
        let folder = self.folder.path().to_owned();
        let process = self.process.as_mut().expect("the server was launched");
        let mut ended = || process.try_wait().ok().flatten();
        let address = wait_until(START_DEADLINE, "the server to say its port", || {
            if let Some(status) = ended() {
                let log = fs::read_to_string(folder.join("server.log")).unwrap_or_default();
                panic!("the server ended at once ({status}): {log}");
            }
            let address = ports_file(&folder).and_then(|path| read_address(&path).ok());
            async move { address }
        })
        .await;
        self.address = Some(address);
        wait_until(START_DEADLINE, "the server to accept clients", || {
            tokio::net::TcpStream::connect(address)
        })
        .await;
    }

    fn config_path(&self) -> PathBuf {
        self.folder.path().join("server.conf")
    }

    fn ports_files(&self) -> Vec<PathBuf> {
        ports_file(self.folder.path()).into_iter().collect()
    }

    fn write_config(&self) {
        let folder = self.folder.path().display();
        let settings = &self.settings;
        let port = self.address.map_or(settings.port, |address| address.port());
        // -1 lets the operating system choose; 0 would mean the default port.
        let port = if port == 0 { -1 } else { i32::from(port) };
        let jetstream = settings
            .jetstream
            .as_ref()
            .map(|lines| format!("jetstream {{\n  store_dir: \"{folder}/store\"\n  {lines}\n}}\n"))
            .unwrap_or_default();
        let text = format!(
            "host: 127.0.0.1\nport: {port}\nserver_name: {}\nports_file_dir: \"{folder}\"\n{jetstream}{}\n",
            settings.name, settings.config
        );
        fs::write(self.config_path(), text).expect("the configuration can be written");
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Nothing to do about a failure here: the test is over.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn ports_file(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "ports"))
}

fn read_address(ports_file: &Path) -> io::Result<SocketAddr> {
    let wrong = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let ports: serde_json::Value = serde_json::from_slice(&fs::read(ports_file)?)?;
    let url = ports["nats"][0].as_str().ok_or_else(|| wrong("no client port"))?;
    url.trim_start_matches("nats://").trim_start_matches("tls://").parse().map_err(|_| wrong(url))
}
