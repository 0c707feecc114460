//! The container runtime: the calls we use, and what we observe through them.
//!
//! [`Runtime`] has two implementations: [`cri`], a CRI v1 client, and `fake`, a scripted runtime in memory that only tests and
//! simulations are built with (feature `test-util`); [`metered`] counts the calls of either. [`observed`]
//! holds what a pod looks like in the runtime, [`pleg`] keeps it current from [`events`] and a slow sweep. Nothing here
//! knows what a pod *should* look like.

pub mod cri;
pub mod events;
#[cfg(any(test, feature = "test-util"))]
pub mod fake;
pub mod labels;
pub mod metered;
pub mod observed;
pub mod pleg;
pub mod signal;

use crate::id::{ContainerId, PodUid, SandboxId};
use async_trait::async_trait;
use futures::stream::BoxStream;
use observed::{ContainerSummary, ObservedContainer, ObservedSandbox, SandboxSummary};
use proto::cri as pb;
use std::path::Path;
use std::time::Duration;
use tonic::Code;

/// The most a command may take that is given no time of its own (a lifecycle hook's): its call must end too.
pub const EXEC_SYNC_MAX: Duration = Duration::from_secs(60 * 60);

/// A runtime call that failed, with the runtime's own words.
///
/// Displays as upstream's gRPC errors do, because the text reaches users in events and waiting messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rpc error: code = {code} desc = {message}", code = code_name(*.code))]
pub struct RuntimeError {
    /// The CRI method, such as `RunPodSandbox`.
    pub call: &'static str,
    /// The gRPC status code.
    pub code: Code,
    /// The runtime's description.
    pub message: String,
}

impl RuntimeError {
    /// An error of `call` with the given code and description.
    pub fn new(call: &'static str, code: Code, message: impl Into<String>) -> Self {
        Self {
            call,
            code,
            message: message.into(),
        }
    }

    /// The call took longer than its deadline.
    pub fn deadline(call: &'static str) -> Self {
        Self::new(call, Code::DeadlineExceeded, "context deadline exceeded")
    }

    /// Whether the object of the call does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }

    /// Whether the runtime has no room for it now.
    pub fn is_exhausted(&self) -> bool {
        self.code == Code::ResourceExhausted
    }

    /// Whether the runtime does not have this call.
    pub fn is_unimplemented(&self) -> bool {
        self.code == Code::Unimplemented
    }

    /// Whether a name is still held by an unfinished creation, which a higher attempt number gets around.
    pub fn is_name_reserved(&self) -> bool {
        self.message.contains("is reserved for")
    }
}

/// Go's spelling of a gRPC code, which is what users see in upstream's messages.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// What the runtime says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// Its name, `containerd`: the scheme of container ids in statuses.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The runtime's conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Whether it can run containers (`RuntimeReady`).
    pub runtime_ready: bool,
    /// Whether its network is set up (`NetworkReady`).
    pub network_ready: bool,
    /// Why the runtime is not ready, as `Reason message:text`; empty when it is.
    pub runtime_message: String,
    /// Why the network is not ready, in upstream's form
    /// `container runtime network not ready: NetworkReady=false reason:R message:M`; empty when it is.
    pub network_message: String,
    /// The handlers it offers, as reported.
    pub handlers: Vec<pb::RuntimeHandler>,
    /// Features as reported.
    pub features: Option<pb::RuntimeFeatures>,
}

impl RuntimeStatus {
    fn features_of(&self, handler: &str) -> Option<&pb::RuntimeHandlerFeatures> {
        let found = self.handlers.iter().find(|found| found.name == handler)?;
        found.features.as_ref()
    }

    /// Whether it has such a handler.
    pub fn has_handler(&self, handler: &str) -> bool {
        self.handlers.iter().any(|found| found.name == handler)
    }

    /// Whether pods run by the handler can have users of their own.
    pub fn has_user_namespaces(&self, handler: &str) -> bool {
        self.features_of(handler)
            .is_some_and(|features| features.user_namespaces)
    }

    /// Whether containers run by the handler can have mounts that are read only with all that is mounted below.
    pub fn has_recursive_read_only(&self, handler: &str) -> bool {
        self.features_of(handler)
            .is_some_and(|features| features.recursive_read_only_mounts)
    }

