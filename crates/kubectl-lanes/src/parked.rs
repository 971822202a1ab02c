//! `kubectl lanes parked`: the parked keys of a set are listed, released or dropped. I/O.
//!
//! Released and dropped are messages by the lane that has their key, to which orders are given: it knows by itself when a key
//! is free, and nobody else may delete what locks it. So nothing is changed here but orders.

mod text;

use std::{collections::BTreeMap, time::Duration};

use lanekeeper_api::validate::Validated;
use lanekeeper_core::{
    aside, park,
    record::Park,
    share::partition_of,
    subject::{SubjectError, check_subject},
};
use lanekeeper_nats::{ApiError, Cause, observe};
use serde::Serialize;

use crate::{
    arguments::NatsFlags,
    cluster::Cluster,
    look::{LookError, look},
    orders::{self, Answer, Asked, OrdersError},
    reach::{ReachError, Reached, reach},
};
pub(crate) use text::{render_list, render_ordered};

/// Why nothing is shown or ordered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParkedError {
    #[error(transparent)]
    Reach(#[from] Box<ReachError>),
    #[error(transparent)]
    Look(#[from] Box<LookError>),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Orders(#[from] Box<OrdersError>),
    #[error("--key: {0}")]
    Key(SubjectError),
    #[error(
        "--key '{key}' is no key of the set: it must have {wanted} tokens, joined by dots (keyTokens {key_tokens:?})"
    )]
    Tokens { key: String, wanted: usize, key_tokens: Vec<u32> },
    #[error("the set has no park: spec.onExhausted.policy is not ParkKey, and no lane was ever told of one")]
    NoPark,
    #[error("{what}: stream {stream} has no such parked message of this set")]
    Nothing { what: String, stream: String },
}

/// One parked key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParkedKey {
    pub(crate) key: String,
    pub(crate) partition: u32,
    pub(crate) messages: u64,
    /// Stream sequences of its first and last message.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// When its first message was parked.
    pub(crate) since: String,
    /// What the handler said of that one.
    pub(crate) reason: String,
}

/// One parked message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParkedMessage {
    /// In the set's stream.
    pub(crate) sequence: u64,
    /// In the park stream.
    pub(crate) stored: u64,
    pub(crate) subject: String,
    pub(crate) bytes: usize,
    pub(crate) attempts: String,
    pub(crate) since: String,
    pub(crate) reason: String,
}

/// What a list shows: keys, or the messages of one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List {
    pub(crate) set: String,
    pub(crate) stream: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) keys: Vec<ParkedKey>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) messages: Vec<ParkedMessage>,
    /// There are more than were asked for.
    pub(crate) more: bool,
}

/// What came of the orders, by key.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ordered {
    pub(crate) set: String,
    pub(crate) answers: Vec<Answer>,
}

impl Ordered {
    pub(crate) fn is_good(&self) -> bool {
        self.answers.iter().all(Answer::is_good)
    }
}

/// What is meant.
#[derive(Debug, Clone)]
pub(crate) enum Which {
    Key(String),
    Sequence(u64),
    All,
}

/// The park of one set.
pub(crate) struct Parked<'a> {
    reached: Reached,
    set: &'a Validated,
    park: Park,
}

impl<'a> Parked<'a> {
    /// Connects, and finds out where the lanes park.
    pub(crate) async fn open(
        cluster: &Cluster,
        set: &'a Validated,
        nats: &NatsFlags,
    ) -> Result<Self, ParkedError> {
        let reached = reach(cluster, set, nats).await.map_err(Box::new)?;
        let seen = look(&reached, set).await.map_err(Box::new)?;
        let told = seen.assignments.values().map(|found| &found.value.settings);
        let park = park::kept(set.settings.park.as_ref(), told).ok_or(ParkedError::NoPark)?;
        Ok(Self { reached, set, park })
    }

