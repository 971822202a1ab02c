//! Reading from the Kubernetes API server. I/O.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use lanekeeper_api::OrderedPartitionSet;

use crate::arguments::Connection;

/// Where to look for sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// In the chosen namespace.
    Namespace,
    /// Everywhere.
    All,
}

/// Why the API server could not be asked, or what it answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(Box<kube::config::KubeconfigError>),
    #[error("neither a kubeconfig nor the environment of a pod was found: {0}")]
    NoConfig(Box<kube::config::InferConfigError>),
    #[error("no connection to the API server can be made: {}", words(.0))]
    Client(Box<kube::Error>),
    #[error("there is no set {name} in namespace {namespace}")]
    NoSet { namespace: String, name: String },
    #[error("the API server knows no orderedpartitionsets.lanekeeper.dev: is Lanekeeper installed?")]
    NotInstalled,
    #[error("{what} cannot be read: {}", words(error))]
    Unreadable { what: String, error: Box<kube::Error> },
}

/// One API server, as one user, in one namespace.
pub(crate) struct Cluster {
    client: Client,
    /// The chosen namespace.
    pub(crate) namespace: String,
}

impl Cluster {
    /// Reads the configuration; nothing is asked yet.
    pub(crate) async fn connect(connection: &Connection) -> Result<Self, ClusterError> {
        let config = config(connection).await?;
        let namespace = connection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| ClusterError::Client(Box::new(error)))?;
        Ok(Self { client, namespace })
    }

    /// For what is asked elsewhere.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// One set.
    pub(crate) async fn set(&self, name: &str) -> Result<OrderedPartitionSet, ClusterError> {
        let sets: Api<OrderedPartitionSet> = Api::namespaced(self.client.clone(), &self.namespace);
        match sets.get_opt(name).await {
            Ok(Some(set)) => Ok(set),
            // The same answer stands for a set and for the whole type; listing tells them apart.
            Ok(None) => {
                self.sets(Scope::Namespace).await?;
                Err(ClusterError::NoSet { namespace: self.namespace.clone(), name: name.to_owned() })
            }
            Err(error) => Err(unreadable(format!("set {}/{name}", self.namespace), error)),
        }
    }

    /// All sets, by namespace and name.
    pub(crate) async fn sets(&self, scope: Scope) -> Result<Vec<OrderedPartitionSet>, ClusterError> {
        let sets: Api<OrderedPartitionSet> = match scope {
            Scope::Namespace => Api::namespaced(self.client.clone(), &self.namespace),
            Scope::All => Api::all(self.client.clone()),
        };
        let mut found = match sets.list(&ListParams::default()).await {
            Ok(list) => list.items,
            Err(kube::Error::Api(status)) if status.code == 404 => return Err(ClusterError::NotInstalled),
            Err(error) => return Err(unreadable("sets".to_owned(), error)),
        };
        found.sort_by_key(|set| (set.namespace(), set.name_any()));
        Ok(found)
    }

    /// The Deployments of one set.
    pub(crate) async fn deployments(&self, set: &str) -> Result<Vec<Deployment>, ClusterError> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let ours = ListParams::default().labels(&format!("lanekeeper.dev/set={set}"));
        let found = deployments.list(&ours).await;
        let found = found
            .map_err(|error| unreadable(format!("Deployments in namespace {}", self.namespace), error))?;
        let of_the_set = |one: &Deployment| {
            let owners = one.meta().owner_references.iter().flatten();
            owners.into_iter().any(|owner| owner.kind == "OrderedPartitionSet" && owner.name == set)
        };
        Ok(found.items.into_iter().filter(of_the_set).collect())
    }
}

impl Cluster {
    /// The running pods of a set's workers, by name.
    pub(crate) async fn workers(&self, set: &str) -> Result<Vec<Pod>, ClusterError> {
        self.set(set).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let ours = format!("app.kubernetes.io/name=lanekeeper-worker,lanekeeper.dev/set={set}");
        let found = pods.list(&ListParams::default().labels(&ours).fields("status.phase=Running")).await;
        let found =
            found.map_err(|error| unreadable(format!("pods in namespace {}", self.namespace), error))?;
        let mut found = found.items;
        found.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        found.sort_by_key(ResourceExt::name_any);
        Ok(found)
    }
}

fn unreadable(what: String, error: kube::Error) -> ClusterError {
    ClusterError::Unreadable { what, error: Box::new(error) }
}

/// The API server's own words where it answered; else the error with all of its causes, because the outermost says
/// little.
pub(crate) fn words(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = inner.source();
    }
    words
}

async fn config(connection: &Connection) -> Result<Config, ClusterError> {
    let wrong = |error| ClusterError::Kubeconfig(Box::new(error));
    let Connection { context, cluster, user, .. } = connection.clone();
    let named = context.is_some() || cluster.is_some() || user.is_some();
    let options = KubeConfigOptions { context, cluster, user };
    match &connection.kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file).map_err(wrong)?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(wrong)
        }
        None if named => Config::from_kubeconfig(&options).await.map_err(wrong),
        None => Config::infer().await.map_err(|error| ClusterError::NoConfig(Box::new(error))),
    }
}
