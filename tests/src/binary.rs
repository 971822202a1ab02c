//! Where the real programs are: each named tool is fetched or built once, into a cache folder.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

/// The real `nats-server` of one version, for example `2.15`.
///
/// `NATS_SERVER_2_15` in the environment names another one. Panics when there is none: a test without its server
/// has shown nothing.
pub fn nats_server(version: &str) -> PathBuf {
    let variable = format!("NATS_SERVER_{}", version.replace('.', "_"));
    if let Some(path) = std::env::var_os(&variable) {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "{variable} is {}, where no file is", path.display());
        return path;
    }
    tool(&format!("nats-server-{version}"))
}

/// A program by its name in `tests/cluster/cluster.py path <name>`. Panics when it cannot be had.
pub fn tool(name: &str) -> PathBuf {
    static FOUND: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let mut found = FOUND.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = found.get(name) {
        return path.clone();
    }
    let path = ask_for(name);
    found.insert(name.to_owned(), path.clone());
    path
}

fn ask_for(name: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/cluster.py");
    let output = Command::new("python3").arg(&script).args(["path", name]).output().unwrap_or_else(|error| {
        panic!("python3 is needed to find {name}, and could not be started: {error}")
    });
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    assert!(
        output.status.success() && path.exists(),
        "{name} is missing, and `{} path {name}` could not get it: {}",
        script.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    path
}

/// The real `lanekeeper-worker`, built once from this workspace. Panics with cargo's own words when it cannot be.
pub fn worker() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("--bin", "lanekeeper-worker"))
}

/// The worker's example that writes to PostgreSQL, built as the worker is.
pub fn postgres_example() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("--example", "postgres"))
}

fn build(kind: &str, name: &str) -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let built = Command::new(cargo)
        // The features of the whole workspace, so that nothing is compiled a second time.
        .args(["build", "--workspace", kind, name, "--message-format=json"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        // Build scripts of others look at it, and would be run again, with all that needs them.
        .env_remove("CARGO_MANIFEST_DIR")
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo can be started");
    assert!(built.status.success(), "{name} could not be built");
    let executable = |line: &[u8]| {
        let message: serde_json::Value = serde_json::from_slice(line).ok()?;
        let is_it = message["target"]["name"] == name;
        is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    };
    built.stdout.split(|byte| *byte == b'\n').find_map(executable).expect("cargo says where it is")
}
