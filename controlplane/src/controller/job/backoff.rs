//! How long a Job's next pods wait after failures: 10 s, doubled with each, at most 10 min. Pure.

use super::view::View;
use crate::controller::pod;
use crate::held::Pod;
use k8s_openapi::api::core::v1::ContainerStatus;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use proto::api::condition;
use std::collections::BTreeSet;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);
/// More failures than these make no pause longer.
const REMEMBERED: usize = 8;

/// The latest failures of a Job, and its latest success. What pods show is added again and again, so a controller that starts
/// anew knows it from the pods there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// By time, then UID.
    failures: BTreeSet<(Timestamp, String)>,
    success: Option<Timestamp>,
}

impl Record {
    /// Adds what the pods show.
    pub fn observe(&mut self, view: &View<'_>) {
        for pod in view.valid() {
            if pod::phase(pod) == "Succeeded" {
                self.success = self.success.max(Some(ended(pod)));
            } else if view.is_failed(pod) {
                // A pod that is being deleted has its end before it, then behind it: the first that is known counts.
                let uid = pod.uid().unwrap_or_default();
                if !self.failures.iter().any(|(_, known)| *known == uid) {
                    self.failures.insert((ended(pod), uid));
                }
                // At once: there may be very many pods, and each is looked for among those that are remembered.
                if self.failures.len() > REMEMBERED {
                    self.failures.pop_first();
                }
            }
        }
    }

    /// How long the next pod has to wait; zero if it need not.
    pub fn pause(&self, now: Timestamp) -> Duration {
        let since = |(at, _): &&(Timestamp, String)| self.success.is_none_or(|success| *at > success);
        let count = self.failures.iter().filter(since).count();
        let last = self.failures.last().map(|(at, _)| *at);
        last.map_or(Duration::ZERO, |last| left(count, last, now))
    }
}

/// What is left of the pause after so many failures, the last of them at `last`.
pub fn left(failures: usize, last: Timestamp, now: Timestamp) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else {
        return Duration::ZERO;
    };
    let pause = FIRST.saturating_mul(1 << doublings.min(REMEMBERED)).min(LONGEST);
    // Who says that it failed in the future waits no longer than from now.
    let passed = Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO);
    pause.saturating_sub(passed)
}

/// When a pod ended: when its last container did, or it stopped being ready, or was deleted, or, failing all, was made.
pub fn ended(pod: &Pod) -> Timestamp {
    containers_ended(pod)
        .or_else(|| {
            let conditions = pod.status.as_ref()?.conditions.as_ref();
            let ready = condition::find(conditions, "Ready").filter(|ready| ready.status == "False")?;
            Some(ready.last_transition_time.as_ref()?.0)
        })
        .or_else(|| {
            let deleted = pod.metadata.deletion_timestamp.as_ref()?.0;
            let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
            deleted.checked_sub(grace).ok()
        })
        .or_else(|| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The end of the last container, sidecars among them, if all have ended.
fn containers_ended(pod: &Pod) -> Option<Timestamp> {
    let init = pod
        .spec
        .iter()
        .filter_map(|spec| spec.init_containers.as_ref())
        .flatten();
    let sidecars: BTreeSet<&str> = init
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let status = pod.status.as_ref()?;
    let is_sidecar = |container: &&ContainerStatus| sidecars.contains(container.name.as_str());
    let beside = status.init_container_statuses.iter().flatten().filter(is_sidecar);
    let containers = status.container_statuses.iter().flatten().chain(beside);
    let end = |container: &ContainerStatus| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        Some(ended.finished_at.as_ref()?.0)
    };
    containers.map(end).collect::<Option<Vec<_>>>()?.into_iter().max()
}
