//! The run loop: follows Services and EndpointSlices, and keeps the kernel's rules as they say. Owns the connection to
//! nf_tables and the memory of what was written; decides nothing itself.

use std::time::Duration;

use client::backoff::Backoff;
use client::beat;
use client::informer::{Change, Informer, Subscription};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::apply::Kernel;
use crate::notice::{Changed, Notice, Observer, Synced};
use crate::settings::Settings;

mod budget;
mod remembered;
mod worker;

use worker::Worker;

/// How often the tables are looked at, whether they are still as written.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// The first and the longest wait after a write that failed (contract cni.md §7.1: 30 s).
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// What the loop follows.
#[derive(Clone)]
pub struct Sources {
    /// Services of all namespaces.
    pub services: Informer<Service>,
    /// EndpointSlices of all namespaces.
    pub slices: Informer<EndpointSlice>,
}

/// The loop cannot start, or broke.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no way to the kernel's rules.
    #[error(
        "the Service proxy needs nf_tables (kernel 5.13 or newer) and the right to change the network (CAP_NET_ADMIN)"
    )]
    Kernel(#[source] netlink::nft::Error),
    /// A write panicked; what the kernel has is not known.
    #[error("writing the rules of the Service proxy broke off")]
    Broken(#[source] tokio::task::JoinError),
}

/// Keeps the rules of the calling thread's network namespace as `sources` and `settings` say, until `stop`. Nothing is written
/// before both sources are complete. The rules stay when it ends: see [`crate::apply::remove`].
///
/// # Errors
/// The kernel has no nf_tables, or a write panicked. A write the kernel refuses is told to `observers` and tried again.
pub async fn run(
    sources: Sources,
    settings: watch::Receiver<Settings>,
    observers: Vec<Observer>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let kernel = Kernel::open().map_err(Error::Kernel)?;
    let complete = async {
        sources.services.synced().await;
        sources.slices.synced().await;
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = complete => {}
    }
    let mut feeds = Feeds {
        services: sources.services.subscribe(),
        slices: sources.slices.subscribe(),
    };
    let now = Instant::now();
    let mut turn = Turn {
        worker: Some(Worker::new(kernel, sources)),
        settings,
        observers,
        backoff: Backoff::new(RETRY_FIRST, RETRY_LAST, u64::from(std::process::id())),
        queued_at: None,
        due: Some(now),
        not_before: now,
    };
    // Which slices a Service has is known from the feed alone: a first write without them would leave every Service without
    // endpoints until the second.
    turn.note_services(&feeds.services.take());
    turn.note_slices(&feeds.slices.take());
    turn.follow(feeds, stop).await
}

struct Feeds {
    services: Subscription<Service>,
    slices: Subscription<EndpointSlice>,
}

/// What woke the loop.
enum Woken {
    Stop,
    Changes,
    Settings,
    Due,
    Check,
}

/// The loop's state between two writes.
struct Turn {
    /// Away while it writes.
    worker: Option<Worker>,
    settings: watch::Receiver<Settings>,
    observers: Vec<Observer>,
    backoff: Backoff,
    /// When the oldest change not written became known.
    queued_at: Option<Instant>,
    /// When to write, if there is anything to.
    due: Option<Instant>,
    /// The end of the pause after the last write.
    not_before: Instant,
}

impl Turn {
    async fn follow(mut self, mut feeds: Feeds, stop: CancellationToken) -> Result<(), Error> {
        let mut check = Instant::now();
        let mut settled = true;
        loop {
            let due = self.due;
            let woken = tokio::select! {
                biased;
                () = stop.cancelled() => Woken::Stop,
                // Before the feeds: whoever changes objects without a pause must not keep what is due from being written.
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Woken::Due,
                changes = feeds.services.next() => {
                    self.note_services(&changes);
                    Woken::Changes
                }
                changes = feeds.slices.next() => {
                    self.note_slices(&changes);
                    Woken::Changes
                }
                changed = self.settings.changed(), if settled => {
                    // Whoever decides settings may go: the last ones stay.
                    settled = changed.is_ok();
                    Woken::Settings
                }
                () = sleep_until(check) => Woken::Check,
            };
            match woken {
                Woken::Stop => return Ok(()),
                Woken::Changes => self.queue(),
                Woken::Settings if settled => {
                    self.with_worker(Worker::start_anew);
                    self.queue();
                }
                Woken::Settings => {}
                Woken::Due => self.write().await?,
                Woken::Check => {
                    self.check().await?;
                    check = beat::after(CHECK_EVERY);
                }
            }
        }
    }

    fn note_services(&mut self, changes: &[Change<Service>]) {
        self.with_worker(|worker| worker.note_services(changes));
        self.tell(&Notice::Changed(Changed::services(changes)));
    }

    fn note_slices(&mut self, changes: &[Change<EndpointSlice>]) {
        self.with_worker(|worker| worker.note_slices(changes));
        self.tell(&Notice::Changed(Changed::slices(changes)));
    }

    fn with_worker(&mut self, work: impl FnOnce(&mut Worker)) {
        if let Some(worker) = &mut self.worker {
            work(worker);
        }
    }

    fn tell(&self, notice: &Notice) {
        self.observers.iter().for_each(|observer| observer(notice));
    }

    /// Something is to be written: at once, or when the pause is over.
    fn queue(&mut self) {
        let now = Instant::now();
        if self.queued_at.is_none() {
            self.queued_at = Some(now);
            self.tell(&Notice::Queued(now));
        }
        self.due.get_or_insert(self.not_before.max(now));
    }

    async fn on_worker<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let Some(mut worker) = self.worker.take() else {
            return Ok(None);
        };
        let done = tokio::task::spawn_blocking(move || {
            let outcome = work(&mut worker);
            (worker, outcome)
        });
        let (worker, outcome) = done.await.map_err(Error::Broken)?;
        self.worker = Some(worker);
        Ok(Some(outcome))
    }

    async fn write(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        let settings = self.settings.borrow_and_update().clone();
        let pause = settings.min_sync_period;
        let Some(outcome) = self.on_worker(move |worker| worker.write(settings)).await? else {
            return Ok(());
        };
        let now = Instant::now();
        self.not_before = now + pause;
        match outcome {
            Ok(written) => {
                self.due = None;
                self.backoff.reset();
                let synced = Synced {
                    snapshot: written.snapshot,
                    previous: written.previous,
                    full: written.full,
                    queued_at: self.queued_at.take(),
                    duration: now - begun,
                };
                self.tell(&Notice::Synced(synced));
                for (service, beyond) in written.crowded {
                    tracing::warn!(%service, beyond, "a Service has more endpoints than are used");
                    self.tell(&Notice::Crowded(service, beyond));
                }
                for service in written.without {
                    tracing::warn!(%service, "a Service is not served at its addresses from outside: its namespace has too many");
                    self.tell(&Notice::Without(service, budget::ELEMENTS_MAX));
                }
                for service in written.unfollowed {
                    tracing::warn!(%service, "this node's kernel does not follow SCTP connections");
                    self.tell(&Notice::Unfollowed(service));
                }
            }
            Err(error) => {
                self.due = Some(now + self.backoff.fail());
                let text = chain(&error);
                tracing::warn!(error = text, "rules of Services not written, trying again");
                self.tell(&Notice::Failed(text));
            }
        }
        Ok(())
    }

    /// Somebody may have flushed the rule set; others may have filled the table of connections.
    async fn check(&mut self) -> Result<(), Error> {
        if self.due.is_some() {
            return Ok(());
        }
        let look = |worker: &mut Worker| (worker.is_intact(), worker.fills(), worker.forgets());
        let looked = self.on_worker(look).await?;
        let (intact, full, forgets) = looked.unwrap_or((true, None, Vec::new()));
        for (v4, clients) in forgets {
            tracing::warn!(
                v4,
                clients,
                "hardly any room for more clients of Services with session affinity"
            );
            self.tell(&Notice::Forgets { v4, clients });
        }
        if let Some(connections) = full {
            tracing::warn!(connections, "the kernel has no room for more connections");
            self.tell(&Notice::Full(connections));
        }
        if !intact {
            tracing::warn!("rules of Services were changed by another program, writing them anew");
            self.queue();
        }
        Ok(())
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
