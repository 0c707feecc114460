//! The one writer of pod status to the API server.
//!
//! Workers publish; this sends. Per pod only the latest state counts, what the API server already has is not sent, pods that
//! became ready or ended go first, what is not news for anybody yet waits a moment for what follows it, so many writes run at
//! a time, failures are tried again after a growing wait. The final deletion of a pod's object follows here, after its
//! terminal phase was acknowledged. Never blocks a worker.
//!
//! The status of a static pod goes to its mirror pod, which has another UID: that translation happens here alone.

mod body;
mod entry;

use crate::autonomy::Kept;
use crate::id::{FullName, PodUid};
use crate::metrics::PodMetrics;
use crate::pod::status::is_terminal;
use crate::pod_object;
use crate::source::Pods;
use crate::wake;
use client::AsTree;
use entry::{Acknowledged, Entry};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Writes at a time.
const WRITES_MAX: usize = 16;
/// The deadline of one write.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// The first and the longest wait after a failure.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What a worker wants the API server to know.
#[derive(Clone, Debug)]
pub struct Update {
    /// The pod as last delivered.
    pub pod: Arc<Pod>,
    /// Its status.
    pub status: Arc<PodStatus>,
    /// Whether its object is to be deleted once this is acknowledged.
    pub delete: bool,
}

/// Takes statuses and sends them. Cheap to clone.
#[derive(Clone)]
pub struct StatusWriter {
    shared: Arc<Shared>,
    metrics: PodMetrics,
    /// What is kept of pods: nothing any more of one whose object is removed.
    kept: Option<Arc<Kept>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<PodUid, Entry>,
    /// Pods that may have something to send, most urgent first: only these are looked at.
    queue: BTreeSet<(u8, PodUid)>,
    /// The mirror pods the API server has.
    mirrors: Arc<BTreeMap<FullName, Arc<Pod>>>,
}

/// What one write is to do.
struct Job {
    /// The pod's UID, which is not its target's for a static pod.
    uid: PodUid,
    target: Arc<Pod>,
    delete: bool,
    body: Option<serde_json::Value>,
}

/// What came of it.
enum Written {
    /// The status is there, at that revision; deleted too, if that was to be.
    Yes {
        object: PodUid,
        body: Option<serde_json::Value>,
        revision: u64,
        deleted: bool,
    },
    /// The object is gone or is another one: nothing more to send.
    Gone,
    /// It failed.
    No,
}

impl StatusWriter {
    /// A writer with nothing to send, which counts what it sends.
    pub fn new(metrics: PodMetrics) -> Self {
        Self {
            shared: Arc::default(),
            metrics,
            kept: None,
        }
    }

    /// Has pods forgotten there before their objects are removed.
    pub fn with_kept(mut self, kept: Option<Arc<Kept>>) -> Self {
        self.kept = kept;
        self
    }

