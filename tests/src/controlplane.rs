//! One real API server (with etcd and the controller manager, without nodes) for all tests of one binary.
//!
//! It is started by the first test that asks and ends with the process. Tests share nothing in it but the definition
//! of the resource: each works in namespaces of its own. Pods are never run here.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Namespace, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{cluster::repository, waiting::wait_until};

const DEADLINE: Duration = Duration::from_secs(60);
const DEFINITION: &str = "orderedpartitionsets.lanekeeper.dev";

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    kubeconfig: PathBuf,
    audit_log: PathBuf,
    _folder: tempfile::TempDir,
}

impl ControlPlane {
    /// The one of this process.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    /// One of its own, for a test that changes what all others share. Ends with this process.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let audit_log = folder.path().join("audit.log");
        let script = repository().join("tests/cluster/cluster.py");
        let (program, log) = (script.clone(), audit_log.clone());
        let started = tokio::task::spawn_blocking(move || {
            Command::new(program)
                .args(["start", "--control-plane-only", "--until-pid", &std::process::id().to_string()])
                .arg("--audit-log")
                .arg(log)
                .stderr(Stdio::piped())
                .output()
        });
        let output = started.await.expect("the start does not panic").expect("cluster.py can be started");
        assert!(
            output.status.success(),
            "{} could not start a control plane: {}",
            script.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        let answer: Value = serde_json::from_slice(&output.stdout).expect("cluster.py answers in JSON");
        let kubeconfig = answer["kubeconfig"].as_str().expect("the answer has a kubeconfig").into();
        let control_plane = Self { kubeconfig, audit_log, _folder: folder };
        control_plane.install_definition().await;
        control_plane
    }

    /// The file that programs find the API server by, with all rights.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client with all rights. One for each test: a client belongs to the runtime that it was made in.
    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("the kubeconfig can be read");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("the kubeconfig is complete");
        Client::try_from(config).expect("a client can be made")
    }

    /// A new namespace; `name` makes it readable.
    pub async fn namespace(&self, client: &Client, name: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).expect("this is a namespace");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace can be made");
        name
    }

    /// A pod of a partition's worker as the API server knows it, which no kubelet runs. One that is there already is fine.
    pub async fn worker_pod(
        client: &Client,
        namespace: &str,
        set: &str,
        partition: u32,
        name: &str,
    ) -> Api<Pod> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {
                "app.kubernetes.io/name": "lanekeeper-worker", "app.kubernetes.io/managed-by": "lanekeeper",
                "lanekeeper.dev/set": set, "lanekeeper.dev/partition": partition.to_string(),
            }},
            "spec": {"containers": [{"name": "lane", "image": "example.com/lane:1"}]},
        }))
        .expect("this is a pod");
        match pods.create(&PostParams::default(), &pod).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("pod {name} can be made: {error}"),
        }
        pods
    }

    /// Every write request to the API server in a namespace that was answered since `from` (a position of
    /// [`ControlPlane::audit_position`]), as `user verb resource name`, whatever its outcome.
    pub fn writes(&self, namespace: &str, from: usize) -> Vec<String> {
        let text = std::fs::read(&self.audit_log).expect("the audit log can be read");
        String::from_utf8_lossy(&text[from..])
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|event| event["objectRef"]["namespace"] == namespace)
            .filter(|event| !matches!(event["verb"].as_str(), Some("get" | "list" | "watch")))
            .map(|event| {
                let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let object = &event["objectRef"];
                format!(
                    "{} {} {} {} {}",
                    word(&event["user"]["username"]),
                    word(&event["verb"]),
                    word(&object["resource"]),
                    word(&object["subresource"]),
                    word(&object["name"])
                )
            })
            .collect()
    }

    /// The end of the audit log.
    pub fn audit_position(&self) -> usize {
        let length = std::fs::metadata(&self.audit_log).expect("there is an audit log").len();
        usize::try_from(length).expect("a log fits into memory")
    }

    async fn install_definition(&self) {
        let client = self.client().await;
        let definitions: Api<CustomResourceDefinition> = Api::all(client);
        let text = std::fs::read_to_string(definition_file()).expect("the definition is committed");
        let definition: Value = serde_yaml::from_str(&text).expect("the definition is YAML");
        let parameters = PatchParams::apply("tests").force();
        let applied = definitions.patch(DEFINITION, &parameters, &Patch::Apply(&definition)).await;
        applied.expect("the API server accepts the definition");
        wait_until(DEADLINE, "the definition to be established", || async {
            let definition = definitions.get(DEFINITION).await.map_err(|error| error.to_string())?;
            let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
            let established = conditions.iter().any(|one| one.type_ == "Established" && one.status == "True");
            established.then_some(()).ok_or_else(|| "it is not".to_owned())
        })
        .await;
    }
}

fn definition_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/lanekeeper.dev_orderedpartitionsets.yaml")
}
