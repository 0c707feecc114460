//! Brings running containers to the CPUs they are to run on: those that share CPUs whenever others got or gave back some
//! (`cpuManagerReconcilePeriod`), and all once after a start.

use super::cpu_set::CpuSet;
use crate::id::{ContainerId, PodUid};
use crate::parts::Parts;
use crate::pod::view::PodSnapshot;
use crate::pod_object;
use crate::runtime::observed::ContainerState;
use client::beat;
use client::ordered::CollectOrdered;
use proto::cri::LinuxContainerResources;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs until shut down.
pub async fn run(parts: Arc<Parts>, shutdown: CancellationToken) {
    parts.pinning.count(&parts.metrics.pinning);
    let Some(every) = parts.pinning.every() else { return };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = beat::wait(every) => {}
        }
        turn(&parts).await;
    }
}

async fn turn(parts: &Parts) {
    let pods = parts.pods.list();
    let has_ended = |uid: &str| parts.pods.by_uid(&PodUid::from(uid)).is_some_and(|pod| pod.ended);
    parts.pinning.retain(|uid| !has_ended(uid), &parts.metrics.pinning);
    if let Err(error) = parts.pinning.kept().await {
        tracing::error!(%error, "who has which CPUs is not kept");
    }
    for (uid, name, id) in running(&pods) {
        if let Some(cpus) = parts.pinning.news_for(&uid, &name, &id) {
            bring(parts, &uid, &name, &id, cpus).await;
        }
    }
    let there = pods.iter().flat_map(|pod| &pod.observed.containers);
    let there: BTreeSet<ContainerId> = there.map(|container| container.id.clone()).collect_ordered();
    parts.pinning.forget_others(&there);
}

async fn bring(parts: &Parts, uid: &PodUid, container: &str, id: &ContainerId, cpus: CpuSet) {
    if cpus.is_empty() {
        tracing::error!(pod = %uid, container, "there is no CPU for a container to run on");
        return;
    }
    let resources = LinuxContainerResources {
        cpuset_cpus: cpus.to_string(),
        ..Default::default()
    };
    match parts.runtime.update_container_resources(id, resources).await {
        Ok(()) => parts.pinning.note(id, Some(cpus)),
        Err(error) => tracing::warn!(pod = %uid, container, %error, "bringing a container to its CPUs failed"),
    }
}

/// The running containers of pods that have not ended.
fn running(pods: &[Arc<PodSnapshot>]) -> Vec<(PodUid, String, ContainerId)> {
    let mut all = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.ended) {
        for (_, container) in pod_object::containers(&pod.pod) {
            let newest = pod.observed.newest(&container.name);
            if let Some(newest) = newest.filter(|newest| newest.state == ContainerState::Running) {
                all.push((pod_object::uid(&pod.pod), container.name.clone(), newest.id.clone()));
            }
        }
    }
    all
}
