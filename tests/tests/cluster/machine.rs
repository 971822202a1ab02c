//! What all stories share: the machine's one cluster, the images, and the installed operator.
//!
//! A cluster that runs already (the demo's) is used and left as it was found. Otherwise one is started that ends
//! with this process, with an audit log.

use std::{fs, path::PathBuf, sync::OnceLock};

use anyhow::{Result, ensure};
use lanekeeper_tests::{
    cluster::{self, Cluster, Reservation},
    helm::Helm,
    images::Images,
};
use serde_json::Value;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How often the operator looks at what nothing has told it of: shorter than its default, so that drift is found soon.
pub(crate) const RESYNC_SECONDS: u64 = 10;

/// The cluster with the operator in it.
pub(crate) struct Machine {
    pub(crate) cluster: Cluster,
    pub(crate) images: Images,
    pub(crate) helm: Helm,
    /// The API server's audit log, when the cluster is ours.
    pub(crate) audit: Option<PathBuf>,
    _reservation: Reservation,
}

impl Machine {
    /// The one of this process, made by the story that comes first. A failure fails every story in the same words.
    pub(crate) fn get() -> &'static Self {
        static MACHINE: OnceLock<Result<Machine, String>> = OnceLock::new();
        let made = MACHINE.get_or_init(|| Self::make().map_err(|error| format!("{error:#}")));
        match made {
            Ok(machine) => machine,
            Err(reason) => panic!("there is no cluster with an operator: {reason}"),
        }
    }

    /// Installs, or upgrades to, the images of now.
    pub(crate) fn install_operator(&self) -> Result<String> {
        self.helm.install(&self.images, &[&format!("resyncSeconds={RESYNC_SECONDS}")])
    }

    fn make() -> Result<Self> {
        let reservation = cluster::reserve(|text| eprintln!("cluster: {text}"))?;
        Cluster::prepare_tools(&["kubectl", "helm"])?;
        let images = Images::build()?;
        let (cluster, audit) = if std::env::var("LANEKEEPER_CLUSTER").is_ok() || Cluster::default_runs() {
            (Cluster::chosen()?, None)
        } else {
            let folder = cluster::cache_folder().join("cluster-of-tests");
            fs::create_dir_all(&folder)?;
            let audit = folder.join("audit.log");
            (Cluster::owned(&folder, &audit)?, Some(audit))
        };
        ensure!(
            cluster.is_this_machine(),
            "the stories look at processes and files of the node, so LANEKEEPER_CLUSTER={} cannot be used",
            cluster.mode
        );
        images.deliver(&cluster)?;
        let helm = Helm::new(&cluster);
        let machine = Self { cluster, images, helm, audit, _reservation: reservation };
        machine.install_operator()?;
        Ok(machine)
    }

    /// The writes that the operator made since a place in the audit log; none known without one.
    pub(crate) fn operator_writes(&self, since: usize) -> Vec<Value> {
        let user = format!("system:serviceaccount:{}:lanekeeper", lanekeeper_tests::helm::NAMESPACE);
        let is_write = |entry: &Value| {
            entry["user"]["username"] == user.as_str()
                && !matches!(entry["verb"].as_str(), Some("get" | "list" | "watch"))
        };
        let text = self.audit_text();
        let lines = text[since.min(text.len())..].lines();
        lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(is_write).collect()
    }

    /// Everything in the audit log so far.
    pub(crate) fn audit_text(&self) -> String {
        self.audit.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
    }
}

/// Stories run side by side, but not beside one that measures, or that takes the operator away.
static QUIET: RwLock<()> = RwLock::const_new(());

/// For the time of an ordinary story.
pub(crate) async fn beside_others() -> RwLockReadGuard<'static, ()> {
    QUIET.read().await
}

/// For the time of a story that needs the operator for itself.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    QUIET.write().await
}