    /// Whether it can keep groups of an image from a container (`supplementalGroupsPolicy: Strict`).
    pub fn has_groups_policy(&self) -> bool {
        self.features
            .is_some_and(|features| features.supplemental_groups_policy)
    }
}

/// An image in the runtime's store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageInfo {
    /// The image's id, the digest of its configuration: what containers are created from.
    pub id: String,
    /// The names it has.
    pub repo_tags: Vec<String>,
    /// The digests it was pulled by.
    pub repo_digests: Vec<String>,
    /// Size in bytes.
    pub size: u64,
    /// The numeric user its configuration names.
    pub uid: Option<i64>,
    /// The user name its configuration names; empty if none or numeric.
    pub username: String,
    /// Whether it must not be garbage collected.
    pub pinned: bool,
}

/// The result of a command run in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Bytes written to standard output.
    pub stdout: Vec<u8>,
    /// Bytes written to standard error.
    pub stderr: Vec<u8>,
    /// The exit code.
    pub exit_code: i32,
}

/// What a container uses, as the runtime measured it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Its pod.
    pub pod: Option<PodUid>,
    /// Its name in the pod.
    pub name: String,
    /// When that was, nanoseconds since 1970.
    pub at_nanos: i64,
    /// CPU time since its start, nanoseconds.
    pub cpu_nanos: Option<u64>,
    /// CPU time, nanoseconds a second, over a time of the runtime's choice.
    pub cpu_rate: Option<u64>,
    /// Memory in use that cannot go at once, bytes.
    pub working_set: Option<u64>,
    /// Memory in use, bytes.
    pub memory: Option<u64>,
    /// Anonymous memory, bytes.
    pub rss: Option<u64>,
    /// Memory in swap, bytes.
    pub swap: Option<u64>,
    /// What more of it may go there, bytes.
    pub swap_left: Option<u64>,
    /// Its writable layer, bytes and inodes.
    pub layer: Option<(u64, u64)>,
}

/// The cgroup driver the runtime uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// systemd slices.
    Systemd,
    /// Plain cgroup directories.
    Cgroupfs,
}

/// What the runtime tells of its own configuration, each only if it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeSettings {
    /// The cgroup driver it uses.
    pub driver: Option<CgroupDriver>,
    /// The image its sandboxes are of, where it may not be pinned.
    pub sandbox_image: Option<String>,
}

/// Something happened to a container or sandbox. It carries no truth: only whom to look at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// The container or sandbox concerned.
    pub id: String,
    /// The pod it belongs to, where the event says so.
    pub pod: Option<PodUid>,
    /// Whether its process ended, so that the runtime will say so soon even if it does not yet.
    pub ended: bool,
}

