//! Keeps one subscription to the runtime's events alive and hands each event on.
//!
//! Owns reconnecting. Never interprets an event: [`super::pleg`] looks at the pod again, whatever the event said.

use super::{Runtime, RuntimeEvent};
use client::Backoff;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The first and the longest wait before subscribing again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// How long a runtime without events is left alone before it is asked again: another version may have taken its place.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// What the subscription task reports.
#[derive(Debug)]
pub enum Report {
    /// Something happened.
    Event(RuntimeEvent),
    /// A subscription began; what happened before it was not reported, so everything is to be looked at again.
    Subscribed,
    /// There is no subscription: until the next one begins, nothing that happens is reported.
    Lost,
}

/// Subscribes, forwards, subscribes again, until shut down. A runtime that turns out to have no events is asked again, seldom.
pub async fn forward(runtime: Arc<dyn Runtime>, reports: mpsc::Sender<Report>, shutdown: CancellationToken) {
    let following = follow(&*runtime, &reports);
    // Nobody listens any more, or nobody is to.
    let _ended = shutdown.run_until_cancelled(following).await;
}

/// As [`forward`]; returns when nobody listens.
async fn follow(runtime: &dyn Runtime, reports: &mpsc::Sender<Report>) -> Result<(), mpsc::error::SendError<Report>> {
    // One runtime, one subscriber: there is nobody to spread from.
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0);
    let mut has_events = true;
    loop {
        let wait = match runtime.subscribe().await {
            Ok(mut stream) => {
                has_events = true;
                backoff.reset();
                reports.send(Report::Subscribed).await?;
                while let Some(event) = stream.next().await {
                    reports.send(Report::Event(event)).await?;
                }
                tracing::warn!("runtime event stream ended, subscribing again");
                backoff.fail()
            }
            Err(error) if error.is_unimplemented() => {
                if has_events {
                    tracing::warn!(%error, "the runtime has no events, only sweeps will notice changes");
                }
                has_events = false;
                ASK_AGAIN
            }
            Err(error) => {
                tracing::warn!(%error, "subscribing to runtime events failed");
                backoff.fail()
            }
        };
        reports.send(Report::Lost).await?;
        tokio::time::sleep(wait).await;
    }
}