    pub(crate) async fn list(&self, key: Option<&str>, limit: u64) -> Result<List, ParkedError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut list = List {
            set: self.set.name.to_string(),
            stream: self.park.stream.clone(),
            keys: Vec::new(),
            messages: Vec::new(),
            more: false,
        };
        if let Some(key) = key {
            list.messages = self.messages(key, limit.saturating_add(1)).await?;
            list.more = list.messages.len() > limit;
            list.messages.truncate(limit);
            return Ok(list);
        }
        let counts = self.counts().await?;
        list.more = counts.len() > limit;
        for (key, messages) in counts.into_iter().take(limit) {
            list.keys.extend(self.key(key, messages).await?);
        }
        list.keys.sort_by_key(|key| key.first);
        Ok(list)
    }

    /// Parked keys with the number of their messages.
    async fn counts(&self) -> Result<BTreeMap<String, u64>, ParkedError> {
        let (mapping, park) = (&self.set.stream.mapping, &self.park);
        let filter = format!("{}.>", park.prefix);
        let subjects = match observe::subjects_under(&self.reached.connection, &park.stream, &filter).await {
            Ok((subjects, _)) => subjects,
            Err(error) if error.cause() == Cause::StreamMissing => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        let mut counts = BTreeMap::new();
        for (subject, messages) in subjects {
            let original = mapping.original_under(&park.prefix, &subject);
            if let Some(key) = original.and_then(|original| mapping.key_text(original)) {
                *counts.entry(key).or_default() += messages;
            }
        }
        Ok(counts)
    }

    fn filter(&self, key: &str) -> Result<String, ParkedError> {
        check_subject(key).map_err(ParkedError::Key)?;
        let mapping = &self.set.stream.mapping;
        mapping.key_filter_under(&self.park.prefix, key).ok_or_else(|| ParkedError::Tokens {
            key: key.to_owned(),
            wanted: mapping.key_tokens.len(),
            key_tokens: mapping.key_tokens.clone(),
        })
    }

    /// `None`: it was released a moment ago.
    async fn key(&self, key: String, messages: u64) -> Result<Option<ParkedKey>, ParkedError> {
        let (connection, stream, filter) = (&self.reached.connection, &self.park.stream, self.filter(&key)?);
        let Some(first) = observe::next_under(connection, stream, &filter, 1).await? else { return Ok(None) };
        let last = match observe::last_under(connection, stream, &filter).await? {
            Some(last) => observe::message(connection, stream, last).await?,
            None => None,
        };
        let last = last.unwrap_or_else(|| first.clone());
        let (first, last) = (ParkedMessage::read(&first), ParkedMessage::read(&last));
        let hash = lanekeeper_core::hash::fnv1a32(key.split('.').map(str::as_bytes));
        Ok(Some(ParkedKey {
            partition: partition_of(hash, self.set.partitions),
            key,
            messages,
            first: first.sequence,
            last: last.sequence,
            since: first.since,
            reason: first.reason,
        }))
    }

    async fn messages(&self, key: &str, limit: usize) -> Result<Vec<ParkedMessage>, ParkedError> {
        let (connection, stream, filter) = (&self.reached.connection, &self.park.stream, self.filter(key)?);
        let mut messages = Vec::new();
        let mut from = 1;
        while messages.len() < limit {
            let Some(found) = observe::next_under(connection, stream, &filter, from).await? else { break };
            from = found.sequence + 1;
            messages.push(ParkedMessage::read(&found));
        }
        messages.sort_by_key(|message| message.sequence);
        Ok(messages)
    }

    /// The key of the parked message with this sequence of the set's stream.
    async fn key_of(&self, sequence: u64) -> Result<String, ParkedError> {
        let (connection, stream) = (&self.reached.connection, &self.park.stream);
        let filter = format!("{}.>", self.park.prefix);
        let mut from = 1;
        while let Some(found) = observe::next_under(connection, stream, &filter, from).await? {
            from = found.sequence + 1;
            if ParkedMessage::read(&found).sequence == sequence {
                return Ok(found.header(aside::KEY).unwrap_or_default().to_owned());
            }
        }
        Err(self.nothing(format!("--sequence {sequence}")))
    }

    fn nothing(&self, what: String) -> ParkedError {
        ParkedError::Nothing { what, stream: self.park.stream.clone() }
    }

    /// Orders that messages be released, or dropped when there is a reason to, and waits for what comes of it.
    pub(crate) async fn order(
        &self,
        cluster: &Cluster,
        which: &Which,
        drop: Option<&str>,
        timeout: Duration,
    ) -> Result<Ordered, ParkedError> {
        let mut only = None;
        let counts = self.counts().await?;
        let keys = match which {
            Which::All => counts.into_keys().collect(),
            Which::Sequence(sequence) => {
                only = Some(*sequence);
                vec![self.key_of(*sequence).await?]
            }
            Which::Key(key) => {
                self.filter(key)?;
                if !counts.contains_key(key) {
                    return Err(self.nothing(format!("--key {key}")));
                }
                vec![key.clone()]
            }
        };
        let mut answers = Vec::new();
        // One key after another: what one says is known before the next one begins.
        for key in keys {
            let asked = match drop {
                None => Asked::Release { key },
                Some(reason) => Asked::DropParked { key, sequence: only, reason: reason.to_owned() },
            };
            let answer = orders::give_at(cluster, self.set, &self.reached, &asked, timeout).await;
            answers.push(answer.map_err(Box::new)?);
        }
        Ok(Ordered { set: self.set.name.to_string(), answers })
    }
}

impl ParkedMessage {
    /// What is missing is shown as empty.
    fn read(found: &observe::WholeMessage) -> Self {
        let text = |name: &str| found.header(name).unwrap_or_default().to_owned();
        let time = text(aside::TIME);
        Self {
            sequence: found.header(aside::SEQUENCE).and_then(|text| text.parse().ok()).unwrap_or_default(),
            stored: found.sequence,
            subject: text(aside::SUBJECT),
            bytes: found.payload.len(),
            attempts: text(aside::ATTEMPTS),
            since: if time.is_empty() { found.time.clone() } else { time },
            reason: text(aside::REASON),
        }
    }
}
