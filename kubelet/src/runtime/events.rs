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

/// What the subscription task reports.
#[derive(Debug)]
pub enum Report {
    /// Something happened.
    Event(RuntimeEvent),
    /// A subscription began; what happened before it was not reported, so everything is to be looked at again.
    Subscribed,
}

/// Subscribes, forwards, subscribes again, until shut down or until the runtime turns out to have no events.
pub async fn forward(runtime: Arc<dyn Runtime>, reports: mpsc::Sender<Report>, shutdown: CancellationToken) {
    // One runtime, one subscriber: there is nobody to spread from.
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0);
    loop {
        let opened = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            opened = runtime.subscribe() => opened,
        };
        match opened {
            Ok(mut stream) => {
                backoff.reset();
                if reports.send(Report::Subscribed).await.is_err() {
                    return;
                }
                loop {
                    let event = tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return,
                        event = stream.next() => event,
                    };
                    let Some(event) = event else { break };
                    if reports.send(Report::Event(event)).await.is_err() {
                        return;
                    }
                }
                tracing::warn!("runtime event stream ended, subscribing again");
            }
            Err(error) if error.is_unimplemented() => {
                tracing::warn!(%error, "the runtime has no events, only sweeps will notice changes");
                return;
            }
            Err(error) => tracing::warn!(%error, "subscribing to runtime events failed"),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(backoff.fail()) => {}
        }
    }
}
