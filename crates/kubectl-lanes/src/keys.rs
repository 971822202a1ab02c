//! Which keys take the lanes' time, as their workers counted: asked of each worker's pod through the API server. I/O; what
//! is made of the answers is pure.
//!
//! A worker tells its keys to its own pod alone, because keys are the user's data. So the port is forwarded, as `kubectl
//! port-forward` does it, which takes the right to; or the caller has done that and names the addresses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use lanekeeper_api::validate::ADMIN_PORT;
use lanekeeper_core::hot_keys::{HotKey, HotKeys};
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

use crate::{
    age,
    cluster::{Cluster, ClusterError, words},
    table,
};

/// Workers asked at the same time.
const AT_ONCE: usize = 16;
/// The largest answer: [`lanekeeper_core::hot_keys::COUNTERS`] keys, each escaped, with room to spare.
const LARGEST: u64 = 1 << 20;

/// Why there is no answer at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("set {set} has no running worker in namespace {namespace}")]
    NoWorker { set: String, namespace: String },
    #[error("no worker could be asked: {}", .0.join("; "))]
    Nobody(Vec<String>),
}

/// The keys that take most time.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Keys {
    /// All lanes together, the one that took most first.
    pub(crate) keys: Vec<Row>,
    /// Workers that could not be asked, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_asked: Vec<String>,
}

/// One key.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) partition: u32,
    pub(crate) key: String,
    /// Its handling time: at most.
    pub(crate) microseconds: u64,
    /// By how much that may be too much.
    pub(crate) error_microseconds: u64,
    /// Handling time of all keys of its partition.
    pub(crate) of_microseconds: u64,
    /// Handlings that were counted one by one.
    pub(crate) handlings: u64,
}

/// Asks the workers of a set, or whoever answers at the addresses.
pub(crate) async fn keys(
    cluster: &Cluster,
    set: &str,
    top: usize,
    addresses: &[String],
) -> Result<Keys, KeysError> {
    let mut asking = JoinSet::new();
    let mut answers = Vec::new();
    if addresses.is_empty() {
        let pods = cluster.workers(set).await?;
        if pods.is_empty() {
            return Err(KeysError::NoWorker { set: set.to_owned(), namespace: cluster.namespace.clone() });
        }
        let api: Api<Pod> = Api::namespaced(cluster.client().clone(), &cluster.namespace);
        for pod in pods {
            if asking.len() >= AT_ONCE {
                answers.extend(asking.join_next().await.and_then(Result::ok));
            }
            asking.spawn(ask_pod(api.clone(), pod.name_any()));
        }
    } else {
        for address in addresses {
            asking.spawn(ask_address(address.clone()));
        }
    }
    answers.extend(asking.join_all().await);
    let (told, not_asked): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    let told: Vec<HotKeys> = told.into_iter().filter_map(Result::ok).collect();
    let mut not_asked: Vec<String> = not_asked.into_iter().filter_map(Result::err).collect();
    not_asked.sort();
    if told.is_empty() {
        return Err(KeysError::Nobody(not_asked));
    }
    Ok(Keys { keys: merge(told, top), not_asked })
}

async fn ask_pod(pods: Api<Pod>, pod: String) -> Result<HotKeys, String> {
    let asked = timeout(age::PATIENCE, async {
        let forwarded = pods.portforward(&pod, &[ADMIN_PORT]).await;
        let mut forwarder = forwarded.map_err(|error| {
            format!("port {ADMIN_PORT} cannot be forwarded (the right to `create` pods/portforward is needed): {}", words(&error))
        })?;
        let stream = forwarder.take_stream(ADMIN_PORT).ok_or("the port was not forwarded")?;
        ask(stream).await
    });
    let answer = asked.await.unwrap_or_else(|_| Err("nothing was answered in time".to_owned()));
    answer.map_err(|why| format!("pod {pod}: {why}"))
}

async fn ask_address(address: String) -> Result<HotKeys, String> {
    let asked = timeout(age::PATIENCE, async {
        let stream = TcpStream::connect(&address).await.map_err(|error| error.to_string())?;
        ask(stream).await
    });
    let answer = asked.await.unwrap_or_else(|_| Err("nothing was answered in time".to_owned()));
    answer.map_err(|why| format!("--worker {address}: {why}"))
}

/// One request over one connection, which ends with it.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<HotKeys, String> {
    const REQUEST: &[u8] = b"GET /keys HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(REQUEST).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    stream.take(LARGEST).read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
    read(&String::from_utf8_lossy(&answer))
}

fn read(answer: &str) -> Result<HotKeys, String> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("what it answered is no HTTP")?;
    match head.split(' ').nth(1) {
        Some("200") => {
            serde_json::from_str(body).map_err(|error| format!("its answer cannot be read: {error}"))
        }
        Some("404") => Err("it tells no keys: its version is older".to_owned()),
        _ => Err(format!("it answered {}: {}", head.lines().next().unwrap_or_default(), body.trim())),
    }
}

