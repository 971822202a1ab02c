//! Writing a worker's keys: by compare-and-set where others write, too.

use std::time::Duration;

use lanekeeper_core::record::{Excused, LaneKey, Owned, Report};
use lanekeeper_nats::KvError;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{Identity, KeyCommand, KeyEvent, lease::Leases};

/// A key with many writers may have to be tried a few times.
const CONFLICTS: usize = 32;
const RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// A report that says something is looked at this often: somebody may have deleted or spoilt it, and the lane would stand in
/// silence.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Until the lane's loop has ended.
pub(super) async fn write(
    identity: Identity,
    mut commands: mpsc::UnboundedReceiver<KeyCommand>,
    events: mpsc::UnboundedSender<KeyEvent>,
) {
    let mut reporter =
        Reporter { identity: identity.clone(), wanted: None, written: None, due: None, failures: 0 };
    let mut unrecorded: Option<(u64, Excused)> = None;
    let mut leases = Leases::new(identity.clone(), events.clone());
    // The lane that this process joined before all others, and when it asked to.
    let mut first: Option<(u64, std::time::Instant)> = None;
    loop {
        let next_report = async {
            match reporter.due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        // Who is in the lane comes first: a change of the whole set may wait for it.
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                None => return,
                Some(KeyCommand::Report(report)) => reporter.want(report),
                Some(KeyCommand::Join { incarnation }) => {
                    let event = join(&identity, incarnation, &events, &mut first).await;
                    let _ = events.send(event);
                }
                Some(KeyCommand::Leave { incarnation, excused }) => {
                    // Before anybody may think that we are gone.
                    leases.give_back().await;
                    let excused = excused.or(unrecorded.filter(|(of, _)| *of == incarnation).map(|(_, excused)| excused));
                    let _ = events.send(leave(&identity, incarnation, excused).await);
                }
                Some(KeyCommand::Own { incarnation, pin }) => {
                    if let Err(error) = own(&identity, incarnation, &pin).await {
                        tracing::warn!(%error, incarnation, "that this worker has the lane is not noted");
                    }
                }
                Some(KeyCommand::Contend { incarnation, time }) => {
                    let asked = first.filter(|(of, _)| *of == incarnation).map(|(_, asked)| asked);
                    leases.contend(incarnation, time, asked);
                }
                Some(KeyCommand::Breaker { incarnation, sequence }) => {
                    if let Err(error) = record_breaker(&identity, incarnation, sequence).await {
                        tracing::warn!(%error, incarnation, sequence, "that the breaker is open is not recorded: another worker would not know it");
                    }
                }
                Some(KeyCommand::OrderBegun { incarnation, id }) => {
                    let begun = change_order(&identity, incarnation, |key| key.begin_order(&id)).await;
                    if let Err(error) = begun {
                        tracing::warn!(%error, incarnation, order = id, "that an attempt was begun by order is not recorded");
                    }
                }
                Some(KeyCommand::OrderEnded { incarnation, result }) => {
                    let ended = change_order(&identity, incarnation, |key| key.end_order(result.clone())).await;
                    if let Err(error) = ended {
                        tracing::warn!(%error, incarnation, order = result.id, "what came of an order is not recorded yet");
                    }
                }
                Some(KeyCommand::Claim { incarnation }) => {
                    let _ = events.send(claim(&identity, incarnation).await);
                }
                Some(KeyCommand::ParkOrderDone { incarnation, id, outcome }) => {
                    let result = outcome.result(id);
                    let ended = change_order(&identity, incarnation, |key| {
                        let ours = key.releasing.take_if(|releasing| *releasing == identity.holder).is_some();
                        key.end_order(result.clone()) || ours
                    });
                    if let Err(error) = ended.await {
                        tracing::warn!(%error, incarnation, order = result.id, "what came of an order is not recorded yet");
                    }
                }
                Some(KeyCommand::Unclaim { incarnation }) => {
                    // What is not written is told again when the key is read again.
                    if let Err(error) = unclaim(&identity, incarnation).await {
                        tracing::warn!(%error, incarnation, "that this worker releases nothing more is not recorded yet");
                    }
                }
                Some(KeyCommand::Excuse { incarnation, excused }) => {
                    unrecorded = record(&identity, incarnation, excused).await.err().map(|error| {
                        tracing::warn!(%error, incarnation, sequence = excused.sequence, "a delivery that was no attempt is not recorded yet");
                        (incarnation, excused)
                    });
                }
            },
            () = next_report => reporter.write().await,
        }
    }
}

/// What to do with a lane's key once it was read.
enum Change {
    Write(Box<LaneKey>),
    Leave(KeyEvent),
}

impl Change {
    fn write(key: LaneKey) -> Self {
        Self::Write(Box::new(key))
    }
}

