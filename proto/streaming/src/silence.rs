//! When a stream counts as idle: nothing has moved in either direction for so long.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Knows when something last moved.
#[derive(Debug)]
pub(crate) struct Silence {
    moved: watch::Sender<Instant>,
}

impl Silence {
    pub(crate) fn new() -> Self {
        Self {
            moved: watch::Sender::new(Instant::now()),
        }
    }

    /// Something moved.
    pub(crate) fn broken(&self) {
        self.moved.send_replace(Instant::now());
    }

    /// Returns once nothing has moved for `bound`; a bound of zero is none.
    pub(crate) async fn lasts(&self, bound: Duration) {
        if bound.is_zero() {
            return std::future::pending().await;
        }
        loop {
            let until = *self.moved.borrow() + bound;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}
