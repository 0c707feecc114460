//! One start of one container: environment, files, creation, start.

use super::{Executor, Subject, log_file};
use crate::events::Severity;
use crate::id::{ContainerId, SandboxId};
use crate::objects::ResolvedObjects;
use crate::pinning::{PinError, cpu_set::CpuSet};
use crate::pod::failure::StartError;
use crate::pod::spec::{self, ContainerInput, SpecError};
use crate::pod_object;
use crate::reason::event;
use crate::runtime::RuntimeVersion;
use crate::volume::{ContainerFiles, ContainerFilesRequest, ImageMount, SubPath};
use k8s_openapi::api::core::v1::{Container, Pod};
use policy::gate::Late;
use proto::cri::{CdiDevice, ContainerConfig};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a container waits for its pod's network policies before that is told.
const POLICIES_MAX: Duration = Duration::from_secs(5);

impl Executor {
    /// Creates and starts a container in a sandbox, and tells users.
    pub(super) async fn start_container(
        &self,
        subject: &Subject,
        name: &str,
        sandbox: &SandboxId,
        restart_count: Option<u32>,
    ) -> Result<ContainerId, StartError> {
        match pod_object::find(&subject.pod, name) {
            Some((_, container)) => self.try_start(subject, &container, sandbox, restart_count).await,
            None => Err(StartError::Gone(name.to_owned())),
        }
    }

    async fn try_start(
        &self,
        subject: &Subject,
        container: &Container,
        sandbox_id: &SandboxId,
        restart_count: Option<u32>,
    ) -> Result<ContainerId, StartError> {
        let (pod, context) = (&*subject.pod, &self.parts.context);
        let target = target(subject, &container.name)?;
        let sandbox = subject
            .observed
            .sandboxes
            .iter()
            .find(|sandbox| sandbox.id == *sandbox_id);
        let attempt = sandbox.map_or(0, |sandbox| sandbox.attempt);
        let host_ips = context.host_ips.texts();
        let pod_ips = sandbox.map_or_else(|| host_ips.clone(), |sandbox| sandbox.addresses(&host_ips));
        let references = spec::env_references(pod, container);
        let objects = if pod_object::is_static(pod) {
            ResolvedObjects {
                services: self.parts.objects.services(),
                ..ResolvedObjects::default()
            }
        } else {
            let resolved = self.parts.objects.resolve(&subject.uid, &references).await;
            resolved.map_err(StartError::Object)?
        };
        let volumes = &self.parts.volumes;
        let files = volumes.env_files(&subject.uid, &subject.volumes, spec::env_files(container));
        let files = files.await.map_err(StartError::Files)?;
        let objects = ResolvedObjects { files, ..objects };
        let environment = spec::environment(pod, container, &objects, &pod_ips, context).map_err(StartError::Spec)?;
        let logs = spec::pod_log_directory(pod, context);
        let restart_count = match restart_count {
            Some(count) => count,
            None => {
                self.restart_count(subject, container, logs.join(&container.name))
                    .await?
            }
        };
        let mut sub_paths = spec::sub_paths(container, &environment).map_err(StartError::Spec)?;
        let images = self.image_mounts(subject, container, &mut sub_paths).await?;
        let node_hosts = self.node_hosts(pod).await.map_err(StartError::NodeFile)?;
        let request = ContainerFilesRequest {
            pod: subject.uid.clone(),
            container: container.name.clone(),
            restart_count,
            log_directory: logs,
            hosts: spec::hosts_file(pod, &pod_ips, context, &node_hosts),
            sub_paths,
            volumes: (*subject.volumes).clone(),
        };
        let files = volumes.prepare_container(request).await.map_err(StartError::Files)?;
        let files = ContainerFiles { images, ..files };
        let image = subject.image.clone().unwrap_or_default();
        let ids = self.ids(subject).await.map_err(StartError::Files)?;
        let unbounded = self.parts.pinning.unbounded(&subject.uid);
        let mut config = spec::container_config(&ContainerInput {
            pod,
            container,
            restart_count,
            image: &image,
            environment: &environment,
            volumes: &subject.volumes,
            files: &files,
            target,
            ids,
            recursive_read_only: sandbox.is_some_and(|sandbox| {
                let status = self.parts.runtime_status.borrow();
                status.has_recursive_read_only(&sandbox.handler)
            }),
            unbounded: &unbounded,
            ctx: context,
        })
        .map_err(StartError::Spec)?;
        config.cdi_devices = self.claimed_devices(pod, container).await?;
        let node = self.resolver().await.map_err(StartError::NodeFile)?;
        let sandbox_config = spec::sandbox_config(pod, attempt, context, &node, ids, &unbounded);
        let sandbox_config = sandbox_config.map_err(StartError::Spec)?;

        self.add_devices(subject, container, &mut config).await?;
        let cpus = self
            .pin(subject, container, &mut config)
            .await
            .map_err(StartError::Pinning)?;
        let addresses = sandbox.map_or(&[] as &[String], |sandbox| &sandbox.ips);
        self.let_in(pod, addresses).await?;
        let created = self
            .parts
            .runtime
            .create_container(sandbox_id, config, &sandbox_config)
            .await;
        let id = created.map_err(|error| StartError::Create { error, restart_count })?;
        self.parts.pinning.note(&id, cpus);
        self.parts.recorder.container(
            pod,
            &container.name,
            Severity::Normal,
            event::CREATED,
            "Container created",
        );
        if let Err(error) = self.parts.runtime.start_container(&id).await {
            return Err(StartError::Run { error, id });
        }
        self.parts.recorder.container(
            pod,
            &container.name,
            Severity::Normal,
            event::STARTED,
            "Container started",
        );
        let log = spec::pod_log_directory(pod, context).join(format!("{}/{restart_count}.log", container.name));
        log_file::make_link(
            &self.files,
            &context.pod_logs_dir,
            pod,
            &container.name,
            id.as_str(),
            log,
        )
        .await;
        self.keep_started(subject, container).await;
        Ok(id)
    }
}

