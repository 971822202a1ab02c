//! The clock on a worker's wall jumps: nothing is decided by it.

use std::{
    collections::BTreeMap, fs::File, os::unix::fs::FileExt, path::PathBuf, process::Command, sync::OnceLock,
};

use lanekeeper_core::{lane::State, record::Ownership};
use lanekeeper_tests::wait_until;

use crate::{
    DEADLINE,
    audited::{audited, judged, wait_entries},
    journal::Journal,
    process::{HttpScript, WorkerProcess},
    rig::{Rig, ms},
};

const HOUR: i64 = 3600;
const MESSAGES: usize = 60;

/// The library that moves a process's clock, built once.
fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker/clocks/jump.c");
        let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libjump.so");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&library)
            .arg(source)
            .status();
        assert!(built.expect("a C compiler can be started").success(), "{source} could not be compiled");
        library
    };
    BUILT.get_or_init(build).clone()
}

/// A worker process whose clock can be moved.
struct Clock {
    moved: File,
    path: tempfile::TempPath,
}

impl Clock {
    fn new() -> Self {
        let (file, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
        let clock = Self { moved: file, path };
        clock.jump(0);
        clock
    }

    /// From now on it is so many seconds ahead.
    fn jump(&self, seconds: i64) {
        self.moved.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    async fn worker(&self, rig: &Rig, pod: &str, handler: &str) -> WorkerProcess {
        let library = library();
        let variables =
            [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_MOVED_BY", self.path.to_str().unwrap())];
        WorkerProcess::start_with(rig, pod, handler, &[], &variables).await
    }
}

async fn wait_done(journal: &Journal, count: usize) {
    wait_until(DEADLINE, "so many messages to be done", || async {
        let done = journal.done().len();
        (done >= count).then_some(()).ok_or(format!("{done} of {count}"))
    })
    .await;
}

/// A worker and its standby, whose clocks jump hours ahead and back, each in its own direction, while a handler runs.
async fn jumps(ownership: Ownership) {
    let mut rig = audited().await;
    rig.settings.ownership = ownership;
    rig.settings.ack_wait_milliseconds = 2_000;
    let consumer = rig.open().await;
    let mut published: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for number in 0..MESSAGES {
        let key = ["a", "b", "c"][number % 3];
        published.entry(key).or_default().push(rig.publish(key, "x").await);
    }
    let journal = Journal::default();
    let handler = HttpScript::taking(&journal, ms(100)).await;
    let (clock, other) = (Clock::new(), Clock::new());
    let owner = clock.worker(&rig, "owner", &handler.url()).await;
    wait_done(&journal, 1).await;
    let standby = other.worker(&rig, "standby", &handler.url()).await;
    wait_until(DEADLINE, "a worker to stand by", || async {
        let standby_says = standby.ask("/readyz").await.1;
        standby_says.contains(State::Standby.name()).then_some(()).ok_or(standby_says)
    })
    .await;
    for (round, hours) in [3, -3, 0, 500, -500, 0].into_iter().enumerate() {
        clock.jump(hours * HOUR);
        other.jump(-hours * HOUR);
        wait_done(&journal, (round + 1) * 9).await;
    }
    rig.wait_settled(&consumer).await;
    assert_eq!(journal.done(), (1..=MESSAGES as u64).collect::<Vec<u64>>(), "once each, in order");
    assert!(journal.all().iter().all(|handling| handling.attempt == 1));
    let entries = wait_entries(&rig, MESSAGES).await;
    assert!(entries.iter().all(|entry| entry.pod == "owner"), "it had the lane all the time");
    let first = entries.iter().map(|entry| entry.start).min().unwrap();
    let last = entries.iter().map(|entry| entry.end).max().unwrap();
    assert!(last - first > 499 * HOUR * 1_000_000, "the clock did jump: {first} to {last}");
    let report = judged(&entries, &published);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.handled, report.repeats, report.unfinished), (MESSAGES, 0, 0), "{report}");
    for worker in [&owner, &standby] {
        assert!(!worker.log().contains("deadline"), "{}", worker.log());
    }
    // Its end is noticed by the standby as soon as by any clock.
    rig.publish("a", "x").await;
    owner.kill().await;
    other.jump(12 * HOUR);
    rig.publish("b", "x").await;
    rig.wait_settled(&consumer).await;
    journal.assert_in_order();
}

#[tokio::test]
async fn a_clock_that_jumps_changes_nothing_about_a_pin_a_deadline_or_the_order() {
    jumps(Ownership::Pin).await;
}

#[tokio::test]
async fn a_clock_that_jumps_changes_nothing_about_a_lease_a_deadline_or_the_order() {
    jumps(Ownership::Lease).await;
}
