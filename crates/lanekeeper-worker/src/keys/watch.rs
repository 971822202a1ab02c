//! Reading what the partition is to do.

use std::{sync::Arc, time::Duration};

use lanekeeper_core::{
    plan::Revisioned,
    record::{Assignment, Holder, LaneKey},
};
use lanekeeper_nats::{KvError, kv::Wakeups};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{Identity, KeyEvent};
use crate::status::Board;

const READ_EVERY: Duration = Duration::from_secs(15);
/// After a failed read; doubled up to [`READ_EVERY`].
const FIRST_RETRY: Duration = Duration::from_millis(250);

/// Until nobody listens any more.
pub(super) async fn watch(identity: Identity, events: mpsc::UnboundedSender<KeyEvent>, board: Arc<Board>) {
    let mut health = identity.bucket.connection().watch_health();
    let mut assignment_wakeups = subscribe(&identity, &identity.set.assignment_key(identity.partition)).await;
    let mut lane: Option<(u64, Option<Wakeups>)> = None;
    let mut failures = 0u32;
    while !events.is_closed() {
        let connects = health.borrow_and_update().connects;
        let next = match read(&identity, &events, &mut lane).await {
            Ok(()) => {
                if failures > 0 {
                    tracing::info!("the assignment can be read again");
                }
                failures = 0;
                board.set_trouble(None);
                READ_EVERY
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(%error, reason = error.reason(), "the assignment cannot be read");
                }
                failures += 1;
                board.set_trouble(Some(error.to_string()));
                READ_EVERY.min(FIRST_RETRY * (1 << failures.min(8)))
            }
        };
        let due = Instant::now() + next;
        let (_, lane_wakeups) =
            lane.as_mut().map_or((0, None), |(number, wakeups)| (*number, wakeups.as_mut()));
        tokio::select! {
            () = sleep_until(due) => {}
            () = woken(assignment_wakeups.as_mut()) => {}
            () = woken(lane_wakeups) => {}
            // Subscriptions missed what happened while the connection was down.
            _ = health.wait_for(|now| now.connected && now.connects != connects) => {}
            () = events.closed() => {}
        }
    }
}

async fn subscribe(identity: &Identity, key: &str) -> Option<Wakeups> {
    let wakeups = identity.bucket.wakeups(key).await;
    wakeups
        .inspect_err(
            |error| tracing::warn!(%error, key, "no wake-up calls for a key; it is read all the same"),
        )
        .ok()
}

async fn woken(wakeups: Option<&mut Wakeups>) {
    match wakeups {
        Some(wakeups) => match wakeups.next().await {
            Some(_) => {}
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

async fn read(
    identity: &Identity,
    events: &mpsc::UnboundedSender<KeyEvent>,
    lane: &mut Option<(u64, Option<Wakeups>)>,
) -> Result<(), KvError> {
    let key = identity.set.assignment_key(identity.partition);
    let Some(found) = identity.bucket.get_json::<Assignment>(&key).await? else {
        let _ = events.send(KeyEvent::Unassigned);
        return Ok(());
    };
    let incarnation = found.value.incarnation;
    if lane.as_ref().is_none_or(|(known, _)| *known < incarnation) {
        *lane = Some((incarnation, subscribe(identity, &identity.set.lane_key(incarnation)).await));
    }
    if let Some(found) = identity.bucket.get_json::<LaneKey>(&identity.set.lane_key(incarnation)).await? {
        give_up_what_earlier_processes_held(identity, incarnation, &found).await;
        let LaneKey { retiring, excused, .. } = found.value;
        let _ = events.send(KeyEvent::Key { incarnation, retiring, excused });
    }
    let _ = events.send(KeyEvent::Assigned(Arc::new(found.value)));
    Ok(())
}

/// A container starts only after the process before it has ended. So what an earlier process of this pod held, nobody
/// holds any more, and this one says so, also of a lane that takes nobody: a change would wait for it for ever.
async fn give_up_what_earlier_processes_held(
    identity: &Identity,
    incarnation: u64,
    found: &Revisioned<LaneKey>,
) {
    let us = &identity.holder;
    let earlier = |other: &Holder| other.pod == us.pod && other != us;
    if !found.value.holders.iter().any(earlier) {
        return;
    }
    let mut key = found.value.clone();
    key.holders.retain(|other| !earlier(other));
    let written =
        identity.bucket.put_json(&identity.set.lane_key(incarnation), &key, Some(found.revision)).await;
    match written {
        Ok(_) => tracing::info!(incarnation, "gave up what an earlier process of this pod held"),
        // Somebody else wrote first; the next look decides.
        Err(error) if error.is_conflict() => {}
        Err(error) => {
            tracing::warn!(%error, incarnation, "an earlier process of this pod still holds the lane");
        }
    }
}
