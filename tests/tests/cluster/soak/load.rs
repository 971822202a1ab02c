//! What is published while the number changes: the real departures, and numbered messages of keys after Zipf's law.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lanekeeper_tests::{
    flights::{
        STREAM, SUBJECT,
        data::{Amount, Message, departures},
        publish::Publisher,
    },
    soak::chance::{Chance, Zipf},
    wait_until,
};
use tokio::{sync::oneshot, task::JoinHandle, time::interval};

use crate::{FLOW, story::Story};

/// Messages at once, and how often: 80 a second, which a few lanes with a handler of 5 ms keep up with.
const CHUNK: usize = 40;
const EVERY: Duration = Duration::from_millis(500);
const DEPARTURES: u32 = 100_000;
const KEYS: usize = 200;

/// A publisher at work.
pub(super) struct Load {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    published: Arc<Mutex<Vec<Message>>>,
    entries: Box<dyn Fn() -> usize + Send + Sync>,
}

impl Load {
    pub(super) fn start(story: &Story, chance: Chance) -> Self {
        let publisher = Publisher::new(story.jetstream.clone(), STREAM, SUBJECT);
        let published = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = oneshot::channel();
        let messages = Messages::new(chance);
        let task = tokio::spawn(publish(publisher, messages, Arc::clone(&published), stopped));
        let journals = story.journals();
        Self { stop, task, published, entries: Box::new(move || journals.count()) }
    }

    /// Waits until the lanes of the present number handle messages.
    pub(super) async fn wait_for_more_handled(&self) {
        let before = (self.entries)();
        wait_until(FLOW, "the lanes to handle messages", || async { (self.entries)() > before + CHUNK })
            .await;
    }

    /// Ends it. What was published.
    pub(super) async fn stop(self) -> Vec<Message> {
        drop(self.stop);
        self.task.await.expect("everything could be published");
        std::mem::take(&mut *self.published.lock().unwrap())
    }
}

async fn publish(
    publisher: Publisher,
    mut messages: Messages,
    published: Arc<Mutex<Vec<Message>>>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut turns = interval(EVERY);
    let mut base = publisher.last_sequence().await.unwrap();
    while matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
        turns.tick().await;
        let chunk: Vec<Message> = messages.by_ref().take(CHUNK).collect();
        publisher.publish(base, &chunk, |_| {}).await.unwrap();
        base += chunk.len() as u64;
        published.lock().unwrap().extend(chunk);
    }
}

/// Departures and numbered messages in turn; numbered ones alone when there are no departures left.
struct Messages {
    departures: std::vec::IntoIter<Message>,
    zipf: Zipf,
    chance: Chance,
    numbers: BTreeMap<String, u64>,
    departure_is_next: bool,
}

impl Messages {
    fn new(chance: Chance) -> Self {
        let departures = departures(Amount::First(DEPARTURES)).unwrap().into_iter();
        let (zipf, numbers) = (Zipf::new(KEYS), BTreeMap::new());
        Self { departures, zipf, chance, numbers, departure_is_next: true }
    }
}

impl Iterator for Messages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        self.departure_is_next = !self.departure_is_next;
        if self.departure_is_next
            && let Some(departure) = self.departures.next()
        {
            return Some(departure);
        }
        // No tail number begins like this.
        let key = format!("Z{:03}", self.zipf.pick(&mut self.chance));
        let number = self.numbers.entry(key.clone()).or_default();
        *number += 1;
        let body = format!(r#"{{"key":"{key}","number":{number},"dest":"A{number}"}}"#);
        Some(Message { key, number: *number, body })
    }
}
