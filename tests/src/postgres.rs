//! One real PostgreSQL server with an empty database, reached over a socket in a folder of its own.
//!
//! It ends with the value. Nothing that it holds outlives a crash: its tests are not about its disk.

use std::{
    fs,
    io::Write,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use crate::{binary, waiting::wait_until};

const START_DEADLINE: Duration = Duration::from_secs(60);
/// `nobody`: PostgreSQL refuses to run as root.
const UNPRIVILEGED: u32 = 65_534;
/// For a server that only tests use: no waiting for disks, little memory, no port.
const SETTINGS: [&str; 6] = [
    "listen_addresses=",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "max_connections=60",
];

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    process: Child,
}

impl Postgres {
    /// Makes an empty database and a server for it, and waits until it accepts clients.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let programs = programs(folder.path());
        let made = command(&programs.join("initdb"), folder.path())
            .args(["--username=postgres", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8"])
            .arg("--pgdata=data")
            .output()
            .expect("initdb can be started");
        assert!(made.status.success(), "initdb failed: {}", text(&made));
        let log = fs::File::create(folder.path().join("server.log")).expect("a log file can be made");
        let process = command(&programs.join("postgres"), folder.path())
            .args(["-D", "data", "-k"])
            .arg(folder.path())
            .args(SETTINGS.iter().flat_map(|setting| ["-c", setting]))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("postgres can be started");
        let mut server = Self { folder, programs, process };
        server.wait_for_start().await;
        server
    }

    async fn wait_for_start(&mut self) {
        let settings = self.settings();
        wait_until(START_DEADLINE, "PostgreSQL to accept clients", || {
            let ended = self.process.try_wait().ok().flatten();
            assert!(ended.is_none(), "PostgreSQL ended at once: {}", self.log());
            let settings = settings.clone();
            async move { tokio_postgres::connect(&settings, NoTls).await.map(drop) }
        })
        .await;
    }

    /// How clients connect, in the form of libpq.
    pub fn settings(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.folder.path().display())
    }

    /// Where its socket is.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client with a connection of its own.
    pub async fn client(&self) -> Client {
        let connected = tokio_postgres::connect(&self.settings(), NoTls).await;
        let (client, connection) = connected.expect("the server accepts clients");
        tokio::spawn(connection);
        client
    }

    /// Runs a script as a person with psql would; what it printed, or its error.
    pub fn psql(&self, script: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let mut process = Command::new(self.programs.join("psql"))
            .args(variables.iter().map(|(name, value)| format!("--set={name}={value}")))
            .args(["--no-psqlrc", "--set=ON_ERROR_STOP=1", "--tuples-only", "--no-align", "--dbname"])
            .arg(self.settings())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql can be started");
        // It ends with the script, whose end is that of its input.
        let mut input = process.stdin.take().expect("its input is ours");
        input.write_all(script.as_bytes()).expect("psql takes the script");
        drop(input);
        let output = process.wait_with_output().expect("psql ends");
        if output.status.success() { Ok(text(&output)) } else { Err(text(&output)) }
    }

    /// What the server logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT: the server ends its own processes at once; SIGKILL would leave them for a moment.
        let told = Command::new("kill").arg("-QUIT").arg(self.process.id().to_string()).status();
        if !told.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// The folder of PostgreSQL's programs, where the account that runs them may read it.
fn programs(folder: &Path) -> PathBuf {
    let tool = binary::tool("postgres");
    let found = tool.parent().expect("a program is in a folder");
    if !is_root() {
        return found.to_owned();
    }
    std::os::unix::fs::chown(folder, Some(UNPRIVILEGED), Some(UNPRIVILEGED))
        .expect("root can give a folder away");
    // Another account may not look into root's cache folder.
    let package = found.ancestors().nth(3).expect("the programs are deep in the tool's folder");
    let copy = folder.join("package");
    let owner = format!("{UNPRIVILEGED}:{UNPRIVILEGED}");
    run(Command::new("cp").arg("-R").arg(package).arg(&copy));
    run(Command::new("chown").args(["-R", &owner]).arg(&copy));
    let inside = found.strip_prefix(package).expect("it is an ancestor");
    copy.join(inside)
}

/// A program of PostgreSQL's, in the folder, as an account that it accepts.
fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    // PG… variables of whoever runs the tests are not for this server.
    command.current_dir(folder).env_clear();
    if is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

fn run(command: &mut Command) {
    let status = command.status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?} failed");
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).trim().to_owned()
}
