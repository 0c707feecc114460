//! What the QoS cgroups are given, which follows from all pods together.

use super::Workers;
use crate::cgroup::Cgroups;
use crate::id::PodUid;
use crate::pod::status;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often they are brought to it though no pod came or went: others write there, too (kubelet contract §7).
const EVERY: Duration = Duration::from_secs(60);

/// When that is to be done next.
pub(super) struct Shares {
    /// Pods came or went since the last time.
    pub(super) outdated: bool,
    /// When it is done whether they did or not; never where there are no such cgroups.
    pub(super) next: Option<Instant>,
    /// The one task that does it.
    pub(super) task: JoinSet<()>,
}

impl Shares {
    pub(super) fn new(cgroups: &Cgroups) -> Self {
        Self {
            outdated: false,
            next: cgroups.are_made().then(|| Instant::now() + EVERY),
            task: JoinSet::new(),
        }
    }
}

impl Workers {
    /// Brings the QoS cgroups to what the pods here request together, once the last time is over. `complete` are the pods once every
    /// source has told its own.
    pub(super) fn refresh_shares(&mut self, pods: &BTreeMap<PodUid, Arc<Pod>>, complete: bool) {
        let shares = &mut self.shares;
        let now = Instant::now();
        let is_due = shares.next.is_some_and(|next| next <= now);
        shares.next = shares.next.map(|next| if is_due { now + EVERY } else { next });
        if !(shares.outdated || (is_due && complete)) || !shares.task.is_empty() {
            return;
        }
        shares.outdated = false;
        let is_over = |pod: &&Arc<Pod>| status::is_terminal(pod.status.as_ref());
        let active = pods.iter().filter(|(_, pod)| !is_over(pod));
        let active: Vec<Arc<Pod>> = active.map(|(uid, pod)| self.as_given(uid, pod)).collect();
        let parts = self.shared.parts.clone();
        self.shares.task.spawn(
            async move {
                match parts.cgroups.refresh_qos(active.iter().map(|pod| &**pod)).await {
                    Ok(kept) if parts.context.memory_qos.is_some() => parts.metrics.node.memory_kept(kept),
                    Ok(_) => {}
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "setting what the QoS cgroups are given failed");
                    }
                }
            }
            .boxed(),
        );
    }
}
