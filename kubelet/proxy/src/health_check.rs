//! `healthCheckNodePort`: a server for each Service that has one, telling load balancers how many endpoints this node has.
//!
//! Owns those servers: started and stopped by what the Services ask for. A port that cannot be had is told once, tried again, and
//! harms no other.

mod plan;

pub use plan::{Check, Wanted, answer, wanted};

use crate::healthz::Health;
use crate::http::{self, Handler};
use crate::model::{ServiceName, Snapshot};
use crate::told::{Tell, Told};
use client::ordered::CollectOrdered;
use plan::changes;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a port that could not be had is left alone.
const RETRY: Duration = Duration::from_secs(10);

/// Addresses a server listens on; none is every one.
pub type Addresses = Arc<dyn Fn() -> Vec<IpAddr> + Send + Sync>;

/// What the servers need to know.
pub struct Needs {
    /// This node's name.
    pub node: String,
    /// Where they listen (`nodePortAddresses`).
    pub addresses: Addresses,
    /// The proxy's health: without it no Service is healthy.
    pub health: Health,
    /// Where events go.
    pub tell: Tell,
}

/// A server that runs until it is dropped, or closed.
struct Running {
    port: u16,
    until_dropped: DropGuard,
    listening: Vec<JoinHandle<()>>,
}

impl Running {
    /// Ends it; its port is free then.
    async fn close(self) {
        drop(self.until_dropped);
        for listening in self.listening {
            // One that panicked has let go of its port too.
            let _ = listening.await;
        }
    }
}

/// Runs the servers that `snapshots` ask for, until `stop` or until nobody sends any more.
pub async fn run(mut snapshots: watch::Receiver<Arc<Snapshot>>, needs: Needs, stop: CancellationToken) {
    let known: watch::Sender<Arc<Wanted>> = watch::Sender::default();
    let mut running: BTreeMap<ServiceName, Running> = BTreeMap::new();
    let mut failed: BTreeMap<ServiceName, u16> = BTreeMap::new();
    let mut again = None;
    loop {
        let want = Arc::new(wanted(&snapshots.borrow_and_update()));
        known.send_replace(want.clone());
        let ports = running
            .iter()
            .map(|(name, server)| (name.clone(), server.port))
            .collect_ordered();
        let change = changes(&ports, &want);
        for name in change.close {
            if let Some(server) = running.remove(&name) {
                server.close().await;
            }
        }
        failed.retain(|name, port| want.get(name).is_some_and(|check| check.port == *port));
        for (name, port) in change.open {
            match open(&name, port, &needs, known.subscribe(), &stop).await {
                Ok(server) => {
                    failed.remove(&name);
                    running.insert(name, server);
                }
                Err(why) => {
                    if failed.insert(name.clone(), port) != Some(port) {
                        tell(&needs, &name, port, &why);
                    }
                }
            }
        }
        // A change of something else does not make it wait longer.
        let at = again
            .take()
            .filter(|at| *at > Instant::now())
            .unwrap_or_else(|| Instant::now() + RETRY);
        again = (!failed.is_empty()).then_some(at);
        let next = async {
            match again {
                Some(at) => tokio::time::timeout_at(at, snapshots.changed()).await.unwrap_or(Ok(())),
                None => snapshots.changed().await,
            }
        };
        if !matches!(stop.run_until_cancelled(next).await, Some(Ok(()))) {
            return;
        }
    }
}

fn tell(needs: &Needs, name: &ServiceName, port: u16, why: &str) {
    let note = format!(
        "node {} failed to start healthcheck \"{name}\" on port {port}: {why}",
        needs.node
    );
    tracing::warn!(service = %name, port, error = why, "Failed to start healthcheck");
    (needs.tell)(Told {
        kind: "Service",
        namespace: name.namespace.clone(),
        name: name.name.clone(),
        is_warning: true,
        reason: "FailedToStartServiceHealthcheck",
        action: "Listen",
        note,
    });
}

async fn open(
    name: &ServiceName,
    port: u16,
    needs: &Needs,
    known: watch::Receiver<Arc<Wanted>>,
    stop: &CancellationToken,
) -> Result<Running, String> {
    let listeners = listen(&(needs.addresses)(), port).await?;
    let (ends, health, name) = (stop.child_token(), needs.health.clone(), name.clone());
    let handler: Handler = Arc::new(move |_| {
        let local = known.borrow().get(&name).map_or(0, |check| check.local_endpoints);
        answer(&name, local, health.is_healthy(Instant::now()))
    });
    let begin = |listener| tokio::spawn(http::serve(listener, handler.clone(), ends.clone()));
    Ok(Running {
        port,
        listening: listeners.into_iter().map(begin).collect(),
        until_dropped: ends.drop_guard(),
    })
}

/// Listens on all of the addresses, or on none.
async fn listen(addresses: &[IpAddr], port: u16) -> Result<Vec<TcpListener>, String> {
    if addresses.is_empty() {
        let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        return match http::bind(every).await {
            Ok(listener) => Ok(vec![listener]),
            // A machine without IPv6. What fails for another reason fails here too, and is told in this one's words.
            Err(_) => Ok(vec![http::bind((Ipv4Addr::UNSPECIFIED, port).into()).await?]),
        };
    }
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        listeners.push(http::bind((*address, port).into()).await?);
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests;
