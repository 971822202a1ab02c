//! One test's namespace, NATS server and operator, and what is asked of them.

use std::{future::Future, net::SocketAddr, time::Duration};

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Secret, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use lanekeeper_api::OrderedPartitionSet;
use lanekeeper_core::{
    consumer::ConsumerFound,
    names::SetName,
    record::{Assignment, LaneState, Record},
    stream::StreamFound,
};
use lanekeeper_nats::{Bucket, ConnectSettings, Connection, observe};
use lanekeeper_operator::{Settings, run};
use lanekeeper_tests::{LATEST, NatsServer, controlplane::ControlPlane, wait_until};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// The operator looks again this often: waits are short, the mechanism is the same.
pub(crate) const RESYNC: Duration = Duration::from_millis(500);

/// A running operator; it ends in an orderly way.
pub(crate) struct Operator {
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    admin: SocketAddr,
}

impl Operator {
    pub(crate) fn start(client: Client, namespaces: &[&str], change: impl FnOnce(&mut Settings)) -> Self {
        // The port is free a moment before it is used; a stranger in between makes the start fail with words.
        let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut settings = <Settings as clap::Parser>::parse_from([
            "lanekeeper-operator".to_owned(),
            format!("--watch-namespaces={}", namespaces.join(",")),
            format!("--resync={}", RESYNC.as_secs_f64()),
            format!("--admin-address={admin}"),
        ]);
        change(&mut settings);
        let (end, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let end = async {
                let _ = ended.await;
            };
            run::with_client(client, settings, end).await.expect("the operator runs");
        });
        Self { end: Some(end), task, admin }
    }

    /// Ends it and waits until it has ended.
    pub(crate) async fn stop(mut self) {
        drop(self.end.take());
        self.task.await.expect("the operator ends without a defect");
    }

    /// Ends it in the middle of whatever it does, as a killed process would.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let ended = self.task.await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it was running");
    }

    /// What it answers at a path of its admin port.
    pub(crate) async fn admin(&self, path: &str) -> Result<(u16, String), String> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream =
            tokio::net::TcpStream::connect(self.admin).await.map_err(|error| error.to_string())?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
        Ok((status, answer))
    }
}

/// One test's world.
pub(crate) struct Rig {
    pub(crate) control: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) nats: NatsServer,
}

impl Rig {
    /// Without an operator yet.
    pub(crate) async fn prepare(name: &str, nats: NatsServer) -> Self {
        Self::prepare_on(ControlPlane::shared().await, name, nats).await
    }

    /// On a control plane of the test's own.
    pub(crate) async fn prepare_on(control: &'static ControlPlane, name: &str, nats: NatsServer) -> Self {
        let client = control.client().await;
        let namespace = control.namespace(&client, name).await;
        Self { control, client, namespace, nats }
    }

    /// With a server of the latest version and an operator.
    pub(crate) async fn start(name: &str) -> (Self, Operator) {
        let rig = Self::prepare(name, NatsServer::start(LATEST).await).await;
        let operator = rig.operator().await;
        (rig, operator)
    }

    /// An operator for this namespace.
    pub(crate) async fn operator(&self) -> Operator {
        self.operator_with(|_| {}).await
    }

    pub(crate) async fn operator_with(&self, change: impl FnOnce(&mut Settings)) -> Operator {
        Operator::start(self.control.client().await, &[&self.namespace], change)
    }

    /// The smallest set: stream `ORDERS`, subjects `orders.*`, HTTP handler.
    pub(crate) fn spec(&self, partitions: u32) -> Value {
        json!({
            "partitions": partitions,
            "nats": {"servers": [self.nats.url()]},
            "stream": {"name": "ORDERS", "subjects": ["orders.*"], "storage": "Memory"},
            "mapping": {"subject": "orders.*", "keyTokens": [1], "maxPartitions": 16},
            "consumer": {"ackWaitSeconds": 1},
            "worker": {
                "handler": {"http": {"port": 8080, "timeoutSeconds": 30}},
                "podTemplate": {"spec": {"containers": [{"name": "handler", "image": "example.com/handler:1"}]}},
            },
        })
    }

    pub(crate) fn sets(&self) -> Api<OrderedPartitionSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn name(&self, set: &str) -> SetName {
        SetName::new(&self.namespace, set)
    }

