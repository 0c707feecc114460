//! The node's own addresses, which may change while the kubelet runs: a new lease of DHCP, a machine that moves.
//!
//! Owns nothing but the finding; who shows an address reads it when it is shown, or waits for a change.

use client::beat;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The node's addresses as they are now, primary first. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HostIps {
    current: watch::Receiver<Arc<Vec<IpAddr>>>,
}

impl HostIps {
    /// Addresses that never change, because they are configured.
    pub fn fixed(ips: Vec<IpAddr>) -> Self {
        Self {
            current: watch::channel(Arc::new(ips)).1,
        }
    }

    /// Addresses whoever has the other end changes.
    pub fn following(ips: Vec<IpAddr>) -> (watch::Sender<Arc<Vec<IpAddr>>>, Self) {
        let (sender, current) = watch::channel(Arc::new(ips));
        (sender, Self { current })
    }

    /// The addresses now.
    pub fn current(&self) -> Arc<Vec<IpAddr>> {
        self.current.borrow().clone()
    }

    /// The addresses now, as the API has them.
    pub fn texts(&self) -> Vec<String> {
        self.current.borrow().iter().map(ToString::to_string).collect()
    }

    /// Waits until they change; for ever if they never will.
    pub async fn changed(&mut self) {
        if self.current.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Looks for the address at that period until told to stop. Without a route the last address stays: the node is not to be
/// told to be elsewhere, or nowhere, because a link is down for a while.
pub async fn follow(
    sender: watch::Sender<Arc<Vec<IpAddr>>>,
    find: impl Fn() -> Option<IpAddr>,
    every: Duration,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = beat::wait(every) => {}
        }
        let Some(found) = find() else { continue };
        sender.send_if_modified(|ips| {
            let changed = **ips != [found];
            if changed {
                tracing::warn!(old = ?ips, new = %found, "the node's address changed");
                *ips = Arc::new(vec![found]);
            }
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn a_new_address_is_followed_and_a_missing_route_is_not() {
        let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
        let (sender, mut ips) = HostIps::following(vec![ip(1)]);
        let route = Arc::new(Mutex::new(Some(ip(1))));
        let (seen, stop) = (route.clone(), CancellationToken::new());
        let every = Duration::from_secs(10);
        let find = move || *seen.lock().expect("lock");
        let following = tokio::spawn(follow(sender, find, every, stop.clone()));
        let quiet = tokio::time::timeout(Duration::from_secs(100), ips.changed());
        assert!(quiet.await.is_err(), "nothing changed");
        *route.lock().expect("lock") = None;
        let quiet = tokio::time::timeout(Duration::from_secs(100), ips.changed());
        assert!(quiet.await.is_err(), "no route");
        *route.lock().expect("lock") = Some(ip(7));
        ips.changed().await;
        assert_eq!(ips.texts(), ["192.0.2.7"]);
        stop.cancel();
        following.await.expect("ended");
    }
}