impl Executor {
    /// Says where the container is to run; tells the CPUs. What it has alone is on disk before that: the next kubelet would give it
    /// to somebody else. Who shares CPUs waits for nothing.
    async fn pin(
        &self,
        subject: &Subject,
        container: &Container,
        config: &mut ContainerConfig,
    ) -> Result<Option<CpuSet>, PinError> {
        let resources = config.linux.as_mut().and_then(|linux| linux.resources.as_mut());
        let Some(resources) = resources else { return Ok(None) };
        let pinning = &self.parts.pinning;
        if pinning.has_own(&subject.uid, &container.name) {
            pinning.kept().await?;
        }
        pinning.fit(&subject.uid, &container.name, resources)
    }

    /// Waits until the network policies of the pod stand. While the kernel holds its traffic back nobody is harmed by a
    /// container that runs already.
    async fn let_in(&self, pod: &Pod, addresses: &[String]) -> Result<(), StartError> {
        let Some(gate) = &self.parts.gate else { return Ok(()) };
        let addresses: Vec<IpAddr> = addresses.iter().filter_map(|address| address.parse().ok()).collect();
        let outcome = gate.prepare(pod, &addresses, POLICIES_MAX).await;
        if let Err(late) = &outcome {
            let recorder = &self.parts.recorder;
            recorder.pod(pod, Severity::Warning, event::NETWORK_NOT_READY, late.to_string());
        }
        match outcome {
            Ok(()) | Err(Late::Held) => Ok(()),
            // Static pods start before anybody can say what policies there are.
            Err(Late::Open) if pod_object::is_static(pod) => Ok(()),
            Err(late) => Err(StartError::Policies(late)),
        }
    }

    /// The devices a container has by resource claims.
    ///
    /// # Errors
    /// They were not prepared, or the runtime would leave them out: an older one knows nothing of such devices.
    async fn claimed_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<CdiDevice>, StartError> {
        let names = self.parts.dra.devices(pod, container).map_err(StartError::Claims)?;
        if !names.is_empty() {
            self.takes_cdi_devices().await?;
        }
        Ok(names.into_iter().map(|name| CdiDevice { name }).collect())
    }

    /// Adds what the container's devices have it start with. What it was given is on disk before that.
    async fn add_devices(
        &self,
        subject: &Subject,
        container: &Container,
        config: &mut ContainerConfig,
    ) -> Result<(), StartError> {
        let devices = &self.parts.devices;
        let extras = devices.start(&subject.uid, &subject.pod, &container.name).await;
        let extras = extras.map_err(StartError::Devices)?;
        if extras.needs_cdi() {
            self.takes_cdi_devices().await?;
        }
        extras.apply(config);
        Ok(())
    }

    /// Whether the runtime adds devices by their CDI names.
    async fn takes_cdi_devices(&self) -> Result<(), StartError> {
        match self.parts.runtime.leaves_out_devices().await {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(StartError::NoDevices(why)),
            Err(error) => Err(StartError::NoDevices(format!(
                "it does not tell whether it adds them: {error}"
            ))),
        }
    }

