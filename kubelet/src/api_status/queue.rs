//! Which pod's status is written next. Pure but for the watch channels it answers on: time is passed in.

use super::Acknowledged;
use crate::id::PodUid;
use k8s_openapi::api::core::v1::PodStatus;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// First wait after a failed write, doubled up to the bound.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// A write that has not reported back by then is taken for lost (it panicked).
const LOST_AFTER: Duration = Duration::from_secs(60);

/// One thing to do.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Write this status; `previous` is what the server holds of ours.
    Status {
        status: Arc<PodStatus>,
        previous: Option<Arc<PodStatus>>,
    },
    /// Delete the object.
    Delete,
}

/// One pod's next write.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) uid: PodUid,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) work: Work,
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Gone,
    Failed,
}

struct Entry {
    namespace: String,
    name: String,
    wanted: Option<Arc<PodStatus>>,
    held: Option<Arc<PodStatus>>,
    gone: bool,
    delete: bool,
    deleted: bool,
    released: bool,
    /// Since when the present work waits: first come, first served.
    order: u64,
    busy_since: Option<Instant>,
    failures: u32,
    not_before: Option<Instant>,
    acknowledged: watch::Sender<Acknowledged>,
}

impl Entry {
    fn has_status(&self) -> bool {
        !self.gone && self.wanted.is_some() && self.wanted != self.held
    }

    fn has_delete(&self) -> bool {
        !self.gone && self.delete && !self.deleted && !self.has_status()
    }

    fn has_work(&self) -> bool {
        self.has_status() || self.has_delete()
    }

    fn is_over(&self) -> bool {
        self.released && self.busy_since.is_none() && !self.has_work()
    }

    /// Ready and terminal changes go first: they are what others wait for.
    fn is_urgent(&self) -> bool {
        let facts = |status: &PodStatus| {
            let ready = status
                .conditions
                .iter()
                .flatten()
                .find(|condition| condition.type_ == "Ready");
            let terminal = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
            (ready.map(|condition| condition.status.clone()), terminal)
        };
        self.delete || self.wanted.as_deref().map(facts) != self.held.as_deref().map(facts)
    }

    /// When the work can be handed out; `None` while a live write is under way.
    fn due(&self, now: Instant) -> Option<Instant> {
        match self.busy_since {
            Some(since) => Some(since + LOST_AFTER),
            None => Some(self.not_before.unwrap_or(now)),
        }
    }
}

/// The latest state of every pod.
#[derive(Default)]
pub(super) struct Queue {
    entries: BTreeMap<PodUid, Entry>,
    serial: u64,
}

impl Queue {
    pub(super) fn register(&mut self, uid: &PodUid, namespace: &str, name: &str) -> watch::Receiver<Acknowledged> {
        let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            wanted: None,
            held: None,
            gone: false,
            delete: false,
            deleted: false,
            released: false,
            order: 0,
            busy_since: None,
            failures: 0,
            not_before: None,
            acknowledged: watch::Sender::new(Acknowledged::Nothing),
        });
        entry.released = false;
        entry.acknowledged.subscribe()
    }

    pub(super) fn publish(&mut self, uid: &PodUid, status: PodStatus) {
        self.serial += 1;
        let serial = self.serial;
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if !entry.has_work() {
            entry.order = serial;
        }
        if entry.wanted.as_deref() != Some(&status) {
            entry.wanted = Some(Arc::new(status));
        }
    }

    pub(super) fn request_delete(&mut self, uid: &PodUid) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.delete = true;
        }
    }

    pub(super) fn release(&mut self, uid: &PodUid) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.released = true;
            if entry.is_over() {
                self.entries.remove(uid);
            }
        }
    }

    /// The most urgent work that is due, marked as under way.
    pub(super) fn next(&mut self, now: Instant) -> Option<Job> {
        let ready = |entry: &&mut Entry| entry.has_work() && entry.due(now).is_some_and(|due| due <= now);
        let entry_key = self
            .entries
            .iter_mut()
            .map(|(uid, entry)| (uid.clone(), entry))
            .filter(|(_, entry)| ready(entry))
            .min_by_key(|(_, entry)| (!entry.is_urgent(), entry.order))
            .map(|(uid, _)| uid)?;
        let entry = self.entries.get_mut(&entry_key)?;
        entry.busy_since = Some(now);
        let work = match &entry.wanted {
            Some(status) if entry.has_status() => Work::Status {
                status: status.clone(),
                previous: entry.held.clone(),
            },
            _ => Work::Delete,
        };
        Some(Job {
            uid: entry_key,
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            work,
        })
    }

    pub(super) fn finish(&mut self, job: &Job, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(&job.uid) else {
            return;
        };
        entry.busy_since = None;
        if outcome == Outcome::Failed {
            entry.failures = entry.failures.saturating_add(1);
            let wait = RETRY_FIRST
                .saturating_mul(1 << entry.failures.min(10).saturating_sub(1))
                .min(RETRY_MAX);
            entry.not_before = Some(now + wait);
            return;
        }
        entry.failures = 0;
        entry.not_before = None;
        match (&job.work, outcome) {
            (_, Outcome::Gone) => {
                entry.gone = true;
                entry.acknowledged.send_replace(Acknowledged::Gone);
            }
            (Work::Status { status, .. }, _) => {
                entry.held = Some(status.clone());
                entry.acknowledged.send_replace(Acknowledged::Status(status.clone()));
            }
            // The watch tells when the object is really gone: finalizers may hold it.
            (Work::Delete, _) => entry.deleted = true,
        }
        if entry.is_over() {
            self.entries.remove(&job.uid);
        }
    }

    /// When waiting work becomes due, if no wake-up comes first.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        self.entries
            .values()
            .filter(|entry| entry.has_work())
            .filter_map(|entry| entry.due(now))
            .min()
    }
}
