//! Our lane with a handler that does nothing: the worker's own driver, every ack confirmed.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use anyhow::{Result, bail};
use lanekeeper_core::record::Delivery;
use lanekeeper_nats::ConnectSettings;
use lanekeeper_worker::{Handler, HandlerError, Message, Worker};
use tokio::sync::Notify;

use crate::setting::{STREAM, Setting};

/// Counts, and checks that nothing is out of order or twice.
struct Count {
    wanted: u64,
    state: Mutex<State>,
    finished: Arc<Notify>,
}

#[derive(Default)]
struct State {
    seen: u64,
    last: u64,
    wrong: bool,
    first_at: Option<Instant>,
    last_at: Option<Instant>,
}

impl Handler for Count {
    async fn handle(&self, message: &Message) -> Result<(), HandlerError> {
        let mut state = self.state.lock().map_err(|_| HandlerError::retry("poisoned"))?;
        let now = Instant::now();
        state.first_at.get_or_insert(now);
        state.last_at = Some(now);
        state.seen += 1;
        state.wrong |= message.sequence() <= state.last;
        state.last = message.sequence();
        if state.seen == self.wanted {
            self.finished.notify_one();
        }
        Ok(())
    }
}

/// Messages per second over all messages.
pub(crate) async fn measure(setting: &mut Setting, messages: u64, delivery: Delivery) -> Result<f64> {
    let consumer = setting.open_lane(None, delivery).await?;
    let finished = Arc::new(Notify::new());
    let count =
        Arc::new(Count { wanted: messages, state: Mutex::default(), finished: Arc::clone(&finished) });
    let connect = ConnectSettings::new([setting.url()], "lane");
    let worker = Worker::builder(setting.set.clone(), 0, STREAM, connect).build();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async move {
        // Whoever drops the sender wants the end as well.
        let _ = stopped.await;
    };
    let task = tokio::spawn(worker.run_until(Arc::clone(&count), shutdown));
    finished.notified().await;
    setting.close_lane(&consumer).await?;
    let _ = stop.send(());
    task.await??;
    let state = count.state.lock().map_err(|_| anyhow::anyhow!("a handler panicked"))?;
    let (Some(first), Some(last)) = (state.first_at, state.last_at) else { bail!("nothing was handled") };
    if state.wrong || state.seen != messages {
        bail!("{} of {messages} messages were handled, in order: {}", state.seen, !state.wrong);
    }
    // One interval less than messages.
    #[expect(clippy::cast_precision_loss, reason = "a number of messages is far below 2^52")]
    let intervals = (messages - 1) as f64;
    Ok(intervals / (last - first).as_secs_f64())
}
