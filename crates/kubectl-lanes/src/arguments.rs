//! The command line. Connection flags have kubectl's names and meanings.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::age;

/// Looks at Lanekeeper's sets, and gives orders to their lanes.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-lanes",
    bin_name = "kubectl lanes",
    version,
    about = "Looks at Lanekeeper's sets, and gives orders to their lanes"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,

    /// How to write the answer; text for people when absent.
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which cluster, as whom, and in which namespace.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Connection {
    /// The namespace; the context's when absent.
    #[arg(short, long, global = true)]
    pub(crate) namespace: Option<String>,
    /// The kubeconfig file to use.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
    /// The cluster of the kubeconfig.
    #[arg(long, global = true)]
    pub(crate) cluster: Option<String>,
    /// The user of the kubeconfig.
    #[arg(long, global = true)]
    pub(crate) user: Option<String>,
}

/// Another way to NATS than the set's own.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NatsFlags {
    /// The address of NATS as it is reached from here, instead of spec.nats.servers.
    #[arg(long = "nats-server", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// A NATS credentials file, instead of the Secret in spec.nats.credentialsSecretRef.
    #[arg(long = "nats-creds", value_name = "FILE")]
    pub(crate) creds: Option<PathBuf>,
    /// Certificate authorities (PEM), instead of the Secret in spec.nats.tls.caSecretRef.
    #[arg(long = "nats-ca", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The KV bucket of the records; that of the set's workers when absent.
    #[arg(long = "nats-bucket", value_name = "NAME")]
    pub(crate) bucket: Option<String>,
}

/// How long the outcome of an order is waited for.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Waiting {
    /// How long to wait for the outcome, for example 90s or 5m. What is not carried out by then stays ordered.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = age::parse)]
    pub(crate) timeout: Duration,
}

/// Which message is to be tried.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Tried {
    /// The message's number in the set's stream, as `kubectl lanes status` shows it.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sequence: Option<u64>,
    /// The message of this key (its tokens in the order of keyTokens, joined by dots) at which its lane stands.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// The message at which this partition stands.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partition: Option<u32>,
}

/// Which messages are to be skipped.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SkippedMessages {
    /// The message's number in the set's stream.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sequence: Option<u64>,
    /// Every message of this key (its tokens in the order of keyTokens, joined by dots) that is in the stream now and not
    /// settled.
    #[arg(long)]
    pub(crate) key: Option<String>,
}

/// Which dead letters.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Letters {
    /// The one with this number in the stream of dead letters, as `dlq list` shows it.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sequence: Option<u64>,
    /// Those of this key (its tokens in the order of keyTokens, joined by dots).
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// All of the set.
    #[arg(long)]
    pub(crate) all: bool,
}

/// What keeps from a mistake.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Care {
    /// Show what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also when it is about more than 100 dead letters.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// What is done with dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// Show a set's dead letters, the oldest first.
    List {
        /// The set.
        set: String,
        /// Those of this key alone.
        #[arg(long)]
        key: Option<String>,
        /// How many at most.
        #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        limit: u64,
        /// The stream of dead letters; that of the set when absent.
        #[arg(long, value_name = "NAME")]
        stream: Option<String>,
        #[command(flatten)]
        nats: NatsFlags,
    },
    /// Publish dead letters again under their original subject, and delete each once the stream has it.
    ///
    /// They go to the end of the stream, in their original order: messages of the key that were handled meanwhile stay
    /// handled, and those that wait come first. The order of the key is not restored.
    Replay {
        /// The set.
        set: String,
        #[command(flatten)]
        which: Letters,
        #[command(flatten)]
        care: Care,
        /// The stream of dead letters; that of the set when absent.
        #[arg(long, value_name = "NAME")]
        stream: Option<String>,
        #[command(flatten)]
        nats: NatsFlags,
    },
    /// Delete dead letters for good, and show what they were.
    Drop {
        /// The set.
        set: String,
        #[command(flatten)]
        which: Letters,
        /// Why; it is shown with what was dropped.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        care: Care,
        /// The stream of dead letters; that of the set when absent.
        #[arg(long, value_name = "NAME")]
        stream: Option<String>,
        #[command(flatten)]
        nats: NatsFlags,
    },
}

/// Which parked messages.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ParkedMessages {
    /// All of this key (its tokens in the order of keyTokens, joined by dots).
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// The one with this number in the set's stream.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sequence: Option<u64>,
}

