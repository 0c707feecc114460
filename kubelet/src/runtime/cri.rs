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
use async_trait::async_trait;
use futures::stream::BoxStream;
use hyper_util::rt::TokioIo;
use proto::cri as pb;
use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Response, Status};

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
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
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
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            images: ImageServiceClient::new(image_channel)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            channel,
            timeout,
            files: FileWork::new(termination::DEADLINE),
        })
    }
}

fn channel(endpoint: &str) -> Result<Channel, EndpointError> {
    let path = socket_path(endpoint)?;
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Ok(Endpoint::from_static("http://localhost")
        .connect_timeout(Duration::from_secs(5))
        .connect_with_connector_lazy(connector))
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

/// Runs one call to its end or its deadline; the future's end cancels it in the runtime too.
async fn bounded<T>(
    call: &'static str,
    deadline: Duration,
    reply: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, RuntimeError> {
    match tokio::time::timeout(deadline, reply).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(from_status(call, &status)),
        Err(_) => Err(RuntimeError::deadline(call)),
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
        let reply = bounded("Version", self.timeout, self.runtime.clone().version(request)).await?;
        Ok(RuntimeVersion {
            name: reply.runtime_name,
            version: reply.runtime_version,
        })
    }

    async fn status(&self) -> Result<RuntimeStatus, RuntimeError> {
        let request = pb::StatusRequest { verbose: false };
        let reply = bounded("Status", self.timeout, self.runtime.clone().status(request)).await?;
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
        let mut client = self.runtime.clone();
        let reply = bounded("RunPodSandbox", self.timeout * 2, client.run_pod_sandbox(request)).await?;
        Ok(reply.pod_sandbox_id.into())
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let request = pb::StopPodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        let mut client = self.runtime.clone();
        let done = bounded("StopPodSandbox", self.timeout, client.stop_pod_sandbox(request)).await;
        gone_is_done(done.map(|_| ()))
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let request = pb::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        let mut client = self.runtime.clone();
        let done = bounded("RemovePodSandbox", self.timeout, client.remove_pod_sandbox(request)).await;
        gone_is_done(done.map(|_| ()))
    }

    async fn pod_sandbox_status(&self, id: &SandboxId) -> Result<ObservedSandbox, RuntimeError> {
        let request = pb::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_string(),
            verbose: false,
        };
        let mut client = self.runtime.clone();
        let reply = bounded("PodSandboxStatus", self.timeout, client.pod_sandbox_status(request)).await?;
        let status = reply.status.ok_or_else(|| missing("PodSandboxStatus", "status"))?;
        Ok(convert::sandbox(status))
    }

    async fn list_pod_sandboxes(&self, pod: Option<&PodUid>) -> Result<Vec<SandboxSummary>, RuntimeError> {
        let filter = pb::PodSandboxFilter {
            label_selector: convert::pod_selector(pod),
            ..Default::default()
        };
        let request = pb::ListPodSandboxRequest { filter: Some(filter) };
        let mut client = self.runtime.clone();
        let reply = bounded("ListPodSandbox", self.timeout, client.list_pod_sandbox(request)).await?;
        Ok(reply.items.into_iter().filter_map(convert::sandbox_summary).collect())
    }

    async fn list_sandbox_ids(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        let request = pb::ListPodSandboxRequest::default();
        let mut client = self.runtime.clone();
        let reply = bounded("ListPodSandbox", self.timeout, client.list_pod_sandbox(request)).await?;
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
        let mut client = self.runtime.clone();
        let reply = bounded("CreateContainer", self.timeout, client.create_container(request)).await?;
        Ok(reply.container_id.into())
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let request = pb::StartContainerRequest {
            container_id: id.to_string(),
        };
        let mut client = self.runtime.clone();
        bounded("StartContainer", self.timeout, client.start_container(request))
            .await
            .map(|_| ())
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = pb::StopContainerRequest {
            container_id: id.to_string(),
            timeout,
        };
        let mut client = self.runtime.clone();
        let deadline = self.timeout.saturating_add(grace);
        gone_is_done(
            bounded("StopContainer", deadline, client.stop_container(request))
                .await
                .map(|_| ()),
        )
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
        let mut client = self.runtime.clone();
        let call = client.update_container_resources(request);
        bounded("UpdateContainerResources", self.timeout, call)
            .await
            .map(|_| ())
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
        let mut client = self.runtime.clone();
        let call = client.update_pod_sandbox_resources(request);
        bounded("UpdatePodSandboxResources", self.timeout, call)
            .await
            .map(|_| ())
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let request = pb::RemoveContainerRequest {
            container_id: id.to_string(),
        };
        let mut client = self.runtime.clone();
        let done = bounded("RemoveContainer", self.timeout, client.remove_container(request)).await;
        gone_is_done(done.map(|_| ()))
    }

    async fn list_containers(&self, pod: Option<&PodUid>) -> Result<Vec<ContainerSummary>, RuntimeError> {
        let filter = pb::ContainerFilter {
            label_selector: convert::pod_selector(pod),
            ..Default::default()
        };
        let request = pb::ListContainersRequest { filter: Some(filter) };
        let mut client = self.runtime.clone();
        let reply = bounded("ListContainers", self.timeout, client.list_containers(request)).await?;
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
        let mut client = self.runtime.clone();
        let reply = bounded("ContainerStatus", self.timeout, client.container_status(request)).await?;
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
        let mut client = self.runtime.clone();
        let reply = bounded("ExecSync", deadline, client.exec_sync(request)).await?;
        Ok(ExecOutput {
            stdout: reply.stdout,
            stderr: reply.stderr,
            exit_code: reply.exit_code,
        })
    }

    async fn exec(&self, request: pb::ExecRequest) -> Result<String, RuntimeError> {
        Ok(bounded("Exec", self.timeout, self.runtime.clone().exec(request))
            .await?
            .url)
    }

    async fn attach(&self, request: pb::AttachRequest) -> Result<String, RuntimeError> {
        Ok(bounded("Attach", self.timeout, self.runtime.clone().attach(request))
            .await?
            .url)
    }

    async fn port_forward(&self, request: pb::PortForwardRequest) -> Result<String, RuntimeError> {
        Ok(
            bounded("PortForward", self.timeout, self.runtime.clone().port_forward(request))
                .await?
                .url,
        )
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
        let reply = self.images.clone().pull_image(request).await;
        reply
            .map(|response| response.into_inner().image_ref)
            .map_err(|status| from_status("PullImage", &status))
    }

    async fn image_status(&self, image: &str) -> Result<Option<ImageInfo>, RuntimeError> {
        let request = pb::ImageStatusRequest {
            image: image_spec(image),
            verbose: false,
        };
        let mut client = self.images.clone();
        match bounded("ImageStatus", self.timeout, client.image_status(request)).await {
            Ok(reply) => Ok(reply.image.map(convert::image)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list_container_stats(&self) -> Result<Vec<ContainerUsage>, RuntimeError> {
        let request = pb::ListContainerStatsRequest { filter: None };
        let mut client = self.runtime.clone();
        let call = client.list_container_stats(request);
        let reply = bounded("ListContainerStats", self.timeout, call).await?;
        Ok(reply.stats.into_iter().map(stats::usage).collect())
    }

    async fn list_images(&self) -> Result<Vec<ImageInfo>, RuntimeError> {
        let request = pb::ListImagesRequest { filter: None };
        let reply = bounded("ListImages", self.timeout, self.images.clone().list_images(request)).await?;
        Ok(reply.images.into_iter().map(convert::image).collect())
    }

    async fn remove_image(&self, image: &str) -> Result<(), RuntimeError> {
        let request = pb::RemoveImageRequest {
            image: image_spec(image),
        };
        let done = bounded("RemoveImage", self.timeout, self.images.clone().remove_image(request)).await;
        gone_is_done(done.map(|_| ()))
    }

    async fn image_fs_info(&self) -> Result<pb::ImageFsInfoResponse, RuntimeError> {
        let request = pb::ImageFsInfoRequest {};
        bounded("ImageFsInfo", self.timeout, self.images.clone().image_fs_info(request)).await
    }

    async fn checkpoint_container(&self, id: &ContainerId, path: &Path, timeout: Duration) -> Result<(), RuntimeError> {
        let request = pb::CheckpointContainerRequest {
            container_id: id.to_string(),
            location: path.to_string_lossy().into_owned(),
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        let mut client = self.runtime.clone();
        let call = client.checkpoint_container(request);
        bounded("CheckpointContainer", self.timeout.saturating_add(timeout), call)
            .await
            .map(|_| ())
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let request = pb::ReopenContainerLogRequest {
            container_id: id.to_string(),
        };
        let mut client = self.runtime.clone();
        bounded("ReopenContainerLog", self.timeout, client.reopen_container_log(request))
            .await
            .map(|_| ())
    }

    async fn runtime_config(&self) -> Result<RuntimeSettings, RuntimeError> {
        driver::ask(self.runtime.clone(), self.timeout).await
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
        let mut client = self.runtime.clone();
        bounded(
            "UpdateRuntimeConfig",
            self.timeout,
            client.update_runtime_config(request),
        )
        .await
        .map(|_| ())
    }

    async fn subscribe(&self) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
        subscribe::subscribe(self.runtime.clone(), self.channel.clone()).await
    }
}

#[cfg(test)]
mod tests;
