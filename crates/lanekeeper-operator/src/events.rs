//! Events on a set: what was done, and what went wrong when that is news. I/O.
//!
//! One Event for each reason and pass, whatever the number of lanes; nothing is said again that was said a moment
//! ago. An Event that cannot be written is a line in the log: it never stops a pass.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use lanekeeper_api::reason::Reason;
use serde_json::json;

use crate::{digest::digest, metrics::Metrics};

/// The API server refuses longer notes than 1 kB.
const MAX_NOTE_BYTES: usize = 1000;
/// The same words are not repeated within this time.
const QUIET: Duration = Duration::from_secs(600);

/// What is to be said of one pass.
#[derive(Debug, Default)]
pub struct News {
    said: BTreeMap<(bool, Reason), Vec<String>>,
}

impl News {
    /// Something was done.
    pub fn done(&mut self, reason: Reason, message: impl Into<String>) {
        self.said.entry((false, reason)).or_default().push(message.into());
    }

    /// Something is wrong, or a person should look.
    pub fn warn(&mut self, reason: Reason, message: impl Into<String>) {
        self.said.entry((true, reason)).or_default().push(message.into());
    }

    /// One note for each reason.
    fn notes(self) -> impl Iterator<Item = (bool, Reason, String)> {
        self.said.into_iter().map(|((warning, reason), mut messages)| {
            messages.dedup();
            (warning, reason, shortened(&messages.join("; ")))
        })
    }
}

/// Publishes [`News`].
pub struct Events {
    recorder: Recorder,
    recent: Mutex<HashMap<String, Instant>>,
}

impl Events {
    /// `pod` is the operator's own.
    pub fn new(client: Client, pod: Option<String>) -> Self {
        let reporter = Reporter { controller: "lanekeeper-operator".to_owned(), instance: pod };
        Self { recorder: Recorder::new(client, reporter), recent: Mutex::default() }
    }

    /// Writes what is new.
    pub async fn publish(&self, news: News, about: &ObjectReference, metrics: &Metrics) {
        for (warning, reason, note) in news.notes() {
            if !self.is_new(about, reason, &note) {
                continue;
            }
            tracing::info!(set = %name(about), reason = reason.as_str(), warning, "{note}");
            let event = Event {
                type_: if warning { EventType::Warning } else { EventType::Normal },
                reason: reason.as_str().to_owned(),
                // The recorder takes Events of equal action for one and keeps the note of the first.
                action: format!("Reconcile-{}", digest(&json!(note))),
                note: Some(note),
                secondary: None,
            };
            metrics.event(reason);
            if let Err(error) = self.recorder.publish(&event, about).await {
                tracing::warn!(set = %name(about), reason = reason.as_str(), %error, "an Event could not be written");
            }
        }
    }

    fn is_new(&self, about: &ObjectReference, reason: Reason, note: &str) -> bool {
        let key = format!("{:?} {reason} {note}", about.uid);
        let now = Instant::now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|_, since| now.saturating_duration_since(*since) < QUIET);
        recent.insert(key, now).is_none()
    }
}

fn name(about: &ObjectReference) -> String {
    format!(
        "{}/{}",
        about.namespace.as_deref().unwrap_or_default(),
        about.name.as_deref().unwrap_or_default()
    )
}

fn shortened(note: &str) -> String {
    if note.len() <= MAX_NOTE_BYTES {
        return note.to_owned();
    }
    let end = (0..=MAX_NOTE_BYTES).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default();
    format!("{}…", &note[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_note_tells_of_all_lanes_and_stays_within_the_limit() {
        let mut news = News::default();
        for lane in 0..500 {
            news.done(Reason::LaneOpened, format!("lane {lane} é"));
        }
        news.warn(Reason::NatsUnreachable, "gone");
        let notes: Vec<_> = news.notes().collect();
        assert_eq!(notes.len(), 2);
        assert!(notes[0].2.len() <= 1024 && notes[0].2.starts_with("lane 0 é; lane 1 é"));
        assert_eq!(notes[1], (true, Reason::NatsUnreachable, "gone".to_owned()));
    }
}
