//! Asks the runtime how it is: often while something is missing, seldom once it is well (kubelet contract §4.1).

use crate::pod::worker::Network;
use crate::runtime::{Runtime, RuntimeStatus};
use client::beat;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The period while the runtime and its network are ready.
const PERIOD_READY: Duration = Duration::from_secs(5);
/// The period while they are not.
const PERIOD_NOT_READY: Duration = Duration::from_millis(250);

/// Keeps both views of the runtime's status current until shut down.
pub(super) async fn run(
    runtime: Arc<dyn Runtime>,
    network: watch::Sender<Network>,
    status: watch::Sender<RuntimeStatus>,
    shutdown: CancellationToken,
) {
    loop {
        let asked = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            asked = runtime.status() => asked,
        };
        let current = asked.unwrap_or_else(|error| RuntimeStatus {
            runtime_message: format!("container runtime is down: {error}"),
            network_message: format!("container runtime is down: {error}"),
            // What it can do is not forgotten because it did not answer once: pods are judged by it for good.
            ..able(&status.borrow())
        });
        let ready = current.runtime_ready && current.network_ready;
        let seen = Network {
            ready: current.network_ready,
            message: current.network_message.clone(),
        };
        set_if_changed(&network, seen);
        set_if_changed(&status, current);
        let period = if ready { PERIOD_READY } else { PERIOD_NOT_READY };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = beat::wait(period) => {}
        }
    }
}

/// Of a status what does not change while the runtime is away; it is not ready.
fn able(before: &RuntimeStatus) -> RuntimeStatus {
    RuntimeStatus {
        handlers: before.handlers.clone(),
        features: before.features,
        ..RuntimeStatus::default()
    }
}

fn set_if_changed<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|current| {
        let changed = *current != value;
        *current = value;
        changed
    });
}
