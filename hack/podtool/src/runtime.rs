//! A runtime's socket: connecting with deadlines, ending every container, and removing every pod.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::stream::{self, StreamExt};
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::{
    ContainerFilter, ContainerState, ContainerStateValue, ListContainersRequest, ListPodSandboxRequest,
    RemovePodSandboxRequest, StopContainerRequest, StopPodSandboxRequest,
};
use tonic::transport::{Channel, Endpoint};

/// How long one call may take before the runtime counts as hung.
const CALL_DEADLINE: Duration = Duration::from_secs(60);
/// Pods removed at once.
const PARALLEL: usize = 8;
/// Where the kubelet writes how long a pod's containers have to end, seconds.
const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// How long a container has if nobody says so, and at most: what systemd gives to a process as the machine goes down.
const GRACE_DEFAULT: u64 = 30;
const GRACE_MAX: u64 = 90;

/// A client of the runtime at `socket`; every call has a deadline.
///
/// # Errors
/// If nothing listens there.
pub(crate) async fn connect(socket: &Path) -> anyhow::Result<RuntimeServiceClient<Channel>> {
    connect_for(socket, CALL_DEADLINE).await
}

async fn connect_for(socket: &Path, deadline: Duration) -> anyhow::Result<RuntimeServiceClient<Channel>> {
    let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?
        .timeout(deadline)
        .connect_timeout(Duration::from_secs(5))
        .connect()
        .await
        .with_context(|| format!("connecting to the runtime at {}", socket.display()))?;
    Ok(RuntimeServiceClient::new(channel))
}

/// Ends every running container, all at once, each within its pod's grace, and returns how many there were.
///
/// # Errors
/// If some do not end.
pub(crate) async fn stop_all(socket: &Path) -> anyhow::Result<usize> {
    // A call lasts as long as its container has to end.
    let mut client = connect_for(socket, CALL_DEADLINE + Duration::from_secs(GRACE_MAX)).await?;
    let running = ContainerFilter {
        state: Some(ContainerStateValue {
            state: ContainerState::ContainerRunning.into(),
        }),
        ..ContainerFilter::default()
    };
    let request = ListContainersRequest { filter: Some(running) };
    let containers = client.list_containers(request).await?.into_inner().containers;
    let count = containers.len();
    let stops = containers.into_iter().map(|container| {
        let request = StopContainerRequest {
            timeout: i64::try_from(grace_seconds(container.annotations.get(GRACE).map(String::as_str)))
                .unwrap_or(i64::MAX),
            container_id: container.id,
        };
        let mut client = client.clone();
        async move {
            client
                .stop_container(request)
                .await
                .map_err(|status| status.message().to_owned())
        }
    });
    let stopped = futures::future::join_all(stops).await;
    let failed: Vec<String> = stopped.into_iter().filter_map(Result::err).collect();
    ensure!(
        failed.is_empty(),
        "{} of {count} containers did not end: {}",
        failed.len(),
        failed.join("; ")
    );
    Ok(count)
}

/// How long a container has to end.
fn grace_seconds(written: Option<&str>) -> u64 {
    let seconds = written.and_then(|text| text.parse().ok());
    seconds.unwrap_or(GRACE_DEFAULT).min(GRACE_MAX)
}

/// Stops and removes every pod sandbox, with its containers, and returns how many there were. One that fails keeps no
/// other from being removed.
///
/// # Errors
/// If pods are left.
pub(crate) async fn remove_all(socket: &Path) -> anyhow::Result<usize> {
    let mut client = connect(socket).await?;
    let sandboxes = client
        .list_pod_sandbox(ListPodSandboxRequest { filter: None })
        .await?
        .into_inner()
        .items;
    let count = sandboxes.len();
    stream::iter(sandboxes)
        .for_each_concurrent(PARALLEL, |sandbox| {
            let mut client = client.clone();
            async move {
                let id = sandbox.id;
                let stopped = client
                    .stop_pod_sandbox(StopPodSandboxRequest {
                        pod_sandbox_id: id.clone(),
                    })
                    .await;
                if let Err(status) = stopped {
                    eprintln!("stopping pod sandbox {id}: {}", status.message());
                }
                let removed = client
                    .remove_pod_sandbox(RemovePodSandboxRequest {
                        pod_sandbox_id: id.clone(),
                    })
                    .await;
                if let Err(status) = removed {
                    eprintln!("removing pod sandbox {id}: {}", status.message());
                }
            }
        })
        .await;
    let left = client
        .list_pod_sandbox(ListPodSandboxRequest { filter: None })
        .await?
        .into_inner()
        .items
        .len();
    ensure!(left == 0, "{left} of {count} pods are left in the runtime");
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_its_pods_grace_but_no_longer_than_the_machine_waits() {
        for (written, seconds) in [
            (None, GRACE_DEFAULT),
            (Some("soon"), GRACE_DEFAULT),
            (Some("-1"), GRACE_DEFAULT),
            (Some("0"), 0),
            (Some("5"), 5),
            (Some("86400"), GRACE_MAX),
        ] {
            assert_eq!(grace_seconds(written), seconds, "{written:?}");
        }
    }
}
