//! How long a lane stands when its worker goes away: from that moment until the next message is in the handler.
//!
//! Real programs, one lane with a backlog, a handler of a few milliseconds. What Kubernetes does is played without it, at
//! once: the container's restart, the new pod's start, the word of the kubelet that a pod has ended. What those take in a
//! cluster comes on top.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use lanekeeper_core::record::Delivery;
use lanekeeper_tests::wait_for;
use tokio::process::{Child, Command};

use crate::{
    handler::HttpHandler,
    peers::{GROUP_FAILOVER, Peers},
    program::Program,
    report::{Report, quantile},
    setting::Setting,
};

const HANDLING: Duration = Duration::from_millis(2);
/// More than is handled in one round.
const BACKLOG: u64 = 30_000;
/// The same for a group, which copies it first.
const GROUP_BACKLOG: u64 = 5_000;
/// A round begins when so many were handled by whoever is to go away.
const WARM: usize = 20;
const DEADLINE: Duration = Duration::from_secs(90);
/// Rounds of what takes a whole deadline each.
const SLOW_ROUNDS: usize = 3;

/// How a worker goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The process dies, and the kubelet starts its container again.
    ProcessCrash,
    /// The pod is deleted, and its replacement starts in the same moment.
    PodDeleted,
    /// The pod is killed, the kubelet says so, a standby is there.
    PodKilledWithStandby,
    /// Nothing is heard of the pod any more, a standby is there.
    NodeSilent,
}

impl End {
    const ALL: [Self; 4] =
        [Self::ProcessCrash, Self::PodDeleted, Self::PodKilledWithStandby, Self::NodeSilent];

    fn name(self) -> &'static str {
        match self {
            Self::ProcessCrash => "process_crash",
            Self::PodDeleted => "pod_deleted",
            Self::PodKilledWithStandby => "pod_killed_with_standby",
            Self::NodeSilent => "node_silent",
        }
    }

    fn has_standby(self) -> bool {
        matches!(self, Self::PodKilledWithStandby | Self::NodeSilent)
    }
}

/// Rows `failover_<end>_p50` and `_p99`, in milliseconds.
pub(crate) async fn measure(report: &mut Report, rounds: usize) -> Result<()> {
    let program = Program::build().await?;
    let peers = Peers::build()?;
    for end in End::ALL {
        let rounds = if end == End::NodeSilent { SLOW_ROUNDS.min(rounds) } else { rounds * 4 };
        let mut gaps = Vec::new();
        let mut setting = Setting::start().await?;
        setting.publish(BACKLOG, 128).await?;
        for round in 1..=rounds {
            eprintln!("failover: {}, round {round} of {rounds}", end.name());
            gaps.push(one(&mut setting, &program, end).await?.as_secs_f64() * 1e3);
        }
        for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
            report.alone(&format!("failover_{}_{name}", end.name()), quantile(&gaps, part), "ms");
        }
    }
    eprintln!("failover: a partitioned consumer group");
    let setting = Setting::start().await?;
    setting.publish(GROUP_BACKLOG, 128).await?;
    report.alone(GROUP_FAILOVER, peers.measure(&setting, GROUP_FAILOVER, GROUP_BACKLOG)?, "ms");
    Ok(())
}

/// One lane, one end of its worker.
async fn one(setting: &mut Setting, program: &Program, end: End) -> Result<Duration> {
    let consumer = setting.open_lane(None, Delivery::Serial).await?;
    let handler = HttpHandler::start(HANDLING).await?;
    let mut old = program.start(setting, "old", &handler)?;
    wait_for(DEADLINE, "the lane to be busy", || async { handler.count() >= WARM as u64 }).await?;
    setting.wait_owner("old").await?;
    let standby = end.has_standby().then(|| program.start(setting, "standby", &handler)).transpose()?;
    if standby.is_some() {
        setting.wait_holders(2).await?;
    }
    let (gone, mut new) = match end {
        End::ProcessCrash => {
            old.kill().await?;
            (Instant::now(), program.start(setting, "old", &handler)?)
        }
        End::PodDeleted => {
            signal(&old, "TERM").await?;
            (Instant::now(), program.start(setting, "new", &handler)?)
        }
        End::PodKilledWithStandby => {
            old.kill().await?;
            let gone = Instant::now();
            setting.take_out("old").await?;
            (gone, standby.context("there is a standby")?)
        }
        End::NodeSilent => {
            signal(&old, "STOP").await?;
            (Instant::now(), standby.context("there is a standby")?)
        }
    };
    let gap = first_after(&handler, gone, end).await?;
    new.kill().await?;
    // A stopped process is killed as well; one that was killed already is no error.
    let _ = old.kill().await;
    handler.take(true)?;
    setting.remove_lane(&consumer).await?;
    Ok(gap)
}

/// When whoever comes next has a message.
async fn first_after(handler: &HttpHandler, gone: Instant, end: End) -> Result<Duration> {
    // The restarted container has the pod's name, and what it asks begins after the other's end; one that ends in order
    // still finishes what it has, which is no gap.
    let successor = match end {
        End::ProcessCrash => "old",
        End::PodDeleted => "new",
        End::PodKilledWithStandby | End::NodeSilent => "standby",
    };
    let begun = || handler.first(|handled| handled.pod == successor && handled.begun > gone);
    wait_for(DEADLINE, "the successor to handle a message", || async { begun().is_some() }).await?;
    let next = begun().context("it was there")?;
    let before = handler.last_ended_before(next).unwrap_or(gone);
    Ok(next - before.max(gone))
}

async fn signal(child: &Child, name: &str) -> Result<()> {
    let pid = child.id().context("the program ended by itself")?;
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .stdin(Stdio::null())
        .status()
        .await?;
    if !sent.success() {
        bail!("the program could not be sent {name}");
    }
    Ok(())
}
