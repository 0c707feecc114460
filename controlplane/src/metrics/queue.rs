//! The counters of one work queue, and how long what is worked on has taken so far.

use super::controllers::Controllers;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// The counters of one work queue.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    /// Keys that wait now.
    pub depth: Gauge,
    /// Keys that were added.
    pub adds: Counter,
    /// Keys that come again after a failure.
    pub retries: Counter,
    /// Seconds a key waited.
    pub wait: Histogram,
    /// Seconds a key was worked on.
    pub work: Histogram,
    /// Keys that are being worked on.
    pub running: Arc<Running>,
    /// What its controller counts beside.
    pub controllers: Arc<Controllers>,
}

impl Default for QueueMetrics {
    fn default() -> Self {
        super::Metrics::default().queue("")
    }
}

/// When the work on each key began that is being worked on.
#[derive(Debug, Default)]
pub struct Running(Mutex<(u64, BTreeMap<u64, Instant>)>);

/// The work on one key; it ends with this.
pub struct Work<'a> {
    running: &'a Running,
    id: u64,
}

impl Running {
    /// Begins the work on a key.
    pub fn begin(&self) -> Work<'_> {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        own.0 += 1;
        let id = own.0;
        own.1.insert(id, Instant::now());
        Work { running: self, id }
    }

    /// Seconds of all work under way together, and of the longest.
    pub(super) fn seconds(&self, now: Instant) -> (f64, f64) {
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = own.1.values().map(|began| now.duration_since(*began).as_secs_f64());
        seconds.fold((0.0, 0.0), |(all, longest): (f64, f64), one| {
            (all + one, longest.max(one))
        })
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let mut own = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        own.1.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn work_counts_from_its_begin_to_its_end() {
        let running = Running::default();
        assert_eq!(running.seconds(Instant::now()), (0.0, 0.0));
        let first = running.begin();
        tokio::time::advance(Duration::from_secs(2)).await;
        let second = running.begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(running.seconds(Instant::now()), (4.0, 3.0));
        drop(first);
        assert_eq!(running.seconds(Instant::now()), (1.0, 1.0));
        drop(second);
        assert_eq!(running.seconds(Instant::now()), (0.0, 0.0));
    }
}
