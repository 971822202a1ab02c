//! What time alone does to a lane.

use std::time::Duration;

use super::{Effect, Lane, Note, Outcome, Stage, State};

/// How long the next message may take to prove an ack before the ack's own confirmation is asked for.
const PROOF_BY_NEXT: Duration = Duration::from_millis(20);
/// A handling this long looks up the consumer's deadline again: somebody may have shortened it just now.
const LONG_HANDLING: Duration = Duration::from_millis(250);
const LONGEST_REPEAT: Duration = Duration::from_secs(1);

impl Lane {
    /// The deadline of what is in hand has passed: give it up, whatever else happened.
    pub(super) fn lapse(&mut self, now: Duration) {
        self.lease_lapse(now);
        self.lapse_replay(now);
        if self.window.is_some() {
            return self.lapse_window(now);
        }
        if self.hand.as_ref().is_some_and(|hand| now >= hand.deadline()) {
            self.lose(now);
        }
    }

    /// What is in hand may be another's by now: nothing more is sent for it.
    pub(super) fn lose(&mut self, now: Duration) {
        let Some(hand) = self.hand.take() else { return };
        if matches!(hand.stage, Stage::Handling { .. }) {
            self.emit(Effect::Cancel);
        }
        self.emit(Effect::Forget { message: hand.message });
        self.unsettled = Some(self.unsettled.map_or(hand.sequence, |earlier| earlier.min(hand.sequence)));
        self.note(Note::Lost(hand.sequence));
        if !self.gone {
            self.say(|report| report.lost = Some(hand.sequence));
        }
        self.admit_next(now);
    }

    /// Everything that is due by now.
    pub(super) fn pass_time(&mut self, now: Duration) {
        if self.pulls.expire(now, self.wait) {
            // Nobody answers: is the consumer there, is anybody?
            self.inspect(now);
        }
        if self.next.as_ref().is_some_and(|next| now >= next.pulled + self.wait)
            && let Some(next) = self.next.take()
        {
            self.note(Note::Stale(next.sequence));
            self.emit(Effect::Forget { message: next.message });
        }
        self.keep_window_alive(now);
        self.given_back_lapses(now);
        self.pass_replay_time(now);
        let Some(stage) = self.hand.as_ref().map(|hand| hand.stage) else { return };
        match stage {
            Stage::Verifying { .. } => {}
            Stage::Consulting { answered, due, .. } => {
                if now >= due {
                    self.consultation_due(now, answered);
                }
                self.keep_alive(now);
            }
            Stage::Handling { since, inspected } => {
                if self.shutdown.is_some_and(|shutdown| now >= shutdown.cut) {
                    self.cut();
                    return;
                }
                if let Some(limit) = self.handler_timeout()
                    && now >= since + limit
                {
                    self.emit(Effect::Cancel);
                    let reason = format!("no answer within {} ms", limit.as_millis());
                    self.handled(now, Outcome::Retry { reason, after: None });
                    return;
                }
                if !inspected && now >= since + LONG_HANDLING {
                    self.inspect(now);
                    self.set_stage(Stage::Handling { since, inspected: true });
                }
                self.keep_alive(now);
            }
            Stage::Refused => self.keep_alive(now),
            Stage::Held { until } | Stage::Again { until } => {
                if now >= until && !self.stopping() {
                    self.begin_handling(now);
                }
                self.keep_alive(now);
            }
            Stage::Standing { until } => {
                if self.window.is_some() {
                    // In its place, as every attempt.
                    if now >= until && !self.stopping() {
                        self.begin_handling(now);
                    }
                } else if now >= until && self.connected {
                    self.give_back(now, Duration::ZERO, Some(State::Blocked));
                    return;
                }
                self.keep_alive(now);
            }
            Stage::PuttingAway { token, answered, due } => {
                if self.shutdown.is_some_and(|shutdown| now >= shutdown.cut) {
                    // It may be stored by now; whoever has the message next finds out.
                    self.give_back(now, Duration::ZERO, None);
                    return;
                }
                if now >= due {
                    self.storing_due(now, token, answered);
                }
                self.keep_alive(now);
            }
            Stage::Settling { sent, repeated, .. } => {
                if self.shutdown.is_some_and(|shutdown| now >= shutdown.cut) {
                    self.give_up_settling();
                } else if sent.is_none_or(|sent| now >= sent + self.ack_repeat(repeated)) {
                    self.send_ack(now);
                }
            }
        }
    }

    fn keep_alive(&mut self, now: Duration) {
        if !self.options.progress || !self.connected || self.gone {
            return;
        }
        let token = self.tokens + 1;
        let Some(hand) = &mut self.hand else { return };
        if now >= hand.progress_due() {
            self.tokens = token;
            hand.progress_sent(token, now);
            let message = hand.message;
            self.emit(Effect::Progress { message, token });
            self.renew(now);
        }
    }

    pub(super) fn ack_repeat(&self, repeated: bool) -> Duration {
        if !repeated {
            return PROOF_BY_NEXT;
        }
        (self.wait / 8).min(LONGEST_REPEAT)
    }

    pub(super) fn handler_timeout(&self) -> Option<Duration> {
        let settings = &self.current.as_ref()?.settings;
        Some(Duration::from_millis(settings.handler_timeout_milliseconds))
    }

    /// When time alone will matter next: [`Lane::on`] wants a tick then. `None` means never.
    pub fn wake(&self, now: Duration) -> Option<Duration> {
        let mut times = [None; 12];
        times[..3].copy_from_slice(&self.membership_wake());
        times[3] = self.pulls.wake(now);
        times[4] = Some(self.pulls.not_before());
        times[5] = self.next.as_ref().map(|next| next.pulled + self.wait);
        times[6] = self.shutdown.map(|shutdown| shutdown.cut);
        times[11] = self.lease;
        if let Some(hand) = &self.hand {
            times[7] = Some(hand.deadline());
            times[8] = (self.connected && !self.gone).then(|| hand.progress_due());
            (times[9], times[10]) = match hand.stage {
                Stage::Verifying { .. } | Stage::Refused => (None, None),
                Stage::Handling { since, inspected } => (
                    self.handler_timeout().map(|limit| since + limit),
                    (!inspected).then(|| since + LONG_HANDLING),
                ),
                Stage::Held { until } | Stage::Again { until } | Stage::Standing { until } => {
                    (Some(until), None)
                }
                Stage::PuttingAway { due, .. } | Stage::Consulting { due, .. } => (Some(due), None),
                Stage::Settling { sent, repeated, .. } => {
                    (sent.map(|sent| sent + self.ack_repeat(repeated)), None)
                }
            };
        }
        // What was due and could not be done waits for another event, such as being connected again.
        let others = self.replay_wake().into_iter().chain(self.window_wake());
        times.into_iter().chain(others).flatten().filter(|time| *time > now).min()
    }
}
