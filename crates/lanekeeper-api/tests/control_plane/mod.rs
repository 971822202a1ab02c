//! A real API server for the tests of one program: started once, gone with the process.

// Each program of tests uses a part of it.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::{
    env,
    ffi::OsStr,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio, id},
    sync::OnceLock,
};

use serde_json::Value;

/// What a program answered.
pub(crate) struct Answer {
    pub(crate) succeeded: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    /// What it wrote, when it succeeded.
    #[track_caller]
    pub(crate) fn expect(self) -> String {
        assert!(self.succeeded, "{}{}", self.out, self.err);
        self.out
    }

    /// What it complained of, when it failed.
    #[track_caller]
    pub(crate) fn refusal(self) -> String {
        assert!(!self.succeeded, "it was accepted: {}", self.out);
        self.err
    }
}

/// etcd, API server and controllers.
pub(crate) struct ControlPlane {
    kubeconfig: PathBuf,
}

impl ControlPlane {
    /// The one of this process, without the definition.
    pub(crate) fn bare() -> &'static Self {
        static PLANE: OnceLock<ControlPlane> = OnceLock::new();
        PLANE.get_or_init(|| {
            let folder = env::temp_dir().join(format!("lanekeeper-control-plane-{}", id()));
            let mut start = cluster();
            start
                .args(["start", "--control-plane-only", "--until-pid", &id().to_string(), "--dir"])
                .arg(&folder);
            answer(&mut start, None).expect();
            Self { kubeconfig: folder.join("kubeconfig") }
        })
    }

    /// The one of this process, with the committed definition.
    pub(crate) fn with_definition() -> &'static Self {
        static INSTALLED: OnceLock<()> = OnceLock::new();
        let plane = Self::bare();
        INSTALLED.get_or_init(|| {
            let applied = plane.kubectl(&["apply", "--server-side", "-f", "crds/"], None);
            assert_eq!(applied.err, "", "the API server has no complaint and no warning");
            applied.expect();
            let definition = "crd/orderedpartitionsets.lanekeeper.dev";
            plane
                .kubectl(&["wait", "--for=condition=Established", definition, "--timeout=60s"], None)
                .expect();
        });
        plane
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// kubectl in the repository's root, with an object as its input.
    pub(crate) fn kubectl(&self, arguments: &[&str], input: Option<&Value>) -> Answer {
        static KUBECTL: OnceLock<PathBuf> = OnceLock::new();
        self.run(KUBECTL.get_or_init(|| tool("kubectl")), arguments, input)
    }

    /// Helm in the repository's root.
    pub(crate) fn helm(&self, arguments: &[&str]) -> Answer {
        static HELM: OnceLock<PathBuf> = OnceLock::new();
        self.run(HELM.get_or_init(|| tool("helm")), arguments, None)
    }

    /// Any program, with this API server as kubectl's.
    pub(crate) fn run(
        &self,
        program: impl AsRef<OsStr>,
        arguments: &[&str],
        input: Option<&Value>,
    ) -> Answer {
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).current_dir(root());
        answer(&mut command, input)
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A tool of the repository. One that cannot be had fails the test; nothing is skipped.
pub(crate) fn tool(name: &str) -> PathBuf {
    PathBuf::from(answer(cluster().args(["path", name]), None).expect().trim())
}

fn cluster() -> Command {
    let mut command = Command::new("python3");
    command.arg("tests/cluster/cluster.py").current_dir(root());
    command
}

fn answer(command: &mut Command, input: Option<&Value>) -> Answer {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let started = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        pipe.write_all(input.to_string().as_bytes()).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    Answer {
        succeeded: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
