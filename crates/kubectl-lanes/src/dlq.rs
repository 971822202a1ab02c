//! `kubectl lanes dlq`: a set's dead letters are listed, published again, or dropped. I/O.
//!
//! A dead letter is deleted only once its message is known to be in the set's stream again, so that it is in one of the
//! two at every instant, or in both. Only letters under the set's own subject are ever touched: a stream that a person named
//! may hold those of other sets.

mod letter;
mod text;

use std::time::{Duration, Instant};

use lanekeeper_api::validate::Validated;
use lanekeeper_core::{
    aside::{Aside, Kind, replay_id},
    subject::{SubjectError, check_subject},
};
use lanekeeper_nats::{
    ApiError, observe,
    store::{self, StoreError},
};
use serde::Serialize;

use crate::{
    arguments::{Care, Letters, NatsFlags},
    cluster::Cluster,
    orders::{ReasonError, checked},
    reach::{ReachError, Reached, reach},
};
use letter::{Again, Letter};
pub(crate) use text::{render_done, render_list};

/// About more letters than this a person has to say that it is meant.
const MANY: usize = 100;
/// How long one message may take to be stored.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why nothing is shown or done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DlqError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Reason(#[from] ReasonError),
    #[error("--key: {0}")]
    Key(SubjectError),
    #[error(
        "there is no stream {stream}, so there are no dead letters of this set; --stream names another, if the set had one"
    )]
    NoStream { stream: String },
    #[error("{what}: stream {stream} has no such dead letter under subject {subject}")]
    Nothing { what: String, stream: String, subject: String },
    #[error("{count} dead letters match: say --yes if that is meant, or --dry-run to see them")]
    Many { count: usize },
    #[error(
        "stream {stream} allows no message to be deleted (deny_delete, or sealed), so a dead letter would stay after it was published again; nothing was done"
    )]
    NoDeletes { stream: String },
}

/// Which letters are meant.
#[derive(Debug, Clone)]
pub(crate) enum Which {
    One(u64),
    Key(String),
    All,
}

impl From<Letters> for Which {
    fn from(letters: Letters) -> Self {
        match (letters.sequence, letters.key) {
            (Some(sequence), _) => Self::One(sequence),
            (None, Some(key)) => Self::Key(key),
            (None, None) => Self::All,
        }
    }
}

/// The dead letters of one set.
pub(crate) struct Dlq<'a> {
    reached: Reached,
    set: &'a Validated,
    letters: Aside,
    deletes: bool,
}

/// What a list shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List {
    set: String,
    stream: String,
    letters: Vec<Letter>,
    /// There are more than were asked for.
    more: bool,
}

/// What was done with letters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Done {
    set: String,
    stream: String,
    /// Nothing was done: this is what would have been.
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// In the order in which it was done.
    replayed: Vec<Replayed>,
    dropped: Vec<Letter>,
    /// Why it ended before all was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<Failed>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Replayed {
    #[serde(flatten)]
    letter: Letter,
    /// Its number in the set's stream now; `None` in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failed {
    /// The dead letter.
    sequence: u64,
    why: String,
    /// How many were not touched, this one included.
    left: usize,
}

impl Done {
    pub(crate) fn is_good(&self) -> bool {
        self.failed.is_none()
    }
}

impl<'a> Dlq<'a> {
    /// Connects, and looks whether there is such a stream.
    pub(crate) async fn open(
        cluster: &Cluster,
        set: &'a Validated,
        nats: &NatsFlags,
        named: Option<String>,
    ) -> Result<Self, DlqError> {
        let letters = set.aside.clone().filter(|aside| aside.kind == Kind::DeadLetters);
        let mut letters = letters.unwrap_or_else(|| Aside::new(Kind::DeadLetters, &set.name, None));
        if let Some(stream) = named {
            letters.stream = stream;
        }
        let reached = reach(cluster, set, nats).await?;
        let keeping = observe::keeping(&reached.connection, &letters.stream).await?;
        let Some(keeping) = keeping else { return Err(DlqError::NoStream { stream: letters.stream }) };
        Ok(Self { reached, set, letters, deletes: keeping.deletes })
    }

    pub(crate) async fn list(&self, key: Option<String>, limit: u64) -> Result<List, DlqError> {
        let which = key.map_or(Which::All, Which::Key);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut letters = self.find(&which, limit.saturating_add(1)).await?;
        let more = letters.len() > limit;
        letters.truncate(limit);
        Ok(List { set: self.set.name.to_string(), stream: self.letters.stream.clone(), letters, more })
    }

    /// Publishes letters again, in the order of the messages that they were, and deletes each.
    pub(crate) async fn replay(&self, which: &Which, care: Care) -> Result<Done, DlqError> {
        let letters = self.chosen(which, care).await?;
        let mut done = self.done(care, None);
        let count = letters.len();
        for (index, letter) in letters.into_iter().enumerate() {
            let sequence = letter.sequence;
            let now = if care.dry_run {
                letter.check().map(|()| None)
            } else {
                self.publish(&letter).await.map(Some)
            };
            match now {
                Ok(now) => done.replayed.push(Replayed { letter, now }),
                Err(why) => {
                    done.failed = Some(Failed { sequence, why, left: count - index });
                    break;
                }
            }
        }
        Ok(done)
    }