/// The CRI calls we use, in our types. Every method has a deadline of its own (kubelet contract §6); a call that passes
/// it fails with `DeadlineExceeded`.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// `Version`: the runtime's name and version; fails unless it speaks CRI v1 (`0.1.0`).
    async fn version(&self) -> Result<RuntimeVersion, RuntimeError>;
    /// `Status`: runtime and network readiness.
    async fn status(&self) -> Result<RuntimeStatus, RuntimeError>;
    /// Why the runtime would leave out devices that a container is to have by the Container Device Interface (`CDI_devices`): it would
    /// say nothing of it. Nothing where it adds them, as far as it tells.
    async fn leaves_out_devices(&self) -> Result<Option<String>, RuntimeError> {
        Ok(None)
    }
    /// `RunPodSandbox`: creates and starts a sandbox; twice the ordinary deadline.
    async fn run_pod_sandbox(&self, config: pb::PodSandboxConfig, handler: &str) -> Result<SandboxId, RuntimeError>;
    /// `StopPodSandbox`: stops everything in it and frees its address; idempotent.
    async fn stop_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError>;
    /// `RemovePodSandbox`: removes it and its containers; idempotent.
    async fn remove_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError>;
    /// `PodSandboxStatus`.
    async fn pod_sandbox_status(&self, id: &SandboxId) -> Result<ObservedSandbox, RuntimeError>;
    /// `ListPodSandbox`, of one pod or of all.
    async fn list_pod_sandboxes(&self, pod: Option<&PodUid>) -> Result<Vec<SandboxSummary>, RuntimeError>;
    /// `ListPodSandbox`: every sandbox there is, also those no kubelet made, in whatever state.
    async fn list_sandbox_ids(&self) -> Result<Vec<SandboxId>, RuntimeError>;
    /// `CreateContainer` in a sandbox.
    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: pb::ContainerConfig,
        sandbox_config: &pb::PodSandboxConfig,
    ) -> Result<ContainerId, RuntimeError>;
    /// `StartContainer`.
    async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;
    /// `StopContainer` with a grace period in whole seconds; the deadline is longer by the grace. Idempotent.
    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError>;
    /// `UpdateContainerResources` of a running container.
    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: pb::LinuxContainerResources,
    ) -> Result<(), RuntimeError>;
    /// `UpdatePodSandboxResources`: what the sandbox and its containers are to hold. `Unimplemented` where nobody wants to know.
    async fn update_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: pb::LinuxContainerResources,
        resources: pb::LinuxContainerResources,
    ) -> Result<(), RuntimeError>;
    /// `RemoveContainer`; idempotent.
    async fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;
    /// `ListContainers`, of one pod or of all, in every state.
    async fn list_containers(&self, pod: Option<&PodUid>) -> Result<Vec<ContainerSummary>, RuntimeError>;
    /// `ListContainerStats`: what running containers use.
    async fn list_container_stats(&self) -> Result<Vec<ContainerUsage>, RuntimeError>;
    /// `ContainerStatus`.
    async fn container_status(&self, id: &ContainerId) -> Result<ObservedContainer, RuntimeError>;
    /// `ExecSync`: runs a command to its end; `timeout` zero means no bound of the command's own. A command killed by the timeout is an error
    /// with code `DeadlineExceeded`.
    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput, RuntimeError>;
    /// `Exec`: the URL that serves the stream.
    async fn exec(&self, request: pb::ExecRequest) -> Result<String, RuntimeError>;
    /// `Attach`: the URL that serves the stream.
    async fn attach(&self, request: pb::AttachRequest) -> Result<String, RuntimeError>;
    /// `PortForward`: the URL that serves the stream.
    async fn port_forward(&self, request: pb::PortForwardRequest) -> Result<String, RuntimeError>;
    /// `PullImage`: returns the reference to create containers from. The one call without a deadline of its own; it ends with
    /// its future, which the puller bounds.
    async fn pull_image(
        &self,
        image: &str,
        auth: Option<pb::AuthConfig>,
        sandbox: Option<pb::PodSandboxConfig>,
    ) -> Result<String, RuntimeError>;
    /// `ImageStatus`: nothing if the image is not there.
    async fn image_status(&self, image: &str) -> Result<Option<ImageInfo>, RuntimeError>;
    /// `ListImages`.
    async fn list_images(&self) -> Result<Vec<ImageInfo>, RuntimeError>;
    /// `RemoveImage`; idempotent.
    async fn remove_image(&self, image: &str) -> Result<(), RuntimeError>;
    /// `ImageFsInfo`.
    async fn image_fs_info(&self) -> Result<pb::ImageFsInfoResponse, RuntimeError>;
    /// `CheckpointContainer`: writes its state into an archive at that path of the host, within `timeout` (zero: as the runtime
    /// likes). `Unimplemented` where the runtime cannot.
    async fn checkpoint_container(&self, id: &ContainerId, path: &Path, timeout: Duration) -> Result<(), RuntimeError>;
    /// `ReopenContainerLog`, after a rotation.
    async fn reopen_log(&self, id: &ContainerId) -> Result<(), RuntimeError>;
    /// The runtime's configuration: its cgroup driver (`RuntimeConfig`, else what it prints), the image of sandboxes if it prints it.
    async fn runtime_config(&self) -> Result<RuntimeSettings, RuntimeError>;
    /// `UpdateRuntimeConfig` with the node's pod CIDRs, comma-separated.
    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<(), RuntimeError>;
    /// Subscribes to the runtime's events. The stream ends when the subscription is lost; whoever reads it subscribes
    /// again. `Unimplemented` means there are none and sweeps alone see what happens.
    async fn subscribe(&self) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError>;
}
