//! What the operator is told when it starts: flags and environment, checked once.
//!
//! Nothing of a set is configured here; a set's own specification always wins.

use std::{net::SocketAddr, time::Duration};

use clap::Parser;

/// The shortest resync: below it the operator would look at idle sets without a pause.
const MIN_RESYNC_SECONDS: f64 = 0.2;
/// The longest resync: drift must not stay for hours.
const MAX_RESYNC_SECONDS: f64 = 3600.0;

/// The operator of Lanekeeper: makes streams, consumers and workers from `OrderedPartitionSet` resources.
#[derive(Debug, Clone, Parser)]
#[command(name = "lanekeeper-operator", version)]
pub struct Settings {
    /// Look only at the sets of these namespaces; all of them when empty. Separated by commas.
    #[arg(long, env = "LANEKEEPER_WATCH_NAMESPACES", value_delimiter = ',', value_name = "NAMESPACE")]
    pub watch_namespaces: Vec<String>,

    /// The image of the lane's container, unless a set names another.
    #[arg(
        long,
        env = "LANEKEEPER_WORKER_IMAGE",
        default_value = concat!("ghcr.io/lanekeeper/lanekeeper-worker:", env!("CARGO_PKG_VERSION")),
        value_name = "IMAGE"
    )]
    pub worker_image: String,

    /// When the lane's image is pulled: `Always`, `IfNotPresent` or `Never`.
    #[arg(
        long,
        env = "LANEKEEPER_WORKER_PULL_POLICY",
        default_value = "IfNotPresent",
        value_parser = ["Always", "IfNotPresent", "Never"],
        value_name = "POLICY"
    )]
    pub worker_pull_policy: String,

    /// The KV bucket of the records, in each NATS account.
    #[arg(long, env = "LANEKEEPER_BUCKET", default_value = lanekeeper_core::names::DEFAULT_BUCKET, value_parser = bucket)]
    pub bucket: String,

    /// Seconds after which a set is looked at again although nothing was heard of it.
    #[arg(long, env = "LANEKEEPER_RESYNC_SECONDS", default_value = "30", value_parser = resync, value_name = "SECONDS")]
    pub resync: Duration,

    /// How many sets are worked on at the same time.
    #[arg(long, env = "LANEKEEPER_CONCURRENCY", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,

    /// Whether a changed number of partitions is carried out: `on`, or `off` to keep the old number in force.
    #[arg(long, env = "LANEKEEPER_HANDOVER", default_value = "on", action = clap::ArgAction::Set, value_parser = switch, value_name = "on|off")]
    pub handover: bool,

    /// Where health and metrics are served.
    #[arg(long, env = "LANEKEEPER_ADMIN_ADDRESS", default_value = "0.0.0.0:9798", value_name = "ADDRESS")]
    pub admin_address: SocketAddr,

    /// The log filter, for example `info` or `lanekeeper_operator=debug,info`.
    #[arg(long, env = "LANEKEEPER_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,

    /// How log lines are written.
    #[arg(long, env = "LANEKEEPER_LOG_FORMAT", default_value = "json", value_parser = ["json", "text"], value_name = "FORMAT")]
    pub log_format: String,

    /// The operator's own pod, named in its Events.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,
}

fn bucket(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !text.is_empty() && text.len() <= 64 && text.chars().all(legal) {
        Ok(text.to_owned())
    } else {
        Err("a bucket's name has 1 to 64 letters, digits, '-' or '_'".to_owned())
    }
}

fn resync(text: &str) -> Result<Duration, String> {
    let wrong = || format!("from {MIN_RESYNC_SECONDS} to {MAX_RESYNC_SECONDS} seconds are allowed");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (MIN_RESYNC_SECONDS..=MAX_RESYNC_SECONDS).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(wrong())
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("'on' and 'off' are allowed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Settings, clap::Error> {
        Settings::try_parse_from(["lanekeeper-operator"].iter().chain(arguments))
    }

    #[test]
    fn without_flags_everything_has_a_value() {
        let settings = parse(&[]).unwrap();
        assert_eq!(settings.resync, Duration::from_secs(30));
        assert_eq!(settings.bucket, "lanekeeper");
        assert!(settings.handover && settings.watch_namespaces.is_empty());
    }

    #[test]
    fn a_value_that_cannot_be_is_refused_with_what_is_allowed() {
        for (flag, allowed) in [
            ("--resync=0", "from 0.2 to 3600"),
            ("--bucket=a.b", "letters, digits"),
            ("--concurrency=0", "1..=256"),
            ("--handover=maybe", "'on' and 'off'"),
            ("--worker-pull-policy=Sometimes", "IfNotPresent"),
        ] {
            let message = parse(&[flag]).unwrap_err().to_string();
            assert!(message.contains(allowed), "{flag}: {message}");
        }
    }
}