    /// Deletes letters.
    pub(crate) async fn drop_letters(
        &self,
        which: &Which,
        reason: &str,
        care: Care,
    ) -> Result<Done, DlqError> {
        let reason = checked(reason)?;
        let letters = self.chosen(which, care).await?;
        let mut done = self.done(care, Some(reason));
        let count = letters.len();
        for (index, letter) in letters.into_iter().enumerate() {
            let sequence = letter.sequence;
            if !care.dry_run
                && let Err(why) = self.delete(sequence).await
            {
                done.failed = Some(Failed { sequence, why, left: count - index });
                break;
            }
            done.dropped.push(letter);
        }
        Ok(done)
    }

    fn done(&self, care: Care, reason: Option<String>) -> Done {
        Done {
            set: self.set.name.to_string(),
            stream: self.letters.stream.clone(),
            dry_run: care.dry_run,
            reason,
            replayed: Vec::new(),
            dropped: Vec::new(),
            failed: None,
        }
    }

    /// The letters that something is to be done with, by the order of their messages.
    async fn chosen(&self, which: &Which, care: Care) -> Result<Vec<Letter>, DlqError> {
        let Aside { stream, subject, .. } = &self.letters;
        if !self.deletes {
            return Err(DlqError::NoDeletes { stream: stream.clone() });
        }
        let mut letters = self.find(which, usize::MAX).await?;
        if letters.is_empty() {
            let what = match which {
                Which::One(sequence) => format!("--sequence {sequence}"),
                Which::Key(key) => format!("--key {key}"),
                Which::All => "--all".to_owned(),
            };
            return Err(DlqError::Nothing { what, stream: stream.clone(), subject: subject.clone() });
        }
        if letters.len() > MANY && !care.yes && !care.dry_run {
            return Err(DlqError::Many { count: letters.len() });
        }
        // One that cannot be told from others by its fence comes last.
        letters.sort_by_key(|letter| (letter.fence.is_none(), letter.fence, letter.sequence));
        Ok(letters)
    }

    /// Letters of the set, the oldest first.
    async fn find(&self, which: &Which, limit: usize) -> Result<Vec<Letter>, DlqError> {
        let (connection, Aside { stream, subject, .. }) = (&self.reached.connection, &self.letters);
        if let Which::One(sequence) = which {
            let found = observe::message(connection, stream, *sequence).await?;
            let found = found.filter(|found| found.subject == *subject);
            return Ok(found.iter().map(Letter::read).collect());
        }
        if let Which::Key(key) = which {
            check_subject(key).map_err(DlqError::Key)?;
        }
        let mut letters = Vec::new();
        let mut from = 1;
        while letters.len() < limit {
            let Some(found) = observe::next_under(connection, stream, subject, from).await? else { break };
            from = found.sequence + 1;
            let letter = Letter::read(&found);
            if !matches!(which, Which::Key(key) if *key != letter.key) {
                letters.push(letter);
            }
        }
        Ok(letters)
    }

    /// In the set's stream once more, then not among the dead letters any more. Its number there.
    async fn publish(&self, letter: &Letter) -> Result<u64, String> {
        let (connection, dead) = (&self.reached.connection, &self.letters.stream);
        let found = observe::message(connection, dead, letter.sequence).await;
        let found = found.map_err(|error| error.to_string())?;
        let Some(found) = found else { return Err("it is not there any more".into()) };
        let again = Again::new(&found)?;
        let stream = &self.set.stream.mapping.stream;
        if *stream != again.stream {
            return Err(format!("it was a message of stream {}, the set's is {stream} now", again.stream));
        }
        if self.set.stream.mapping.key_of(&again.subject).is_none() {
            return Err(format!("its subject '{}' is none of the set's mapping", again.subject));
        }
        let stored = store::Letter {
            id: replay_id(&self.set.name, stream, again.fence),
            stream: again.stream,
            subject: again.subject,
            headers: again.headers,
            payload: found.payload,
        };
        let now = match store::store(connection, stored, Instant::now() + PATIENCE).await {
            Ok(now) => now,
            Err(error @ StoreError::NotThere { .. }) => {
                return Err(format!(
                    "{error}. If it was published again a moment ago and handled since, it is done: drop the dead letter"
                ));
            }
            Err(error) => return Err(error.to_string()),
        };
        let deleted = self.delete(letter.sequence).await;
        deleted
            .map_err(|why| format!("it is message {now} of stream {stream} now, and still here: {why}"))?;
        Ok(now)
    }

    async fn delete(&self, sequence: u64) -> Result<(), String> {
        let removed = store::remove(&self.reached.connection, &self.letters.stream, sequence).await;
        removed.map(drop).map_err(|error| error.to_string())
    }
}
