//! What workers write to NATS, as a reason to look at their set: joined, left, blocked. I/O.
//!
//! Only a reason to look, never news by itself: refused writes are heard too, and what is written while the connection
//! is down is not. The resync finds that.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lanekeeper_core::names::{SetKey, SetName};
use lanekeeper_nats::{Bucket, Connection, kv::Wakeups};
use tokio::{sync::broadcast, task::AbortHandle, time::sleep};

/// Writes within this time are one reason.
const TOGETHER: Duration = Duration::from_millis(20);
/// Sets that are told of at once. Who is slower misses some, which the resync makes up for.
const CAPACITY: usize = 1024;

struct Watch {
    /// Rotated credentials are another connection.
    connection: Connection,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The watches of all sets, by uid.
pub struct Watches {
    news: broadcast::Sender<SetName>,
    running: Mutex<HashMap<String, Watch>>,
}

impl Default for Watches {
    fn default() -> Self {
        Self { news: broadcast::channel(CAPACITY).0, running: Mutex::default() }
    }
}

impl Watches {
    /// Sets whose workers wrote something, from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<SetName> {
        self.news.subscribe()
    }

    /// Makes sure that a set's keys are listened to, on the connection of this bucket.
    pub async fn keep(&self, uid: &str, set: &SetName, bucket: &Bucket) {
        let connection = bucket.connection();
        let kept = self
            .running()
            .get(uid)
            .is_some_and(|watch| watch.connection.is_same(connection) && !watch.task.is_finished());
        if kept {
            return;
        }
        let wakeups = match bucket.wakeups(&format!("{}>", set.key_prefix())).await {
            Ok(wakeups) => wakeups,
            // The next pass tries again.
            Err(error) => return tracing::debug!(%set, %error, "the set's keys cannot be listened to"),
        };
        let task = tokio::spawn(listen(set.clone(), wakeups, self.news.clone())).abort_handle();
        self.running().insert(uid.to_owned(), Watch { connection: connection.clone(), task });
    }

    /// A set is gone.
    pub fn forget(&self, uid: &str) {
        self.running().remove(uid);
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Watch>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn listen(set: SetName, mut wakeups: Wakeups, news: broadcast::Sender<SetName>) {
    while let Some(key) = wakeups.next().await {
        // Record and assignments are the operator's own, and a lease is written again and again.
        if matches!(set.parse_key(&key), Some(SetKey::Lane(_) | SetKey::Report { .. })) {
            // Nobody listens when the operator ends.
            let _ = news.send(set.clone());
            sleep(TOGETHER).await;
        }
    }
}
