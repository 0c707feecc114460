//! The scripted runtime's memory: sandboxes, containers, images. Pure: time is passed in.

use crate::id::{ContainerId, PodUid, SandboxId};
use crate::runtime::observed::{ContainerState, ObservedContainer, ObservedSandbox};
use crate::runtime::{ImageInfo, RuntimeError, labels, signal};
use jiff::Timestamp;
use proto::cri as pb;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tonic::Code;

/// How long a container of an image runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// Until it is stopped.
    #[default]
    Forever,
    /// For this long, then it ends with this exit code.
    For {
        /// How long after its start.
        duration: Duration,
        /// The exit code.
        exit_code: i32,
    },
}

/// What containers of an image do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// How long they run.
    pub run: Run,
    /// How long they take to end once asked to; `None` ignores the request until killed.
    pub stops_after: Option<Duration>,
    /// The exit code of commands run in them (probes, hooks).
    pub exec_exit_code: i32,
    /// How long commands run in them take.
    pub exec_takes: Duration,
    /// An error `StartContainer` ends with instead.
    pub start_error: Option<String>,
}

impl Behaviour {
    /// Runs until stopped, and stops at once.
    pub fn obedient() -> Self {
        Self {
            stops_after: Some(Duration::ZERO),
            ..Self::default()
        }
    }
}

pub(super) struct Sandbox {
    pub(super) observed: ObservedSandbox,
    /// What it was asked to be.
    pub(super) config: pb::PodSandboxConfig,
}

pub(super) struct Container {
    pub(super) observed: ObservedContainer,
    /// What it was asked to be.
    pub(super) config: pb::ContainerConfig,
    pub(super) behaviour: Behaviour,
}

#[derive(Default)]
pub(super) struct State {
    next: u64,
    pub(super) sandboxes: BTreeMap<SandboxId, Sandbox>,
    pub(super) containers: BTreeMap<ContainerId, Container>,
    pub(super) images: BTreeMap<String, ImageInfo>,
    pub(super) remote: BTreeSet<String>,
    /// Sandboxes being made by a call whose caller may be gone.
    pub(super) reserved: BTreeSet<(PodUid, u32)>,
    pub(super) passwords: BTreeMap<String, String>,
    pub(super) behaviours: BTreeMap<String, Behaviour>,
    pub(super) doubled: BTreeSet<(PodUid, String)>,
    pub(super) network_down: bool,
    pub(super) handlers: Vec<pb::RuntimeHandler>,
    pub(super) features: Option<pb::RuntimeFeatures>,
    pub(super) refuses_list_of_all: bool,
    /// Memory in use by containers of a name, bytes.
    pub(super) memory: BTreeMap<String, u64>,
    pub(super) layers: BTreeMap<String, u64>,
    pub(super) mounted_images: Vec<(String, String)>,
    /// Where images are, if the runtime tells.
    pub(super) image_fs: Option<String>,
    /// Addresses that every sandbox has before its own.
    pub(super) first_addresses: Vec<String>,
}

impl State {
    fn fresh_id(&mut self) -> String {
        self.next += 1;
        format!("{:064x}", self.next)
    }

    /// Gives a running container other resources.
    pub(super) fn update(
        &mut self,
        id: &ContainerId,
        resources: pb::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        let runs = |c: &&mut Container| c.observed.state == ContainerState::Running;
        let Some(container) = self.containers.get_mut(id).filter(runs) else {
            let text = format!("container {id} is not running");
            return Err(RuntimeError::new("UpdateContainerResources", Code::NotFound, text));
        };
        let own = container.config.linux.get_or_insert_default();
        let before = own.resources.take().unwrap_or_default();
        // A set that is not named stays, as with every runtime.
        let kept = |named: String, before: String| if named.is_empty() { before } else { named };
        own.resources = Some(pb::LinuxContainerResources {
            cpuset_cpus: kept(resources.cpuset_cpus, before.cpuset_cpus),
            cpuset_mems: kept(resources.cpuset_mems, before.cpuset_mems),
            ..resources
        });
        Ok(())
    }