    /// Creates a set as a person does, with strict validation.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<OrderedPartitionSet, String> {
        let set = json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "OrderedPartitionSet",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
        });
        let request = kube::core::Request::new(OrderedPartitionSet::url_path(&(), Some(&self.namespace)));
        let body = serde_json::to_vec(&set).unwrap();
        let mut request = request.create(&PostParams::default(), body).unwrap();
        let strict = format!("{}fieldValidation=Strict", request.uri());
        *request.uri_mut() = strict.parse().unwrap();
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        })
    }

    /// Changes a set by a merge patch.
    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        let patched = self.sets().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.unwrap_or_else(|error| panic!("{name} can be changed to {patch}: {error}"));
    }

    pub(crate) async fn get(&self, name: &str) -> OrderedPartitionSet {
        self.sets().get(name).await.expect("the set is there")
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.sets().delete(name, &DeleteParams::default()).await.expect("the set can be deleted");
    }

    pub(crate) async fn is_gone(&self, name: &str) -> bool {
        self.sets().get_opt(name).await.expect("the API server answers").is_none()
    }

    /// Waits until a set is gone.
    pub(crate) async fn wait_gone(&self, name: &str) {
        wait_until(DEADLINE, &format!("set {name} to be gone"), || self.is_gone(name)).await;
    }

    /// Waits until a condition says `Status/Reason`, and returns its message.
    pub(crate) async fn wait_condition(&self, set: &str, condition: &str, wanted: &str) -> String {
        let what = format!("{condition} of {set} to be {wanted}");
        wait_until(DEADLINE, &what, || async {
            let set = self.sets().get(set).await.map_err(|error| error.to_string())?;
            let conditions = set.status.clone().unwrap_or_default().conditions;
            let found = conditions.iter().find(|one| one.type_ == condition);
            match found {
                Some(one) if said(one) == wanted && one.observed_generation == set.metadata.generation => {
                    Ok(one.message.clone())
                }
                Some(one) => Err(format!("{} ({})", said(one), one.message)),
                None => Err("it is not there".to_owned()),
            }
        })
        .await
    }

    /// Waits until the stream and all lanes are there. Workers never become ready without nodes.
    pub(crate) async fn wait_lanes(&self, set: &str) {
        self.wait_condition(set, "StreamReady", "True/AsSpecified").await;
        self.wait_condition(set, "LanesReady", "True/AsSpecified").await;
    }

    /// A client of NATS with the operator's own eyes.
    pub(crate) async fn connection(&self) -> Connection {
        Connection::connect(ConnectSettings::new([self.nats.url()], "tests")).await.expect("NATS is there")
    }

    pub(crate) async fn stream(&self, name: &str) -> Option<StreamFound> {
        observe::stream(&self.connection().await, name).await.expect("NATS answers")
    }

    /// All consumers of a stream, by name.
    pub(crate) async fn consumers(&self, stream: &str) -> Vec<ConsumerFound> {
        observe::consumers(&self.connection().await, stream).await.expect("NATS answers")
    }

    /// The consumers of one set.
    pub(crate) async fn consumers_of(&self, set: &str, stream: &str) -> Vec<ConsumerFound> {
        let name = self.name(set);
        let mut found = self.consumers(stream).await;
        found.retain(|one| name.parse_consumer(&one.name).is_some());
        found
    }

    pub(crate) async fn bucket(&self) -> Bucket {
        Bucket::new(self.connection().await, "lanekeeper")
    }

    pub(crate) async fn record(&self, set: &str) -> Option<Record> {
        let key = self.name(set).record_key();
        self.bucket().await.get_json(&key).await.ok().flatten().map(|found| found.value)
    }

    pub(crate) async fn assignment(&self, set: &str, partition: u32) -> Option<Assignment> {
        let key = self.name(set).assignment_key(partition);
        self.bucket().await.get_json(&key).await.ok().flatten().map(|found| found.value)
    }

    /// Partitions whose lane is open in the record, in order.
    pub(crate) async fn open_partitions(&self, set: &str) -> Vec<u32> {
        let record = Box::pin(self.record(set)).await;
        let lanes = record.iter().flat_map(|record| &record.lanes);
        let mut open: Vec<u32> =
            lanes.filter(|lane| lane.state == LaneState::Open).map(|lane| lane.share.partition()).collect();
        open.sort_unstable();
        open
    }

    pub(crate) fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Names of all Deployments of the namespace, in order.
    pub(crate) async fn deployment_names(&self) -> Vec<String> {
        let list = self.deployments().list(&ListParams::default()).await.expect("the API server answers");
        let mut names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    }

    /// A Deployment as raw JSON.
    pub(crate) async fn deployment(&self, name: &str) -> Value {
        let resource = kube::api::ApiResource::erase::<Deployment>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let found = api.get(name).await.unwrap_or_else(|error| panic!("Deployment {name} is there: {error}"));
        serde_json::to_value(found).expect("it is JSON")
    }

    /// Messages of the Events with a reason.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = events.list(&ListParams::default()).await.expect("the API server answers");
        let with_reason = all.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        with_reason.filter_map(|event| event.note).collect()
    }

    /// Waits for an Event whose message has these words.
    pub(crate) async fn wait_event(&self, reason: &str, words: &str) {
        wait_until(DEADLINE, &format!("an Event {reason} with '{words}'"), || async {
            let notes = self.events(reason).await;
            if notes.iter().any(|note| note.contains(words)) {
                Ok(())
            } else {
                Err(format!("there are {notes:?}"))
            }
        })
        .await;
    }

    pub(crate) async fn secret(&self, name: &str, data: Value) {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let parameters = PatchParams::apply("tests").force();
        secrets.patch(name, &parameters, &Patch::Apply(&secret)).await.expect("a Secret can be made");
    }
}

/// Waits until what is asked for is what is wanted.
pub(crate) async fn wait_equal<T, F>(what: &str, wanted: T, mut ask: impl FnMut() -> F)
where
    T: PartialEq + std::fmt::Debug,
    F: Future<Output = T>,
{
    let wanted = &wanted;
    wait_until(DEADLINE, what, || {
        // What is asked may be large.
        let answer = Box::pin(ask());
        async move {
            let found = answer.await;
            if found == *wanted { Ok(()) } else { Err(format!("it is {found:?}, wanted {wanted:?}")) }
        }
    })
    .await;
}

/// `Status/Reason` of a condition.
pub(crate) fn said(condition: &Condition) -> String {
    format!("{}/{}", condition.status, condition.reason)
}
