//! One effect of the lane, done; one note of the lane, counted and logged.

use std::{iter, slice, sync::Arc, time::Duration};

use lanekeeper_core::{
    aside::Kind,
    journal::Ending,
    lane::{Effect, Note},
    order::OrderResult,
};

use super::{Driver, Parked};
use crate::{handler::BatchHandler, keys::KeyCommand, letter::letter, message::Message, parked};

impl<H: BatchHandler> Driver<H> {
    pub(super) async fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Join { incarnation } => self.command(KeyCommand::Join { incarnation }),
            Effect::Leave { incarnation, excused } => {
                self.command(KeyCommand::Leave { incarnation, excused });
            }
            Effect::Excuse { incarnation, excused } => {
                self.command(KeyCommand::Excuse { incarnation, excused });
            }
            Effect::Own { incarnation, pin } => self.command(KeyCommand::Own { incarnation, pin }),
            Effect::Contend { incarnation, time } => {
                self.command(KeyCommand::Contend { incarnation, time });
            }
            Effect::Breaker { incarnation, sequence } => {
                self.command(KeyCommand::Breaker { incarnation, sequence });
            }
            Effect::OrderBegun { incarnation, id } => {
                tracing::warn!(lane = incarnation, order = id, "an attempt begins by order of a person");
                self.command(KeyCommand::OrderBegun { incarnation, id });
            }
            Effect::OrderEnded { incarnation, result } => {
                let OrderResult { id, outcome, messages, reason } = &result;
                tracing::warn!(
                    lane = incarnation,
                    order = id,
                    ?outcome,
                    messages,
                    reason,
                    "an order is over"
                );
                self.command(KeyCommand::OrderEnded { incarnation, result });
            }
            Effect::DeadLetter { message, token, stream, subject, attempts, reason, until } => {
                if let Some(known) = self.known.get(message) {
                    let message = known.message(attempts);
                    let letter = letter(Kind::DeadLetters, &self.set, &message, &reason, stream, subject);
                    self.put_aside(token, letter, until);
                }
            }
            Effect::Park { message, token, attempts, reason, until } => {
                self.park(message, token, attempts, &reason, until);
            }
            Effect::LoadParked { token } => self.ask_park(token, |connection, lane| async move {
                parked::keys(&connection, &lane).await.map(Parked::Keys)
            }),
            Effect::ListParked { token, key } => self.ask_park(token, |connection, lane| async move {
                parked::list(&connection, &lane, &key).await.map(Parked::List)
            }),
            Effect::FetchParked { token, stored } => {
                self.ask_park(token, move |connection, lane| async move {
                    parked::fetch(&connection, lane, stored)
                        .await
                        .map(|found| Parked::Fetched(found.map(Box::new)))
                });
            }
            Effect::DeleteParked { token, stored, until } => {
                let until = self.start + until;
                self.ask_park(token, move |connection, lane| async move {
                    parked::delete(&connection, &lane, &stored, until).await.map(|()| Parked::Deleted)
                });
            }
            Effect::HandleParked { message, attempt } => self.handle_parked(message, attempt).await,
            Effect::Claim { incarnation } => self.command(KeyCommand::Claim { incarnation }),
            Effect::Unclaim { incarnation } => self.command(KeyCommand::Unclaim { incarnation }),
            Effect::ParkOrderDone { incarnation, id, outcome } => {
                tracing::warn!(lane = incarnation, order = id, %outcome, "an order about parked messages is over");
                self.command(KeyCommand::ParkOrderDone { incarnation, id, outcome });
            }
            Effect::Report(report) => self.command(KeyCommand::Report(report)),
            Effect::Inspect { token } => self.inspect(token),
            Effect::List { token, after, until } => self.list(token, after, until),
            Effect::AckGone { sequences, consumer_sequence } => self.ack_gone(sequences, consumer_sequence),
            Effect::Acks { messages, token } => self.acknowledge(&messages, token).await,
            Effect::Pull(request) => {
                if let Some(serving) = self.lane.serving() {
                    self.link.pull(&self.stream, &serving.consumer, request).await;
                }
            }
            Effect::Renew(renewal) => {
                if let Some(serving) = self.lane.serving() {
                    self.link.renew(&self.stream, &serving.consumer, &renewal).await;
                }
            }
            Effect::Unpin => {
                if let Some(serving) = self.lane.serving() {
                    self.link.unpin(&self.stream, &serving.consumer).await;
                }
            }
            Effect::Ack { message, token, pull } => {
                let Some(known) = self.known.get(message) else { return };
                match pull {
                    Some(request) => self.link.ack_and_pull(&known.delivery.ack, token, request).await,
                    None => self.link.ack(&known.delivery.ack, token).await,
                }
            }
            Effect::Nak { message, token, delay } => {
                if let Some(known) = self.known.get(message) {
                    self.link.nak(&known.delivery.ack, token, delay).await;
                }
            }
            Effect::Progress { message, token } => {
                if let Some(known) = self.known.get(message) {
                    self.link.progress(&known.delivery.ack, token).await;
                }
            }
            Effect::Handle { message, attempt, with } => self.handle(message, attempt, &with).await,
            Effect::Cancel => {
                let stopped = self.stopped_running();
                self.count(&stopped);
                self.journal.stopped();
            }
            Effect::Forget { message } => {
                self.known.forget(message);
                self.unparked.take_if(|(id, _)| *id == message);
            }
            Effect::Note(note) => {
                self.note(&note);
                match &note {
                    Note::Parked { sequence, attempts, .. } => {
                        self.aside(*sequence, *attempts, Ending::Parked).await;
                    }
                    Note::ParkedDropped { message, .. } => self.dropped(*message).await,
                    _ => {}
                }
                if let Note::DeadLettered { sequence, attempts, .. }
                | Note::Dropped { sequence, attempts, .. }
                | Note::Skipped { sequence, attempts, .. } = note
                {
                    self.aside(sequence, attempts, Ending::PutAway).await;
                }
                if self.journal.is_open() {
                    self.journal.note(&note, &self.metrics).await;
                }
            }
            Effect::Exit => self.exit = true,
        }
    }

    async fn acknowledge(&mut self, messages: &[u64], token: u64) {
        let Some((last, others)) = messages.split_last() else { return };
        for known in others.iter().filter_map(|message| self.known.get(*message)) {
            self.link.ack_quietly(&known.delivery.ack).await;
        }
        if let Some(known) = self.known.get(*last) {
            self.link.ack(&known.delivery.ack, token).await;
        }
    }

    async fn handle(&mut self, message: u64, attempt: u64, with: &[u64]) {
        let Some(first) = self.known.get(message) else { return };
        self.metrics.set_head(Some(first.delivery.published));
        let first = first.message(attempt);
        let with = with.iter().filter_map(|other| self.known.get(*other)).map(|other| other.message(attempt));
        let with = with.collect();
        self.call(first, with).await;
    }

    async fn handle_parked(&mut self, message: u64, attempt: u64) {
        let Some((_, found)) = self.unparked.as_ref().filter(|(id, _)| *id == message) else { return };
        let message = found.at_attempt(attempt);
        self.call(message, Vec::new()).await;
    }

    async fn call(&mut self, first: Message, with: Vec<Message>) {
        let handler = Arc::clone(&self.handler);
        let messages: Arc<[Message]> = iter::once(first).chain(with).collect();
        self.begin_entries(&messages).await;
        self.running_since = self.now;
        self.running_with = Some(Arc::clone(&messages));
        self.running = Some(Box::pin(async move {
            match &*messages {
                [message] if !message.is_of_batches() => handler.handle(message).await,
                batch => handler.handle_batch(batch).await,
            }
        }));
    }

    async fn begin_entries(&mut self, messages: &[Message]) {
        let Some(lane) = messages.first().map(Message::assignment) else { return };
        if let Some(subject) = &lane.settings.journal {
            self.journal.begin(subject, lane.incarnation, messages, &self.metrics).await;
        }
    }

    /// A parked message is dropped: the journal says that its turn is over.
    async fn dropped(&mut self, message: u64) {
        let found = self.unparked.as_ref().filter(|(id, _)| *id == message);
        let Some(message) = found.map(|(_, found)| found.at_attempt(0)) else { return };
        if message.assignment().settings.journal.is_some() {
            self.begin_entries(slice::from_ref(&message)).await;
            self.journal.ended(Ending::PutAway, &self.metrics).await;
        }
    }

    /// Stores a message in the park stream.
    fn park(&self, message: u64, token: u64, attempts: u64, reason: &str, until: Duration) {
        let Some(known) = self.known.get(message) else { return };
        let message = known.message(attempts);
        let lane = self.lane.serving().unwrap_or(&known.assignment);
        let Some(park) = &lane.settings.park else { return };
        let Some(subject) = lane.mapping.subject_under(&park.prefix, message.subject()) else { return };
        let letter = letter(Kind::Parked, &self.set, &message, reason, park.stream.clone(), subject);
        self.put_aside(token, letter, until);
    }

    /// The journal has an entry of it, before the message is acknowledged.
    async fn aside(&mut self, sequence: u64, attempts: u64, ending: Ending) {
        let Some(known) = self.known.latest(sequence) else { return };
        if let Some(subject) = &known.assignment.settings.journal {
            let message = [known.message(attempts)];
            self.journal.begin(subject, known.assignment.incarnation, &message, &self.metrics).await;
            self.journal.ended(ending, &self.metrics).await;
        }
    }

    fn note(&self, note: &Note) {
        self.metrics.note(note);
        let lane = self.lane.incarnation();
        match note {
            Note::Completed(sequence) => tracing::debug!(lane, sequence, "handled"),
            Note::Settled(sequence) => {
                tracing::trace!(lane, sequence, "settled");
                if self.running.is_none() {
                    self.metrics.set_head(None);
                }
            }
            Note::Joined => tracing::info!(lane, "joined the lane"),
            Note::Left => tracing::info!(lane, "left the lane"),
            Note::Pinned => tracing::info!(lane, "the lane's messages come to this worker"),
            Note::PinLost => tracing::info!(lane, "the lane's messages come to another worker"),
            Note::Stalled(stalled) => tracing::error!(
                lane,
                sequence = stalled.sequence,
                kind = stalled.kind.name(),
                "messages wait and no worker of the set gets them"
            ),
            Note::Moving => tracing::info!(lane, "the lane's messages are no longer kept from it"),
            Note::Leased => tracing::info!(lane, "the lane's lease is this worker's"),
            Note::LeaseOver => tracing::info!(lane, "the lane's lease is not this worker's any more"),
            Note::ConsumerGone => tracing::warn!(lane, "the lane's consumer does not exist (any more)"),
            Note::Failed { sequence, attempt, delay, exhausted: false, reason } => {
                let delay = delay.as_millis();
                tracing::warn!(lane, sequence, attempt, delay_ms = %delay, reason, "an attempt failed");
            }
            Note::Failed { sequence, attempt, exhausted: true, reason, .. } => {
                tracing::error!(
                    lane,
                    sequence,
                    attempt,
                    reason,
                    "no attempt is left: the set's policy decides"
                );
            }
            Note::DeadLettered { sequence, attempts, reason } => {
                tracing::error!(lane, sequence, attempts, reason, "put away: it is a dead letter now");
            }
            Note::Dropped { sequence, attempts, reason } => {
                tracing::error!(lane, sequence, attempts, reason, "dropped, as the set's policy says");
            }
            Note::Skipped { sequence, attempts, reason, by } => {
                tracing::error!(lane, sequence, attempts, reason, by, "skipped, as a person ordered");
            }
            Note::NotStored { sequence, delay, reason } => {
                let delay = delay.as_millis();
                tracing::error!(lane, sequence, delay_ms = %delay, reason, "the lane stands at this message: the dead letter is not stored");
            }
            Note::Parked { sequence, attempts, reason, key, first: true } => {
                tracing::error!(
                    lane,
                    sequence,
                    attempts,
                    reason,
                    key = &**key,
                    "its key is parked with this message"
                );
            }
            Note::Parked { sequence, key, .. } => {
                tracing::info!(lane, sequence, key = &**key, "parked behind an earlier message of its key");
            }
            Note::NotParked { sequence, delay, reason } => {
                let delay = delay.as_millis();
                tracing::error!(lane, sequence, delay_ms = %delay, reason, "a request about parked messages failed; it is repeated");
            }
            Note::Released { sequence, attempts } => {
                tracing::info!(lane, sequence, attempts, "a parked message was handled");
            }
            Note::ParkedDropped { sequence, .. } => {
                tracing::error!(lane, sequence, "a parked message is dropped, as a person ordered");
            }
            Note::ParkOrderDone { .. } => {}
            Note::BreakerOpen(sequence) => tracing::error!(
                lane,
                sequence,
                "the breaker is open: the lane stands at this message, because too many were exhausted lately"
            ),
            Note::Divided { first, messages } => tracing::error!(
                lane,
                first,
                messages,
                "no attempt is left for the batch: its messages are handed over one at a time"
            ),
            Note::Held { sequence, delay, reason } => {
                let delay = delay.as_millis();
                tracing::warn!(lane, sequence, delay_ms = %delay, reason, "the handler is not there or wants to wait; the message is held");
            }
            Note::Duplicate(sequence) => tracing::info!(
                lane,
                sequence,
                "came again after it was completed; acknowledged without the handler"
            ),
            Note::Covered(sequence) => tracing::debug!(
                lane,
                sequence,
                "a predecessor had settled it; acknowledged without the handler"
            ),
            Note::Refused { sequence, reason } => {
                tracing::error!(lane, sequence, reason, "refused: it does not belong to this lane");
            }
            Note::Stale(sequence) => {
                tracing::info!(lane, sequence, "dropped: it arrived past its deadline or for nobody");
            }
            Note::Lost(sequence) => tracing::error!(
                lane,
                sequence,
                "the deadline passed without proof: given up, nothing is sent for it"
            ),
            Note::LostBehind { first, messages } => tracing::error!(
                lane,
                first,
                messages,
                "given up what was on hand behind: its deadline, or that of the pin, passed without proof"
            ),
            Note::Gathering => {
                tracing::info!(
                    lane,
                    "something may be out that is not on hand: the lane goes on when it has all"
                );
            }
            Note::Gathered(messages) => tracing::info!(lane, messages, "has all that is out"),
            Note::Cut(sequence) => tracing::warn!(
                lane,
                sequence,
                "the shutdown could not wait for the handler; nothing is sent for it"
            ),
            Note::Overtaken(sequence) => {
                tracing::error!(lane, sequence, "dropped: another message of the lane is out");
            }
            Note::Unserial(limit) => {
                tracing::error!(
                    lane,
                    max_ack_pending = limit,
                    "the consumer may have several messages out: nothing is pulled until it is 1"
                );
            }
            Note::Violation(invariant) => {
                tracing::error!(lane, invariant = invariant.name(), "the lane did what it must never do");
            }
        }
    }
}