    /// Replaces what is to be sent for a pod.
    pub fn publish(&self, uid: &PodUid, update: Update) {
        let mut state = self.state();
        let target = target(&update.pod, &state.mirrors);
        match state.entries.get_mut(uid) {
            Some(entry) if entry.update.is_same(&update) => return,
            Some(entry) => {
                entry.update = update;
                entry.target = target;
                entry.changed.get_or_insert_with(Instant::now);
            }
            None => {
                state.entries.insert(uid.clone(), Entry::new(update, target));
            }
        }
        state.enqueue(uid);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Whether the API server is still to be told of a pod's end.
    pub fn owes_ends(&self) -> bool {
        let state = self.state();
        let owed = |entry: &Entry| entry.target.is_some() && (entry.queued.is_some() || entry.writing);
        let ended = |entry: &Entry| is_terminal(Some(&entry.update.status));
        state.entries.values().any(|entry| owed(entry) && ended(entry))
    }

    /// Forgets a pod whose object is gone.
    pub fn forget(&self, uid: &PodUid) {
        self.state().remove(uid);
    }

    /// Takes the mirror pods there are now.
    fn take_mirrors(&self, mirrors: Arc<BTreeMap<FullName, Arc<Pod>>>) {
        let mut state = self.state();
        if Arc::ptr_eq(&state.mirrors, &mirrors) {
            return;
        }
        let mut retold = Vec::new();
        for (uid, entry) in state.entries.iter_mut() {
            if pod_object::is_static(&entry.update.pod) {
                let target = target(&entry.update.pod, &mirrors);
                if target.as_ref().map(Arc::as_ptr) != entry.target.as_ref().map(Arc::as_ptr) {
                    retold.push(uid.clone());
                }
                entry.target = target;
            }
        }
        for uid in retold {
            state.enqueue(&uid);
        }
        state.mirrors = mirrors;
    }

    /// Sends until shut down; `pods` tells of mirror pods.
    pub async fn run(self, client: kube::Client, mut pods: watch::Receiver<Pods>, shutdown: CancellationToken) {
        let mut writes: JoinSet<Written> = JoinSet::new();
        let mut writing: BTreeMap<Id, PodUid> = BTreeMap::new();
        let places = Arc::new(Semaphore::new(WRITES_MAX));
        loop {
            self.take_mirrors(pods.borrow_and_update().mirrors.clone());
            let now = Instant::now();
            while let Ok(place) = places.clone().try_acquire_owned()
                && let Some(job) = self.next_job(now)
            {
                let uid = job.uid.clone();
                let written = write(self.clone(), client.clone(), job, place, places.clone());
                writing.insert(writes.spawn(written.boxed()).id(), uid);
            }
            let wake = self.next_retry(now);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(joined) = writes.join_next_with_id() => {
                    let (id, written) = joined.unwrap_or_else(|error| (error.id(), Written::No));
                    if let Some(uid) = writing.remove(&id) {
                        self.finish(&uid, written);
                    }
                }
                () = self.shared.changed.notified() => {}
                Ok(()) = pods.changed() => {}
                () = wake::at(wake) => {}
            }
        }
    }

    /// Takes the most urgent thing to write, if there is one.
    fn next_job(&self, now: Instant) -> Option<Job> {
        let mut state = self.state();
        loop {
            let state = &mut *state;
            let may_go = |uid: &PodUid| state.entries.get(uid).is_some_and(|entry| entry.may_go(now));
            let place = state.queue.iter().find(|(_, uid)| may_go(uid))?.clone();
            state.queue.remove(&place);
            let entry = state.entries.get_mut(&place.1)?;
            entry.queued = None;
            let Some(target) = entry.target.clone().filter(|_| !entry.deleted) else {
                continue;
            };
            let (delete, body) = (entry.update.delete, entry.pending_body(&target));
            if delete || body.is_some() {
                entry.writing = true;
                let uid = place.1;
                return Some(Job {
                    uid,
                    target,
                    delete,
                    body,
                });
            }
            entry.changed = None;
        }
    }

    fn next_retry(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        let queued = state.queue.iter().filter_map(|(_, uid)| state.entries.get(uid));
        let waiting = queued.filter(|entry| !entry.writing).filter_map(Entry::goes_at);
        waiting.filter(|at| *at > now).min()
    }