/// The counters of all pods of a partition together; then the first of all partitions.
fn merge(told: Vec<HotKeys>, top: usize) -> Vec<Row> {
    let mut totals = BTreeMap::<u32, u64>::new();
    let mut keys = BTreeMap::<(u32, String), Row>::new();
    for one in told {
        *totals.entry(one.partition).or_default() += one.microseconds;
        for HotKey { key, microseconds, error_microseconds, handlings } in one.keys {
            let row = keys.entry((one.partition, key.clone())).or_insert(Row {
                partition: one.partition,
                key,
                microseconds: 0,
                error_microseconds: 0,
                of_microseconds: 0,
                handlings: 0,
            });
            row.microseconds += microseconds;
            row.error_microseconds += error_microseconds;
            row.handlings += handlings;
        }
    }
    let mut rows: Vec<Row> = keys.into_values().collect();
    for row in &mut rows {
        row.of_microseconds = totals.get(&row.partition).copied().unwrap_or_default();
    }
    // What is certain decides: a key that just took over a counter has that one's time as its possible error.
    let certain = |row: &Row| row.microseconds - row.error_microseconds.min(row.microseconds);
    rows.sort_by_key(|row| std::cmp::Reverse((certain(row), row.microseconds)));
    rows.truncate(top);
    rows
}

pub(crate) fn render(keys: &Keys) -> String {
    let rows: Vec<[String; 5]> = keys.keys.iter().map(row).collect();
    let mut text = if rows.is_empty() {
        "No worker has handled anything in the last minutes.\n".to_owned()
    } else {
        table::render(["PARTITION", "KEY", "OF ITS LANE'S TIME", "HANDLINGS", "MEAN"], &rows)
    };
    for why in &keys.not_asked {
        text.push_str("Not asked: ");
        text.push_str(why);
        text.push('\n');
    }
    text
}

fn row(row: &Row) -> [String; 5] {
    let certain = row.microseconds.saturating_sub(row.error_microseconds);
    let percent = |part: u64| u128::from(part) * 100 / u128::from(row.of_microseconds.max(1));
    let (least, most) = (percent(certain), percent(row.microseconds).min(100));
    let share = if least == most { format!("{most} %") } else { format!("{least} to {most} %") };
    // A key is what a publisher wrote: nothing of it may reach the terminal as a command.
    let key: String = row.key.chars().map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect();
    let mean = duration(certain / row.handlings.max(1));
    [row.partition.to_string(), key, share, row.handlings.to_string(), mean]
}

fn duration(microseconds: u64) -> String {
    match microseconds {
        0..10_000 => format!("{microseconds} us"),
        10_000..10_000_000 => format!("{} ms", microseconds / 1_000),
        _ => format!("{} s", microseconds / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(key: &str, microseconds: u64, error_microseconds: u64, handlings: u64) -> HotKey {
        HotKey { key: key.into(), microseconds, error_microseconds, handlings }
    }

    fn told(partition: u32, microseconds: u64, keys: Vec<HotKey>) -> HotKeys {
        HotKeys { v: 1, partition, microseconds, handlings: 0, keys }
    }

    #[test]
    fn the_pods_of_a_partition_are_added_up_and_the_hottest_keys_come_first() {
        let rows = merge(
            vec![
                told(0, 1_000_000, vec![hot("a", 400_000, 0, 4), hot("late", 500_000, 450_000, 1)]),
                told(0, 1_000_000, vec![hot("a", 200_000, 0, 2)]),
                told(1, 20_000_000, vec![hot("z\u{1b}[2J", 15_000_000, 0, 1)]),
            ],
            10,
        );
        let text = render(&Keys { keys: rows, not_asked: vec!["pod orders-2-x: gone".into()] });
        let expected = "\
PARTITION   KEY     OF ITS LANE'S TIME   HANDLINGS   MEAN
1           z\u{fffd}[2J   75 %                 1           15 s
0           a       30 %                 6           100 ms
0           late    2 to 25 %            1           50 ms
Not asked: pod orders-2-x: gone
";
        assert_eq!(text, expected);
    }

    #[test]
    fn only_the_first_are_kept() {
        let keys = (0..20).map(|number| hot(&number.to_string(), number + 1, 0, 1)).collect();
        let rows = merge(vec![told(0, 210, keys)], 2);
        assert_eq!(rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["19", "18"]);
    }

    #[test]
    fn what_is_no_answer_is_said() {
        for (answer, words) in [
            ("", "no HTTP"),
            ("HTTP/1.1 403 Forbidden\r\n\r\nnot you\n", "403 Forbidden: not you"),
            ("HTTP/1.1 404 Not Found\r\n\r\n", "older"),
            ("HTTP/1.1 200 OK\r\n\r\n{", "cannot be read"),
        ] {
            let said = read(answer).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }
}
