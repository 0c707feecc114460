//! A runtime whose calls are counted (kubelet contract §13), under the names upstream's kubelet has for them. Changes no call.

use super::observed::{ContainerSummary, ObservedContainer, ObservedSandbox, SandboxSummary};
use super::{
    ContainerUsage, ExecOutput, ImageInfo, Runtime, RuntimeError, RuntimeEvent, RuntimeSettings, RuntimeStatus,
    RuntimeVersion,
};
use crate::id::{ContainerId, PodUid, SandboxId};
use crate::metrics::RuntimeMetrics;
use async_trait::async_trait;
use futures::stream::BoxStream;
use proto::cri as pb;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Counts the calls of a runtime.
pub struct Metered {
    runtime: Arc<dyn Runtime>,
    metrics: RuntimeMetrics,
}

impl Metered {
    /// The same runtime, counted there.
    pub fn new(runtime: Arc<dyn Runtime>, metrics: RuntimeMetrics) -> Self {
        Self { runtime, metrics }
    }

    async fn counted<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, RuntimeError>>,
    ) -> Result<T, RuntimeError> {
        let begun = Instant::now();
        let result = call.await;
        self.metrics.call(operation, begun.elapsed(), result.is_ok());
        result
    }
}

fn has_own_users(config: &pb::PodSandboxConfig) -> bool {
    let options = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = options.and_then(|context| context.namespace_options.as_ref());
    let users = options.and_then(|options| options.userns_options.as_ref());
    users.is_some_and(|users| users.mode == pb::NamespaceMode::Pod as i32)
}

/// Methods that count themselves under a name and hand on.
macro_rules! hand_on {
    ($($operation:literal $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        #[async_trait]
        impl Runtime for Metered {
            $(
                async fn $name(&self, $($argument: $kind),*) -> Result<$result, RuntimeError> {
                    self.counted($operation, self.runtime.$name($($argument),*)).await
                }
            )*

            async fn run_pod_sandbox(&self, config: pb::PodSandboxConfig, handler: &str) -> Result<SandboxId, RuntimeError> {
                let (begun, own_users) = (Instant::now(), has_own_users(&config));
                let call = self.runtime.run_pod_sandbox(config, handler);
                let result = self.counted("run_podsandbox", call).await;
                self.metrics.sandbox(handler, own_users, begun.elapsed(), result.is_ok());
                result
            }

            async fn leaves_out_devices(&self) -> Result<Option<String>, RuntimeError> {
                self.counted("status", self.runtime.leaves_out_devices()).await
            }

            async fn subscribe(&self) -> Result<BoxStream<'static, RuntimeEvent>, RuntimeError> {
                self.runtime.subscribe().await
            }
        }
    };
}

hand_on! {
    "version" version() -> RuntimeVersion;
    "status" status() -> RuntimeStatus;
    "stop_podsandbox" stop_pod_sandbox(id: &SandboxId) -> ();
    "remove_podsandbox" remove_pod_sandbox(id: &SandboxId) -> ();
    "podsandbox_status" pod_sandbox_status(id: &SandboxId) -> ObservedSandbox;
    "list_podsandbox" list_pod_sandboxes(pod: Option<&PodUid>) -> Vec<SandboxSummary>;
    "list_podsandbox" list_sandbox_ids() -> Vec<SandboxId>;
    "create_container" create_container(sandbox: &SandboxId, config: pb::ContainerConfig, sandbox_config: &pb::PodSandboxConfig) -> ContainerId;
    "start_container" start_container(id: &ContainerId) -> ();
    "stop_container" stop_container(id: &ContainerId, grace: Duration) -> ();
    "update_container" update_container_resources(id: &ContainerId, resources: pb::LinuxContainerResources) -> ();
    "update_podsandbox" update_sandbox_resources(id: &SandboxId, overhead: pb::LinuxContainerResources, resources: pb::LinuxContainerResources) -> ();
    "remove_container" remove_container(id: &ContainerId) -> ();
    "list_containers" list_containers(pod: Option<&PodUid>) -> Vec<ContainerSummary>;
    "list_container_stats" list_container_stats() -> Vec<ContainerUsage>;
    "container_status" container_status(id: &ContainerId) -> ObservedContainer;
    "exec_sync" exec_sync(id: &ContainerId, command: &[String], timeout: Duration) -> ExecOutput;
    "exec" exec(request: pb::ExecRequest) -> String;
    "attach" attach(request: pb::AttachRequest) -> String;
    "port_forward" port_forward(request: pb::PortForwardRequest) -> String;
    "pull_image" pull_image(image: &str, auth: Option<pb::AuthConfig>, sandbox: Option<pb::PodSandboxConfig>) -> String;
    "image_status" image_status(image: &str) -> Option<ImageInfo>;
    "list_images" list_images() -> Vec<ImageInfo>;
    "remove_image" remove_image(image: &str) -> ();
    "image_fs_info" image_fs_info() -> pb::ImageFsInfoResponse;
    "checkpoint_container" checkpoint_container(id: &ContainerId, path: &Path, timeout: Duration) -> ();
    "reopen_container_log" reopen_log(id: &ContainerId) -> ();
    "runtime_config" runtime_config() -> RuntimeSettings;
    "update_runtime_config" update_runtime_config(pod_cidr: &str) -> ();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::pod::view::PodView;
    use crate::runtime::fake::{FakeRuntime, Mishap};
    use client::TokioClock;

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_by_how_they_end() {
        let clock = Arc::new(TokioClock::starting_at(crate::pod::testing::at(0)));
        let (fake, metrics) = (FakeRuntime::new(clock, 1), Metrics::new("n"));
        let metered = Metered::new(Arc::new(fake.clone()), metrics.runtime.clone());
        let failure = || Mishap::Fail(RuntimeError::new("RunPodSandbox", tonic::Code::Unknown, "no"));
        fake.next("RunPodSandbox", failure());
        metered
            .run_pod_sandbox(pb::PodSandboxConfig::default(), "h")
            .await
            .expect_err("fails");
        metered.version().await.expect("a version");
        let text = metrics.text(&PodView::default());
        for line in [
            r#"kubelet_runtime_operations_total{operation_type="version"} 1"#,
            r#"kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1"#,
            r#"kubelet_run_podsandbox_errors_total{runtime_handler="h"} 1"#,
            "kubelet_started_pods_errors_total 1",
            "kubelet_started_user_namespaced_pods_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let errors = r#"kubelet_runtime_operations_errors_total{operation_type="version"}"#;
        assert!(!text.contains(errors), "{text}");
    }
}
