//! The read side of the store: per resource a copy-on-write ordered map, its recent history, and watches on it.
//!
//! Fed by one watch on the store; owns everything that is read. Reads take a snapshot and never touch the disk, a watch holds
//! a position in the shared history and copies nothing. Never writes to the store except to compact what it has outlived.

mod cursor;
mod difference;
mod encoded;
mod expected;
mod follow;
mod history;
mod interest;
mod past;
mod sample;
mod selectable;
mod stored;
mod sweep;

pub use cursor::{Batch, Cursor};
pub use encoded::{ENCODED_BYTES, EncodedForms};
pub use expected::{Expected, Misfit};
pub use history::{Event, WatchClosed};
pub use interest::{Interest, ReadFields};
pub use selectable::Selectable;
pub use stored::Stored;

use super::{Revision, Store, StoreError};
use futures::FutureExt;
use futures::stream::{Stream, StreamExt};
use history::History;
use imbl::OrdMap;
use past::UnclaimedPast;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What the past of all resources together may hold on to, in bytes: enough for five minutes of 500 writes a second of objects
/// of a kilobyte, with what an event and an old object cost beside their bytes. A resource has no limit of its own; when all
/// together have too much, the one with the largest past forgets first.
pub const HISTORY_BYTES: usize = 256 << 20;

/// How long a linearizable read waits for the store and for what it tells: as long as a request to etcd does, and a little.
pub const LATEST_WITHIN: Duration = Duration::from_secs(25);

/// Why a revision cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// Older than what is kept.
    #[error("too old resource version: {wanted} ({oldest})")]
    Gone {
        /// The revision asked for.
        wanted: Revision,
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// Newer than what has been seen.
    #[error("too large resource version: {wanted}, current: {current}")]
    Future {
        /// The revision asked for.
        wanted: Revision,
        /// The newest revision.
        current: Revision,
    },
}

/// A resource at one revision. Cheap to clone.
#[derive(Clone)]
pub struct Snapshot {
    /// The revision the snapshot is of.
    pub revision: Revision,
    /// The objects by full key.
    pub objects: OrdMap<Arc<str>, Arc<Stored>>,
}

/// What all resources of a window share.
struct Shared {
    /// The newest applied revision.
    applied: watch::Sender<Revision>,
    /// Snapshots older than this are refused.
    oldest: watch::Sender<Revision>,
    silence: Silence,
    resources: RwLock<Resources>,
    /// What the past of all resources may hold on to, and what it holds on to.
    history_bytes: usize,
    held_bytes: Arc<AtomicUsize>,
}

/// Since when the store has not answered, if so: what is shown then may not be what it holds. All clones are one.
#[derive(Clone, Default)]
struct Silence(Arc<Mutex<Option<Instant>>>);

impl Silence {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It does not answer; whether that is new.
    fn begins(&self) -> bool {
        let mut since = self.since();
        let is_new = since.is_none();
        since.get_or_insert_with(Instant::now);
        is_new
    }

    /// It answers; whether that is new.
    fn ends(&self) -> bool {
        self.since().take().is_some()
    }
}

#[derive(Default)]
struct Resources {
    by_prefix: BTreeMap<String, Arc<ResourceWindow>>,
    /// Objects under no known prefix yet.
    unclaimed: OrdMap<Arc<str>, Arc<Stored>>,
    /// What led to them.
    past: UnclaimedPast,
}

impl Resources {
    fn owner(&self, key: &str) -> Option<&Arc<ResourceWindow>> {
        // Prefixes end in `/` and never contain one another, so only the next smaller one can match.
        let (prefix, resource) = self
            .by_prefix
            .range::<str, _>((Bound::Unbounded, Bound::Included(key)))
            .next_back()?;
        key.starts_with(prefix.as_str()).then_some(resource)
    }
}

/// The window over a whole store; cheap to clone. The feeding task ends when the last clone and the store are gone.
#[derive(Clone)]
pub struct Window {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    task: Arc<AbortOnDrop>,
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Window {
    /// Reads the whole store once and follows it from there on.
    ///
    /// # Errors
    /// Whatever the store answers to the first range and watch.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        Self::open_with(store, HISTORY_BYTES).await
    }

    /// As [`Window::open`], with another bound than [`HISTORY_BYTES`].
    ///
    /// # Errors
    /// As [`Window::open`].
    pub async fn open_with(store: Arc<dyn Store>, history_bytes: usize) -> Result<Self, StoreError> {
        let remembered = store.remembered().await;
        let (revision, records) = store.range("").await?;
        let past = UnclaimedPast::of(remembered, revision, &records);
        let changes = store.follow(revision).await?;
        let unclaimed = records
            .into_iter()
            .map(|record| (Arc::clone(&record.key), Arc::new(Stored::from(record))))
            .collect();
        let shared = Arc::new(Shared {
            applied: watch::Sender::new(revision),
            oldest: watch::Sender::new(past.base().unwrap_or(revision)),
            silence: Silence::default(),
            resources: RwLock::new(Resources {
                by_prefix: BTreeMap::new(),
                unclaimed,
                past,
            }),
            history_bytes,
            held_bytes: Arc::default(),
        });
        let following = follow::follow(Arc::clone(&store), Arc::clone(&shared), changes, revision);
        let followed = Arc::clone(&store);
        let task = tokio::spawn(async move {
            // What it shares with readers is as it was left, and is not written to any more.
            if AssertUnwindSafe(following).catch_unwind().await.is_err() {
                let why = "what feeds readers from the store has panicked; nobody would see a write any more";
                followed.fail(&StoreError::Unusable(why.to_owned()));
            }
        });
        Ok(Self {
            store,
            shared,
            task: Arc::new(AbortOnDrop(task)),
        })
    }

