//! A change, live: looks again and again, and shows what is new, until somebody stops it or the change has come to its
//! end. I/O.

use std::{
    io::{IsTerminal, Write, stdout},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use lanekeeper_api::{OrderedPartitionSet, invalid};
use lanekeeper_nats::kv::Wakeups;
use tokio::time::{Instant, timeout};

use crate::{
    arguments::{Format, NatsFlags, Watching},
    cluster::{Cluster, ClusterError},
    look,
    progress::{self, Since},
    reach::Reached,
    status::{self, Nats, Report},
};

/// How often it looks when it hears nothing.
const PERIOD: Duration = Duration::from_secs(1);
/// Changes of one handover come close together.
const LULL: Duration = Duration::from_millis(50);
/// To the top left, and everything below is cleared.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Why it ends without having seen the end of the change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("not settled within {}: {state}{}", words(*.limit), and_waits(.waits))]
    NotSettled { limit: Duration, state: String, waits: Vec<String> },
    #[error("the answer cannot be written: {0}")]
    Write(std::io::Error),
}

fn words(limit: Duration) -> String {
    format!("{} s", limit.as_secs())
}

fn and_waits(waits: &[String]) -> String {
    if waits.is_empty() { String::new() } else { format!("; waits for {}", waits.join("; ")) }
}

/// Where it is shown.
enum Screen {
    /// A terminal: the whole picture, drawn anew.
    Terminal,
    /// A line when something is new.
    Lines,
    /// The same for programs.
    Json,
}

/// Shows a set until it is stopped, or settled when that was asked for.
pub(crate) async fn watch(
    cluster: &Cluster,
    name: &str,
    (no_nats, flags): (bool, &NatsFlags),
    watching: &Watching,
    format: Option<Format>,
) -> Result<(), WatchError> {
    let screen = match format {
        Some(Format::Json) => Screen::Json,
        None if stdout().is_terminal() => Screen::Terminal,
        None => Screen::Lines,
    };
    let begun = Instant::now();
    let over = || watching.timeout.filter(|limit| begun.elapsed() >= *limit);
    let set = cluster.set(name).await?;
    let mut eyes = Eyes::open(cluster, &set, no_nats, flags).await;
    let (mut since, mut shown) = (Since::default(), None);
    let mut set = Ok(set);
    loop {
        let now = Timestamp::now();
        match &set {
            Ok(set) => {
                // Of Deployments only ready pods are shown: no reason to end.
                let deployments = cluster.deployments(name).await.unwrap_or_default();
                let report = status::report(set, &deployments, eyes.look(set).await);
                since.update(&report, now, shown.is_none());
                let state = state(&screen, &report, &since, now);
                let is_new = shown.as_ref() != Some(&state);
                if is_new || matches!(screen, Screen::Terminal) {
                    show(&screen, &report, &state, &since, now).map_err(WatchError::Write)?;
                }
                shown = Some(state);
                if watching.until_settled && progress::is_settled(&report) {
                    return Ok(());
                }
                if let Some(limit) = over() {
                    let state = progress::line(&report);
                    return Err(WatchError::NotSettled { limit, state, waits: since.words(now) });
                }
            }
            // Gone for good; anything else may come back.
            Err(ClusterError::NoSet { .. } | ClusterError::NotInstalled) => break,
            Err(_) if over().is_some() => break,
            Err(error) => eprintln!("{error}"),
        }
        let left = watching.timeout.map_or(PERIOD, |limit| limit.saturating_sub(begun.elapsed()));
        eyes.rest(PERIOD.min(left)).await;
        set = cluster.set(name).await;
    }
    set.map(drop).map_err(WatchError::from)
}

/// What decides whether there is something new.
fn state(screen: &Screen, report: &Report, since: &Since, now: Timestamp) -> String {
    match screen {
        Screen::Json => serde_json::to_string(report).unwrap_or_default(),
        // Times go on; they are nothing new.
        Screen::Lines => format!("{}{}", progress::line(report), and_waits(&progress::waits(report))),
        Screen::Terminal => and_waits(&since.words(now)),
    }
}

fn show(screen: &Screen, report: &Report, state: &str, since: &Since, now: Timestamp) -> std::io::Result<()> {
    let mut out = stdout().lock();
    match screen {
        Screen::Json => writeln!(out, "{state}")?,
        Screen::Lines => writeln!(out, "{}  {state}", progress::clock(now))?,
        Screen::Terminal => write!(out, "{CLEAR}{}", progress::picture(report, since, now))?,
    }
    out.flush()
}

/// What sees NATS, if anything does.
struct Eyes {
    reached: Option<Reached>,
    wakeups: Option<Wakeups>,
    /// Why not.
    why: Option<String>,
    no_nats: bool,
}

impl Eyes {
    async fn open(cluster: &Cluster, set: &OrderedPartitionSet, no_nats: bool, flags: &NatsFlags) -> Self {
        let mut eyes = Self { reached: None, wakeups: None, why: None, no_nats };
        if no_nats {
            return eyes;
        }
        let validated = match lanekeeper_api::validate(set) {
            Ok(validated) => validated,
            Err(wrong) => {
                eyes.why = Some(invalid::summary(&wrong));
                return eyes;
            }
        };
        match look::once(cluster, &validated, flags).await {
            Ok((reached, _)) => {
                // Without it a look a second is all there is.
                eyes.wakeups =
                    reached.bucket.wakeups(&format!("{}>", validated.name.key_prefix())).await.ok();
                eyes.reached = Some(reached);
            }
            Err(error) => eyes.why = Some(error.to_string()),
        }
        eyes
    }

    async fn look(&self, set: &OrderedPartitionSet) -> Option<Nats> {
        if self.no_nats {
            return None;
        }
        let (Some(reached), Ok(validated)) = (&self.reached, lanekeeper_api::validate(set)) else {
            return Some(Nats::not_reached(self.why.clone().unwrap_or_default()));
        };
        Some(match look::look(reached, &validated).await {
            Ok(seen) => Nats::seen(&seen),
            Err(error) => Nats::not_reached(error.to_string()),
        })
    }

    /// Until something was written in NATS, and no longer than that.
    async fn rest(&mut self, period: Duration) {
        match &mut self.wakeups {
            Some(wakeups) => {
                if timeout(period, wakeups.next()).await.is_ok() {
                    tokio::time::sleep(LULL).await;
                }
            }
            None => tokio::time::sleep(period).await,
        }
    }
}
