//! UDP flows that go where they should not any more: found after each write of rules, and forgotten by the kernel.
//!
//! UDP has no end that the kernel could see: a client that goes on sending keeps its flow, and with it the endpoint the flow was
//! given, long after that is gone. Owns which flows are looked at; never touches one of another protocol or of something that is no
//! Service's. Nothing is held of the table but what one look finds stale, a few at a time.

mod plan;
pub mod switches;

pub use plan::{Frontend, Stale, stale_after};

use crate::metrics::Metrics;
use crate::model::Snapshot;
use crate::notice::Synced;
use netlink::address::Address;
use netlink::conntrack::delete_stale;
use netlink::socket::{Error, Protocol, Socket};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How long a look that failed waits.
const RETRY: Duration = Duration::from_secs(10);
/// How often all flows of Services are looked over, whether something changed or not, as upstream does.
const ALL_EVERY: Duration = Duration::from_secs(3600);

/// A look goes through all of the kernel's flows, and whose Services change decides how often there is one: between two there is so many
/// times of what one took, but no longer than what is stale may stay, or than it took: half a processor, and a fifth where flows are few.
const REST: u32 = 4;
const REST_MAX: Duration = Duration::from_secs(2);

/// Looks once; returns what that took. Blocks.
type Look = Arc<dyn Fn(&Stale) -> Result<Duration, Error> + Send + Sync>;

/// What is to be looked at next.
#[derive(Default)]
struct Waiting {
    stale: Stale,
    /// What the kernel serves now.
    snapshot: Arc<Snapshot>,
}

/// What changed since the last look. Clones are the same.
#[derive(Clone, Default)]
pub struct Flows {
    waiting: Arc<Mutex<Waiting>>,
    wake: Arc<Notify>,
}

impl Flows {
    /// Other rules are in the kernel.
    pub fn synced(&self, synced: &Synced) {
        let stale = stale_after(synced.previous.as_deref(), &synced.snapshot);
        let wakes = !stale.is_empty();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.stale.extend(stale);
            waiting.snapshot = synced.snapshot.clone();
        }
        if wakes {
            self.wake.notify_one();
        }
    }

    fn take(&self) -> Stale {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut waiting.stale)
    }

    /// What a failed look was for; what came meanwhile is newer.
    fn give_back(&self, mut older: Stale) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        older.extend(std::mem::take(&mut waiting.stale));
        waiting.stale = older;
    }

    fn take_all(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.stale = stale_after(None, &waiting.snapshot);
    }

    /// Looks whenever something changed, and now and then at everything, until `stop`. The flows are those of the network namespace
    /// that blocking work runs in: the process's.
    pub async fn run(self, metrics: Metrics, stop: CancellationToken) {
        let look: Look = Arc::new(move |stale| {
            let begun = Instant::now();
            sweep(stale, &metrics).map(|()| begun.elapsed())
        });
        self.look(look, stop).await;
    }

    async fn look(self, look: Look, stop: CancellationToken) {
        let mut all_at = Instant::now() + ALL_EVERY;
        while !stop.is_cancelled() {
            let woken = timeout(all_at.saturating_duration_since(Instant::now()), self.wake.notified());
            let Some(woken) = stop.run_until_cancelled(woken).await else {
                return;
            };
            if woken.is_err() {
                all_at = Instant::now() + ALL_EVERY;
                self.take_all();
            }
            let stale = Arc::new(self.take());
            let (of, look) = (stale.clone(), look.clone());
            let looked = client::blocking::spawn(move || look(&of)).await;
            let looked = match looked {
                Ok(looked) => looked.map_err(|error| error.to_string()),
                Err(broken) => Err(broken.to_string()),
            };
            let pause = match &looked {
                Ok(took) => took.saturating_mul(REST).min(REST_MAX.max(*took)),
                Err(error) => {
                    tracing::warn!(error, "stale UDP flows of Services not deleted, trying again");
                    self.give_back(Arc::unwrap_or_clone(stale));
                    RETRY
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
            if looked.is_err() {
                self.wake.notify_one();
            }
        }
    }
}

/// Looks at the flows of both families, in the calling thread's network namespace, and deletes those that are stale.
///
/// # Errors
/// The kernel does not list addresses or flows, or refuses to delete one.
pub fn sweep(stale: &Stale, metrics: &Metrics) -> Result<(), Error> {
    if stale.is_empty() {
        return Ok(());
    }
    let addresses = match stale.has_node_ports() {
        true => Socket::open(Protocol::Route)?.all_addresses()?,
        false => Vec::new(),
    };
    let local: Vec<IpAddr> = addresses.iter().map(|of: &Address| of.cidr.addr).collect();
    for (v4, family) in [(true, "IPv4"), (false, "IPv6")] {
        let (begun, mut deleted) = (Instant::now(), 0);
        let filters = stale.filters(v4);
        for filter in &filters {
            deleted += delete_stale(filter, &|flow| stale.is_stale(flow, &local))?;
        }
        if !filters.is_empty() {
            metrics.swept(family, begun.elapsed(), deleted);
            tracing::debug!(family, deleted, "UDP flows of Services looked over");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