    /// The window of everything under `prefix`, which ends in `/` (such as `/registry/pods/`), whatever it is.
    pub fn resource(&self, prefix: &str) -> Arc<ResourceWindow> {
        self.resource_of(prefix, None)
    }

    /// As [`Window::resource`]; whoever asks first says what belongs there, and shows nothing else.
    pub fn resource_of(&self, prefix: &str, expected: Option<Expected>) -> Arc<ResourceWindow> {
        let found = {
            let resources = self.shared.resources.read().unwrap_or_else(PoisonError::into_inner);
            resources.by_prefix.get(prefix).map(Arc::clone)
        };
        found.unwrap_or_else(|| self.claim(prefix, expected))
    }

    fn claim(&self, prefix: &str, expected: Option<Expected>) -> Arc<ResourceWindow> {
        debug_assert!(prefix.ends_with('/'), "a resource prefix ends in a slash");
        let mut resources = self.shared.resources.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = resources.by_prefix.get(prefix) {
            return Arc::clone(found);
        }
        let objects: OrdMap<Arc<str>, Arc<Stored>> = resources
            .unclaimed
            .range::<_, str>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, stored)| (Arc::clone(key), Arc::clone(stored)))
            .collect();
        for key in objects.keys() {
            resources.unclaimed.remove(key);
        }
        // The write lock holds the feeding task back, so `applied` is exactly what `objects` shows.
        let revision = *self.shared.applied.borrow();
        let history = resources.past.claim(prefix, objects, revision, expected);
        self.shared.held_bytes.fetch_add(history.bytes(), Ordering::Relaxed);
        let resource = Arc::new(ResourceWindow {
            store: Arc::clone(&self.store),
            applied: self.shared.applied.subscribe(),
            oldest: self.shared.oldest.subscribe(),
            silence: self.shared.silence.clone(),
            history: Mutex::new(history),
            held_bytes: Arc::clone(&self.shared.held_bytes),
            changed: watch::Sender::new(0),
        });
        resources.by_prefix.insert(prefix.to_owned(), Arc::clone(&resource));
        resource
    }

    /// Ends the window of `prefix`: its watches are closed. Objects that are still there show again when the prefix comes back.
    pub fn release(&self, prefix: &str) {
        let mut resources = self.shared.resources.write().unwrap_or_else(PoisonError::into_inner);
        let Some(released) = resources.by_prefix.remove(prefix) else {
            return;
        };
        let objects = released.history().contents();
        resources.unclaimed.extend(objects);
        // What has been claimed once has no past here any more.
        resources.past.forget();
        // The write lock holds the feeding task back, so `applied` is exactly what the objects show.
        let revision = *self.shared.applied.borrow();
        released.change(|history| history.replace(OrdMap::new(), revision));
        released.wake();
    }

    /// The store behind the window.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What the past of all resources holds on to now, in bytes as [`HISTORY_BYTES`] counts them.
    pub fn history_bytes(&self) -> usize {
        self.shared.held_bytes.load(Ordering::Relaxed)
    }

    /// Whether writes can be taken, and what has been written is shown: for health checks, which give it some time.
    ///
    /// # Errors
    /// `Closed` if the store is, or the feeding task has ended; whatever the store answers.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.store.check()?;
        let revision = self.store.current_revision().await?;
        let mut applied = self.shared.applied.subscribe();
        let reached = applied.wait_for(|applied| *applied >= revision).await;
        let lives = reached.is_ok() && !self.task.0.is_finished();
        lives.then_some(()).ok_or(StoreError::Closed)
    }

    /// The newest revision the window has reached.
    pub fn revision(&self) -> Revision {
        *self.shared.applied.borrow()
    }
}

/// One resource: what it is now, what it was, and what changes.
pub struct ResourceWindow {
    store: Arc<dyn Store>,
    applied: watch::Receiver<Revision>,
    oldest: watch::Receiver<Revision>,
    silence: Silence,
    history: Mutex<History>,
    /// What the past of all resources holds on to.
    held_bytes: Arc<AtomicUsize>,
    /// Moves with every batch of changes to this resource, for readers of all of them.
    changed: watch::Sender<u64>,
}