    /// The images a container mounts.
    ///
    /// # Errors
    /// One is not there, or the runtime would not mount it: an older one takes it for a directory without a name.
    async fn image_mounts(
        &self,
        subject: &Subject,
        container: &Container,
        sub_paths: &mut Vec<SubPath>,
    ) -> Result<BTreeMap<usize, ImageMount>, StartError> {
        let images = spec::image_mounts(&subject.pod, container, &subject.volume_images, sub_paths);
        let images = images.map_err(StartError::Spec)?;
        if images.is_empty() {
            return Ok(images);
        }
        match self.parts.runtime.version().await {
            Ok(RuntimeVersion { name, version }) if is_containerd_before((2, 1), &name, &version) => {
                Err(StartError::Spec(SpecError::ImageVolumes {
                    needed: "containerd 2.1",
                    runtime: name,
                    version,
                }))
            }
            // What it says of the mounts themselves will do.
            _ => Ok(images),
        }
    }

    async fn restart_count(
        &self,
        subject: &Subject,
        container: &Container,
        directory: PathBuf,
    ) -> Result<u32, StartError> {
        let counted = self.files.run(subject.uid.as_str(), move || from_logs(&directory));
        let container = container.name.clone();
        counted.await.map_err(|why| StartError::Logs { container, why })
    }
}

/// Whether the runtime is known to be older than what can do something; of others nobody knows before they are asked.
fn is_containerd_before(can: (u32, u32), name: &str, version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split(['.', '-', '+', '~']);
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    let of = next().map(|major| (major, next().unwrap_or(u32::MAX)));
    name == "containerd" && of.is_some_and(|of| of < can)
}

/// The container whose processes an ephemeral container is to see, if it names one.
fn target<'a>(subject: &'a Subject, name: &str) -> Result<Option<&'a ContainerId>, StartError> {
    let mut ephemerals = pod_object::ephemerals(&subject.pod).iter();
    let wanted = ephemerals
        .find(|container| container.name == name)
        .and_then(|container| container.target_container_name.as_deref())
        .filter(|target| !target.is_empty());
    let Some(wanted) = wanted else { return Ok(None) };
    match subject.observed.newest(wanted) {
        Some(container) => Ok(Some(&container.id)),
        None => Err(StartError::Target(wanted.to_owned())),
    }
}

/// The restart count after the logs that are there: one more than the highest (kubelet contract §6), 0 without any. A pod may
/// have put files there: a number that the API has no place for is none of a log.
fn from_logs(directory: &Path) -> u32 {
    let names = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| number_of(entry.file_name().to_str()?));
    numbers.map(|number| number + 1).max().unwrap_or(0)
}

/// The number in `N.log` and whatever rotation makes of it.
fn number_of(file: &str) -> Option<u32> {
    let (number, rest) = file.split_once('.')?;
    let number = number.parse().ok().filter(|number| *number < i32::MAX as u32);
    number.filter(|_| rest.starts_with("log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_that_are_too_old_are_known() {
        for (name, version, lacks) in [
            ("containerd", "1.6.20~ds1", true),
            ("containerd", "v1.7.28", true),
            ("containerd", "2.0.5", true),
            ("containerd", "v2.1.0-rc.1", false),
            ("containerd", "2.2.0", false),
            ("containerd", "", false),
            ("cri-o", "1.30.0", false),
        ] {
            assert_eq!(is_containerd_before((2, 1), name, version), lacks, "{name} {version}");
        }
        for (version, lacks) in [("1.6.20~ds1", true), ("1.7.0", false), ("2.0.5", false), ("1", false)] {
            assert_eq!(is_containerd_before((1, 7), "containerd", version), lacks, "{version}");
        }
    }

    #[test]
    fn the_restart_count_goes_on_from_the_logs() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert_eq!(from_logs(&dir.path().join("none")), 0);
        assert_eq!(from_logs(dir.path()), 0);
        for file in ["0.log", "2.log.20260101-000000.gz", "notes.txt", "x.log"] {
            std::fs::write(dir.path().join(file), "").expect("write");
        }
        assert_eq!(from_logs(dir.path()), 3);
        for file in ["4294967295.log", "2147483647.log"] {
            std::fs::write(dir.path().join(file), "").expect("write");
        }
        assert_eq!(from_logs(dir.path()), 3, "no container was started so often");
        std::fs::write(dir.path().join("2147483646.log"), "").expect("write");
        assert_eq!(from_logs(dir.path()), i32::MAX as u32);
    }
}