/// Which parked keys.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ParkedKeys {
    /// This key (its tokens in the order of keyTokens, joined by dots).
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Every key that is parked, one after another.
    #[arg(long)]
    pub(crate) all: bool,
}

/// What is done with parked keys.
#[derive(Debug, Subcommand)]
pub(crate) enum ParkedCommand {
    /// Show a set's parked keys, or the messages of one.
    List {
        /// The set.
        set: String,
        /// The messages of this key.
        #[arg(long)]
        key: Option<String>,
        /// How many at most.
        #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        limit: u64,
        #[command(flatten)]
        nats: NatsFlags,
    },
    /// Hand parked messages to the handler, in their order and before newer ones of their key.
    ///
    /// The lane of the key takes no other message meanwhile. One that fails again stays parked, with all behind it.
    Release {
        /// The set.
        set: String,
        #[command(flatten)]
        which: ParkedKeys,
        #[command(flatten)]
        waiting: Waiting,
        #[command(flatten)]
        nats: NatsFlags,
    },
    /// Delete parked messages for good. With the last one of a key, the key is free.
    Drop {
        /// The set.
        set: String,
        #[command(flatten)]
        which: ParkedMessages,
        /// Why; it is recorded.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        waiting: Waiting,
        #[command(flatten)]
        nats: NatsFlags,
    },
}

/// Whether a set is shown once, or as it changes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Watching {
    /// Show the set as it changes, until it is stopped (Ctrl-C): drawn anew on a terminal, else a line when something
    /// is new.
    #[arg(short, long, requires = "set")]
    pub(crate) watch: bool,
    /// End with success when the number of partitions in force is the wanted one and no lane is being handed over.
    #[arg(long, requires = "watch")]
    pub(crate) until_settled: bool,
    /// End with an error after this time, for example 90s, 5m or 1h.
    #[arg(long, requires = "watch", value_name = "TIME", value_parser = age::parse)]
    pub(crate) timeout: Option<Duration>,
}

