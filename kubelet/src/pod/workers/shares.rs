//! The QoS cgroups' CPU shares, which follow from all pods together.

use super::Workers;
use crate::id::PodUid;
use crate::pod::status;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Workers {
    /// Brings the QoS cgroups' CPU shares to what the pods here request together, once the last time is over.
    pub(super) fn refresh_shares(&mut self, pods: &BTreeMap<PodUid, Arc<Pod>>) {
        if !self.shares_outdated || !self.sharing.is_empty() {
            return;
        }
        self.shares_outdated = false;
        let is_over = |pod: &&Arc<Pod>| status::is_terminal(pod.status.as_ref());
        let active = pods.iter().filter(|(_, pod)| !is_over(pod));
        let active: Vec<Arc<Pod>> = active.map(|(uid, pod)| self.as_given(uid, pod)).collect();
        let cgroups = self.shared.parts.cgroups.clone();
        self.sharing.spawn(async move {
            if let Err(error) = cgroups.refresh_qos(active.iter().map(|pod| &**pod)).await {
                tracing::warn!(%error, "setting the QoS cgroups' shares failed");
            }
        });
    }
}
