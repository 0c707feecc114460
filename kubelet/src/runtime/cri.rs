//! The CRI v1 client over a unix socket.
//!
//! Owns the connection and the deadline of every call (kubelet contract §6). Never retries: whoever calls decides.

mod convert;
mod devices;
mod driver;
mod stats;
mod subscribe;
mod termination;

use super::observed::{ContainerState, ContainerSummary, ObservedContainer, ObservedSandbox, SandboxSummary};
use super::{
    ContainerUsage, ExecOutput, ImageInfo, Runtime, RuntimeError, RuntimeEvent, RuntimeSettings, RuntimeStatus,
    RuntimeVersion,
};
use crate::host::FileWork;
use crate::id::{ContainerId, PodUid, SandboxId};
use crate::rpc::dial;
use crate::rpc::{Client, Failure};
use async_trait::async_trait;
use futures::TryFutureExt;
use futures::stream::BoxStream;
use prost::Message;
use proto::cri as pb;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The largest message either side may send, bytes.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why the runtime's endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Only unix sockets are served.
    #[error("container runtime endpoint {endpoint:?} is not a unix socket (unix:///path)")]
    NotUnix {
        /// What was configured.
        endpoint: String,
    },
}

/// A CRI v1 runtime and its image service behind unix sockets.
#[derive(Clone, Debug)]
pub struct CriRuntime {
    channel: Channel,
    runtime: Service,
    images: Service,
    timeout: Duration,
    /// What containers leave behind in files, by container.
    files: FileWork,
}

impl CriRuntime {
    /// A client of the runtime at `endpoint` (`unix:///path`, or a bare path) and of the image service at
    /// `image_endpoint`, the same unless configured. Connects on the first call and again whenever the connection broke;
    /// must be made inside a tokio runtime.
    pub fn new(endpoint: &str, image_endpoint: Option<&str>, timeout: Duration) -> Result<Self, EndpointError> {
        let channel = channel(endpoint)?;
        let image_channel = match image_endpoint {
            Some(other) if !other.is_empty() && other != endpoint => self::channel(other)?,
            _ => channel.clone(),
        };
        Ok(Self {
            runtime: Service::new(channel.clone(), "runtime.v1.RuntimeService"),
            images: Service::new(image_channel, "runtime.v1.ImageService"),
            channel,
            timeout,
            files: FileWork::new(termination::DEADLINE),
        })
    }
}

fn channel(endpoint: &str) -> Result<Channel, EndpointError> {
    let path = socket_path(endpoint)?;
    Ok(dial::lazily(dial::endpoint(), move || {
        UnixStream::connect(path.clone())
    }))
}

fn socket_path(endpoint: &str) -> Result<PathBuf, EndpointError> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if Path::new(path).is_absolute() {
        Ok(PathBuf::from(path))
    } else {
        Err(EndpointError::NotUnix {
            endpoint: endpoint.to_owned(),
        })
    }
}

/// One of the runtime's services.
#[derive(Clone, Debug)]
struct Service(Client);

impl Service {
    fn new(channel: Channel, name: &'static str) -> Self {
        Self(Client::new(channel, name, MESSAGE_BYTES_MAX).sending_at_most(MESSAGE_BYTES_MAX))
    }

    /// Runs one call to its end or its deadline; the future's end cancels it in the runtime too.
    fn ask<A: Message + Default, Q: Message>(
        &self,
        call: &'static str,
        deadline: Duration,
        request: Q,
    ) -> impl Future<Output = Result<A, RuntimeError>> + Send + use<A, Q> {
        let answer = self.0.call(call, request, Some(deadline));
        answer.map_err(move |failure| from_failure(call, failure))
    }
}

fn from_failure(call: &'static str, failure: Failure) -> RuntimeError {
    match failure {
        Failure::Status(status) => from_status(call, &status),
        Failure::Deadline => RuntimeError::deadline(call),
    }
}

fn from_status(call: &'static str, status: &Status) -> RuntimeError {
    match convert::too_large(status) {
        Some(message) => RuntimeError::new(call, Code::ResourceExhausted, message),
        None => RuntimeError::new(call, status.code(), status.message()),
    }
}

/// Turns "it is not there" into success, for calls that make something go away.
fn gone_is_done(result: Result<(), RuntimeError>) -> Result<(), RuntimeError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

fn image_spec(image: &str) -> Option<pb::ImageSpec> {
    Some(pb::ImageSpec {
        image: image.to_owned(),
        ..Default::default()
    })
}

fn missing(call: &'static str, what: &str) -> RuntimeError {
    RuntimeError::new(call, Code::Internal, format!("the runtime's reply has no {what}"))
}