    fn finish(&self, uid: &PodUid, written: Written) {
        let mut state = self.state();
        let Some(entry) = state.entries.get_mut(uid) else {
            return;
        };
        entry.writing = false;
        match written {
            Written::Yes {
                object,
                body,
                revision,
                deleted,
            } => {
                if let Some(body) = body {
                    if let Some(changed) = entry.changed.take() {
                        self.metrics.status_written(changed.elapsed());
                    }
                    // What came meanwhile changed when it was put into the queue.
                    entry.changed = entry.queued.map(|(_, since)| since);
                    entry.acknowledged = Some(Acknowledged {
                        uid: object,
                        status: body::digest(&body),
                        revision,
                    });
                }
                entry.deleted |= deleted;
                entry.backoff.reset();
                entry.not_before = None;
            }
            // A mirror that is gone comes back as another object; the pod it showed goes on.
            Written::Gone if pod_object::is_static(&entry.update.pod) => entry.target = None,
            Written::Gone => state.remove(uid),
            Written::No => {
                entry.not_before = Some(Instant::now() + entry.backoff.fail());
                state.enqueue(uid);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Update {
    /// Whether it is the very same as another: workers publish with every turn.
    fn is_same(&self, other: &Self) -> bool {
        self.delete == other.delete && Arc::ptr_eq(&self.pod, &other.pod) && Arc::ptr_eq(&self.status, &other.status)
    }
}

impl State {
    /// Has a pod looked at again, with the urgency it has now.
    fn enqueue(&mut self, uid: &PodUid) {
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        let urgency = entry.urgency();
        let since = match entry.queued {
            Some((before, since)) => {
                self.queue.remove(&(before, uid.clone()));
                since
            }
            None => Instant::now(),
        };
        entry.queued = Some((urgency, since));
        self.queue.insert((urgency, uid.clone()));
    }

    fn remove(&mut self, uid: &PodUid) {
        if let Some((urgency, _)) = self.entries.remove(uid).and_then(|entry| entry.queued) {
            self.queue.remove(&(urgency, uid.clone()));
        }
    }
}

/// The object that is told of a pod: itself, or for a static pod the mirror that shows this very pod.
fn target(pod: &Arc<Pod>, mirrors: &BTreeMap<FullName, Arc<Pod>>) -> Option<Arc<Pod>> {
    if !pod_object::is_static(pod) {
        return Some(pod.clone());
    }
    let mirror = mirrors.get(&pod_object::full_name(pod))?;
    let shown = pod_object::mirror_hash(mirror) == pod.metadata.uid.as_deref();
    (shown && mirror.metadata.deletion_timestamp.is_none()).then(|| mirror.clone())
}

/// Writes at one of the `places`. Who waits for the disk has none meanwhile: one that hangs must not hold the status of other pods.
async fn write(
    writer: StatusWriter,
    client: kube::Client,
    job: Job,
    place: OwnedSemaphorePermit,
    places: Arc<Semaphore>,
) -> Written {
    let pod = &job.target;
    let api: Api<AsTree<Pod>> = Api::namespaced(client, pod_object::namespace(pod));
    let name = pod_object::name(pod);
    let mut revision = 0;
    if let Some(body) = &job.body {
        let (patch, params) = (Patch::Strategic(body), PatchParams::default());
        match tokio::time::timeout(WRITE_DEADLINE, api.patch_status(name, &params, &patch)).await {
            Ok(Ok(patched)) => revision = body::revision(&patched),
            Ok(Err(error)) => return refused(&job.uid, &error, "patching a pod's status failed"),
            Err(_) => return Written::No,
        }
    }
    let mut place = Some(place);
    if job.delete {
        // Once its object is gone nobody would say that it is not to come back.
        if let Some(kept) = &writer.kept {
            place = None;
            writer.shared.changed.notify_one();
            if let Err(error) = kept.forget(&job.uid).await {
                tracing::warn!(pod = %job.uid, %error, "a pod's object stays until nothing is kept of it");
                return Written::No;
            }
        }
        let _place = match place {
            Some(place) => place,
            None => match places.acquire_owned().await {
                Ok(place) => place,
                Err(_) => return Written::No,
            },
        };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(job.uid.to_string()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match tokio::time::timeout(WRITE_DEADLINE, api.delete(name, &params)).await {
            Ok(Ok(_)) => tracing::debug!(pod = %job.uid, name, "pod object deleted"),
            Ok(Err(error)) => return refused(&job.uid, &error, "deleting a pod's object failed"),
            Err(_) => return Written::No,
        }
    }
    Written::Yes {
        object: pod_object::uid(pod),
        body: job.body,
        revision,
        deleted: job.delete,
    }
}

fn refused(uid: &PodUid, error: &kube::Error, what: &'static str) -> Written {
    if let kube::Error::Api(status) = error {
        // Not found, or another UID, is the end of the object this is about; any other conflict is to be tried again.
        let other_uid = status.code == 409 && status.message.to_lowercase().contains("uid");
        if status.code == 404 || other_uid {
            tracing::debug!(pod = %uid, %error, "a pod's object is gone");
            return Written::Gone;
        }
    }
    tracing::warn!(pod = %uid, %error, what);
    Written::No
}

#[cfg(test)]
mod tests;
