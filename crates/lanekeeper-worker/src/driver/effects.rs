//! One effect of the lane, done; one note of the lane, counted and logged.

use std::sync::Arc;

use lanekeeper_core::{
    journal::Ending,
    lane::{Effect, Note},
    order::OrderResult,
};

use super::Driver;
use crate::{dead_letter, handler::Handler, keys::KeyCommand, message::Message};

impl<H: Handler> Driver<H> {
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
                if let Some(known) = self.known.iter().find(|known| known.id == message) {
                    let message =
                        Message::new(known.delivery.clone(), Arc::clone(&known.assignment), attempts);
                    let letter = dead_letter::letter(&self.set, &message, &reason, stream, subject);
                    self.dead_letter(token, letter, until);
                }
            }
            Effect::Report(report) => self.command(KeyCommand::Report(report)),
            Effect::Inspect { token } => self.inspect(token),
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
                let Some(known) = self.known.iter().find(|known| known.id == message) else { return };
                match pull {
                    Some(request) => self.link.ack_and_pull(&known.delivery.ack, token, request).await,
                    None => self.link.ack(&known.delivery.ack, token).await,
                }
            }
            Effect::Nak { message, token, delay } => {
                if let Some(known) = self.known.iter().find(|known| known.id == message) {
                    self.link.nak(&known.delivery.ack, token, delay).await;
                }
            }
            Effect::Progress { message, token } => {
                if let Some(known) = self.known.iter().find(|known| known.id == message) {
                    self.link.progress(&known.delivery.ack, token).await;
                }
            }
            Effect::Handle { message, attempt } => self.handle(message, attempt).await,
            Effect::Cancel => {
                self.stopped_running();
                self.journal.stopped();
            }
            Effect::Forget { message } => self.known.retain(|known| known.id != message),
            Effect::Note(note) => {
                self.note(&note);
                if let Note::DeadLettered { sequence, attempts, .. }
                | Note::Dropped { sequence, attempts, .. }
                | Note::Skipped { sequence, attempts, .. } = note
                {
                    self.put_away(sequence, attempts).await;
                }
                if self.journal.is_open() {
                    self.journal.note(&note, &self.metrics).await;
                }
            }
            Effect::Exit => self.exit = true,
        }
    }

    async fn handle(&mut self, message: u64, attempt: u64) {
        let Some(known) = self.known.iter().find(|known| known.id == message) else { return };
        let message = Message::new(known.delivery.clone(), Arc::clone(&known.assignment), attempt);
        if let Some(subject) = &known.assignment.settings.journal {
            self.journal.begin(subject, known.assignment.incarnation, &message, &self.metrics).await;
        }
        let handler = Arc::clone(&self.handler);
        self.running_since = self.now;
        self.running_key = Some(message.key());
        self.running = Some(Box::pin(async move { handler.handle(&message).await }));
    }

    /// The journal has an entry of it, before the message is acknowledged.
    async fn put_away(&mut self, sequence: u64, attempts: u64) {
        let Some(known) = self.known.iter().rfind(|known| known.delivery.sequence == sequence) else {
            return;
        };
        if let Some(subject) = &known.assignment.settings.journal {
            let message = Message::new(known.delivery.clone(), Arc::clone(&known.assignment), attempts);
            self.journal.begin(subject, known.assignment.incarnation, &message, &self.metrics).await;
            self.journal.ended(Ending::PutAway, &self.metrics).await;
        }
    }

    fn note(&self, note: &Note) {
        self.metrics.note(note);
        let lane = self.lane.incarnation();
        match note {
            Note::Completed(sequence) => tracing::debug!(lane, sequence, "handled"),
            Note::Settled(sequence) => {
                tracing::trace!(lane, sequence, "settled");
                self.metrics.set_head(None);
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
            Note::BreakerOpen(sequence) => tracing::error!(
                lane,
                sequence,
                "the breaker is open: the lane stands at this message, because too many were exhausted lately"
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
