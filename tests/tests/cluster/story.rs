//! One story's world: a namespace, a NATS server whose files outlive its pod, and a set whose handlers write their
//! journals to a folder of this machine, where they survive any pod.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use async_nats::jetstream;
use lanekeeper_core::names::SetName;
use lanekeeper_tests::{
    flights::{
        SET, STREAM, SUBJECT,
        data::Message,
        manifests::{Manifests, put},
        publish::Publisher,
        reach::Reach,
    },
    journal::{self, Entry, Published, Report},
    kubectl::{Kubectl, condition, is_ready, pod_is_ready},
    wait_until,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{FLOW, PODS, machine::Machine};

/// A story's world. Ends with the value; when the story failed, it first tells what it looks like.
pub(crate) struct Story {
    pub(crate) machine: &'static Machine,
    pub(crate) kubectl: Kubectl,
    pub(crate) namespace: String,
    /// The set's manifest, to be changed before it is applied.
    pub(crate) set: Value,
    pub(crate) jetstream: jetstream::Context,
    published: Vec<Message>,
    folder: TempDir,
    _reach: Reach,
}

impl Story {
    /// Makes the namespace and NATS, and the set's manifest with this many partitions. Nothing is applied yet.
    pub(crate) async fn begin(name: &str, partitions: u32) -> Self {
        Self::begin_on(name, partitions, |_, _| {}).await
    }

    /// The same with changes of the manifests of NATS, which hears of the namespace.
    pub(crate) async fn begin_on(
        name: &str,
        partitions: u32,
        change: impl FnOnce(&mut Vec<Value>, &str),
    ) -> Self {
        let machine = Machine::get();
        let kubectl = Kubectl::new(&machine.cluster).await.unwrap();
        let namespace = format!("{name}-{}", std::process::id());
        let manifests = Manifests::of_example(&machine.images).unwrap().in_namespace(&namespace).unwrap();
        let folder = tempfile::Builder::new().prefix("lanekeeper-story-").tempdir().unwrap();
        open_to_all(folder.path());
        kubectl.apply(&[manifests.namespace]).unwrap();
        for volume in ["nats", "journal"] {
            kubectl.apply(&volume_on_the_node(&namespace, volume, folder.path())).unwrap();
        }
        let mut set = manifests.set;
        put(&mut set, "/spec/partitions", json!(partitions)).unwrap();
        put(&mut set, "/spec/worker/podTemplate/spec/volumes/0", claim("journal", "journal")).unwrap();
        let mut nats = manifests.nats;
        for object in nats.iter_mut().filter(|object| object["kind"] == "StatefulSet") {
            put(object, "/spec/template/spec/volumes/0", claim("data", "nats")).unwrap();
        }
        change(&mut nats, &namespace);
        kubectl.apply(&nats).unwrap();
        let rollout = ["-n", &namespace, "rollout", "status", "statefulset/nats", "--timeout=120s"];
        kubectl.run(&rollout).unwrap();
        let reach = Reach::nats(&machine.cluster, &kubectl, &namespace).await.unwrap();
        let jetstream = jetstream::new(reach.connect().await.unwrap());
        Self { machine, kubectl, namespace, set, jetstream, published: Vec::new(), folder, _reach: reach }
    }

    /// Changes the set's manifest.
    pub(crate) fn put(&mut self, pointer: &str, value: Value) -> &mut Self {
        put(&mut self.set, pointer, value).unwrap();
        self
    }

    /// Makes the handler need this long for a message.
    pub(crate) fn slow_handler(&mut self, time: &str) -> &mut Self {
        self.handler_variable("WORK", time)
    }

    /// Adds to the handler's environment: its pods are made anew.
    pub(crate) fn handler_variable(&mut self, name: &str, value: &str) -> &mut Self {
        let pointer = "/spec/worker/podTemplate/spec/containers/0/env";
        let list = self.set.pointer_mut(pointer).and_then(Value::as_array_mut).unwrap();
        list.push(json!({"name": name, "value": value}));
        self
    }

    /// Applies the set and waits until it and all its workers are ready.
    pub(crate) async fn apply_and_wait(&self) {
        self.kubectl.apply(std::slice::from_ref(&self.set)).unwrap();
        self.wait_until_ready().await;
    }

    /// Waits until the set is Ready, every partition has a ready worker, and no other pod is left.
    pub(crate) async fn wait_until_ready(&self) {
        wait_until(PODS, "the set to be ready", || async {
            let set = self.resource().await.ok_or("there is no set")?;
            if !is_ready(&set) {
                return Err(format!("Ready is {:?}", condition(&set, "Ready")));
            }
            let wanted = usize::try_from(set["spec"]["partitions"].as_u64().unwrap()).unwrap();
            let pods = self.workers().await;
            let ready = pods.iter().filter(|pod| pod_is_ready(pod)).count();
            if ready == wanted && pods.len() == wanted {
                Ok(())
            } else {
                Err(format!("{ready} of {wanted} workers are ready, {} pods", pods.len()))
            }
        })
        .await;
    }

    /// The set as the API server has it.
    pub(crate) async fn resource(&self) -> Option<Value> {
        self.kubectl.set(&self.namespace, SET).await.unwrap()
    }

    /// The set's worker pods, those that are ending included.
    pub(crate) async fn workers(&self) -> Vec<Value> {
        let selector = format!("app.kubernetes.io/managed-by=lanekeeper,lanekeeper.dev/set={SET}");
        self.kubectl.pods(&self.namespace, &selector).await.unwrap()
    }

    /// The pod of one partition.
    pub(crate) async fn worker(&self, partition: u32) -> String {
        let pods = self.workers().await;
        let wanted = partition.to_string();
        let found =
            pods.iter().find(|pod| pod["metadata"]["labels"]["lanekeeper.dev/partition"] == wanted.as_str());
        found.unwrap_or_else(|| panic!("partition {partition} has no pod"))["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// How often containers of a pod were started again, beside those that outlive the lane.
    pub(crate) async fn restarts_of_lane(&self, pod: &str) -> u64 {
        let pods = self.workers().await;
        let found = pods.iter().find(|one| one["metadata"]["name"] == pod);
        let statuses = found.and_then(|one| one["status"]["containerStatuses"].as_array());
        statuses.into_iter().flatten().filter_map(|one| one["restartCount"].as_u64()).sum()
    }

    /// The set's name for what it has in NATS.
    pub(crate) fn set_name(&self) -> SetName {
        SetName::new(&self.namespace, SET)
    }

    /// The consumers of the set, by name.
    pub(crate) async fn consumers(&self) -> Vec<jetstream::consumer::Info> {
        use futures::TryStreamExt;
        let stream = self.jetstream.get_stream(STREAM).await.unwrap();
        let all: Vec<_> = stream.consumers().try_collect().await.unwrap();
        let name = self.set_name();
        let mut ours: Vec<_> =
            all.into_iter().filter(|one| name.parse_consumer(&one.name).is_some()).collect();
        ours.sort_by(|one, other| one.name.cmp(&other.name));
        ours
    }

    /// The names of [`Self::consumers`].
    pub(crate) async fn consumer_names(&self) -> Vec<String> {
        self.consumers().await.into_iter().map(|one| one.name).collect()
    }

    /// Publishes messages behind all earlier ones.
    pub(crate) async fn publish(&mut self, messages: Vec<Message>) {
        let publisher = Publisher::new(self.jetstream.clone(), STREAM, SUBJECT);
        let base = publisher.last_sequence().await.unwrap();
        publisher.publish(base, &messages, |_| {}).await.unwrap();
        self.has_published(messages);
    }

    /// Counts messages that somebody else published as this story's.
    pub(crate) fn has_published(&mut self, messages: Vec<Message>) {
        self.published.extend(messages);
    }

    /// Everything that was handled so far, by pods that are gone as well.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.journals().entries()
    }

    /// The handlers' journals.
    pub(crate) fn journals(&self) -> Journals {
        Journals(self.folder.path().join("journal"))
    }

    /// How many different messages were handled so far.
    pub(crate) fn handled(&self) -> usize {
        journal::check(&self.what_was_published(), &self.entries()).handled
    }

    /// Waits until so many messages were handled.
    pub(crate) async fn wait_for_handled(&self, count: usize) {
        wait_until(FLOW, &format!("{count} messages to be handled"), || async {
            let handled = self.handled();
            if handled >= count { Ok(()) } else { Err(format!("{handled} were")) }
        })
        .await;
    }

    /// Waits until everything was handled and nothing is in hand, and has the journals judged.
    pub(crate) async fn wait_for_all_in_order(&self) -> Report {
        self.wait_for_handled(self.published.len()).await;
        wait_until(FLOW, "the lanes to have nothing left", || async {
            let left: u64 =
                self.consumers().await.iter().map(|one| one.num_pending + one.num_ack_pending as u64).sum();
            if left == 0 { Ok(()) } else { Err(format!("{left} are waiting or in hand")) }
        })
        .await;
        let report = journal::check(&self.what_was_published(), &self.entries());
        assert!(report.is_clean(), "the journals are not in order:\n{report}");
        report
    }

    /// Waits for a condition of the set.
    pub(crate) async fn wait_for_condition(&self, kind: &str, status: &str, reason: &str) -> String {
        let what = format!("condition {kind}={status} {reason}");
        wait_until(PODS, &what, || async {
            let set = self.resource().await.ok_or("there is no set")?;
            let (now, why, message) = condition(&set, kind);
            if now == status && why == reason { Ok(message) } else { Err(format!("{now} {why}: {message}")) }
        })
        .await
    }

    /// Waits until an object at a path of the API is gone.
    pub(crate) async fn wait_until_gone(&self, path: &str, deadline: Duration) {
        wait_until(deadline, &format!("{path} to be gone"), || async {
            match self.kubectl.get(path).await {
                Ok(None) => Ok(()),
                Ok(Some(object)) => Err(format!("it is there: {}", object["status"])),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    }

    /// The API's path of the set.
    pub(crate) fn path(&self) -> String {
        format!("/apis/lanekeeper.dev/v1alpha1/namespaces/{}/orderedpartitionsets/{SET}", self.namespace)
    }

    /// kubectl in the story's namespace.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let all: Vec<&str> = ["-n", &self.namespace].into_iter().chain(arguments.iter().copied()).collect();
        self.kubectl.run(&all).unwrap()
    }

    /// Starts or stops NATS, whose files stay.
    pub(crate) async fn nats(&self, replicas: u32) {
        self.run(&["scale", "statefulset/nats", &format!("--replicas={replicas}")]);
        let path = format!("/apis/apps/v1/namespaces/{}/statefulsets/nats", self.namespace);
        wait_until(PODS, &format!("{replicas} NATS servers"), || async {
            let found = self.kubectl.get(&path).await.map_err(|error| error.to_string())?.unwrap_or_default();
            let pods = self.kubectl.pods(&self.namespace, "app.kubernetes.io/name=nats").await;
            let left = pods.map_err(|error| error.to_string())?.len();
            let ready = found["status"]["readyReplicas"].as_u64().unwrap_or_default();
            let right = ready == u64::from(replicas) && left == replicas as usize;
            if right { Ok(()) } else { Err(format!("{ready} are ready, {left} pods")) }
        })
        .await;
    }

    fn what_was_published(&self) -> Published {
        Published::new(self.published.iter().map(|one| (one.key.clone(), one.number))).unwrap()
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.kubectl.diagnosis(&self.namespace));
        }
        // A set that waits for a NATS that is going away would hold the namespace for ever.
        let let_go = r#"{"spec":{"deletionPolicy":"Retain"}}"#;
        for arguments in [
            &["-n", &self.namespace, "patch", "ops", SET, "--type=merge", "-p", let_go][..],
            &["-n", &self.namespace, "delete", "ops", "--all", "--wait=false"],
            &["delete", "namespace", &self.namespace, "--wait=false"],
            &["delete", "pv", "-l", &format!("story={}", self.namespace), "--wait=false"],
        ] {
            // The story's result is known; a cluster that is gone needs no tidying.
            let _ = self.kubectl.run(arguments);
        }
    }
}

/// The folder of the handlers' journals, a file for each pod.
pub(crate) struct Journals(PathBuf);

impl Journals {
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().path())
    }

    fn entries(&self) -> Vec<Entry> {
        self.files().flat_map(|file| read_journal(&file)).collect()
    }

    /// How many handlings there were, without a look at what they were.
    pub(crate) fn count(&self) -> usize {
        let lines = |file: PathBuf| String::from_utf8_lossy(&fs::read(file).unwrap()).matches('\n').count();
        self.files().map(lines).sum()
    }
}

/// A journal up to its last whole line: a killed handler leaves a torn one, whose message was not answered.
fn read_journal(path: &Path) -> Vec<Entry> {
    let text = fs::read_to_string(path).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    journal::parse(&path.display().to_string(), whole).unwrap()
}

fn open_to_all(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
}

/// A volume in the story's folder, and a claim for it: the restricted security level admits claims, not `hostPath`.
fn volume_on_the_node(namespace: &str, name: &str, folder: &Path) -> [Value; 2] {
    let path: PathBuf = folder.join(name);
    fs::create_dir(&path).unwrap();
    open_to_all(&path);
    let volume = format!("{namespace}-{name}");
    let size = json!({"storage": "1Gi"});
    [
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": {"story": namespace}},
            "spec": {
                "capacity": size, "accessModes": ["ReadWriteMany"], "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": path},
                "claimRef": {"namespace": namespace, "name": name},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": volume,
                "resources": {"requests": size},
            },
        }),
    ]
}

fn claim(volume: &str, name: &str) -> Value {
    json!({"name": volume, "persistentVolumeClaim": {"claimName": name}})
}
