//! Which keys take the lane's time, counted as handlings end and told to whoever asks from this pod.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use lanekeeper_core::hot_keys::{HotKeys, Sketch};

/// Shared by the loop, which counts, and the admin server.
#[derive(Debug)]
pub(crate) struct Hot {
    start: Instant,
    partition: u32,
    sketch: Mutex<Sketch>,
}

impl Hot {
    pub(crate) fn new(partition: u32) -> Self {
        Self { start: Instant::now(), partition, sketch: Mutex::new(Sketch::new()) }
    }

    /// A handling of this key ended at this moment, however it did.
    pub(crate) fn add(&self, now: Instant, key: &str, took: Duration) {
        let now = now.saturating_duration_since(self.start);
        self.sketch.lock().unwrap_or_else(PoisonError::into_inner).add(now, key, took);
    }

    pub(crate) fn report(&self) -> HotKeys {
        let now = self.start.elapsed();
        self.sketch.lock().unwrap_or_else(PoisonError::into_inner).report(now, self.partition)
    }
}
