//! The lane's lease, while this worker is in a lane that has one.

use std::time::{Duration, Instant};

use lanekeeper_core::lease::{Lessee, Terms};
use lanekeeper_nats::lease::{Tenure, contend};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tracing::Instrument;

use super::{Identity, KeyEvent};

/// One lease at a time; what contends for it ends with this value.
pub(super) struct Leases {
    identity: Identity,
    events: mpsc::UnboundedSender<KeyEvent>,
    tasks: JoinSet<u64>,
    stop: Option<oneshot::Sender<()>>,
    /// Nonces that this process has used.
    nonces: u64,
    /// The incarnation whose lease was contended for last.
    contended: Option<u64>,
}

impl Leases {
    pub(super) fn new(identity: Identity, events: mpsc::UnboundedSender<KeyEvent>) -> Self {
        Self { identity, events, tasks: JoinSet::new(), stop: None, nonces: 0, contended: None }
    }

    /// Contends from now on. `first` is when this process asked to join the lane, if it was before all others.
    pub(super) fn contend(&mut self, incarnation: u64, time: Duration, first: Option<Instant>) {
        let (us, terms) = (self.identity.holder.clone(), Terms::new(time));
        let once = self.contended.replace(incarnation) != Some(incarnation);
        // Whenever the task comes to run: its clock begins here.
        let start = Instant::now();
        let asked = first.filter(|_| once).map(|asked| start.saturating_duration_since(asked));
        let first = asked.map(|ago| terms.first_time().saturating_sub(ago));
        let lessee = Lessee::new(us, terms, self.nonces, first);
        let (stop, stopped) = oneshot::channel::<()>();
        self.stop = Some(stop);
        let (bucket, events) = (self.identity.bucket.clone(), self.events.clone());
        let key = self.identity.set.lease_key(incarnation);
        let tell = move |tenure: Tenure| {
            let until = tenure.until.map(tokio::time::Instant::into_std);
            // Nobody listens when the process ends.
            let _ = events.send(KeyEvent::Leased { incarnation, until });
        };
        let leave = async move {
            let _ = stopped.await;
        };
        self.tasks.spawn(
            async move { contend(&bucket, &key, lessee, start.into(), tell, leave).await }.in_current_span(),
        );
    }

    /// Gives back what there is.
    pub(super) async fn give_back(&mut self) {
        drop(self.stop.take());
        while let Some(ended) = self.tasks.join_next().await {
            self.nonces = ended.map_or(self.nonces, |nonces| self.nonces.max(nonces));
        }
    }
}
