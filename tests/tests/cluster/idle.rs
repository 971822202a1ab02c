//! An idle operator writes nothing (P46), and costs next to nothing.

use std::{collections::BTreeMap, fs, time::Duration};

use lanekeeper_tests::{
    flights::manifests::put,
    helm,
    kubectl::{condition, is_ready},
    wait_until,
};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};

use crate::{PODS, full_length, machine::alone, story::Story};

const SETS: usize = 5;
/// Without a change for so long, nothing is on its way any more.
const REST: Duration = Duration::from_secs(15);
/// The share of one processor that an idle operator may use.
const CPU_LIMIT: f64 = 0.01;
/// Clock ticks of `/proc/<pid>/stat` per second, the same on every Linux that we know.
const TICKS: f64 = 100.0;

#[tokio::test]
async fn idle_sets_and_one_without_nats_cause_no_write_and_hardly_any_work() {
    let _alone = alone().await;
    let story = Story::begin("idle", 2).await;
    let mut sets: Vec<Value> = (1..=SETS).map(|index| set(&story, index)).collect();
    story.kubectl.apply(&sets).unwrap();
    for index in 1..=SETS {
        wait_for_set(&story, &format!("set-{index}"), is_ready).await;
    }
    // Its NATS does not exist: the operator keeps trying, and has nothing new to say.
    let mut lost = set(&story, SETS + 1);
    put(&mut lost, "/spec/nats/servers", json!(["nats://nowhere.invalid:4222"])).unwrap();
    story.kubectl.apply(&[lost.clone()]).unwrap();
    sets.push(lost);
    let unreachable = |set: &Value| condition(set, "Ready").1 == "NatsUnreachable";
    wait_for_set(&story, &format!("set-{}", SETS + 1), unreachable).await;

    let pid = operator_process();
    let window = if full_length() { Duration::from_secs(180) } else { Duration::from_secs(40) };
    wait_for_others_to_be_gone(&story).await;
    let calm = settled(&story).await;
    let audit_from = story.machine.audit_text().len();
    let (busy_before, started) = (processor_seconds(pid), Instant::now());
    // Watching is the measurement: each look must find what the first one found.
    let mut looks = tokio::time::interval(Duration::from_secs(5));
    while started.elapsed() < window {
        looks.tick().await;
        assert_eq!(versions(&story).await, calm, "an idle operator changed something");
    }
    if story.machine.audit.is_some() {
        assert!(
            !story.machine.operator_writes(0).is_empty(),
            "the audit log would show the operator's writes"
        );
    }
    let share = (processor_seconds(pid) - busy_before) / started.elapsed().as_secs_f64();
    let writes = story.machine.operator_writes(audit_from);
    println!(
        "idle for {window:?} with {SETS} sets and one without NATS: {} writes, {:.2} % of a processor, {} MiB resident",
        writes.len(),
        share * 100.0,
        resident_mebibytes(pid),
    );
    assert!(writes.is_empty(), "the audit log has writes of the operator: {writes:?}");
    // In a short window, and beside other stories, it is printed and decides nothing.
    assert!(!full_length() || share < CPU_LIMIT, "{:.2} % of a processor", share * 100.0);
    story.run(&["delete", "ops", "--all", "--timeout=120s"]);
}

#[tokio::test]
async fn a_handler_that_crashes_again_and_again_is_said_once_and_not_at_every_crash() {
    let _alone = alone().await;
    let mut story = Story::begin("crashing", 1).await;
    story.put(
        "/spec/worker/podTemplate/spec/containers/0/env",
        json!([{"name": "JOURNAL", "value": "/nowhere/journal"}]),
    );
    story.kubectl.apply(std::slice::from_ref(&story.set)).unwrap();
    story.wait_for_condition("WorkersReady", "False", "CrashLooping").await;
    let set = settled_set(&story).await;
    let crashes = crashes(&story).await;
    // Two more crashes are enough for a change at every crash to show.
    wait_until(PODS * 3, "two more crashes", || async {
        let now = self::crashes(&story).await;
        if now >= crashes + 2 { Ok(()) } else { Err(format!("{now} after {crashes}")) }
    })
    .await;
    assert_eq!(story.resource().await.unwrap()["status"], set["status"]);
    assert_eq!(
        story.resource().await.unwrap()["metadata"]["resourceVersion"],
        set["metadata"]["resourceVersion"]
    );
}

