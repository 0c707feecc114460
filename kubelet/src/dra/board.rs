//! What is known of devices' health, for all who ask, and when it changes.

use super::health::{Health, Report, State};
use client::Clock;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Owns it. Clones share it.
#[derive(Clone)]
pub(super) struct HealthBoard(Arc<Inner>);

struct Inner {
    held: Mutex<Health>,
    changes: watch::Sender<u64>,
    clock: Arc<dyn Clock>,
}

impl HealthBoard {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            held: Mutex::default(),
            changes: watch::Sender::default(),
            clock,
        }))
    }

    fn held(&self) -> MutexGuard<'_, Health> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, news: bool) {
        if news {
            self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Tells of every change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(super) fn take(&self, driver: &str, reports: Vec<Report>) {
        let news = self.held().take(driver, reports, self.0.clock.now());
        self.changed(news);
    }

    pub(super) fn expire(&self, driver: &str) {
        let news = self.held().expire(driver, self.0.clock.now());
        self.changed(news);
    }

    pub(super) fn clear(&self, driver: &str) {
        let news = self.held().clear(driver);
        self.changed(news);
    }

    /// How long it takes until something a driver told holds no longer.
    pub(super) fn until_expiry(&self, driver: &str) -> Option<Duration> {
        let at = self.held().next_expiry(driver)?;
        let left = at.duration_since(self.0.clock.now());
        Some(Duration::try_from(left).unwrap_or_default())
    }

    /// How well a device is, and what its driver says about it.
    pub(super) fn of(&self, driver: &str, pool: &str, device: &str) -> (State, Option<String>) {
        let held = self.held();
        let (state, message) = held.of(driver, pool, device);
        (state, message.map(ToOwned::to_owned))
    }
}
