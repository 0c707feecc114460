//! A kubelet under way in a test.

use crate::eviction::Conditions;
use crate::metrics::Metrics;
use crate::parts::Parts;
use crate::pod::view::PodView;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A kubelet that runs.
pub(crate) struct Alive {
    pub(crate) parts: Arc<Parts>,
    pub(crate) pods: PodView,
    pub(super) metrics: Metrics,
    /// What its node runs short of.
    pub(crate) pressure: watch::Receiver<Conditions>,
    pub(super) shutdown: CancellationToken,
    pub(super) task: tokio::task::JoinHandle<()>,
}

impl Alive {
    /// Whether its page of metrics has that line.
    pub(crate) fn tells(&self, line: &str) -> bool {
        self.metrics.text(&self.pods).lines().any(|found| found == line)
    }

    /// Stops the kubelet as `kill -9` would: nothing of it runs on.
    pub(crate) async fn kill(self) {
        self.shutdown.cancel();
        self.task.abort();
        let _ = self.task.await;
    }
}
