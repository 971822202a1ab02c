//! Workers that write long after their message is somebody else's, into a real PostgreSQL. What each story asserts has its
//! counterpart without the condition, in which the late write wins.

use std::path::Path;

use lanekeeper_tests::{Postgres, binary, wait_until};

use crate::{
    DEADLINE,
    process::WorkerProcess,
    rig::{Rig, share},
};

const TABLES: &str = r#"
    CREATE TABLE places (aircraft text PRIMARY KEY, place text NOT NULL, fence text COLLATE "C" NOT NULL);
    CREATE TABLE fences (key text PRIMARY KEY, fence text COLLATE "C" NOT NULL);
    CREATE TABLE history (number bigserial, place text);
    CREATE FUNCTION remember() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO history (place) VALUES (NEW.place); RETURN NULL; END';
    CREATE TRIGGER remember AFTER INSERT OR UPDATE ON places FOR EACH ROW EXECUTE FUNCTION remember();
"#;

const LOST: &str = "the deadline passed without proof: given up, nothing is sent for it";

async fn database() -> Postgres {
    let database = Postgres::start().await;
    database.client().await.batch_execute(TABLES).await.unwrap();
    database
}

/// Every write that changed a row, in order.
async fn history(database: &Postgres) -> Vec<String> {
    let rows = database.client().await.query("SELECT place FROM history ORDER BY number", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Place and fence of an aircraft.
async fn row(database: &Postgres, aircraft: &str) -> (String, String) {
    let sql = "SELECT place, fence FROM places WHERE aircraft = $1";
    let row = database.client().await.query_one(sql, &[&aircraft]).await.unwrap();
    (row.get(0), row.get(1))
}

fn fence(sequence: u64) -> String {
    format!("0000000001-{sequence:020}")
}

/// How a story ended.
struct Ending {
    /// What the row was before the stopped worker went on, and after it had.
    before: (String, String),
    after: (String, String),
    /// What the stopped worker said of its late write.
    zombie: serde_json::Value,
    /// Every write that changed the row.
    history: Vec<String>,
    /// What the server logged.
    log: String,
}

/// Who handles the messages of a worker that was stopped.
#[derive(Clone, Copy)]
enum Successor {
    /// Another pod of the lane.
    Pod,
    /// The lane of another partition, after a change of their number.
    Partition,
}

/// A worker is stopped while it holds the first of two messages with its write still to come; another worker handles both;
/// then the first one goes on and writes.
async fn a_late_write(way: &str, settings: &str, successor: Successor, outcome: &str) -> Ending {
    let mut rig = Rig::new().await;
    rig.settings.ack_wait_milliseconds = 2_000;
    let consumer = rig.open().await;
    let database = database().await;
    let moved = share(1, 2);
    let moves =
        |aircraft: &String| moved.contains_hash(rig.mapping.key_hash(&format!("orders.{aircraft}")).unwrap());
    let aircraft = (10_000..99_999).map(|number| format!("N{number}")).find(moves).unwrap();
    rig.publish(&aircraft, "first").await;
    rig.publish(&aircraft, "second").await;
    let url = format!("{} {settings}", database.settings());
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let program = Path::new(env!("CARGO_BIN_EXE_fenced"));
    let common = [("DATABASE_URL", url.as_str()), ("FENCED_WAY", way)];

    let with_gate = [&common[..], &[("FENCED_GATE", gate.to_str().unwrap())]].concat();
    let zombie = WorkerProcess::of(program, &rig, "zombie", &[], &with_gate).await;
    wait_until(DEADLINE, "the write to be next", || async { zombie.logged("at the gate").is_some() }).await;
    zombie.signal("STOP");

    let (partition, consumer) = match successor {
        Successor::Pod => ("0", consumer),
        Successor::Partition => {
            // An operator would wait for the stopped holder until its container is known to be gone. This one does not.
            rig.retire(share(0, 1), 1).await;
            ("1", rig.open_lane(moved, 2, None, Vec::new()).await)
        }
    };
    let at = [&common[..], &[("LANEKEEPER_PARTITION", partition)]].concat();
    let other = WorkerProcess::of(program, &rig, "other", &[], &at).await;
    rig.wait_settled(&consumer).await;
    let before = row(&database, &aircraft).await;
    assert!(zombie.logged(outcome).is_none(), "it is stopped: {}", zombie.log());

    std::fs::write(&gate, "").unwrap();
    zombie.signal("CONT");
    let said = wait_until(DEADLINE, "the late write", || async {
        zombie.logged(outcome).ok_or_else(|| zombie.log())
    })
    .await;
    if matches!(successor, Successor::Pod) {
        // The other pod had the message only when the deadline of this one had passed.
        wait_until(DEADLINE, "the lane to notice", || async {
            zombie.logged(LOST).map(drop).ok_or_else(|| zombie.log())
        })
        .await;
    }
    drop(other);
    Ending {
        before,
        after: row(&database, &aircraft).await,
        zombie: said,
        history: history(&database).await,
        log: database.log(),
    }
}

#[tokio::test]
async fn the_late_write_of_a_worker_that_was_stopped_changes_nothing() {
    let ending = a_late_write("upsert", "", Successor::Pod, "wrote").await;
    assert_eq!(ending.before, ("second".to_owned(), fence(2)));
    assert_eq!(ending.zombie["sequence"], 1);
    assert_eq!(ending.zombie["what"], "Stale", "the statement ran, and found a newer row");
    assert_eq!(ending.after, ending.before);
    assert_eq!(ending.history, ["first", "second"], "each message was written once");
}

#[tokio::test]
async fn nor_does_one_whose_key_another_partition_serves_by_now() {
    let ending = a_late_write("upsert", "", Successor::Partition, "wrote").await;
    assert_eq!(ending.before, ("second".to_owned(), fence(2)));
    assert_eq!(ending.zombie["what"], "Stale", "fences go on over a change of the number of partitions");
    assert_eq!(ending.after, ending.before);
    assert_eq!(ending.history, ["first", "second"], "each message was written once");
}

#[tokio::test]
async fn without_the_condition_the_same_late_write_replaces_the_newer_row() {
    let ending = a_late_write("unconditional", "", Successor::Pod, "wrote").await;
    assert_eq!(ending.before, ("second".to_owned(), fence(2)));
    assert_eq!(ending.zombie["sequence"], 1);
    assert_eq!(ending.after, ("first".to_owned(), fence(1)), "this is what the fence is for");
}

#[tokio::test]
async fn a_worker_that_was_stopped_inside_a_transaction_holds_the_key_only_until_the_server_ends_its_session()
{
    let limit = "options='-c idle_in_transaction_session_timeout=500'";
    let ending = a_late_write("transaction", limit, Successor::Pod, "failed").await;
    assert_eq!(ending.before, ("second".to_owned(), fence(2)));
    assert_eq!(ending.zombie["sequence"], 1);
    assert_eq!(ending.after, ending.before);
    assert_eq!(ending.history, ["first", "second"], "each message was written once");
    assert!(ending.log.contains("idle-in-transaction timeout"), "{}", ending.log);
}

#[tokio::test]
async fn the_example_writes_each_message_once_over_a_change_of_the_lane() {
    let rig = Rig::new().await;
    let database = database().await;
    let example = async |pod: &'static str| {
        let settings = database.settings();
        let variables = [("DATABASE_URL", settings.as_str())];
        WorkerProcess::of(binary::postgres_example(), &rig, pod, &["127.0.0.1:0"], &variables).await
    };
    let first = rig.open().await;
    let worker = example("one").await;
    rig.publish("N10156", "JFK").await;
    rig.publish("N10156", "LAX").await;
    rig.wait_settled(&first).await;
    assert_eq!(row(&database, "N10156").await, ("LAX".to_owned(), fence(2)));
    worker.kill().await;

    // A lane that begins at the start again, as after a deleted consumer: both come once more, and a new one.
    let second = rig.open_lane(share(0, 1), 2, None, Vec::new()).await;
    rig.publish("N10156", "BOS").await;
    let worker = example("two").await;
    rig.wait_settled(&second).await;
    assert_eq!(history(&database).await, ["JFK", "LAX", "BOS"]);
    drop(worker);
}

#[tokio::test]
async fn the_example_holds_its_message_until_its_database_is_there() {
    let rig = Rig::new().await;
    let consumer = rig.open().await;
    rig.publish("N10156", "JFK").await;
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("database");
    let url = format!("host={} user=postgres dbname=postgres", link.display());
    let variables = [("DATABASE_URL", url.as_str())];
    let worker = WorkerProcess::of(binary::postgres_example(), &rig, "p", &["127.0.0.1:0"], &variables).await;
    let held = "the handler is not there or wants to wait; the message is held";
    wait_until(DEADLINE, "the message to be held", || async { worker.logged(held).is_some() }).await;
    let (status, words) = worker.ask("/readyz").await;
    assert_eq!(status, 503, "{words}");
    assert!(words.contains("error connecting to server: No such file"), "{words}");
    let database = database().await;
    std::os::unix::fs::symlink(database.folder(), &link).unwrap();
    rig.wait_settled(&consumer).await;
    assert_eq!(row(&database, "N10156").await, ("JFK".to_owned(), fence(1)));
    wait_until(DEADLINE, "the worker to be ready", || async { worker.ask("/readyz").await.0 == 200 }).await;
    drop(worker);
}
