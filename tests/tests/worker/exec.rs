//! A program as the handler, below a real worker and behind a real server.

use std::{collections::BTreeMap, path::Path, process::Command};

use async_nats::HeaderMap;
use lanekeeper_core::stream::Retention;
use lanekeeper_tests::{LATEST, NatsServer, wait_until};
use lanekeeper_worker::ExecHandler;
use serde::Deserialize;

use crate::{
    DEADLINE,
    audited::{audited, judged, wait_entries},
    process::WorkerProcess,
    rig::Rig,
};

/// One line of the program's record.
#[derive(Debug, Clone, Deserialize)]
struct Noted {
    sequence: u64,
    key: String,
    attempt: u64,
    pid: u32,
    word: String,
    digest: String,
    headers: BTreeMap<String, Vec<String>>,
}

/// `handle.py` with a folder of its own.
struct Program(tempfile::TempDir);

impl Program {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, seconds: &str) -> Vec<String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker/exec/handle.py");
        ["python3", script, self.0.path().to_str().unwrap(), seconds].map(str::to_owned).to_vec()
    }

    fn handler(&self) -> ExecHandler {
        ExecHandler::start(&self.command("0")).unwrap()
    }

    fn record(&self) -> Vec<Noted> {
        let text = std::fs::read_to_string(self.0.path().join("record")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn with(&self, word: &str) -> Vec<Noted> {
        self.record().into_iter().filter(|noted| noted.word == word).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.0.path().join(name).exists()
    }

    /// The process that has begun the latest message, once one has.
    async fn begun(&self) -> Noted {
        wait_until(DEADLINE, "a message to be begun", || async { self.with("begun").pop().ok_or("none was") })
            .await
    }

    /// No message of a key was begun before every earlier one of it was done, in the program's own record.
    fn assert_in_order(&self) {
        let mut done: BTreeMap<String, u64> = BTreeMap::new();
        let mut open: BTreeMap<String, u64> = BTreeMap::new();
        for noted in self.record() {
            let before = done.entry(noted.key.clone()).or_default();
            if noted.word == "done" {
                *before = noted.sequence.max(*before);
                open.remove(&noted.key);
            } else {
                let last = open.insert(noted.key.clone(), noted.sequence);
                assert!(
                    last.is_none_or(|last| last == noted.sequence),
                    "{last:?} was not done before {noted:?}"
                );
            }
        }
    }
}

/// A real worker process with the program below it.
async fn worker(rig: &Rig, pod: &str, command: &[String], arguments: &[&str]) -> WorkerProcess {
    let command = serde_json::to_string(command).unwrap();
    let path = std::env::var("PATH").unwrap();
    let variables = [("LANEKEEPER_HANDLER_EXEC", command.as_str()), ("PATH", path.as_str())];
    WorkerProcess::start_with(rig, pod, "", arguments, &variables).await
}

fn signal(pid: u32, name: &str) {
    // It may have ended by itself in between.
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
}

/// Not running any more; whoever is its parent now may not have collected it yet.
fn is_dead(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with('Z'))
}

async fn wait_dead(pid: u32) {
    wait_until(DEADLINE, "the process to be gone", || async { is_dead(pid).then_some(()).ok_or("it runs") })
        .await;
}

#[tokio::test]
async fn messages_flow_through_a_program_that_is_killed_again_and_again_and_stay_in_order() {
    let mut rig = audited().await;
    rig.settings.retry.max_attempts = 1_000;
    let consumer = rig.open().await;
    let mut published: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for _ in 0..40 {
        for key in ["a", "b", "c"] {
            published.entry(key).or_default().push(rig.publish(key, "x").await);
        }
    }
    let program = Program::new();
    let lane = worker(&rig, "lane", &program.command("0.01"), &[]).await;
    for round in 1..=5 {
        let noted = wait_until(DEADLINE, "more messages to be in work", || async {
            let begun = program.with("begun");
            begun.last().filter(|last| last.sequence >= round * 15).cloned().ok_or(begun.len())
        })
        .await;
        signal(noted.pid, "KILL");
    }
    rig.wait_settled(&consumer).await;
    let report = judged(&wait_entries(&rig, 120).await, &published);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.handled, report.missing), (120, 0), "{report}");
    program.assert_in_order();
    let done: std::collections::BTreeSet<u64> =
        program.with("done").iter().map(|noted| noted.sequence).collect();
    assert_eq!(done, (1..=120).collect());
    let processes: std::collections::BTreeSet<u32> = program.record().iter().map(|noted| noted.pid).collect();
    assert!(processes.len() > 3, "it was killed and started again: {processes:?}");
    assert!(lane.log().contains("was ended by signal 9"), "{}", lane.log());
}

