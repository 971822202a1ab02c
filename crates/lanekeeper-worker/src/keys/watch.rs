//! Reading what the partition is to do.

use std::{sync::Arc, time::Duration};

use lanekeeper_core::{
    lease::Terms,
    park::ParkOrder,
    plan::Revisioned,
    record::{Assignment, Holder, LaneKey},
    release,
};
use lanekeeper_nats::{
    KvError,
    kv::Wakeups,
    release::{Target, release_lease},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{Identity, KeyEvent};
use crate::status::Board;

const READ_EVERY: Duration = Duration::from_secs(15);
/// After a failed read; doubled up to [`READ_EVERY`].
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// After a call. It comes when a write is sent, which may be before it is stored, and before every copy of the bucket
/// has it: the first read may find what was there before. Measured with three copies: a lane that nobody served for up
/// to 15 seconds after one change in ten.
const AFTER_CALL: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
];

/// When to read next.
#[derive(Debug, Default)]
struct Rhythm {
    /// Reads since the last call.
    reads: usize,
    failures: u32,
}

impl Rhythm {
    /// Something changed, perhaps.
    fn called(&mut self) {
        self.reads = 0;
    }

    fn read(&mut self) -> Duration {
        self.failures = 0;
        let next = AFTER_CALL.get(self.reads).copied().unwrap_or(READ_EVERY);
        self.reads += 1;
        next
    }

    fn failed(&mut self) -> Duration {
        self.failures += 1;
        READ_EVERY.min(FIRST_RETRY * (1 << self.failures.min(8)))
    }
}

/// Until nobody listens any more.
pub(super) async fn watch(identity: Identity, events: mpsc::UnboundedSender<KeyEvent>, board: Arc<Board>) {
    let mut health = identity.bucket.connection().watch_health();
    let mut assignment_wakeups = subscribe(&identity, &identity.set.assignment_key(identity.partition)).await;
    let mut lane: Option<(u64, Option<Wakeups>)> = None;
    let mut rhythm = Rhythm::default();
    while !events.is_closed() {
        let connects = health.borrow_and_update().connects;
        let next = match read(&identity, &events, &mut lane).await {
            Ok(()) => {
                if rhythm.failures > 0 {
                    tracing::info!("the assignment can be read again");
                }
                board.set_trouble(None);
                rhythm.read()
            }
            Err(error) => {
                if rhythm.failures == 0 {
                    tracing::warn!(%error, reason = error.reason(), "the assignment cannot be read");
                }
                board.set_trouble(Some(error.to_string()));
                rhythm.failed()
            }
        };
        let due = Instant::now() + next;
        let (_, lane_wakeups) =
            lane.as_mut().map_or((0, None), |(number, wakeups)| (*number, wakeups.as_mut()));
        tokio::select! {
            () = sleep_until(due) => {}
            () = woken(assignment_wakeups.as_mut()) => rhythm.called(),
            () = woken(lane_wakeups) => rhythm.called(),
            // Subscriptions missed what happened while the connection was down.
            _ = health.wait_for(|now| now.connected && now.connects != connects) => rhythm.called(),
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
    let assignment = found.value;
    let incarnation = assignment.incarnation;
    if lane.as_ref().is_none_or(|(known, _)| *known < incarnation) {
        *lane = Some((incarnation, subscribe(identity, &identity.set.lane_key(incarnation)).await));
    }
    if let Some(found) = identity.bucket.get_json::<LaneKey>(&identity.set.lane_key(incarnation)).await? {
        take_over_from_the_dead(identity, &assignment, &found).await;
        let LaneKey { retiring, excused, breaker, orders, releasing, .. } = found.value;
        if let Some(sequence) = breaker {
            let _ = events.send(KeyEvent::BreakerOpen { incarnation, sequence });
        }
        let _ = events.send(KeyEvent::Key { incarnation, retiring, excused });
        let claimed = releasing.as_ref() == Some(&identity.holder);
        let about_parked = ParkOrder::among(&orders);
        let _ = events.send(KeyEvent::Orders { incarnation, orders });
        let _ = events.send(KeyEvent::ParkOrders { incarnation, orders: about_parked, claimed });
    }
    let _ = events.send(KeyEvent::Assigned(Arc::new(assignment)));
    Ok(())
}

/// Takes out of the lane's key what those left there who are proven to be gone, and hands on what they had.
///
/// A container starts only after the process before it has ended. So what an earlier process of this pod held, nobody
/// holds any more, and this one says so, also of a lane that takes nobody: a change would wait for it for ever.
async fn take_over_from_the_dead(identity: &Identity, assignment: &Assignment, found: &Revisioned<LaneKey>) {
    let us = &identity.holder;
    let incarnation = assignment.incarnation;
    let earlier = |other: &Holder| other.pod == us.pod && other != us;
    let evidence = release::evidence(&found.value, us);
    if evidence.is_none() && !found.value.holders.iter().any(earlier) {
        return;
    }
    let mut key = found.value.clone();
    key.holders.retain(|other| !earlier(other));
    if evidence.is_some() {
        // Whoever writes this is the one who acts on it.
        key.owner = None;
    }
    let written =
        identity.bucket.put_json(&identity.set.lane_key(incarnation), &key, Some(found.revision)).await;
    match written {
        Ok(_) => tracing::info!(incarnation, "took out of the lane what is proven to be gone"),
        // Somebody else wrote first; the next look decides.
        Err(error) if error.is_conflict() => return,
        Err(error) => {
            tracing::warn!(%error, incarnation, "what is proven to be gone is still in the lane");
            return;
        }
    }
    let Some(dead) = evidence.filter(|_| !key.retiring) else { return };
    let target = Target {
        connection: identity.bucket.connection(),
        stream: &assignment.mapping.stream,
        consumer: &assignment.consumer,
    };
    let released = if dead.pin.is_empty() {
        let terms = Terms::new(Duration::from_millis(assignment.settings.ack_wait_milliseconds));
        let lease = identity.set.lease_key(incarnation);
        release_lease(target, &identity.bucket, &lease, &dead.holder, terms).await
    } else {
        lanekeeper_nats::release::release(target, &dead.pin).await
    };
    match released {
        Ok(released) => tracing::info!(incarnation, ?released, "handed on what a worker had that is gone"),
        Err(error) => tracing::warn!(%error, incarnation, "it lapses by itself"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_followed_by_reads_soon_because_the_first_may_find_what_was_there_before() {
        let mut rhythm = Rhythm::default();
        let mut reads = || (0..6).map(|_| rhythm.read().as_millis()).collect::<Vec<_>>();
        assert_eq!(reads(), [20, 100, 500, 2_000, 15_000, 15_000]);
        assert_eq!(reads(), [15_000; 6]);
        rhythm.called();
        assert_eq!(rhythm.read(), AFTER_CALL[0]);
    }

    #[test]
    fn failed_reads_are_repeated_less_and_less_often() {
        let mut rhythm = Rhythm::default();
        let waits: Vec<u128> = (0..8).map(|_| rhythm.failed().as_millis()).collect();
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000]);
        rhythm.read();
        assert_eq!(rhythm.failed().as_millis(), 500);
    }
}
