//! What a worker asks of the park stream of its set, and does there. I/O; what it is for is `lanekeeper_core::park`.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use lanekeeper_core::{
    aside,
    fence::Fence,
    park::ParkedMessage,
    record::{Assignment, Park},
};
use lanekeeper_nats::{
    ApiError, Cause, Connection,
    observe::{self, WholeMessage},
    store,
};

use crate::message::Message;

/// Why something about parked messages failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParkedError {
    #[error("the lane has no park")]
    NoPark,
    #[error("'{0}' is no key of the set")]
    NoKey(Arc<str>),
    #[error("it was too late to delete it")]
    TooLate,
    #[error(
        "sequence {stored} of stream '{stream}' is no parked message of this set: a header is missing, or its subject is not mapped"
    )]
    NotParked { stream: String, stored: u64 },
    #[error(transparent)]
    Api(#[from] ApiError),
}

fn park(assignment: &Assignment) -> Result<&Park, ParkedError> {
    assignment.settings.park.as_ref().ok_or(ParkedError::NoPark)
}

/// The keys of the lane's share that are parked. Without the stream none is.
pub(crate) async fn keys(
    connection: &Connection,
    assignment: &Assignment,
) -> Result<BTreeSet<Arc<str>>, ParkedError> {
    let park = park(assignment)?;
    let filter = assignment.mapping.filter_under(&park.prefix, assignment.share);
    let subjects = match observe::subjects_under(connection, &park.stream, &filter).await {
        Ok((subjects, _)) => subjects,
        Err(error) if error.cause() == Cause::StreamMissing => return Ok(BTreeSet::new()),
        Err(error) => return Err(error.into()),
    };
    let key = |subject: &String| {
        let original = assignment.mapping.original_under(&park.prefix, subject)?;
        assignment.mapping.key_text(original).map(Arc::from)
    };
    Ok(subjects.keys().filter_map(key).collect())
}

/// What is parked of a key, in the order of the park stream.
pub(crate) async fn list(
    connection: &Connection,
    assignment: &Assignment,
    key: &Arc<str>,
) -> Result<Vec<ParkedMessage>, ParkedError> {
    let park = park(assignment)?;
    let filter = assignment.mapping.key_filter_under(&park.prefix, key);
    let filter = filter.ok_or_else(|| ParkedError::NoKey(Arc::clone(key)))?;
    let mut found = Vec::new();
    let mut from = 1;
    // Message by message, by the leader: what it says is as new as the question.
    loop {
        let message = match observe::next_under(connection, &park.stream, &filter, from).await {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(found),
            Err(error) if error.cause() == Cause::StreamMissing => return Ok(found),
            Err(error) => return Err(error.into()),
        };
        from = message.sequence + 1;
        let fence = message.header(aside::FENCE).and_then(|text| text.parse::<Fence>().ok());
        let not_parked = || ParkedError::NotParked { stream: park.stream.clone(), stored: message.sequence };
        found.push(ParkedMessage { fence: fence.ok_or_else(not_parked)?, stored: vec![message.sequence] });
    }
}

/// A parked message as it was before; `None` when it is not there any more.
pub(crate) async fn fetch(
    connection: &Connection,
    assignment: Arc<Assignment>,
    stored: u64,
) -> Result<Option<Message>, ParkedError> {
    let stream = park(&assignment)?.stream.clone();
    let found: Option<WholeMessage> = observe::message(connection, &stream, stored).await?;
    let Some(found) = found else { return Ok(None) };
    let message = Message::unparked(&found, assignment);
    message.map(Some).ok_or(ParkedError::NotParked { stream, stored })
}

/// Deletes all copies of a message, unless it is `until`.
pub(crate) async fn delete(
    connection: &Connection,
    assignment: &Assignment,
    stored: &[u64],
    until: Instant,
) -> Result<(), ParkedError> {
    let stream = &park(assignment)?.stream;
    for stored in stored {
        if Instant::now() >= until {
            return Err(ParkedError::TooLate);
        }
        store::remove(connection, stream, *stored).await?;
    }
    Ok(())
}
