//! The one writer of pod status to the API server.
//!
//! Workers publish the latest state; this module writes it: only when it differs from what the server acknowledged, Ready
//! and terminal changes first, several pods at once, and again until it is taken. It also makes the final API delete, which
//! comes only after the terminal phase was acknowledged and the worker has released everything. Never computes a status.

mod patch;
mod queue;

use crate::id::PodUid;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use queue::{Job, Outcome, Queue, Work};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// Deadline of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Writes under way at once.
const CONCURRENCY_MAX: usize = 16;

/// Collects statuses and writes them. Cheap to clone.
#[derive(Clone)]
pub struct StatusWriter {
    shared: Arc<Shared>,
}

struct Shared {
    client: Option<kube::Client>,
    queue: Mutex<Queue>,
    wake: Notify,
}

impl StatusWriter {
    /// A writer to that API server; without one (standalone), publishing is acknowledged at once.
    pub fn new(client: Option<kube::Client>) -> Self {
        let shared = Shared {
            client,
            queue: Mutex::default(),
            wake: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The handle through which one pod's worker publishes. The pod is forgotten once the handle is dropped and its last
    /// status is written or its object is gone.
    pub fn handle(&self, uid: &PodUid, namespace: &str, name: &str) -> StatusHandle {
        let acknowledged = self.queue().register(uid, namespace, name);
        StatusHandle {
            writer: self.clone(),
            uid: uid.clone(),
            acknowledged,
        }
    }

    /// Writes for ever. Cancel safe: what was not written stays queued.
    pub async fn run(self) {
        let mut writes = JoinSet::new();
        loop {
            while writes.len() < CONCURRENCY_MAX {
                let Some(job) = self.queue().next(tokio::time::Instant::now()) else {
                    break;
                };
                let writer = self.clone();
                writes.spawn(async move {
                    let outcome = writer.carry_out(&job).await;
                    writer.queue().finish(&job, outcome, tokio::time::Instant::now());
                });
            }
            let again = self.queue().wake_at(tokio::time::Instant::now());
            tokio::select! {
                () = self.shared.wake.notified() => {}
                // A write that panicked never reported back; its pod is retried by the queue's own deadline.
                Some(_) = writes.join_next() => {}
                () = sleep_until(again) => {}
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn carry_out(&self, job: &Job) -> Outcome {
        let Some(client) = self.shared.client.clone() else {
            return Outcome::Done;
        };
        let api: Api<Pod> = Api::namespaced(client, &job.namespace);
        let call = async {
            match &job.work {
                Work::Status { status, previous } => {
                    let body = patch::status_patch(&job.uid, status, previous.as_deref());
                    api.patch_status(&job.name, &PatchParams::default(), &Patch::Strategic(body))
                        .await
                        .map(drop)
                }
                Work::Delete => {
                    let preconditions = Preconditions {
                        uid: Some(job.uid.to_string()),
                        resource_version: None,
                    };
                    let params = DeleteParams {
                        preconditions: Some(preconditions),
                        ..DeleteParams::default()
                    };
                    api.delete(&job.name, &params.grace_period(0)).await.map(drop)
                }
            }
        };
        match tokio::time::timeout(WRITE_TIMEOUT, call).await {
            Ok(Ok(())) => Outcome::Done,
            // 404, or a UID precondition that does not hold: this pod's object is gone.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Outcome::Gone,
            Ok(Err(kube::Error::Api(status))) if status.code == 409 && status.message.contains("UID") => Outcome::Gone,
            Ok(Err(error)) => {
                tracing::warn!(pod = job.name, namespace = job.namespace, %error, "failed to update status for pod");
                Outcome::Failed
            }
            Err(_) => {
                tracing::warn!(
                    pod = job.name,
                    namespace = job.namespace,
                    "failed to update status for pod: timed out"
                );
                Outcome::Failed
            }
        }
    }
}

async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// One worker's way to the API server.
pub struct StatusHandle {
    writer: StatusWriter,
    uid: PodUid,
    acknowledged: watch::Receiver<Acknowledged>,
}

/// What the API server is known to hold of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Acknowledged {
    /// Nothing of ours yet.
    #[default]
    Nothing,
    /// This status.
    Status(Arc<PodStatus>),
    /// The object is gone.
    Gone,
}

impl StatusHandle {
    /// Publishes the pod's latest status; an earlier one that was not written yet is superseded.
    pub fn publish(&self, status: PodStatus) {
        self.writer.queue().publish(&self.uid, status);
        self.writer.shared.wake.notify_one();
    }

    /// Asks for the API object's deletion (grace 0, UID precondition) once the last published status is acknowledged.
    pub fn delete(&self) {
        self.writer.queue().request_delete(&self.uid);
        self.writer.shared.wake.notify_one();
    }

    /// What the server is known to hold; changes wake the worker.
    pub fn acknowledged(&self) -> watch::Receiver<Acknowledged> {
        self.acknowledged.clone()
    }
}

impl Drop for StatusHandle {
    fn drop(&mut self) {
        self.writer.queue().release(&self.uid);
        self.writer.shared.wake.notify_one();
    }
}

#[cfg(test)]
mod tests;
