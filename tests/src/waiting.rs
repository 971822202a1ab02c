//! Waiting for a condition, with a deadline and words for what did not come.

use std::{fmt::Display, future::Future, time::Duration};

use tokio::time::{Instant, sleep};

/// What a probe may answer: done, or why not yet.
pub trait Probe {
    /// What it yields when it is done.
    type Done;
    /// The result, or what stands in the way.
    fn done(self) -> Result<Self::Done, String>;
}

impl Probe for bool {
    type Done = ();
    fn done(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "it is false".into())
    }
}

impl<T> Probe for Option<T> {
    type Done = T;
    fn done(self) -> Result<T, String> {
        self.ok_or_else(|| "there is none".into())
    }
}

impl<T, E: Display> Probe for Result<T, E> {
    type Done = T;
    fn done(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Asks again until the probe is done, and panics with `what` and its last answer when `deadline` passes first.
///
/// A probe that hangs is cut off by the deadline as well.
pub async fn wait_until<P, F>(deadline: Duration, what: &str, probe: impl FnMut() -> F) -> P::Done
where
    P: Probe,
    F: Future<Output = P>,
{
    match wait_for(deadline, what, probe).await {
        Ok(done) => done,
        Err(error) => panic!("{error}"),
    }
}

/// What did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("waited {deadline:?} for: {what}; last answer: {last}")]
pub struct TooLate {
    /// How long was waited.
    pub deadline: Duration,
    /// For what.
    pub what: String,
    /// What the probe said last.
    pub last: String,
}

/// [`wait_until`] for programs, which must not panic.
pub async fn wait_for<P, F>(
    deadline: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> Result<P::Done, TooLate>
where
    P: Probe,
    F: Future<Output = P>,
{
    let end = Instant::now() + deadline;
    let mut last = "the probe did not answer".to_owned();
    loop {
        match tokio::time::timeout_at(end, probe()).await {
            Ok(answer) => match answer.done() {
                Ok(done) => return Ok(done),
                Err(reason) => last = reason,
            },
            Err(_) => return Err(TooLate { deadline, what: what.to_owned(), last }),
        }
        if Instant::now() >= end {
            return Err(TooLate { deadline, what: what.to_owned(), last });
        }
        sleep(Duration::from_millis(20)).await;
    }
}
