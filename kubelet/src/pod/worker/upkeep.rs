//! What goes on beside a pod's operations while it runs: its probes, and the content of its volumes.

use super::{Desired, Worker};
use crate::pod::plan::Plan;
use crate::pod::state::PodState;
use crate::pod_object;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use tokio::sync::watch;

impl Worker {
    /// Probes what is to be probed.
    pub(super) fn probe(&mut self, desired: &Desired, plan: &Plan) {
        let ending = self.state.termination().is_some();
        let over = self.state.has_ended();
        let containers = pod_object::containers(&desired.pod).filter(|_| !over);
        self.prober.run(
            &desired.pod,
            containers
                .filter(|(kind, _)| *kind != pod_object::Kind::Init)
                .map(|(_, container)| container)
                .filter(|container| !plan.starting.contains(&container.name)),
            ending,
        );
    }

    /// Keeps the content of the pod's volumes current while it runs.
    pub(super) fn refresh_volumes(&mut self, pod: &Arc<Pod>) {
        let wanted = matches!(self.state, PodState::Syncing) && self.memory.volumes_ready;
        match &self.refreshing {
            Some((of, _)) if wanted && same_content(&of.borrow(), pod) => {
                // What was delivered before is held by nobody.
                of.send_replace(pod.clone());
                return;
            }
            Some((_, task)) => task.abort(),
            None => {}
        }
        self.refreshing = wanted.then(|| {
            let (volumes, (newest, of)) = (self.shared.parts.volumes.clone(), watch::channel(pod.clone()));
            let task = tokio::spawn(async move { volumes.keep_current(of).await }.boxed()).abort_handle();
            (newest, task)
        });
    }
}

/// Whether two deliveries of a pod have the same labels, annotations and spec, so that volumes made from them agree.
fn same_content(a: &Arc<Pod>, b: &Arc<Pod>) -> bool {
    Arc::ptr_eq(a, b)
        || (a.metadata.labels == b.metadata.labels
            && a.metadata.annotations == b.metadata.annotations
            && a.spec == b.spec)
}
