//! systemd: that this kubelet is ready, and that it still lives.

use sd_notify::NotifyState;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A shorter watchdog than this is no watchdog (kubelet contract §1).
const SHORTEST: Duration = Duration::from_secs(1);

/// Tells systemd, if it started this process, that the kubelet serves.
pub(super) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// How often systemd wants to hear, if it does.
pub(super) fn period() -> Option<Duration> {
    let wanted = sd_notify::watchdog_enabled()?;
    if wanted <= SHORTEST {
        tracing::warn!(
            ?wanted,
            "systemd's watchdog must be longer than a second, it gets no answer"
        );
        return None;
    }
    Some(wanted / 2)
}

/// Pings at that period. A ping comes from the same threads that run the pods: if they stand still, so does it.
pub(super) async fn keep(period: Duration, stop: CancellationToken) {
    loop {
        notify(&[NotifyState::Watchdog]);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(period) => {}
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd not notified");
    }
}
