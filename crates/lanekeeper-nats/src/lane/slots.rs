//! Which subscription belongs to which pull.
//!
//! A pull ends with the last message that it asked for or with a status, and then its subscription is free again.
//! One whose pull never ended (its server was restarted, or a packet is late) is not used for another pull: what
//! came late would be taken for the answer to the newer one.

use std::task::{Context, Poll};

use async_nats::{Client, Message, Subject, SubscribeError, Subscriber};
use futures::StreamExt;

/// Beyond this the oldest pull without an end is given up, with its subscription.
const MOST: usize = 8;

struct Slot {
    subject: Subject,
    subscriber: Subscriber,
    pull: Option<u64>,
    /// How many messages may still come for it.
    left: u32,
}

pub(super) struct Slots {
    client: Client,
    prefix: String,
    made: u64,
    all: Vec<Slot>,
}

impl Slots {
    pub(super) fn new(client: Client, prefix: String) -> Self {
        Self { client, prefix, made: 0, all: Vec::new() }
    }

    /// Where the pull is to be answered.
    pub(super) async fn take(&mut self, pull: u64, left: u32) -> Result<Subject, SubscribeError> {
        if let Some(free) = self.all.iter_mut().find(|slot| slot.pull.is_none()) {
            (free.pull, free.left) = (Some(pull), left);
            return Ok(free.subject.clone());
        }
        if self.all.len() >= MOST
            && let Some(oldest) = (0..self.all.len()).min_by_key(|index| self.all[*index].pull)
        {
            // Dropping the subscriber unsubscribes.
            self.all.swap_remove(oldest);
        }
        self.made += 1;
        let subject = Subject::from(format!("{}.{}", self.prefix, self.made));
        let subscriber = self.client.subscribe(subject.clone()).await?;
        self.all.push(Slot { subject: subject.clone(), subscriber, pull: Some(pull), left });
        Ok(subject)
    }

    /// The next message of any slot with the pull that it answers; `None` when the client was closed for good.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(u64, Message)>> {
        for slot in &mut self.all {
            while let Poll::Ready(message) = slot.subscriber.poll_next_unpin(context) {
                let Some(message) = message else { return Poll::Ready(None) };
                // Nothing is expected in a free slot: a server that repeats itself.
                let Some(pull) = slot.pull else { continue };
                return Poll::Ready(Some((pull, message)));
            }
        }
        Poll::Pending
    }

    /// A message came for the pull, which may have been its last.
    pub(super) fn delivered(&mut self, pull: u64) {
        for slot in self.all.iter_mut().filter(|slot| slot.pull == Some(pull)) {
            slot.left = slot.left.saturating_sub(1);
            if slot.left == 0 {
                slot.pull = None;
            }
        }
    }

    /// The pull has ended.
    pub(super) fn end(&mut self, pull: u64) {
        for slot in &mut self.all {
            if slot.pull == Some(pull) {
                slot.pull = None;
            }
        }
    }
}