/// The set once it has not changed for a while.
async fn settled_set(story: &Story) -> Value {
    let last = Mutex::new((Value::Null, Instant::now()));
    wait_until(PODS, "the set to come to rest", || async {
        let now = story.resource().await.ok_or("there is no set")?;
        let mut last = last.lock().await;
        if now != last.0 {
            *last = (now, Instant::now());
            return Err("it changed just now");
        }
        if last.1.elapsed() > REST { Ok(now) } else { Err("it has not been at rest for long") }
    })
    .await
}

async fn crashes(story: &Story) -> u64 {
    let pods = story.workers().await;
    let statuses = pods.iter().filter_map(|pod| pod["status"]["initContainerStatuses"].as_array()).flatten();
    statuses.filter_map(|one| one["restartCount"].as_u64()).sum()
}

fn set(story: &Story, index: usize) -> Value {
    let mut set = story.set.clone();
    for (pointer, value) in [
        ("/metadata/name", json!(format!("set-{index}"))),
        ("/spec/stream/name", json!(format!("STREAM{index}"))),
        ("/spec/stream/subjects", json!([format!("idle{index}.*")])),
        ("/spec/mapping/subject", json!(format!("idle{index}.*"))),
        ("/spec/worker/podTemplate/spec/volumes/0", json!({"name": "journal", "emptyDir": {}})),
    ] {
        put(&mut set, pointer, value).unwrap();
    }
    set
}

async fn wait_for_set(story: &Story, name: &str, wanted: impl Fn(&Value) -> bool) {
    wait_until(PODS * 2, &format!("set {name}"), || async {
        let found = story.kubectl.set(&story.namespace, name).await.map_err(|error| error.to_string())?;
        let found = found.ok_or("there is none")?;
        if wanted(&found) { Ok(()) } else { Err(format!("{:?}", condition(&found, "Ready"))) }
    })
    .await;
}

/// What earlier stories left is taken down after them, which gives the operator something to do.
async fn wait_for_others_to_be_gone(story: &Story) {
    wait_until(PODS * 2, "the namespaces of earlier stories to be gone", || async {
        let all = story.kubectl.list("/api/v1/namespaces").await.map_err(|error| error.to_string())?;
        let ending: Vec<_> =
            all.iter().filter(|one| !one["metadata"]["deletionTimestamp"].is_null()).collect();
        if ending.is_empty() { Ok(()) } else { Err(format!("{} are there", ending.len())) }
    })
    .await;
}

/// The versions of everything that the operator could write in the namespace, once they stay the same for a while.
/// (Not of pods, nor what the kubelet says of them: it writes those, and the audit log would show an operator that does.)
async fn settled(story: &Story) -> BTreeMap<String, String> {
    let last = Mutex::new((BTreeMap::new(), Instant::now()));
    wait_until(PODS * 2, "everything to come to rest for 15 s", || async {
        let now = versions(story).await;
        let mut last = last.lock().await;
        if now != last.0 {
            *last = (now, Instant::now());
            return Err("something changed just now");
        }
        if last.1.elapsed() > REST { Ok(now) } else { Err("it has not been at rest for long") }
    })
    .await
}

async fn versions(story: &Story) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for kind in [
        "apis/lanekeeper.dev/v1alpha1|orderedpartitionsets",
        "apis/apps/v1|deployments",
        "apis/events.k8s.io/v1|events",
        "api/v1|secrets",
        "api/v1|configmaps",
    ] {
        let (group, plural) = kind.split_once('|').unwrap();
        let path = format!("/{group}/namespaces/{}/{plural}", story.namespace);
        for object in story.kubectl.list(&path).await.unwrap() {
            if object["reportingController"] == "kubelet" {
                continue;
            }
            let metadata = &object["metadata"];
            versions
                .insert(format!("{plural}/{}", metadata["name"]), metadata["resourceVersion"].to_string());
        }
    }
    versions
}

/// The operator's process, which on this node is a process of this machine.
fn operator_process() -> u32 {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).next() == Some(b"/lanekeeper-operator")
    };
    let found: Vec<u32> = pids.filter(is_it).collect();
    assert_eq!(found.len(), 1, "one operator runs in {}: {found:?}", helm::NAMESPACE);
    found[0]
}

/// User and system time so far.
fn processor_seconds(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the operator still runs");
    // The name in parentheses may have spaces; what follows has none.
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS
}

fn resident_mebibytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}
