//! The floor: pods through bare CRI calls, with the configuration a node agent would give them.
//!
//! Start is RunPodSandbox, CreateContainer, StartContainer; stop is StopContainer, StopPodSandbox. What an agent may do
//! later (removing) is done between the measured times.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::security_profile::ProfileType;
use proto::cri::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, DnsConfig, ImageSpec, LinuxContainerConfig,
    LinuxContainerResources, LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext,
    ListPodSandboxRequest, Mount, NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
    RemovePodSandboxRequest, RunPodSandboxRequest, SecurityProfile, StartContainerRequest, StopContainerRequest,
    StopPodSandboxRequest,
};
use tonic::transport::Channel;

use crate::figures::{Burst, Run};
use crate::processes::{self, Group};
use crate::runtime;

/// Seconds a container gets to end, like the grace period of the cluster's pods.
const GRACE_SECONDS: i64 = 1;

/// How long a node may take to remove its stopped pods, and how often that is looked at.
const EMPTY_DEADLINE: Duration = Duration::from_secs(60);
const EMPTY_POLL: Duration = Duration::from_millis(100);

/// A runtime, and where the floor's pods are put.
pub(crate) struct Floor {
    client: RuntimeServiceClient<Channel>,
    cgroup_parent: String,
    work_dir: PathBuf,
    image: String,
}

/// A pod that runs.
struct Running {
    sandbox: String,
    container: String,
    took: Duration,
}

impl Floor {
    /// Connects and makes the files the pods mount.
    ///
    /// # Errors
    /// If the runtime does not answer or the directory cannot be written.
    pub(crate) async fn connect(
        socket: &Path,
        cgroup_parent: &str,
        work_dir: &Path,
        image: &str,
    ) -> anyhow::Result<Self> {
        let client = runtime::connect(socket).await?;
        let directory = work_dir.join("files");
        fs::create_dir_all(directory.join("token")).with_context(|| format!("making {}", directory.display()))?;
        for file in ["hosts", "termination-log"] {
            fs::write(directory.join(file), "").with_context(|| format!("writing {file}"))?;
        }
        Ok(Self {
            client,
            cgroup_parent: cgroup_parent.to_owned(),
            work_dir: work_dir.to_owned(),
            image: image.to_owned(),
        })
    }

    /// Starts and stops the pods of one run.
    ///
    /// # Errors
    /// The first call that fails; pods may then be left in the runtime.
    pub(crate) async fn run(&self, burst: Burst, groups: &[Group]) -> anyhow::Result<Run> {
        let names: Vec<_> = (0..burst.pods).map(|number| format!("floor-{number}")).collect();
        let (begin, cpu) = (Instant::now(), processes::cpu(groups)?);
        let running = if burst.at_once {
            try_join_all(names.iter().map(|name| self.start(name))).await?
        } else {
            let mut running = Vec::new();
            for name in &names {
                running.push(self.start(name).await?);
            }
            running
        };
        let (all_started, start_cpu) = (begin.elapsed(), processes::cpu_since(groups, &cpu)?);
        let (begin, cpu) = (Instant::now(), processes::cpu(groups)?);
        let stop = if burst.at_once {
            try_join_all(running.iter().map(|pod| self.stop(pod))).await?
        } else {
            let mut stopped = Vec::new();
            for pod in &running {
                stopped.push(self.stop(pod).await?);
            }
            stopped
        };
        let (all_stopped, stop_cpu) = (begin.elapsed(), processes::cpu_since(groups, &cpu)?);
        try_join_all(running.iter().map(|pod| self.remove(pod))).await?;
        Ok(Run {
            start: running.iter().map(|pod| pod.took).collect(),
            stop,
            all_started,
            all_stopped,
            start_cpu,
            stop_cpu,
        })
    }