#[async_trait]
impl Runtime for CriRuntime {
    async fn version(&self) -> Result<RuntimeVersion, RuntimeError> {
        let request = pb::VersionRequest {
            version: "0.1.0".into(),
        };
        let reply: pb::VersionResponse = self.runtime.ask("Version", self.timeout, request).await?;
        Ok(RuntimeVersion {
            name: reply.runtime_name,
            version: reply.runtime_version,
        })
    }

    async fn status(&self) -> Result<RuntimeStatus, RuntimeError> {
        let request = pb::StatusRequest { verbose: false };
        let reply: pb::StatusResponse = self.runtime.ask("Status", self.timeout, request).await?;
        Ok(convert::runtime_status(reply))
    }

    async fn leaves_out_devices(&self) -> Result<Option<String>, RuntimeError> {
        self.without_devices().await
    }

    async fn run_pod_sandbox(&self, config: pb::PodSandboxConfig, handler: &str) -> Result<SandboxId, RuntimeError> {
        let request = pb::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: handler.to_owned(),
        };
        let reply: pb::RunPodSandboxResponse = self.runtime.ask("RunPodSandbox", self.timeout * 2, request).await?;
        Ok(reply.pod_sandbox_id.into())
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let request = pb::StopPodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        gone_is_done(self.runtime.ask("StopPodSandbox", self.timeout, request).await)
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let request = pb::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        gone_is_done(self.runtime.ask("RemovePodSandbox", self.timeout, request).await)
    }

    async fn pod_sandbox_status(&self, id: &SandboxId) -> Result<ObservedSandbox, RuntimeError> {
        let request = pb::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_string(),
            verbose: false,
        };
        let reply: pb::PodSandboxStatusResponse = self.runtime.ask("PodSandboxStatus", self.timeout, request).await?;
        let status = reply.status.ok_or_else(|| missing("PodSandboxStatus", "status"))?;
        Ok(convert::sandbox(status))
    }

    async fn list_pod_sandboxes(&self, pod: Option<&PodUid>) -> Result<Vec<SandboxSummary>, RuntimeError> {
        let filter = pb::PodSandboxFilter {
            label_selector: convert::pod_selector(pod),
            ..Default::default()
        };
        let request = pb::ListPodSandboxRequest { filter: Some(filter) };
        let reply: pb::ListPodSandboxResponse = self.runtime.ask("ListPodSandbox", self.timeout, request).await?;
        Ok(reply.items.into_iter().filter_map(convert::sandbox_summary).collect())
    }

    async fn list_sandbox_ids(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        let request = pb::ListPodSandboxRequest::default();
        let reply: pb::ListPodSandboxResponse = self.runtime.ask("ListPodSandbox", self.timeout, request).await?;
        Ok(reply.items.into_iter().map(|sandbox| sandbox.id.into()).collect())
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: pb::ContainerConfig,
        sandbox_config: &pb::PodSandboxConfig,
    ) -> Result<ContainerId, RuntimeError> {
        let request = pb::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_string(),
            config: Some(config),
            sandbox_config: Some(sandbox_config.clone()),
        };
        let reply: pb::CreateContainerResponse = self.runtime.ask("CreateContainer", self.timeout, request).await?;
        Ok(reply.container_id.into())
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let request = pb::StartContainerRequest {
            container_id: id.to_string(),
        };
        self.runtime.ask("StartContainer", self.timeout, request).await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = pb::StopContainerRequest {
            container_id: id.to_string(),
            timeout,
        };
        let deadline = self.timeout.saturating_add(grace);
        gone_is_done(self.runtime.ask("StopContainer", deadline, request).await)
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: pb::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        let request = pb::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: Some(resources),
            ..Default::default()
        };
        self.runtime
            .ask("UpdateContainerResources", self.timeout, request)
            .await
    }

    async fn update_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: pb::LinuxContainerResources,
        resources: pb::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        let request = pb::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.to_string(),
            overhead: Some(overhead),
            resources: Some(resources),
        };
        self.runtime
            .ask("UpdatePodSandboxResources", self.timeout, request)
            .await
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let request = pb::RemoveContainerRequest {
            container_id: id.to_string(),
        };
        gone_is_done(self.runtime.ask("RemoveContainer", self.timeout, request).await)
    }

    async fn list_containers(&self, pod: Option<&PodUid>) -> Result<Vec<ContainerSummary>, RuntimeError> {
        let filter = pb::ContainerFilter {
            label_selector: convert::pod_selector(pod),
            ..Default::default()
        };
        let request = pb::ListContainersRequest { filter: Some(filter) };
        let reply: pb::ListContainersResponse = self.runtime.ask("ListContainers", self.timeout, request).await?;
        Ok(reply
            .containers
            .into_iter()
            .filter_map(convert::container_summary)
            .collect())
    }

    async fn container_status(&self, id: &ContainerId) -> Result<ObservedContainer, RuntimeError> {
        let request = pb::ContainerStatusRequest {
            container_id: id.to_string(),
            verbose: false,
        };
        let reply: pb::ContainerStatusResponse = self.runtime.ask("ContainerStatus", self.timeout, request).await?;
        let status = reply.status.ok_or_else(|| missing("ContainerStatus", "status"))?;
        let mut container = convert::container(status);
        if container.state == ContainerState::Exited {
            termination::read_message(&self.files, &mut container).await;
        }
        Ok(container)
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput, RuntimeError> {
        let request = pb::ExecSyncRequest {
            container_id: id.to_string(),
            cmd: command.to_vec(),
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        let asked = if timeout.is_zero() {
            super::EXEC_SYNC_MAX
        } else {
            timeout
        };
        let deadline = asked.saturating_add(self.timeout);
        let reply: pb::ExecSyncResponse = self.runtime.ask("ExecSync", deadline, request).await?;
        Ok(ExecOutput {
            stdout: reply.stdout,
            stderr: reply.stderr,
            exit_code: reply.exit_code,
        })
    }

    async fn exec(&self, request: pb::ExecRequest) -> Result<String, RuntimeError> {
        let reply: pb::ExecResponse = self.runtime.ask("Exec", self.timeout, request).await?;
        Ok(reply.url)
    }

    async fn attach(&self, request: pb::AttachRequest) -> Result<String, RuntimeError> {
        let reply: pb::AttachResponse = self.runtime.ask("Attach", self.timeout, request).await?;
        Ok(reply.url)
    }

    async fn port_forward(&self, request: pb::PortForwardRequest) -> Result<String, RuntimeError> {
        let reply: pb::PortForwardResponse = self.runtime.ask("PortForward", self.timeout, request).await?;
        Ok(reply.url)
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<pb::AuthConfig>,
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<String, RuntimeError> {
        let request = pb::PullImageRequest {
            image: image_spec(image),
            auth,
            sandbox_config: sandbox,
        };
        // However long that takes: whoever has an image pulled has a deadline for it.
        let reply = self.images.0.call("PullImage", request, None).await;
        let reply: pb::PullImageResponse = reply.map_err(|failure| from_failure("PullImage", failure))?;
        Ok(reply.image_ref)
    }

    async fn image_status(&self, image: &str) -> Result<Option<ImageInfo>, RuntimeError> {
        let request = pb::ImageStatusRequest {
            image: image_spec(image),
            verbose: false,
        };
        match self.images.ask("ImageStatus", self.timeout, request).await {
            Ok(pb::ImageStatusResponse { image, .. }) => Ok(image.map(convert::image)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list_container_stats(&self) -> Result<Vec<ContainerUsage>, RuntimeError> {
        let request = pb::ListContainerStatsRequest { filter: None };
        let reply: pb::ListContainerStatsResponse =
            self.runtime.ask("ListContainerStats", self.timeout, request).await?;
        Ok(reply.stats.into_iter().map(stats::usage).collect())
    }

    async fn list_images(&self) -> Result<Vec<ImageInfo>, RuntimeError> {
        let request = pb::ListImagesRequest { filter: None };
        let reply: pb::ListImagesResponse = self.images.ask("ListImages", self.timeout, request).await?;
        Ok(reply.images.into_iter().map(convert::image).collect())
    }

    async fn remove_image(&self, image: &str) -> Result<(), RuntimeError> {
        let request = pb::RemoveImageRequest {
            image: image_spec(image),
        };
        gone_is_done(self.images.ask("RemoveImage", self.timeout, request).await)
    }

    async fn image_fs_info(&self) -> Result<pb::ImageFsInfoResponse, RuntimeError> {
        let request = pb::ImageFsInfoRequest {};
        self.images.ask("ImageFsInfo", self.timeout, request).await
    }

    async fn checkpoint_container(&self, id: &ContainerId, path: &Path, timeout: Duration) -> Result<(), RuntimeError> {
        let request = pb::CheckpointContainerRequest {
            container_id: id.to_string(),
            location: path.to_string_lossy().into_owned(),
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        self.runtime
            .ask("CheckpointContainer", self.timeout.saturating_add(timeout), request)
            .await
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let request = pb::ReopenContainerLogRequest {
            container_id: id.to_string(),
        };
        self.runtime.ask("ReopenContainerLog", self.timeout, request).await
    }

    async fn runtime_config(&self) -> Result<RuntimeSettings, RuntimeError> {
        driver::ask(&self.runtime, self.timeout).await
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<(), RuntimeError> {
        let network = pb::NetworkConfig {
            pod_cidr: pod_cidr.to_owned(),
        };
        let request = pb::UpdateRuntimeConfigRequest {
            runtime_config: Some(pb::RuntimeConfig {
                network_config: Some(network),
            }),
        };
        self.runtime.ask("UpdateRuntimeConfig", self.timeout, request).await
    }

    async fn subscribe(&self) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
        subscribe::subscribe(&self.runtime, self.channel.clone()).await
    }
}

#[cfg(test)]
mod tests;
