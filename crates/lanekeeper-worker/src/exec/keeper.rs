//! Keeps the program running, and gives it one message after another.

use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    time::sleep_until,
};

use super::child::{Exchange, Program};
use crate::handler::HandlerError;

/// A program that ends is started again at once; when it ends again without an answer in between, after this, doubled
/// up to the longest.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// What the keeper is asked.
#[derive(Debug)]
pub(super) enum Job {
    Handle(Request),
    Close(oneshot::Sender<()>),
}

/// A message for the program. Whoever waits for the reply no more has given it up.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) line: Vec<u8>,
    pub(super) reply: oneshot::Sender<Result<(), HandlerError>>,
}

/// How the program is.
#[derive(Debug, Clone)]
pub(super) struct Health {
    /// Since when it has been running.
    pub(super) since: Option<Instant>,
    /// It has answered since its start.
    pub(super) answered: bool,
    /// Why it is not there, or what came before.
    pub(super) trouble: String,
}

impl Health {
    pub(super) fn starting() -> Self {
        Self { since: None, answered: false, trouble: "the handler's program is being started".to_owned() }
    }
}

/// The only one who touches the program.
pub(super) struct Keeper {
    command: Vec<String>,
    variables: Vec<(OsString, OsString)>,
    jobs: mpsc::UnboundedReceiver<Job>,
    health: watch::Sender<Health>,
    program: Option<Program>,
    /// Ends since the last answer.
    failures: u32,
    next_start: Instant,
}

/// What comes while there is no message in hand.
enum Idle {
    Job(Option<Job>),
    Fault(String),
    Start,
    Orphans,
}

impl Keeper {
    pub(super) fn new(
        command: Vec<String>,
        variables: Vec<(OsString, OsString)>,
        jobs: mpsc::UnboundedReceiver<Job>,
        health: watch::Sender<Health>,
    ) -> Self {
        let next_start = Instant::now();
        Self { command, variables, jobs, health, program: None, failures: 0, next_start }
    }

    /// Until it is closed, or nobody can ask any more.
    pub(super) async fn run(mut self) {
        // Without the signal nothing is collected before the program's own end.
        let mut ended_children = signal(SignalKind::child()).ok();
        self.start();
        loop {
            match self.idle(&mut ended_children).await {
                Idle::Orphans => {
                    if let Some(program) = &self.program {
                        program.collect_orphans();
                    }
                }
                Idle::Fault(reason) => drop(self.fault(reason).await),
                Idle::Start => self.start(),
                Idle::Job(Some(Job::Handle(request))) => self.handle(request).await,
                Idle::Job(Some(Job::Close(done))) => {
                    if let Some(program) = self.program.take() {
                        program.close().await;
                    }
                    // Whoever asked may have gone.
                    let _ = done.send(());
                    return;
                }
                // The program is killed when it is dropped.
                Idle::Job(None) => return,
            }
        }
    }

    async fn idle(&mut self, ended_children: &mut Option<Signal>) -> Idle {
        let next_start = self.next_start;
        let (program, jobs) = (&mut self.program, &mut self.jobs);
        let fault = async {
            if let Some(program) = program {
                return Idle::Fault(program.idle().await);
            }
            sleep_until(next_start.into()).await;
            Idle::Start
        };
        let orphans = async {
            match ended_children {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = orphans => Idle::Orphans,
            job = jobs.recv() => Idle::Job(job),
            idle = fault => idle,
        }
    }

    async fn handle(&mut self, mut request: Request) {
        loop {
            if request.reply.is_closed() {
                return;
            }
            if self.program.is_none() && self.next_start <= Instant::now() {
                self.start();
            }
            let Some(program) = &mut self.program else {
                let reason = self.health.borrow().trouble.clone();
                let _ = request.reply.send(Err(HandlerError::Unreachable { reason }));
                return;
            };
            let exchange = tokio::select! {
                biased;
                () = request.reply.closed() => None,
                exchange = program.exchange(&request.id, &request.line) => Some(exchange),
            };
            // Whoever has given up its message needs no reply, and a send that fails says only that.
            match exchange {
                Some(Exchange::Answered { outcome, fault }) => {
                    self.failures = 0;
                    self.answered();
                    if let Some(reason) = fault {
                        tracing::warn!(reason, "the handler's program is started anew");
                        self.replace().await;
                    }
                    let _ = request.reply.send(outcome);
                    return;
                }
                Some(Exchange::Untouched { reason }) => {
                    let again = self.failures == 0;
                    let reason = self.fault(reason).await;
                    if !again {
                        let _ = request.reply.send(Err(HandlerError::Unreachable { reason }));
                        return;
                    }
                }
                Some(Exchange::Broken { reason }) => {
                    let reason = self.fault(reason).await;
                    let _ = request.reply.send(Err(HandlerError::retry(reason)));
                    return;
                }
                None => {
                    tracing::warn!(
                        id = request.id,
                        "the handler's program is killed: its message was given up"
                    );
                    self.replace().await;
                    return;
                }
            }
        }
    }

    fn start(&mut self) {
        match Program::start(&self.command, &self.variables) {
            Ok(program) => {
                tracing::info!(pid = program.pid(), "the handler's program was started");
                self.program = Some(program);
                self.health.send_modify(|health| {
                    (health.since, health.answered) = (Some(Instant::now()), false);
                });
            }
            Err(reason) => {
                self.failed(&reason);
            }
        }
    }

    fn answered(&self) {
        self.health.send_if_modified(|health| !std::mem::replace(&mut health.answered, true));
    }

    /// Ends a program that is needed no more, and starts the next.
    async fn replace(&mut self) {
        if let Some(program) = self.program.take() {
            program.end().await;
        }
        self.start();
    }

    /// The program did something wrong. What that was, in words for people.
    async fn fault(&mut self, reason: String) -> String {
        if let Some(program) = self.program.take() {
            program.end().await;
        }
        let named = format!("the handler's program {reason}");
        self.failed(&named);
        named
    }

    fn failed(&mut self, reason: &str) {
        let delay = delay(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.next_start = Instant::now() + delay;
        tracing::warn!(reason, delay_ms = %delay.as_millis(), "the handler's program is started anew");
        self.health.send_modify(|health| {
            *health = Health { since: None, answered: false, trouble: reason.to_owned() };
        });
    }
}

/// Before the next start, when it has already failed so many times since the last answer.
fn delay(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(doubled) => FIRST_DELAY.saturating_mul(2_u32.saturating_pow(doubled)).min(LONGEST_DELAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_is_at_once_and_later_ones_ever_more_slowly_up_to_a_limit() {
        let delays: Vec<u128> = (0..9).map(|failures| delay(failures).as_millis()).collect();
        assert_eq!(delays, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(delay(u32::MAX), LONGEST_DELAY);
    }
}