/// Reads, decides and writes, again and again while others write in between.
async fn change(
    identity: &Identity,
    incarnation: u64,
    mut decide: impl FnMut(Option<LaneKey>) -> Change,
) -> Result<Option<KeyEvent>, KvError> {
    let key = identity.set.lane_key(incarnation);
    let mut last = None;
    for _ in 0..CONFLICTS {
        let found = identity.bucket.get_json::<LaneKey>(&key).await?;
        let revision = found.as_ref().map(|found| found.revision);
        let wanted = match decide(found.map(|found| found.value)) {
            Change::Leave(event) => return Ok(Some(event)),
            Change::Write(wanted) => wanted,
        };
        match identity.bucket.put_json(&key, &wanted, revision).await {
            Ok(_) => return Ok(None),
            Err(error) if error.is_conflict() => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    match last {
        Some(error) => Err(error),
        None => Ok(None),
    }
}

async fn join(
    identity: &Identity,
    incarnation: u64,
    events: &mpsc::UnboundedSender<KeyEvent>,
    first: &mut Option<(u64, std::time::Instant)>,
) -> KeyEvent {
    let holder = &identity.holder;
    let asked = std::time::Instant::now();
    let mut excused = None;
    let result = change(identity, incarnation, |found| {
        // A lane whose key does not exist (any more) takes nobody.
        let Some(mut key) = found else { return Change::Leave(KeyEvent::JoinRefused { incarnation }) };
        excused = key.excused;
        if let Some(sequence) = key.breaker {
            // Ahead of the news that we are in.
            let _ = events.send(KeyEvent::BreakerOpen { incarnation, sequence });
        }
        let _ = events.send(KeyEvent::Orders { incarnation, orders: key.orders.clone() });
        if key.first.as_ref().is_none_or(|other| other == holder) {
            // A join that is repeated counts from its first time.
            *first = Some(first.filter(|(of, _)| *of == incarnation).unwrap_or((incarnation, asked)));
        }
        if key.holders.contains(holder) {
            let (retiring, excused) = (key.retiring, key.excused);
            return Change::Leave(KeyEvent::Joined { incarnation, retiring, excused });
        }
        if key.retiring {
            return Change::Leave(KeyEvent::JoinRefused { incarnation });
        }
        key.holders.push(holder.clone());
        key.first.get_or_insert_with(|| holder.clone());
        Change::write(key)
    })
    .await;
    match result {
        Ok(Some(event)) => event,
        Ok(None) => KeyEvent::Joined { incarnation, retiring: false, excused },
        Err(error) => {
            tracing::warn!(%error, incarnation, "the lane cannot be joined");
            KeyEvent::JoinFailed { incarnation }
        }
    }
}

async fn leave(identity: &Identity, incarnation: u64, excused: Option<Excused>) -> KeyEvent {
    let holder = &identity.holder;
    let result = change(identity, incarnation, |found| {
        let left = Change::Leave(KeyEvent::Left { incarnation });
        let Some(mut key) = found else { return left };
        if !key.holders.contains(holder) {
            return left;
        }
        key.holders.retain(|other| other != holder);
        // What an orderly end leaves out is not to be given back: its handler may still be at work.
        key.owner.take_if(|owner| owner.holder == *holder);
        key.releasing.take_if(|releasing| releasing == holder);
        key.excused = merged(key.excused, excused);
        Change::write(key)
    })
    .await;
    match result {
        Ok(_) => KeyEvent::Left { incarnation },
        Err(error) => {
            tracing::warn!(%error, incarnation, "the lane cannot be left");
            KeyEvent::LeaveFailed { incarnation }
        }
    }
}

async fn record(identity: &Identity, incarnation: u64, excused: Excused) -> Result<(), KvError> {
    change(identity, incarnation, |found| {
        let unchanged = Change::Leave(KeyEvent::Left { incarnation });
        let Some(mut key) = found else { return unchanged };
        let merged = merged(key.excused, Some(excused));
        if merged == key.excused {
            return unchanged;
        }
        key.excused = merged;
        Change::write(key)
    })
    .await
    .map(drop)
}

/// Without this note nothing is lost: the pin and the message lapse, as without any evidence.
async fn own(identity: &Identity, incarnation: u64, pin: &str) -> Result<(), KvError> {
    let holder = &identity.holder;
    change(identity, incarnation, |found| {
        let unchanged = Change::Leave(KeyEvent::Left { incarnation });
        let Some(mut key) = found else { return unchanged };
        let owner = Some(Owned { holder: holder.clone(), pin: pin.to_owned() });
        if key.retiring || !key.holders.contains(holder) || key.owner == owner {
            return unchanged;
        }
        key.owner = owner;
        Change::write(key)
    })
    .await
    .map(drop)
}

async fn claim(identity: &Identity, incarnation: u64) -> KeyEvent {
    let holder = &identity.holder;
    let result = change(identity, incarnation, |found| match found {
        Some(key) if key.may_release(holder) => {
            Change::write(LaneKey { releasing: Some(holder.clone()), ..key })
        }
        _ => Change::Leave(KeyEvent::Claimed { incarnation, granted: false }),
    })
    .await;
    match result {
        Ok(Some(refused)) => refused,
        Ok(None) => KeyEvent::Claimed { incarnation, granted: true },
        Err(error) => {
            tracing::warn!(%error, incarnation, "whether this worker may release parked messages is not known");
            KeyEvent::Claimed { incarnation, granted: false }
        }
    }
}

async fn unclaim(identity: &Identity, incarnation: u64) -> Result<(), KvError> {
    change(identity, incarnation, |found| match found {
        Some(key) if key.releasing.as_ref() == Some(&identity.holder) => {
            Change::write(LaneKey { releasing: None, ..key })
        }
        _ => Change::Leave(KeyEvent::Left { incarnation }),
    })
    .await
    .map(drop)
}

async fn record_breaker(identity: &Identity, incarnation: u64, sequence: u64) -> Result<(), KvError> {
    change(identity, incarnation, |found| match found {
        Some(key) if key.breaker < Some(sequence) => {
            Change::write(LaneKey { breaker: Some(sequence), ..key })
        }
        _ => Change::Leave(KeyEvent::Left { incarnation }),
    })
    .await
    .map(drop)
}

/// What is not written is told again when the key is read again: the order is still there.
async fn change_order(
    identity: &Identity,
    incarnation: u64,
    mut apply: impl FnMut(&mut LaneKey) -> bool,
) -> Result<(), KvError> {
    change(identity, incarnation, |found| {
        let unchanged = Change::Leave(KeyEvent::Left { incarnation });
        let Some(mut key) = found else { return unchanged };
        if apply(&mut key) { Change::write(key) } else { unchanged }
    })
    .await
    .map(drop)
}

/// A record about a later message wins: the lane is serial, so the earlier one is settled.
fn merged(found: Option<Excused>, wanted: Option<Excused>) -> Option<Excused> {
    match (found, wanted) {
        (Some(found), Some(wanted)) if found.sequence > wanted.sequence => Some(found),
        (found, wanted) => wanted.or(found),
    }
}

/// Keeps what is said of the partition up to date, and writes only what means something new.
struct Reporter {
    identity: Identity,
    wanted: Option<Report>,
    written: Option<Report>,
    due: Option<Instant>,
    failures: u32,
}

impl Reporter {
    fn want(&mut self, report: Report) {
        if self.written.as_ref() != Some(&report) {
            self.due = Some(Instant::now());
        }
        self.wanted = Some(report);
    }

    async fn write(&mut self) {
        self.due = None;
        let Some(report) = self.wanted.clone() else { return };
        if self.written.as_ref() == Some(&report) {
            // Nothing new: only a look whether it is still there.
            self.written = None;
        }
        match self.put(&report).await {
            Ok(()) => {
                self.failures = 0;
                let says_something = report != Report::new(report.incarnation);
                self.due = says_something.then(|| Instant::now() + LOOK_EVERY);
                self.written = Some(report);
            }
            Err(error) => {
                if self.failures == 0 {
                    tracing::warn!(%error, "the report cannot be written yet");
                }
                let delay = RETRY.saturating_mul(1 << self.failures.min(5)).min(LAST_RETRY);
                self.failures += 1;
                self.due = Some(Instant::now() + delay);
                // It may have been written all the same.
                self.written = None;
            }
        }
    }

    async fn put(&self, report: &Report) -> Result<(), KvError> {
        let key = self.identity.set.report_key(self.identity.partition, &self.identity.holder.pod);
        if self.written.is_none() {
            // An earlier process of this pod may have said something.
            let found = match self.identity.bucket.get_json::<Report>(&key).await {
                Err(KvError::Unreadable { .. }) => None,
                other => other?,
            };
            let nothing = *report == Report::new(report.incarnation);
            let said_nothing = |found: &Report| *found == Report::new(found.incarnation);
            if found
                .as_ref()
                .map_or(nothing, |found| found.value == *report || nothing && said_nothing(&found.value))
            {
                return Ok(());
            }
        }
        self.identity.bucket.put(&key, self.identity.bucket.json(&key, report)?).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_about_a_later_message_is_never_replaced_by_an_earlier_one() {
        let of = |sequence, deliveries| Some(Excused { sequence, deliveries });
        assert_eq!(merged(of(7, 1), of(5, 3)), of(7, 1));
        assert_eq!(merged(of(5, 3), of(7, 1)), of(7, 1));
        assert_eq!(merged(of(5, 1), of(5, 2)), of(5, 2));
        assert_eq!(merged(of(5, 1), None), of(5, 1));
    }
}