    pub(super) fn run_sandbox(
        &mut self,
        config: &pb::PodSandboxConfig,
        handler: &str,
        now: Timestamp,
    ) -> Result<SandboxId, RuntimeError> {
        const CALL: &str = "RunPodSandbox";
        if self.network_down {
            return Err(RuntimeError::new(CALL, Code::Unknown, "cni plugin not initialized"));
        }
        let metadata = config.metadata.clone().unwrap_or_default();
        let uid = PodUid::new(config.labels.get(labels::POD_UID).unwrap_or(&metadata.uid));
        let holder = self
            .sandboxes
            .values()
            .find(|s| s.observed.pod == uid && s.observed.attempt == metadata.attempt)
            .map(|s| s.observed.id.clone());
        let being_made = self.reserved.contains(&(uid.clone(), metadata.attempt));
        let holder = holder.or_else(|| being_made.then(|| SandboxId::from("being-made")));
        if let Some(holder) = holder {
            let name = format!("{}_{}_{uid}_{}", metadata.name, metadata.namespace, metadata.attempt);
            let text = format!("failed to reserve sandbox name {name:?}: name {name:?} is reserved for {holder:?}");
            return Err(RuntimeError::new(CALL, Code::Unknown, text));
        }
        let options = config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .and_then(|context| context.namespace_options.as_ref());
        let host_network = options.is_some_and(|o| o.network == pb::NamespaceMode::Node as i32);
        let id = SandboxId::from(self.fresh_id());
        let address = format!("10.88.{}.{}", self.next / 250, self.next % 250 + 2);
        let observed = ObservedSandbox {
            id: id.clone(),
            pod: uid,
            name: metadata.name,
            namespace: metadata.namespace,
            attempt: metadata.attempt,
            ready: true,
            created_at: now,
            ips: match host_network {
                true => Vec::new(),
                false => self.first_addresses.iter().cloned().chain([address]).collect(),
            },
            host_network,
            handler: handler.to_owned(),
        };
        let config = config.clone();
        self.sandboxes.insert(id.clone(), Sandbox { observed, config });
        Ok(id)
    }

    pub(super) fn create_container(
        &mut self,
        sandbox: &SandboxId,
        config: &pb::ContainerConfig,
        now: Timestamp,
    ) -> Result<ContainerId, RuntimeError> {
        const CALL: &str = "CreateContainer";
        let home = self.sandboxes.get(sandbox).filter(|s| s.observed.ready);
        let Some(home) = home else {
            return Err(RuntimeError::new(
                CALL,
                Code::NotFound,
                format!("sandbox {:?} is not running", sandbox.as_str()),
            ));
        };
        let pod = home.observed.pod.clone();
        let metadata = config.metadata.clone().unwrap_or_default();
        let same = |c: &&Container| {
            c.observed.pod == pod && c.observed.name == metadata.name && c.observed.attempt == metadata.attempt
        };
        if let Some(holder) = self.containers.values().find(same) {
            let name = format!("{}_{}_{}", metadata.name, pod, metadata.attempt);
            let text = format!(
                "failed to reserve container name {name:?}: name {name:?} is reserved for {:?}",
                holder.observed.id.as_str()
            );
            return Err(RuntimeError::new(CALL, Code::Unknown, text));
        }
        let image = config.image.clone().unwrap_or_default();
        let Some((name, info)) = self.find_image(&image.image).map(|(n, i)| (n.clone(), i.clone())) else {
            return Err(RuntimeError::new(
                CALL,
                Code::NotFound,
                format!("image {:?} not found", image.image),
            ));
        };
        let id = ContainerId::from(self.fresh_id());
        let annotation = |key: &str| config.annotations.get(key).cloned();
        let observed = ObservedContainer {
            id: id.clone(),
            sandbox: Some(sandbox.clone()),
            pod,
            name: config
                .labels
                .get(labels::CONTAINER_NAME)
                .cloned()
                .unwrap_or(metadata.name),
            attempt: metadata.attempt,
            restart_count: annotation(labels::RESTART_COUNT)
                .and_then(|text| text.parse().ok())
                .unwrap_or(metadata.attempt),
            hash: annotation(labels::HASH),
            state: ContainerState::Created,
            image: name.clone(),
            image_ref: info.id,
            created_at: now,
            started_at: None,
            finished_at: None,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            log_path: config.log_path.clone(),
            termination_file: None,
            termination_policy: annotation(labels::TERMINATION_MESSAGE_POLICY).unwrap_or_default(),
            pre_stop: annotation(labels::PRE_STOP_HANDLER).unwrap_or_default(),
            ports: annotation(labels::PORTS).unwrap_or_default(),
            stop_signal: signal::of_cri(config.stop_signal),
            user: None,
        };
        let behaviour = self.behaviours.get(&name).cloned().unwrap_or_else(Behaviour::obedient);
        let made = Container {
            observed,
            config: config.clone(),
            behaviour,
        };
        self.containers.insert(id.clone(), made);
        Ok(id)
    }

