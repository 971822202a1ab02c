//! Messages that are put aside (dead letters, parked ones): the stream that takes them, and news of messages that were
//! dropped, skipped, or at which a key was parked. I/O.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

use lanekeeper_api::{reason::Reason, validate::Validated};
use lanekeeper_core::{
    aside::{Aside, Judgement, Kind, judge},
    consumer::Drift,
    mapping::Mapping,
    record::Park,
    stream::StreamOwner,
};
use lanekeeper_nats::{ApiError, Cause, Connection, ProvisionError, observe, provision};

use crate::{events::News, observe::Reported, workers::Trouble};

/// Looks after the stream of a set's messages that are put aside. Lanes go on without it, up to the first message that needs it: what
/// is wrong takes away from what is promised, and stops nothing.
pub async fn check(
    connection: &Connection,
    set: &Validated,
    owner: &StreamOwner,
    news: &mut News,
) -> Option<Trouble> {
    let aside = set.aside.as_ref()?;
    let message = look(connection, aside, set, owner, news).await.err()?;
    let (reason, what) = match aside.kind {
        Kind::DeadLetters => (
            Reason::DeadLettersUnavailable,
            "dead letters cannot be stored, lanes will stop at messages without attempts left",
        ),
        Kind::Parked => (
            Reason::ParkUnavailable,
            "messages cannot be parked, lanes will stop at messages without attempts left",
        ),
    };
    Some(Trouble { reason, message: format!("{what}: {message}") })
}

async fn look(
    connection: &Connection,
    aside: &Aside,
    set: &Validated,
    owner: &StreamOwner,
    news: &mut News,
) -> Result<(), String> {
    let name = &aside.stream;
    let found = observe::stream(connection, name).await.map_err(|error| error.to_string())?;
    let Some(found) = found else {
        if !aside.ours {
            return Err(format!(
                "stream {name}, which {} names, does not exist: make it, with subject {}",
                aside.kind.field(),
                aside.subject
            ));
        }
        provision::create_aside(connection, aside, &set.stream, owner)
            .await
            .map_err(|error| words(aside.kind, &error))?;
        news.done(Reason::StreamCreated, format!("stream {name} was created for {}", aside.kind.words()));
        return Ok(());
    };
    match judge(aside, set.stream.replicas, owner, &found) {
        Judgement::Right => Ok(()),
        Judgement::Wrong(why) => Err(why),
        Judgement::Drifted(drift) => {
            provision::repair_aside(connection, aside, &set.stream, owner)
                .await
                .map_err(|error| words(aside.kind, &error))?;
            let drift: Vec<String> = drift.iter().map(Drift::to_string).collect();
            news.warn(Reason::StreamRepaired, format!("stream {name}: {}", drift.join("; ")));
            Ok(())
        }
    }
}

fn words(kind: Kind, error: &ProvisionError) -> String {
    match error.cause() {
        Cause::SubjectsOverlap => format!("{error}; another stream takes them: name it in {}", kind.field()),
        _ => error.to_string(),
    }
}

/// The park that is in force is not the one that is wanted: why, for people.
pub fn kept_park(wanted: Option<&Park>, kept: Option<&Park>) -> Option<Trouble> {
    let (wanted, kept) = (wanted?, kept?);
    (wanted.stream != kept.stream).then(|| Trouble {
        reason: Reason::ParkUnavailable,
        message: format!(
            "messages stay parked in stream {}, as the lanes were told before: stream {}, which spec.onExhausted.park asks for, is not used",
            kept.stream, wanted.stream
        ),
    })
}

/// The keys of a set that are parked, with the hash of each.
pub async fn parked_keys(
    connection: &Connection,
    mapping: &Mapping,
    park: &Park,
) -> Result<BTreeMap<String, u32>, ApiError> {
    let filter = format!("{}.>", park.prefix);
    let subjects = match observe::subjects_under(connection, &park.stream, &filter).await {
        Ok((subjects, _)) => subjects,
        Err(error) if error.cause() == Cause::StreamMissing => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let key = |subject: &String| {
        let original = mapping.original_under(&park.prefix, subject)?;
        mapping.key_text(original).zip(mapping.key_hash(original))
    };
    Ok(subjects.keys().filter_map(key).collect())
}

/// Whose report it is (the set's uid and the key), and of what kind the message.
type About = (String, String, Reason);

/// The last message that each worker dropped, the last that it skipped by order, and the last at which it parked a key, as
/// far as it was said.
#[derive(Debug, Default)]
pub struct GivenUp {
    said: Mutex<HashMap<About, (u64, u64)>>,
}

impl GivenUp {
    /// Says what is new in the report of a worker of a set.
    pub fn tell(&self, uid: &str, one: &Reported, news: &mut News) {
        let partition = one.partition;
        if let Some(dropped) = &one.report.dropped
            && self.is_new(uid, one, Reason::MessageDropped, dropped.sequence)
        {
            let message = format!(
                "partition {partition} dropped the message at sequence {}, as spec.onExhausted.policy says: {}",
                dropped.sequence, dropped.reason
            );
            news.warn(Reason::MessageDropped, message);
        }
        if let Some(skipped) = &one.report.skipped
            && self.is_new(uid, one, Reason::MessageSkipped, skipped.sequence)
        {
            let message = format!(
                "partition {partition} skipped the message at sequence {}, as {} ordered: {}",
                skipped.sequence, skipped.by, skipped.reason
            );
            news.warn(Reason::MessageSkipped, message);
        }
        if let Some(parked) = &one.report.parked
            && self.is_new(uid, one, Reason::KeyParked, parked.sequence)
        {
            let message = format!(
                "partition {partition} parked a key at sequence {}, with every later message of it: {}",
                parked.sequence, parked.reason
            );
            news.warn(Reason::KeyParked, message);
        }
    }

    fn is_new(&self, uid: &str, one: &Reported, reason: Reason, sequence: u64) -> bool {
        let now = (one.report.incarnation, sequence);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.insert((uid.to_owned(), one.key.clone(), reason), now) != Some(now)
    }

    /// A set that is gone leaves nothing behind.
    pub fn forget(&self, uid: &str) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, ..), _| of != uid);
    }
}
