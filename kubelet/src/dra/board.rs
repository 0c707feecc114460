//! What is known of devices' health, for all who ask, and when it changes.

use super::health::{Health, Report, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Owns it. Clones share it.
#[derive(Clone)]
pub(super) struct HealthBoard(Arc<Inner>);

struct Inner {
    held: Mutex<Health>,
    changes: watch::Sender<u64>,
    /// What times count from.
    began: Instant,
}

impl HealthBoard {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            held: Mutex::default(),
            changes: watch::Sender::default(),
            began: Instant::now(),
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

    /// Takes note of an instance of a driver: nothing is taken of one before.
    pub(super) fn begin(&self, driver: &str, instance: u64) {
        self.held().begin(driver, instance);
    }

    /// Takes what an instance of a driver tells.
    pub(super) fn take(&self, driver: &str, instance: u64, reports: Vec<Report>) {
        let taken = self.held().take(driver, instance, reports, self.0.began.elapsed());
        self.changed(taken.news);
        if taken.cut {
            tracing::warn!(
                driver,
                "a DRA driver tells more of its devices' health than is kept, or of devices that no claim can name: the rest is left out"
            );
        }
    }

    pub(super) fn expire(&self, driver: &str) {
        let news = self.held().expire(driver, self.0.began.elapsed());
        self.changed(news);
    }

    /// Forgets what an instance of a driver told.
    pub(super) fn clear(&self, driver: &str, instance: u64) {
        let news = self.held().clear(driver, instance);
        self.changed(news);
    }

    /// Forgets it, and takes nothing of this instance any more: its task may be about to bring something when it is ended.
    pub(super) fn end(&self, driver: &str, instance: u64) {
        let news = self.held().end(driver, instance);
        self.changed(news);
    }

    /// How long it takes until something a driver told holds no longer.
    pub(super) fn until_expiry(&self, driver: &str) -> Option<Duration> {
        let at = self.held().next_expiry(driver)?;
        Some(at.saturating_sub(self.0.began.elapsed()))
    }

    /// How well a device is, and what its driver says about it.
    pub(super) fn of(&self, driver: &str, pool: &str, device: &str) -> (State, Option<String>) {
        let held = self.held();
        let (state, message) = held.of(driver, pool, device, self.0.began.elapsed());
        (state, message.map(ToOwned::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_told_holds_for_its_time_whoever_sets_the_clock() {
        let board = HealthBoard::new();
        let report = Report {
            pool: "p".into(),
            device: "a".into(),
            state: State::Healthy,
            message: String::new(),
            holds_seconds: 0,
        };
        board.begin("d", 1);
        board.take("d", 1, vec![report]);
        assert_eq!(board.until_expiry("d"), Some(Duration::from_secs(30)));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(board.until_expiry("d"), Some(Duration::from_secs(10)));
        board.expire("d");
        assert_eq!(board.of("d", "p", "a").0, State::Healthy);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(board.of("d", "p", "a").0, State::Unknown, "though it is not forgotten");
        board.expire("d");
        assert_eq!(board.of("d", "p", "a").0, State::Unknown);
        assert_eq!(board.until_expiry("d"), None);
    }
}
