//! A runtime's socket: connecting with deadlines, and removing every pod.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::stream::{self, StreamExt};
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::{ListPodSandboxRequest, RemovePodSandboxRequest, StopPodSandboxRequest};
use tonic::transport::{Channel, Endpoint};

/// How long one call may take before the runtime counts as hung.
const CALL_DEADLINE: Duration = Duration::from_secs(60);
/// Pods removed at once.
const PARALLEL: usize = 8;

/// A client of the runtime at `socket`; every call has a deadline.
///
/// # Errors
/// If nothing listens there.
pub(crate) async fn connect(socket: &Path) -> anyhow::Result<RuntimeServiceClient<Channel>> {
    let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?
        .timeout(CALL_DEADLINE)
        .connect_timeout(Duration::from_secs(5))
        .connect()
        .await
        .with_context(|| format!("connecting to the runtime at {}", socket.display()))?;
    Ok(RuntimeServiceClient::new(channel))
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