#[tokio::test]
async fn whatever_a_program_does_wrong_is_one_attempt_and_the_order_stays() {
    let mut rig = audited().await;
    // Long enough for a program to start on a busy machine.
    rig.settings.handler_timeout_milliseconds = 5_000;
    let consumer = rig.open().await;
    let wrongs = ["hang", "die", "babble", "other", "huge", "bad"];
    let mut sequences = Vec::new();
    for wrong in wrongs {
        sequences.push(rig.publish("k", wrong).await);
        sequences.push(rig.publish("k", "x").await);
    }
    let program = Program::new();
    let lane = rig.start(program.handler());
    rig.wait_settled(&consumer).await;
    let attempts: Vec<(u64, u64)> =
        program.with("begun").iter().map(|noted| (noted.sequence, noted.attempt)).collect();
    let expected: Vec<(u64, u64)> = (1..=12)
        .flat_map(|sequence| (1..=1 + sequence % 2).map(move |attempt| (sequence, attempt)))
        .collect();
    assert_eq!(attempts, expected, "each wrong one twice, each right one once");
    program.assert_in_order();
    let report = judged(&wait_entries(&rig, 18).await, &BTreeMap::from([("k", sequences)]));
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.handled, report.unfinished, report.missing), (12, 6, 0), "{report}");
    // The one that hung is gone, and what it had started.
    let left = std::fs::read_to_string(program.0.path().join("left")).unwrap();
    for pid in left.split(' ') {
        wait_dead(pid.parse().unwrap()).await;
    }
    let latest = program.begun().await;
    lane.stop().await;
    assert!(program.has(&format!("ended-{}", latest.pid)), "the program ended with its input");
}

#[tokio::test]
async fn what_a_program_never_learns_blocks_the_lane_with_its_words() {
    let rig = Rig::new().await;
    rig.open().await;
    rig.publish("k", "x").await;
    let command = ["sh", "-c", "read line; echo no JSON at all"].map(str::to_owned);
    let lane = rig.start(ExecHandler::start(&command).unwrap());
    wait_until(DEADLINE, "the lane to be reported as blocked", || async {
        let report = rig.report(0, "orders-0").await.ok_or("there is no report")?;
        let blocked = report.blocked.ok_or("nothing is blocked")?;
        let words = "the handler's program wrote 'no JSON at all' while ORDERS/1 was in hand: no JSON object";
        (blocked.sequence == 1 && blocked.reason == words).then_some(()).ok_or(format!("{blocked:?}"))
    })
    .await;
    lane.stop().await;
}

#[tokio::test]
async fn payloads_and_headers_come_as_they_were_published() {
    let server = NatsServer::builder(LATEST).config("max_payload: 8388608").start().await;
    let rig = Rig::on(server, Retention::Limits).await;
    let consumer = rig.open().await;
    let mut headers = HeaderMap::new();
    headers.insert("X-Odd", "Müller \"quoted\" \\ 😀");
    headers.append("X-Many", "a");
    headers.append("X-Many", "b");
    headers.insert("ce-id", "forged");
    // The server counts headers and payload together.
    let large: Vec<u8> = (0..=255).cycle().take(8 * 1024 * 1024 - 4096).collect();
    let payloads = [large, Vec::new(), b"\n\r\0\xff\xfe{\"id\":\"ORDERS/1\",\"result\":\"done\"}\n".to_vec()];
    for payload in &payloads {
        let context = rig.connection.context();
        let sent = context.publish_with_headers("orders.k", headers.clone(), payload.clone().into()).await;
        sent.unwrap().await.unwrap();
    }
    let program = Program::new();
    let lane = rig.start(program.handler());
    rig.wait_settled(&consumer).await;
    let done = program.with("done");
    let digests: Vec<String> = payloads.iter().map(|payload| sha256(program.0.path(), payload)).collect();
    assert_eq!(done.iter().map(|noted| noted.digest.clone()).collect::<Vec<_>>(), digests);
    for noted in done {
        assert_eq!(noted.headers["X-Odd"], ["Müller \"quoted\" \\ 😀"]);
        assert_eq!(noted.headers["X-Many"], ["a", "b"]);
        assert_eq!(noted.headers["ce-id"], ["forged"], "a header, and no attribute");
        assert_eq!(noted.attempt, 1);
    }
    lane.stop().await;
}

fn sha256(folder: &Path, bytes: &[u8]) -> String {
    let path = folder.join("payload");
    std::fs::write(&path, bytes).unwrap();
    let output = Command::new("sha256sum").arg(path).output().unwrap().stdout;
    String::from_utf8(output).unwrap().split(' ').next().unwrap().to_owned()
}

#[tokio::test]
async fn sigterm_lets_the_program_finish_its_message_and_ends_it() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 3).await;
    let program = Program::new();
    let mut lane = worker(&rig, "lane", &program.command("1"), &[]).await;
    let begun = program.begun().await;
    lane.signal("TERM");
    assert_eq!(lane.exit_code().await, Some(0), "{}", lane.log());
    assert_eq!(program.with("done").len(), 1);
    assert!(
        program.has(&format!("ended-{}", begun.pid)),
        "it was told by the end of its input, and had time"
    );
    wait_dead(begun.pid).await;
    let found = rig.consumer(&consumer).await.unwrap();
    assert_eq!(
        (found.floor, found.ack_pending, found.delivered),
        (1, 0, 1),
        "acknowledged, and nothing else taken"
    );
}

