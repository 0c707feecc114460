//! The one writer of pod status to the API server.
//!
//! Workers publish; this sends. Per pod only the latest state counts, what the API server already has is not sent, pods that
//! became ready or ended go first, so many writes run at a time, failures are tried again after a growing wait. The final
//! deletion of a pod's object follows here, after its terminal phase was acknowledged. Never blocks a worker.

mod body;

use crate::id::PodUid;
use crate::pod::shape;
use crate::pod::status::is_terminal;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
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
#[derive(Clone, Default)]
pub struct StatusWriter {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    entries: Mutex<BTreeMap<PodUid, Entry>>,
    changed: Notify,
}

struct Entry {
    update: Update,
    /// The body last acknowledged, and the revision it made.
    acknowledged: Option<(serde_json::Value, u64)>,
    deleted: bool,
    writing: bool,
    failures: u32,
    not_before: Option<Instant>,
}

/// What one write is to do.
struct Job {
    uid: PodUid,
    update: Update,
    body: Option<serde_json::Value>,
}

/// What came of it.
enum Written {
    /// The status is there, at that revision; deleted too, if that was to be.
    Yes {
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
    /// Replaces what is to be sent for a pod.
    pub fn publish(&self, uid: &PodUid, update: Update) {
        let mut entries = self.entries();
        match entries.get_mut(uid) {
            Some(entry) => entry.update = update,
            None => {
                let entry = Entry {
                    update,
                    acknowledged: None,
                    deleted: false,
                    writing: false,
                    failures: 0,
                    not_before: None,
                };
                entries.insert(uid.clone(), entry);
            }
        }
        drop(entries);
        self.shared.changed.notify_one();
    }

    /// Forgets a pod whose object is gone.
    pub fn forget(&self, uid: &PodUid) {
        self.entries().remove(uid);
    }

    /// Sends until shut down.
    pub async fn run(self, client: kube::Client, shutdown: CancellationToken) {
        let mut writes: JoinSet<Written> = JoinSet::new();
        let mut writing: BTreeMap<Id, PodUid> = BTreeMap::new();
        loop {
            let now = Instant::now();
            while writes.len() < WRITES_MAX
                && let Some(job) = self.next_job(now)
            {
                let client = client.clone();
                let uid = job.uid.clone();
                writing.insert(writes.spawn(write(client, job)).id(), uid);
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
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Takes the most urgent thing to write, if there is one.
    fn next_job(&self, now: Instant) -> Option<Job> {
        let mut entries = self.entries();
        let ready = entries
            .iter()
            .filter(|(_, entry)| entry.is_due(now))
            .map(|(uid, entry)| (entry.urgency(), uid));
        let (_, uid) = ready.min()?;
        let uid = uid.clone();
        let entry = entries.get_mut(&uid)?;
        entry.writing = true;
        let body = entry.pending_body();
        Some(Job {
            uid,
            update: entry.update.clone(),
            body,
        })
    }

    fn next_retry(&self, now: Instant) -> Option<Instant> {
        let entries = self.entries();
        let waiting = entries.values().filter(|entry| !entry.writing && entry.has_work());
        waiting
            .filter_map(|entry| entry.not_before)
            .filter(|at| *at > now)
            .min()
    }

    fn finish(&self, uid: &PodUid, written: Written) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(uid) else { return };
        entry.writing = false;
        match written {
            Written::Yes {
                body,
                revision,
                deleted,
            } => {
                if let Some(body) = body {
                    entry.acknowledged = Some((body, revision));
                }
                entry.deleted |= deleted;
                entry.failures = 0;
                entry.not_before = None;
            }
            Written::Gone => {
                entries.remove(uid);
            }
            Written::No => {
                entry.failures += 1;
                let wait = RETRY_FIRST.saturating_mul(1 << entry.failures.min(10)).min(RETRY_MAX);
                entry.not_before = Some(Instant::now() + wait);
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<PodUid, Entry>> {
        self.shared.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_due(&self, now: Instant) -> bool {
        !self.writing && self.not_before.is_none_or(|at| at <= now) && self.has_work()
    }

    fn has_work(&self) -> bool {
        !self.deleted && (self.update.delete || self.pending_body().is_some())
    }

    /// What is still to be sent: nothing if the API server has it.
    fn pending_body(&self) -> Option<serde_json::Value> {
        let body = body::patch(&self.update.pod, &self.update.status);
        let delivered = body::revision(&self.update.pod);
        if let Some((acknowledged, revision)) = &self.acknowledged
            && delivered <= *revision
        {
            // Nothing newer than what was acknowledged has been delivered: that is what the server has, whatever form
            // it gave it. Comparing with the delivered form instead would send an unchanged status for ever.
            return (body::without_uid(acknowledged) != body::without_uid(&body)).then_some(body);
        }
        let current = self.update.pod.status.clone().unwrap_or_default();
        let same = body::patch(&self.update.pod, &current) == body;
        (!same).then_some(body)
    }

    /// Smaller is more urgent: ends first, then ready ones, then the rest.
    fn urgency(&self) -> u8 {
        let conditions = self.update.status.conditions.as_ref();
        if self.update.delete || is_terminal(Some(&self.update.status)) {
            0
        } else if proto::api::condition::is_true(conditions, "Ready") {
            1
        } else {
            2
        }
    }
}

async fn write(client: kube::Client, job: Job) -> Written {
    let pod = &job.update.pod;
    let api: Api<Pod> = Api::namespaced(client, shape::namespace(pod));
    let name = shape::name(pod);
    let mut revision = 0;
    if let Some(body) = &job.body {
        let (patch, params) = (Patch::Strategic(body), PatchParams::default());
        match tokio::time::timeout(WRITE_DEADLINE, api.patch_status(name, &params, &patch)).await {
            Ok(Ok(patched)) => revision = body::revision(&patched),
            Ok(Err(error)) => return refused(&job.uid, &error, "patching a pod's status failed"),
            Err(_) => return Written::No,
        }
    }
    if job.update.delete {
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
        body: job.body,
        revision,
        deleted: job.update.delete,
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

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
