//! kubectl as a user calls it, and plain reads of the API for what is asked again and again.
//!
//! Changes go through the real kubectl, because that is what users have. Reads are paths of the API, so that
//! nothing here depends on the product's own types.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};
use http::Request;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{binary, cluster::Cluster};

/// What the API server answers for an object that is not there.
const NOT_FOUND: u16 = 404;
/// What a server answers when a range begins at the end: there is nothing new.
const NOTHING_BEHIND: u16 = 416;

/// kubectl for one cluster; cheap to clone.
#[derive(Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: String,
    client: Client,
}

impl Kubectl {
    /// kubectl, built when it is missing. Wants a tokio runtime.
    pub async fn new(cluster: &Cluster) -> Result<Self> {
        let mut merged: Option<Kubeconfig> = None;
        for path in std::env::split_paths(&cluster.kubeconfig) {
            let one = Kubeconfig::read_from(&path).with_context(|| format!("reading {}", path.display()))?;
            merged = Some(match merged {
                Some(before) => before.merge(one).context("merging the files of KUBECONFIG")?,
                None => one,
            });
        }
        let kubeconfig = merged.context("KUBECONFIG names no file")?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config).context("making a client of the cluster")?;
        Ok(Self { program: binary::tool("kubectl"), kubeconfig: cluster.kubeconfig.clone(), client })
    }

    /// A call of kubectl that is not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        command
    }

    /// One call; its standard output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output().context("starting kubectl")?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!(
                "kubectl {} failed: {}{told}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(told)
    }

    /// `kubectl apply` of objects, in their order.
    pub fn apply(&self, objects: &[Value]) -> Result<String> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let mut child = self
            .command(&["apply", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting kubectl")?;
        let mut input = child.stdin.take().context("kubectl has an input")?;
        // What is not read is not worth an error of its own: kubectl then says why.
        let _ = input.write_all(list.to_string().as_bytes());
        drop(input);
        let output = child.wait_with_output().context("waiting for kubectl")?;
        if !output.status.success() {
            bail!("kubectl apply failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The object or list at a path of the API; none when there is no such thing.
    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        match self.client.request::<Value>(request(path, None)?).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if code(&error) == Some(NOT_FOUND) => Ok(None),
            Err(error) => Err(anyhow!(error).context(format!("reading {path}"))),
        }
    }

    /// The items of a list.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.get(path).await?.with_context(|| format!("the API server knows no {path}"))?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Text at a path, from a byte on: for what only grows.
    pub async fn text(&self, path: &str, from: usize) -> Result<String> {
        match self.client.request_text(request(path, (from > 0).then_some(from))?).await {
            Ok(text) => Ok(text),
            Err(error) if from > 0 && code(&error) == Some(NOTHING_BEHIND) => Ok(String::new()),
            Err(error) => Err(anyhow!(error).context(format!("reading {path}"))),
        }
    }

    /// An `OrderedPartitionSet`.
    pub async fn set(&self, namespace: &str, name: &str) -> Result<Option<Value>> {
        self.get(&format!("/apis/lanekeeper.dev/v1alpha1/namespaces/{namespace}/orderedpartitionsets/{name}"))
            .await
    }

    /// Pods by label selector, those that are ending included.
    pub async fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Value>> {
        // In a query `=` and `,` must be escaped; nothing else of a selector of ours needs it.
        let selector = selector.replace('=', "%3D").replace(',', "%2C").replace('/', "%2F");
        self.list(&format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")).await
    }

    /// What a person would look at first when a set does not work.
    pub fn diagnosis(&self, namespace: &str) -> String {
        let wide = ["-n", namespace, "get", "ops,deployments,pods", "-o", "wide"];
        let status = [
            "-n",
            namespace,
            "get",
            "ops",
            "-o",
            "jsonpath={range .items[*]}{.metadata.name}: {.status}{'\\n'}{end}",
        ];
        let events = ["-n", namespace, "get", "events", "--sort-by=.lastTimestamp"];
        let operator_pods = ["-n", crate::helm::NAMESPACE, "get", "pods", "-o", "wide"];
        let logs = ["-n", crate::helm::NAMESPACE, "logs", "deployment/lanekeeper", "--tail=60"];
        let lanes = [
            "-n",
            namespace,
            "logs",
            "-l",
            "app.kubernetes.io/managed-by=lanekeeper",
            "--tail=15",
            "--prefix",
            "--all-containers",
        ];
        let calls = [&wide[..], &status, &events, &operator_pods, &logs, &lanes];
        let told = calls.map(|arguments| {
            let told = self.run(arguments).unwrap_or_else(|error| error.to_string());
            format!("--- kubectl {}\n{}\n", arguments.join(" "), last_lines(&told, 60))
        });
        told.concat()
    }
}

/// A condition's status, reason and message; `?` for what is not there yet.
pub fn condition(object: &Value, wanted: &str) -> (String, String, String) {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|one| one["type"] == wanted);
    let word = |name: &str| found.and_then(|one| one[name].as_str()).unwrap_or("?").to_owned();
    (word("status"), word("reason"), word("message"))
}

/// Whether a set is Ready for the specification that it has now.
pub fn is_ready(set: &Value) -> bool {
    condition(set, "Ready").0 == "True"
        && set["status"]["observedGeneration"] == set["metadata"]["generation"]
}

/// Whether a pod is Ready and not on its way out.
pub fn pod_is_ready(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && condition(pod, "Ready").0 == "True"
}

fn request(path: &str, from: Option<usize>) -> Result<Request<Vec<u8>>> {
    let mut request = Request::get(path);
    if let Some(from) = from {
        request = request.header("Range", format!("bytes={from}-"));
    }
    request.body(Vec::new()).with_context(|| format!("{path} is no path"))
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_ready_only_for_the_generation_that_it_has() {
        let set = |observed: i64, status: &str| {
            json!({
                "metadata": {"generation": 2},
                "status": {"observedGeneration": observed, "conditions": [{"type": "Ready", "status": status}]},
            })
        };
        assert!(is_ready(&set(2, "True")));
        assert!(!is_ready(&set(1, "True")));
        assert!(!is_ready(&set(2, "False")));
        assert!(!is_ready(&json!({"metadata": {"generation": 1}})));
    }

    #[test]
    fn a_pod_that_is_ending_is_not_ready() {
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        assert!(pod_is_ready(&json!({"metadata": {}, "status": {"conditions": conditions}})));
        let ending = json!({"metadata": {"deletionTimestamp": "now"}, "status": {"conditions": conditions}});
        assert!(!pod_is_ready(&ending));
    }
}
