//! One look at one pod: two filtered lists, then the status of whatever changed since the last look.

use crate::id::PodUid;
use crate::runtime::observed::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox};
use crate::runtime::{Runtime, RuntimeError};
use futures::future::{join_all, try_join};

/// Observes the pod, reusing from `previous` what cannot have changed.
pub(super) async fn look(
    runtime: &dyn Runtime,
    uid: &PodUid,
    previous: Option<&ObservedPod>,
) -> Result<ObservedPod, RuntimeError> {
    let (sandboxes, containers) = try_join(
        runtime.list_pod_sandboxes(Some(uid)),
        runtime.list_containers(Some(uid)),
    )
    .await?;

    let sandbox_looks = sandboxes.iter().map(async |listed| {
        let known = previous.and_then(|p| p.sandboxes.iter().find(|s| s.id == listed.id));
        match known {
            Some(known) if known.ready == listed.ready && settled(known) => Ok(known.clone()),
            _ => runtime.pod_sandbox_status(&listed.id).await,
        }
    });
    let container_looks = containers.iter().map(async |listed| {
        let known = previous.and_then(|p| p.containers.iter().find(|c| c.id == listed.id));
        match known {
            Some(known) if known.state == listed.state && known.state != ContainerState::Unknown => Ok(known.clone()),
            _ => {
                let mut container = runtime.container_status(&listed.id).await?;
                container.sandbox = Some(listed.sandbox.clone());
                Ok(container)
            }
        }
    });
    let (sandboxes, containers) = futures::future::join(join_all(sandbox_looks), join_all(container_looks)).await;
    let mut observed = ObservedPod {
        uid: uid.clone(),
        sandboxes: present::<ObservedSandbox>(sandboxes)?,
        containers: present::<ObservedContainer>(containers)?,
    };
    observed.sort();
    Ok(observed)
}

/// Whether the sandbox's addresses are known, so that nothing of it changes but readiness.
fn settled(sandbox: &ObservedSandbox) -> bool {
    !sandbox.ready || sandbox.host_network || !sandbox.ips.is_empty()
}

/// What was removed between the list and its status is simply not there.
fn present<T>(results: Vec<Result<T, RuntimeError>>) -> Result<Vec<T>, RuntimeError> {
    results
        .into_iter()
        .filter(|result| !matches!(result, Err(error) if error.is_not_found()))
        .collect()
}
