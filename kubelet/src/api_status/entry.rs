//! What the writer knows of one pod: what is to be told, what was, and when the next write may begin. Pure.

use super::{RETRY_FIRST, RETRY_MAX, Update, body};
use crate::id::PodUid;
use crate::pod::status::is_terminal;
use crate::pod_object;
use crate::reason;
use client::Backoff;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a status may wait for the next one, so that one write tells both: of a pod that has not run yet, and of one that
/// is being deleted, of which the next is probably the last. All others go at once.
pub(super) const HOLD_PENDING: Duration = Duration::from_millis(100);
pub(super) const HOLD_DELETING: Duration = Duration::from_secs(1);

/// A pod's entry.
pub(super) struct Entry {
    pub(super) update: Update,
    /// The object that is told: the pod itself, or a static pod's mirror once there is one.
    pub(super) target: Option<Arc<Pod>>,
    pub(super) acknowledged: Option<Acknowledged>,
    pub(super) deleted: bool,
    pub(super) writing: bool,
    /// Since when something is to be told that was not.
    pub(super) changed: Option<Instant>,
    /// Its place in the queue, and since when it has had one.
    pub(super) queued: Option<(u8, Instant)>,
    pub(super) backoff: Backoff,
    pub(super) not_before: Option<Instant>,
}

/// What an object was last told.
pub(super) struct Acknowledged {
    /// The object.
    pub(super) uid: PodUid,
    /// What, as [`body::digest`] has it.
    pub(super) status: [u8; 32],
    /// The revision it made.
    pub(super) revision: u64,
}

impl Entry {
    /// Nothing of it was sent yet.
    pub(super) fn new(update: Update, target: Option<Arc<Pod>>) -> Self {
        // Pods that failed together are not all tried again together.
        let seed = pod_object::uid(&update.pod)
            .as_str()
            .bytes()
            .fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        Self {
            update,
            target,
            acknowledged: None,
            deleted: false,
            writing: false,
            changed: Some(Instant::now()),
            queued: None,
            backoff: Backoff::new(RETRY_FIRST, RETRY_MAX, seed),
            not_before: None,
        }
    }

    /// Whether a write of it may begin.
    pub(super) fn may_go(&self, now: Instant) -> bool {
        !self.writing && self.goes_at().is_none_or(|at| at <= now)
    }

    /// When it may be sent, if not at any time.
    pub(super) fn goes_at(&self) -> Option<Instant> {
        let held = self.queued.zip(self.hold()).map(|((_, since), hold)| since + hold);
        self.not_before.max(held)
    }

    /// How long it waits for what follows it.
    fn hold(&self) -> Option<Duration> {
        let Update { pod, status, delete } = &self.update;
        if *delete || is_terminal(Some(status)) {
            None
        } else if pod.metadata.deletion_timestamp.is_some() {
            Some(HOLD_DELETING)
        } else {
            (status.phase.as_deref() == Some("Pending")).then_some(HOLD_PENDING)
        }
    }

    /// What is still to be sent: nothing if the API server has it.
    pub(super) fn pending_body(&self, target: &Pod) -> Option<serde_json::Value> {
        let body = body::patch(target, &self.told(target));
        let delivered = body::revision(target);
        if let Some(acknowledged) = &self.acknowledged
            && acknowledged.uid == pod_object::uid(target)
            && delivered <= acknowledged.revision
        {
            // Nothing newer than what was acknowledged has been delivered: that is what the server has, whatever form
            // it gave it. Comparing with the delivered form instead would send an unchanged status for ever.
            return (acknowledged.status != body::digest(&body)).then_some(body);
        }
        let current = target.status.clone().unwrap_or_default();
        let same = body::patch(target, &current) == body;
        (!same).then_some(body)
    }

    /// The status as the target is to have it. A static pod's own record of when it was accepted ends with its kubelet; its
    /// mirror remembers.
    fn told<'a>(&'a self, target: &Pod) -> Cow<'a, PodStatus> {
        let remembered = target.status.as_ref().and_then(|status| status.start_time.clone());
        match remembered {
            Some(start) if pod_object::is_static(&self.update.pod) => Cow::Owned(PodStatus {
                start_time: Some(start),
                ..(*self.update.status).clone()
            }),
            _ => Cow::Borrowed(&self.update.status),
        }
    }

    /// Smaller is more urgent: ends first, then ready ones, then the rest.
    pub(super) fn urgency(&self) -> u8 {
        let conditions = self.update.status.conditions.as_ref();
        if self.update.delete || is_terminal(Some(&self.update.status)) {
            0
        } else if proto::api::condition::is_true(conditions, reason::condition::READY) {
            1
        } else {
            2
        }
    }
}