#[tokio::test]
async fn a_program_that_outlasts_the_grace_period_is_killed_and_it_was_no_attempt() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let (old, new) = (Program::new(), Program::new());
    let mut lane = worker(&rig, "old", &old.command("600"), &["--grace-seconds", "1"]).await;
    let begun = old.begun().await;
    lane.signal("TERM");
    assert_eq!(lane.exit_code().await, Some(0), "{}", lane.log());
    wait_dead(begun.pid).await;
    assert!(!old.has(&format!("ended-{}", begun.pid)));
    let successor = rig.start(new.handler());
    rig.wait_settled(&consumer).await;
    let attempts: Vec<(u64, u64)> =
        new.with("done").iter().map(|noted| (noted.sequence, noted.attempt)).collect();
    assert_eq!(attempts, [(1, 1), (2, 1)]);
    successor.stop().await;
}

#[tokio::test]
async fn a_worker_that_is_killed_takes_its_program_along_and_the_message_comes_again() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let (old, new) = (Program::new(), Program::new());
    let lane = worker(&rig, "old", &old.command("0.5"), &[]).await;
    let begun = old.begun().await;
    lane.kill().await;
    // In a container the kernel ends it at once; here the end of its input does.
    wait_dead(begun.pid).await;
    let successor = rig.start(new.handler());
    rig.wait_settled(&consumer).await;
    let attempts: Vec<(u64, u64)> =
        new.with("done").iter().map(|noted| (noted.sequence, noted.attempt)).collect();
    assert_eq!(attempts, [(1, 2), (2, 1)]);
    successor.stop().await;
}

#[tokio::test]
async fn a_program_that_is_missing_is_said_and_is_no_attempt() {
    let mut rig = Rig::new().await;
    rig.settings.retry.max_attempts = 1;
    let consumer = rig.open().await;
    rig.publish_many("k", 2).await;
    let program = Program::new();
    let path = program.0.path().join("program");
    let lane = worker(&rig, "lane", &[path.to_str().unwrap().to_owned()], &[]).await;
    wait_until(DEADLINE, "readiness to say so", || async {
        let (code, words) = lane.ask("/readyz").await;
        let right = code == 503 && words.contains("cannot be started: No such file or directory");
        if right { Ok(()) } else { Err(format!("{code} {words}")) }
    })
    .await;
    wait_until(DEADLINE, "the message to be held", || async {
        lane.log().contains("the message is held").then_some(()).ok_or("it is not")
    })
    .await;
    let half = program.0.path().join("half");
    let words: Vec<String> = program.command("0").iter().map(|word| format!("'{word}'")).collect();
    std::fs::write(&half, format!("#!/bin/sh\nexec {}\n", words.join(" "))).unwrap();
    std::fs::set_permissions(&half, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(half, path).unwrap();
    rig.wait_settled(&consumer).await;
    let attempts: Vec<(u64, u64)> =
        program.with("done").iter().map(|noted| (noted.sequence, noted.attempt)).collect();
    assert_eq!(attempts, [(1, 1), (2, 1)]);
    wait_until(DEADLINE, "the worker to be ready", || async {
        let (code, words) = lane.ask("/readyz").await;
        if code == 200 { Ok(()) } else { Err(words) }
    })
    .await;
    assert!(rig.report(0, "lane").await.is_none_or(|report| report.blocked.is_none()));
}

#[tokio::test]
async fn the_example_does_its_work_and_refuses_what_is_no_order() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish("pen", r#"{"n": 1}"#).await;
    let script = lanekeeper_tests::cluster::repository().join("examples/exec/handle.py");
    let command = vec!["python3".to_owned(), script.display().to_string()];
    let lane = worker(&rig, "lane", &command, &[]).await;
    rig.wait_settled(&consumer).await;
    wait_until(DEADLINE, "what it says to be in the log", || async {
        let said = "pen 0000000001-00000000000000000001 {'n': 1}";
        let line = lane.logged("the handler's program says").ok_or("it said nothing")?;
        if line["stderr"] == said && line["span"]["set"] == "shop/orders" {
            Ok(())
        } else {
            Err(line.to_string())
        }
    })
    .await;
    rig.publish("pen", "no order").await;
    wait_until(DEADLINE, "the lane to be reported as blocked", || async {
        let report = rig.report(0, "lane").await.ok_or("there is no report")?;
        let blocked = report.blocked.ok_or("nothing is blocked")?;
        let right = blocked.sequence == 2 && blocked.reason.contains("the payload is no JSON");
        if right { Ok(()) } else { Err(format!("{blocked:?}")) }
    })
    .await;
}

#[test]
fn the_program_of_the_lane_puts_itself_into_a_folder_and_runs_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let install =
        |folder: &Path| Command::new(lanekeeper_tests::binary::worker()).arg("install").arg(folder).output();
    for _ in 0..2 {
        let done = install(folder.path()).unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["lanekeeper-worker"]);
    let version = Command::new(folder.path().join("lanekeeper-worker")).arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("lanekeeper-worker "));
    let missing = install(Path::new("/nowhere/at/all")).unwrap();
    assert_eq!(missing.status.code(), Some(1));
    let words = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(words.contains("/nowhere/at/all/lanekeeper-worker cannot be written"), "{words}");
}
