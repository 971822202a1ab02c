//! Dead letters: the stream that takes them, and news of messages that were dropped or skipped. I/O.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use lanekeeper_api::{reason::Reason, validate::Validated};
use lanekeeper_core::{
    consumer::Drift,
    dead_letter::{DeadLetters, Judgement, judge},
    stream::StreamOwner,
};
use lanekeeper_nats::{Cause, Connection, ProvisionError, observe, provision};

use crate::{events::News, observe::Reported, workers::Trouble};

/// Looks after the stream of a set's dead letters. Lanes go on without it, up to the first message that needs it: what
/// is wrong takes away from what is promised, and stops nothing.
pub async fn check(
    connection: &Connection,
    set: &Validated,
    owner: &StreamOwner,
    news: &mut News,
) -> Option<Trouble> {
    let letters = set.dead_letters.as_ref()?;
    let message = look(connection, letters, set, owner, news).await.err()?;
    let message = format!(
        "dead letters cannot be stored, lanes will stop at messages without attempts left: {message}"
    );
    Some(Trouble { reason: Reason::DeadLettersUnavailable, message })
}

async fn look(
    connection: &Connection,
    letters: &DeadLetters,
    set: &Validated,
    owner: &StreamOwner,
    news: &mut News,
) -> Result<(), String> {
    let name = &letters.stream;
    let found = observe::stream(connection, name).await.map_err(|error| error.to_string())?;
    let Some(found) = found else {
        if !letters.ours {
            return Err(format!(
                "stream {name}, which spec.onExhausted.deadLetter.streamName names, does not exist: make it, with subject {}",
                letters.subject
            ));
        }
        provision::create_dead_letters(connection, letters, &set.stream, owner)
            .await
            .map_err(|error| words(&error))?;
        news.done(Reason::StreamCreated, format!("stream {name} was created for dead letters"));
        return Ok(());
    };
    match judge(letters, set.stream.replicas, owner, &found) {
        Judgement::Right => Ok(()),
        Judgement::Wrong(why) => Err(why),
        Judgement::Drifted(drift) => {
            provision::repair_dead_letters(connection, letters, &set.stream, owner)
                .await
                .map_err(|error| words(&error))?;
            let drift: Vec<String> = drift.iter().map(Drift::to_string).collect();
            news.warn(Reason::StreamRepaired, format!("stream {name}: {}", drift.join("; ")));
            Ok(())
        }
    }
}

fn words(error: &ProvisionError) -> String {
    match error.cause() {
        Cause::SubjectsOverlap => {
            format!("{error}; another stream takes them: name it in spec.onExhausted.deadLetter.streamName")
        }
        _ => error.to_string(),
    }
}

/// Whose report it is (the set's uid and the key), and of what kind the message.
type About = (String, String, Reason);

/// The last message that each worker dropped, and the last that it skipped by order, as far as it was said.
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