impl ResourceWindow {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is kept, which is counted among what all resources keep.
    fn change<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        let mut history = self.history();
        let before = history.bytes();
        let result = change(&mut history);
        // Under the lock: nobody takes away what has not been added.
        self.held_bytes.fetch_add(history.bytes(), Ordering::Relaxed);
        self.held_bytes.fetch_sub(before, Ordering::Relaxed);
        result
    }

    /// Tells those who read events that there are some, or that they have missed some.
    fn wake(&self) {
        let woken = self.history().take_woken();
        for changed in woken.iter().chain([&self.changed]) {
            changed.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// The newest state seen, without asking the store.
    pub fn cached(&self) -> Snapshot {
        // Read before the lock: a revision that is applied is in the map, and what the map knows beyond it counts too.
        let applied = *self.applied.borrow();
        let history = self.history();
        Snapshot {
            revision: applied.max(history.newest()),
            objects: history.objects(),
        }
    }

    /// What a key holds that does not belong there, if it does.
    pub fn misfit_at(&self, key: &str) -> Option<Misfit> {
        self.history().misfit_at(key)
    }

    /// The same, and the stored bytes: for who removes them.
    pub fn misfit_held(&self, key: &str) -> Option<(Misfit, Arc<Stored>)> {
        self.history().misfit_held(key)
    }

    /// The first such thing under a prefix.
    pub fn misfit_under(&self, prefix: &str) -> Option<Misfit> {
        self.history().misfit_under(prefix)
    }

    /// Moves with every change, for whoever reads the newest state anew; it lasts as long as the window is held.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The revision of the resource's last change seen (or of the window's start).
    pub fn last_change(&self) -> Revision {
        self.history().newest()
    }

    /// The state no older than any write that was acknowledged before the call (linearizable).
    ///
    /// # Errors
    /// If the store cannot tell its revision, or is closed; `Unavailable` if it stands still for [`LATEST_WITHIN`].
    pub async fn latest(&self) -> Result<Snapshot, StoreError> {
        let reaching = async {
            let revision = self.store.current_revision().await?;
            self.reach(revision).await
        };
        let reached = tokio::time::timeout(LATEST_WITHIN, reaching).await;
        let reached = reached.unwrap_or_else(|_| {
            let revision = *self.applied.borrow();
            let still = format!("the store stands still: nothing newer than revision {revision} can be read");
            if self.silence.begins() {
                // Once, however many wait for it.
                tracing::error!(still);
            }
            Err(StoreError::Unavailable(still))
        });
        match &reached {
            Ok(()) if self.silence.ends() => tracing::info!("the store answers again"),
            Err(StoreError::Unavailable(_)) => drop(self.silence.begins()),
            _ => {}
        }
        reached.map(|()| self.cached())
    }

    /// For how long the store has not answered, as far as anybody has asked: what is shown may have changed since. `None` while it does.
    pub fn silence(&self) -> Option<Duration> {
        let since = *self.silence.since();
        since.map(|since| since.elapsed())
    }

    /// Waits until the window has reached `revision`.
    ///
    /// # Errors
    /// `Closed` when the store ends first.
    pub async fn reach(&self, revision: Revision) -> Result<(), StoreError> {
        let mut applied = self.applied.clone();
        let reached = applied.wait_for(|applied| *applied >= revision).await;
        reached.map(|_| ()).map_err(|_| StoreError::Closed)
    }

    /// The state at exactly `revision`.
    ///
    /// # Errors
    /// `Gone` if it is no longer kept, `Future` if it has not been reached.
    pub fn at(&self, revision: Revision) -> Result<Snapshot, RevisionError> {
        let current = self.cached();
        if revision > current.revision {
            return Err(RevisionError::Future {
                wanted: revision,
                current: current.revision,
            });
        }
        let oldest = *self.oldest.borrow();
        if revision < oldest {
            return Err(RevisionError::Gone {
                wanted: revision,
                oldest,
            });
        }
        let past = self.history().past(revision)?;
        // Not under the lock: some thousand events may be undone.
        let objects = past.rebuild();
        Ok(Snapshot { revision, objects })
    }

    /// A position after revision `after`, from which every change of this resource is read once and in order.
    ///
    /// # Errors
    /// `Gone` if changes after `after` are no longer kept, `Future` if it has not been reached.
    pub fn cursor(self: &Arc<Self>, after: Revision) -> Result<Cursor, RevisionError> {
        Cursor::after(self, after, None)
    }

    /// As [`ResourceWindow::cursor`], of the changes that may matter to an interest; others cost nothing.
    ///
    /// # Errors
    /// As [`ResourceWindow::cursor`].
    pub fn cursor_of(self: &Arc<Self>, after: Revision, interest: Option<Interest>) -> Result<Cursor, RevisionError> {
        Cursor::after(self, after, interest)
    }

    /// As [`ResourceWindow::cursor`], as a stream. It ends when its reader falls behind what is kept, or the store is closed.
    ///
    /// # Errors
    /// As [`ResourceWindow::cursor`].
    pub fn watch(
        self: &Arc<Self>,
        after: Revision,
    ) -> Result<impl Stream<Item = Arc<Event>> + Send + use<>, RevisionError> {
        let batches = futures::stream::unfold(self.cursor(after)?, |mut cursor| async move {
            let batch = cursor.next().await.ok()?;
            Some((futures::stream::iter(batch.events), cursor))
        });
        Ok(batches.flatten())
    }
}

#[cfg(test)]
mod tests;
