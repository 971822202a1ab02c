//! A lease in a bucket: [`lanekeeper_core::lease`] with real requests and a real clock.
//!
//! Reads may be answered by any copy of the bucket, and be old; every write names the revision that was read. What that
//! means, and when to ask for what, is decided by `core`: this module must not decide it.

use std::{future::Future, pin::pin, time::Duration};

use lanekeeper_core::lease::{Found, Lease, Lessee, Next};
use tokio::time::{Instant, sleep_until, timeout};

use crate::kv::{Bucket, KvError, Wakeups};

/// Giving it back is not tried for longer: then it lapses.
const GIVE_BACK: Duration = Duration::from_secs(2);
/// Shorter, and answers of a busy server are taken for lost.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// What a contender has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenure {
    /// Until when the lease is its own; nothing when it is not.
    pub until: Option<Instant>,
    /// The revision at which it saw the key last.
    pub revision: Option<u64>,
}

/// Contends for a lease and keeps it, until `leave` completes and it is given back. `start` is where the lessee's clock
/// begins. `tell` is called whenever the tenure changes; whoever is told must stop by itself when its time is over. Dropping
/// the future is what a crash is: the lease lapses. Returns how many nonces the process has used.
pub async fn contend(
    bucket: &Bucket,
    key: &str,
    mut lessee: Lessee,
    start: Instant,
    mut tell: impl FnMut(Tenure),
    leave: impl Future<Output = ()>,
) -> u64 {
    let mut leave = pin!(leave);
    let mut give_up: Option<Instant> = None;
    let wakeups = bucket.wakeups(key).await;
    let mut wakeups = wakeups
        .inspect_err(
            |error| tracing::warn!(%error, key, "no wake-up calls for a lease; it is read all the same"),
        )
        .ok();
    let mut told = None;
    let mut failing = false;
    loop {
        let now = start.elapsed();
        let next = lessee.next(now);
        let until = lessee.until(now).map(|until| start + until);
        if told != Some(until) {
            told = Some(until);
            tell(Tenure { until, revision: lessee.revision() });
        }
        if give_up.is_some_and(|limit| Instant::now() >= limit) {
            return lessee.nonces();
        }
        let result = match next {
            Next::Done => return lessee.nonces(),
            Next::Read => look(bucket, key, &mut lessee, start).await,
            Next::Write { expected, lease } => {
                write(bucket, key, &mut lessee, start, (expected, lease)).await
            }
            Next::Wait(until) => {
                tokio::select! {
                    () = &mut leave, if give_up.is_none() => {
                        lessee.leave();
                        give_up = Some(Instant::now() + GIVE_BACK);
                    }
                    () = sleep_until(start + until) => {}
                    () = woken(wakeups.as_mut()) => lessee.called(start.elapsed()),
                }
                continue;
            }
        };
        match result {
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(error, key, "a lease cannot be read or written");
            }
            Err(error) => tracing::debug!(error, key, "a lease cannot be read or written"),
            Ok(()) => failing = false,
        }
    }
}

async fn look(bucket: &Bucket, key: &str, lessee: &mut Lessee, start: Instant) -> Result<(), String> {
    let found = timeout(patience(lessee), read(bucket, key)).await;
    let now = start.elapsed();
    match found {
        Ok(Ok(found)) => {
            lessee.found(now, found);
            Ok(())
        }
        Ok(Err(error)) => {
            lessee.unread(now);
            Err(error.to_string())
        }
        Err(_) => {
            lessee.unread(now);
            Err("no answer to a read in time".into())
        }
    }
}

async fn write(
    bucket: &Bucket,
    key: &str,
    lessee: &mut Lessee,
    start: Instant,
    (expected, lease): (u64, Lease),
) -> Result<(), String> {
    let value = match bucket.json(key, &lease) {
        Ok(value) => value,
        Err(error) => {
            lessee.unknown(start.elapsed());
            return Err(error.to_string());
        }
    };
    let written = timeout(patience(lessee), bucket.update(key, value, expected)).await;
    let now = start.elapsed();
    match written {
        Ok(Ok(revision)) => lessee.written(now, revision, lease),
        // Not ours, look again: no error.
        Ok(Err(error)) if error.is_conflict() => lessee.refused(now, lease.nonce),
        // Also where nothing can have been written: looking again costs little.
        Ok(Err(error)) => {
            lessee.unknown(now);
            return Err(error.to_string());
        }
        Err(_) => {
            lessee.unknown(now);
            return Err("no answer to a write in time".into());
        }
    }
    Ok(())
}

/// The key as it is, or was a moment ago.
pub(crate) async fn read(bucket: &Bucket, key: &str) -> Result<Found, KvError> {
    let Some(entry) = bucket.last(key).await? else { return Ok(Found { revision: 0, lease: None }) };
    let lease = bucket.parse::<Lease>(&entry).unwrap_or_else(|error| {
        tracing::warn!(%error, "a lease cannot be read: it is taken when it stays like that");
        None
    });
    Ok(Found { revision: entry.revision, lease: lease.map(|lease| lease.value) })
}

fn patience(lessee: &Lessee) -> Duration {
    lessee.terms().patience().max(LEAST_PATIENCE)
}

async fn woken(wakeups: Option<&mut Wakeups>) {
    match wakeups {
        Some(wakeups) => {
            if wakeups.next().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}
