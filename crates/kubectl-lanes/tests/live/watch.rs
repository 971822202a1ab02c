//! A change, watched.

use std::process::Stdio;

use kube::api::{Patch, PatchParams};
use lanekeeper_core::record::{Holder, LaneKey};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout},
    time::timeout,
};

use crate::{
    calling::{command, plugin},
    rig::{DEADLINE, Rig},
    workers::make_pod,
};

/// Adds a holder to a lane's key as a worker does.
async fn join(rig: &Rig, incarnation: u64, pod: &str) {
    let bucket = rig.bucket().await;
    let key = rig.name("orders").lane_key(incarnation);
    let found = bucket.get_json::<LaneKey>(&key).await.unwrap().expect("the lane has a key");
    let mut value = found.value;
    value.holders.push(Holder { pod: pod.to_owned(), instance: "one".to_owned() });
    bucket.put_json(&key, &value, Some(found.revision)).await.unwrap();
}

/// What a watching plugin writes, line by line.
struct Watched {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    seen: Vec<String>,
}

impl Watched {
    fn start(rig: &Rig, arguments: &str) -> Self {
        let mut child = command(rig, rig.control.kubeconfig(), arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the plugin can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, lines, seen: Vec::new() }
    }

    async fn wait_for(&mut self, words: &str) {
        loop {
            let line = timeout(DEADLINE, self.lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no line with '{words}' came: {:?}", self.seen));
            let line = line.unwrap().unwrap_or_else(|| panic!("it ended without '{words}': {:?}", self.seen));
            self.seen.push(line);
            if self.seen.last().is_some_and(|line| line.contains(words)) {
                return;
            }
        }
    }

    async fn end(mut self) -> (Option<i32>, Vec<String>) {
        while let Some(line) = timeout(DEADLINE, self.lines.next_line()).await.expect("it ends").unwrap() {
            self.seen.push(line);
        }
        let status = timeout(DEADLINE, self.child.wait()).await.expect("it ends").unwrap();
        (status.code(), self.seen)
    }
}

#[tokio::test]
async fn a_change_is_watched_until_it_has_come_to_its_end() {
    let (rig, operator) = Rig::start("watch").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let pods = make_pod(&rig, "orders-0-a", 0).await;
    join(&rig, 1, "orders-0-a").await;
    let mut for_people = Watched::start(&rig, "status orders -w --until-settled");
    // At rest it is settled at once.
    for_people.wait_for("1  open 0").await;
    assert_eq!(for_people.end().await.0, Some(0));

    let mut for_people = Watched::start(&rig, "status orders -w");
    for_people.wait_for("1  open 0").await;
    rig.patch("orders", json!({"spec": {"partitions": 2}})).await;
    for_people.wait_for("waits for partition 0: orders-0-a to leave").await;
    let mut for_programs = Watched::start(&rig, "status orders -w --until-settled -o json");
    for_programs.wait_for("\"state\":\"retiring\"").await;
    let mut without_nats = Watched::start(&rig, "status orders -w --until-settled --no-nats");
    without_nats.wait_for("waits for partition 0: waits for orders-0-a").await;
    let refusal = plugin(&rig, "status orders -w --until-settled --timeout 1s").await;
    assert_eq!(refusal.code, Some(1), "{refusal:?}");
    assert!(refusal.err.starts_with("error: not settled within 1 s: 1->2  retiring 0"), "{refusal:?}");
    assert!(refusal.err.contains("orders-0-a to leave, for "), "{refusal:?}");

    // What a kubelet writes at the end of a pod.
    let ended = json!({"status": {"phase": "Succeeded", "containerStatuses": [{
        "name": "lane", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
    }]}});
    pods.patch_status("orders-0-a", &PatchParams::default(), &Patch::Strategic(&ended)).await.unwrap();
    for watched in [without_nats, for_programs] {
        let (code, lines) = watched.end().await;
        assert_eq!(code, Some(0), "{lines:?}");
        if let Ok(last) = serde_json::from_str::<Value>(lines.last().unwrap()) {
            assert_eq!((&last["inForce"], &last["wanted"]), (&json!(2), &json!(2)), "{last}");
            assert_eq!(last["nats"]["lanes"].as_array().map(Vec::len), Some(2), "{last}");
        }
    }
    // Without the flag it goes on after the end of the change, until the set is gone.
    for_people.wait_for("2  open 0, 1").await;
    rig.delete("orders").await;
    let (code, lines) = for_people.end().await;
    assert_eq!(code, Some(1), "{lines:?}");
    // Each line says something new.
    let texts: Vec<&str> = lines.iter().map(|line| line.split_once("Z  ").unwrap().1).collect();
    assert!(texts.windows(2).all(|two| two[0] != two[1]), "{lines:?}");
    operator.stop().await;
}