    /// Starts a container; tells how long it will run, if not forever.
    pub(super) fn start(&mut self, id: &ContainerId, now: Timestamp) -> Result<(PodUid, Run), RuntimeError> {
        const CALL: &str = "StartContainer";
        let running: BTreeSet<_> = self.running().into_iter().collect();
        let Some(container) = self.containers.get_mut(id) else {
            return Err(RuntimeError::new(
                CALL,
                Code::NotFound,
                format!("container {:?} not found", id.as_str()),
            ));
        };
        if container.observed.state != ContainerState::Created {
            return Err(RuntimeError::new(
                CALL,
                Code::FailedPrecondition,
                "container is not in created state",
            ));
        }
        if let Some(text) = container.behaviour.start_error.clone() {
            container.observed.state = ContainerState::Exited;
            container.observed.exit_code = 128;
            container.observed.reason = "StartError".into();
            container.observed.message = text.clone();
            container.observed.finished_at = Some(now);
            return Err(RuntimeError::new(CALL, Code::Unknown, text));
        }
        container.observed.state = ContainerState::Running;
        container.observed.started_at = Some(now);
        let key = (container.observed.pod.clone(), container.observed.name.clone());
        if running.contains(&key) {
            self.doubled.insert(key.clone());
        }
        Ok((key.0, container.behaviour.run.clone()))
    }

    /// Ends a running container; tells its pod if it was running.
    pub(super) fn end(&mut self, id: &ContainerId, exit_code: i32, now: Timestamp) -> Option<PodUid> {
        let container = self.containers.get_mut(id)?;
        if !matches!(
            container.observed.state,
            ContainerState::Running | ContainerState::Created
        ) {
            return None;
        }
        let observed = &mut container.observed;
        observed.state = ContainerState::Exited;
        observed.exit_code = exit_code;
        observed.reason = if exit_code == 0 {
            crate::reason::terminated::COMPLETED.into()
        } else {
            crate::reason::terminated::ERROR.into()
        };
        observed.finished_at = Some(now);
        Some(observed.pod.clone())
    }

    pub(super) fn crash(&mut self, pod: &PodUid, name: &str, exit_code: i32, now: Timestamp) -> Option<String> {
        let id = self.containers.values().find_map(|c| {
            let o = &c.observed;
            (o.pod == *pod && o.name == name && o.state == ContainerState::Running).then(|| o.id.clone())
        })?;
        self.end(&id, exit_code, now)?;
        Some(id.to_string())
    }

    /// Stops a sandbox and everything in it; tells what ended.
    pub(super) fn stop_sandbox(&mut self, id: &SandboxId, now: Timestamp) -> Vec<(String, PodUid)> {
        let Some(sandbox) = self.sandboxes.get_mut(id) else {
            return Vec::new();
        };
        let mut ended = Vec::new();
        if sandbox.observed.ready {
            sandbox.observed.ready = false;
            ended.push((id.to_string(), sandbox.observed.pod.clone()));
        }
        let inside: Vec<ContainerId> = self
            .containers
            .values()
            .filter(|c| c.observed.sandbox.as_ref() == Some(id))
            .map(|c| c.observed.id.clone())
            .collect();
        for container in inside {
            if let Some(pod) = self.end(&container, 137, now) {
                ended.push((container.to_string(), pod));
            }
        }
        ended
    }

    /// Ends and forgets everything but images; tells what ended.
    pub(super) fn reboot(&mut self, now: Timestamp) -> Vec<(String, PodUid)> {
        let sandboxes: Vec<SandboxId> = self.sandboxes.keys().cloned().collect();
        let ended = sandboxes.iter().flat_map(|id| self.stop_sandbox(id, now)).collect();
        self.sandboxes.clear();
        self.containers.clear();
        ended
    }

    pub(super) fn running(&self) -> Vec<(PodUid, String)> {
        self.containers
            .values()
            .filter(|c| c.observed.state == ContainerState::Running)
            .map(|c| (c.observed.pod.clone(), c.observed.name.clone()))
            .collect()
    }

    pub(super) fn image_file_system(&self) -> pb::ImageFsInfoResponse {
        let of = |mountpoint: &String| pb::FilesystemUsage {
            fs_id: Some(pb::FilesystemIdentifier {
                mountpoint: mountpoint.clone(),
            }),
            ..Default::default()
        };
        pb::ImageFsInfoResponse {
            image_filesystems: self.image_fs.iter().map(of).collect(),
            ..Default::default()
        }
    }

    /// An image by name or id.
    pub(super) fn find_image(&self, image: &str) -> Option<(&String, &ImageInfo)> {
        self.images
            .get_key_value(image)
            .or_else(|| self.images.iter().find(|(_, info)| info.id == image))
    }
}