/// What of a journal is judged, and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditFlags {
    /// The stream that has the journal; the one that takes its subject when absent.
    #[arg(long, value_name = "NAME")]
    pub(crate) stream: Option<String>,
    /// Follow the journal as it is written, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["stream", "since", "from", "against_stream"])]
    pub(crate) live: bool,
    /// End after this long, such as 10m.
    #[arg(long = "for", value_name = "DURATION", requires = "live", value_parser = age::parse)]
    pub(crate) duration: Option<Duration>,
    /// Begin with what was written at this time (RFC 3339) or so long ago, such as 2h.
    #[arg(long, value_name = "TIME", conflicts_with = "from", value_parser = age::point)]
    pub(crate) since: Option<String>,
    /// Begin with this number of the journal's stream.
    #[arg(long, value_name = "SEQUENCE")]
    pub(crate) from: Option<u64>,
    /// Compare with the set's own stream too: everything up to the lanes' floors must have been handled.
    #[arg(long)]
    pub(crate) against_stream: bool,
    /// The journal's subject, when the set has none any more.
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) subject: Option<String>,
    /// How far the clocks of two pods may be apart.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = age::parse)]
    pub(crate) clock_tolerance: Duration,
    /// How many cases of each violation are shown.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub(crate) examples: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Judge by a set's journal whether every key was handled in order. Fails when not.
    Audit {
        /// The set.
        set: String,
        #[command(flatten)]
        flags: AuditFlags,
        #[command(flatten)]
        nats: NatsFlags,
    },
    /// Show how sets are: all of a namespace, or one with its conditions and lanes.
    Status {
        /// The set.
        set: Option<String>,
        /// The sets of all namespaces.
        #[arg(short = 'A', long, conflicts_with = "set")]
        all_namespaces: bool,
        /// Show only what the API server knows.
        #[arg(long)]
        no_nats: bool,
        #[command(flatten)]
        nats: NatsFlags,
        #[command(flatten)]
        watching: Watching,
    },
    /// Show what another number of partitions would do, before it is done.
    Plan {
        /// The set.
        set: String,
        /// The number of partitions to look at.
        #[arg(short = 'N', long, value_name = "NUMBER", allow_negative_numbers = true)]
        partitions: i64,
        /// Show only which keys move: nothing of what waits or is in hand.
        #[arg(long)]
        no_nats: bool,
        #[command(flatten)]
        nats: NatsFlags,
    },
    /// Show to which partition a key or a subject belongs.
    Where {
        /// The set.
        set: String,
        /// The key (its tokens in the order of keyTokens, joined by dots) or a whole subject.
        #[arg(required_unless_present = "subject")]
        key: Option<String>,
        /// A whole subject, when the same text could also be a key.
        #[arg(long, conflicts_with = "key")]
        subject: Option<String>,
    },
    /// Show which keys take the lanes' time, as their workers counted it in the last minutes.
    Keys {
        /// The set.
        set: String,
        /// How many keys are shown.
        #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
        top: u16,
        /// Ask whoever answers at this address of this machine, a forwarded port 9797 of a worker, instead of all workers
        /// through the API server. Can be given several times.
        #[arg(long = "worker", value_name = "HOST:PORT")]
        workers: Vec<String>,
    },
    /// Try the message at which a lane stands at once, whether attempts are left or not.
    ///
    /// One attempt; whatever comes after it is as the set's policy says. A handler that runs is not cut off: if that attempt
    /// fails, one more follows at once.
    Retry {
        /// The set.
        set: String,
        #[command(flatten)]
        which: Tried,
        #[command(flatten)]
        waiting: Waiting,
        #[command(flatten)]
        nats: NatsFlags,
    },
    /// Give a message up, or all of a key: acknowledged without the handler, and recorded.
    ///
    /// Where onExhausted.policy has dead letters each is stored as one first; otherwise its content is gone unless the
    /// stream keeps it. Later messages of the key are handled although these were not. A handler that runs is not cut off:
    /// the message is skipped if that attempt fails.
    Skip {
        /// The set.
        set: String,
        #[command(flatten)]
        which: SkippedMessages,
        /// Why; it is recorded.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        waiting: Waiting,
        #[command(flatten)]
        nats: NatsFlags,
    },
    /// List a set's dead letters, publish them again, or drop them.
    Dlq {
        #[command(subcommand)]
        command: DlqCommand,
    },
    /// List, release or drop the parked keys of a set.
    Parked {
        #[command(subcommand)]
        command: ParkedCommand,
    },
    /// Show the version of this plugin.
    Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("kubectl-lanes").chain(line.split(' ')))
    }

    #[test]
    fn flags_stand_before_or_after_the_command() {
        for line in ["-n shop --context a status orders -o json", "status orders -n shop -o json --context a"]
        {
            let arguments = parse(line).unwrap();
            assert_eq!(arguments.connection.namespace.as_deref(), Some("shop"), "{line}");
            assert_eq!(arguments.connection.context.as_deref(), Some("a"), "{line}");
            assert_eq!(arguments.output, Some(Format::Json), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in [
            "status orders -A",
            "audit",
            "audit orders --for 1m",
            "audit orders --live --since 1h",
            "where orders",
            "where orders a --subject b",
            "where",
            "status -o yaml",
            "status -w",
            "status orders --until-settled",
            "status orders -w --timeout 5",
            "plan orders",
            "keys",
            "keys orders --top 0",
            "plan --partitions 4",
            "retry orders",
            "retry orders --sequence 1 --partition 0",
            "retry orders --sequence 1 --timeout soon",
            "skip orders --sequence 1",
            "skip orders --reason why",
            "skip orders --sequence 1 --key a --reason why",
            "dlq orders",
            "dlq list",
            "dlq list orders --limit 0",
            "dlq replay orders",
            "dlq replay orders --all --key a",
            "dlq drop orders --all",
            "parked list",
            "parked release orders",
            "parked release orders --all --key a",
            "parked drop orders --key a",
            "parked drop orders --reason why",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in [
            "where orders --subject orders.7",
            "status orders -w --until-settled --timeout 90s",
            "plan orders --partitions -1",
            "retry orders --partition 0 --timeout 90s",
            "skip orders --key a.b --reason why",
            "dlq list orders --key a --limit 5 -o json",
            "dlq replay orders --all --yes --dry-run",
            "dlq drop orders --sequence 7 --reason why",
            "parked list orders --key a --limit 5 -o json",
            "parked release orders --all --timeout 5m",
            "parked drop orders --sequence 7 --reason why",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }
}