    /// Waits until the runtime has no pod whose name begins so.
    ///
    /// # Errors
    /// If pods are left after a minute.
    pub(crate) async fn until_without(&self, prefix: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + EMPTY_DEADLINE;
        loop {
            let request = ListPodSandboxRequest { filter: None };
            let listed = self.client.clone().list_pod_sandbox(request).await?.into_inner();
            let names = listed.items.into_iter().filter_map(|pod| Some(pod.metadata?.name));
            let left = names.filter(|name| name.starts_with(prefix)).count();
            if left == 0 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{left} pods are still in the runtime");
            tokio::time::sleep(EMPTY_POLL).await;
        }
    }

    async fn start(&self, name: &str) -> anyhow::Result<Running> {
        let begin = Instant::now();
        let mut client = self.client.clone();
        let sandbox_config = self.sandbox_config(name)?;
        let sandbox = client
            .run_pod_sandbox(RunPodSandboxRequest {
                config: Some(sandbox_config.clone()),
                runtime_handler: String::new(),
            })
            .await
            .context("RunPodSandbox")?
            .into_inner()
            .pod_sandbox_id;
        let container = client
            .create_container(CreateContainerRequest {
                pod_sandbox_id: sandbox.clone(),
                config: Some(self.container_config()),
                sandbox_config: Some(sandbox_config),
            })
            .await
            .context("CreateContainer")?
            .into_inner()
            .container_id;
        client
            .start_container(StartContainerRequest {
                container_id: container.clone(),
            })
            .await
            .context("StartContainer")?;
        Ok(Running {
            sandbox,
            container,
            took: begin.elapsed(),
        })
    }

    async fn stop(&self, pod: &Running) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let mut client = self.client.clone();
        client
            .stop_container(StopContainerRequest {
                container_id: pod.container.clone(),
                timeout: GRACE_SECONDS,
            })
            .await
            .context("StopContainer")?;
        client
            .stop_pod_sandbox(StopPodSandboxRequest {
                pod_sandbox_id: pod.sandbox.clone(),
            })
            .await
            .context("StopPodSandbox")?;
        Ok(begin.elapsed())
    }

    async fn remove(&self, pod: &Running) -> anyhow::Result<()> {
        let request = RemovePodSandboxRequest {
            pod_sandbox_id: pod.sandbox.clone(),
        };
        self.client
            .clone()
            .remove_pod_sandbox(request)
            .await
            .context("RemovePodSandbox")?;
        Ok(())
    }

    fn sandbox_config(&self, name: &str) -> anyhow::Result<PodSandboxConfig> {
        let logs = self.work_dir.join("logs").join(name);
        fs::create_dir_all(logs.join("c")).with_context(|| format!("making {}", logs.display()))?;
        let uid = format!("{name}-uid");
        Ok(PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.clone(),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: logs.display().to_string(),
            dns_config: Some(DnsConfig::default()),
            labels: HashMap::from([("io.kubernetes.pod.name".to_owned(), name.to_owned())]),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/pod{uid}", self.cgroup_parent),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces()),
                    seccomp: Some(SecurityProfile {
                        profile_type: ProfileType::RuntimeDefault.into(),
                        localhost_ref: String::new(),
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        })
    }

    fn container_config(&self) -> ContainerConfig {
        let files = self.work_dir.join("files");
        let mount = |file: &str, inside: &str, readonly: bool| Mount {
            host_path: files.join(file).display().to_string(),
            container_path: inside.to_owned(),
            readonly,
            ..Default::default()
        };
        ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: "c".to_owned(),
                attempt: 0,
            }),
            image: Some(ImageSpec {
                image: self.image.clone(),
                ..Default::default()
            }),
            mounts: vec![
                mount("token", "/var/run/secrets/kubernetes.io/serviceaccount", true),
                mount("hosts", "/etc/hosts", false),
                mount("termination-log", "/dev/termination-log", false),
            ],
            log_path: "c/0.log".to_owned(),
            linux: Some(LinuxContainerConfig {
                resources: Some(LinuxContainerResources {
                    cpu_shares: 2,
                    oom_score_adj: 1000,
                    ..Default::default()
                }),
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(namespaces()),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        }
    }
}

/// One network and IPC namespace for the pod, one process namespace for each container.
fn namespaces() -> NamespaceOption {
    NamespaceOption {
        pid: NamespaceMode::Container.into(),
        ..Default::default()
    }
}
