//! Waits that may be for ever: branches of a `select!` that have nothing to wait for. Never decides when to wake.

use std::time::Duration;
use tokio::time::Instant;

/// Ends at this moment; never, if there is none.
pub async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Ends after this time; never, if there is none.
pub async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
