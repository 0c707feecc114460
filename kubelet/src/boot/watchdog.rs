//! systemd: that this kubelet is ready, and that it still lives.

use crate::heartbeat::Heartbeat;
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

/// Pings at that period as long as the loop over pods lives: if it hangs, systemd is to start the kubelet anew.
pub(super) async fn keep(period: Duration, heartbeat: Heartbeat, stop: CancellationToken) {
    keep_with(period, heartbeat, stop, || notify(&[NotifyState::Watchdog])).await;
}

async fn keep_with(period: Duration, heartbeat: Heartbeat, stop: CancellationToken, ping: impl Fn()) {
    loop {
        match heartbeat.check() {
            Ok(()) => ping(),
            Err(error) => tracing::error!(%error, "systemd's watchdog gets no answer"),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn systemd_hears_of_the_kubelet_only_while_its_loop_lives() {
        let heartbeat = Heartbeat::new(Duration::from_secs(60));
        let (pings, stop) = (Arc::new(AtomicU32::new(0)), CancellationToken::new());
        let (count, of_the_loop) = (pings.clone(), heartbeat.clone());
        let ping = move || {
            count.fetch_add(1, Ordering::SeqCst);
        };
        let keeping = tokio::spawn(keep_with(Duration::from_secs(5), heartbeat, stop.clone(), ping));
        tokio::time::sleep(Duration::from_secs(301)).await;
        let alive = pings.load(Ordering::SeqCst);
        assert!((60..=62).contains(&alive), "{alive}");
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(pings.load(Ordering::SeqCst) <= alive + 1, "the loop stands still");
        of_the_loop.beat();
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(pings.load(Ordering::SeqCst) >= alive + 19);
        stop.cancel();
        keeping.await.expect("ended");
    }
}
