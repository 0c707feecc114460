//! What is kept of pods by those who read all of a cluster's: what controllers and the scheduler ask of one. Pure.
//!
//! None of them writes a pod back whole (their writes are patches and deletions, and what they create is made of templates), so what
//! nobody asks for takes no room. Only extenders of the scheduler are shown pods as they are.

use crate::resource::pod::reference;
use crate::scheduler::extender::Extender;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, EnvFromSource, EnvVar, Pod, Volume};

/// What `kubectl apply` notes of an object: a copy of it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How much of a pod is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of it.
    Whole,
    /// What controllers and the scheduler ask.
    Asked,
}

impl Kept {
    /// Beside a scheduler with these extenders.
    pub fn beside(extenders: &[Extender]) -> Self {
        match extenders.is_empty() {
            true => Self::Asked,
            false => Self::Whole,
        }
    }

    /// What to make of a pod.
    pub fn of_pods(self) -> fn(Pod) -> Pod {
        match self {
            Self::Whole => |pod| pod,
            Self::Asked => asked,
        }
    }
}

/// Those of the list that are asked about; none is no list.
fn those<T>(all: Option<Vec<T>>, is_asked: fn(&T) -> bool) -> Option<Vec<T>> {
    let all = all.into_iter().flatten().filter(is_asked);
    Some(all.collect::<Vec<_>>()).filter(|all| !all.is_empty())
}

/// How a container starts and is watched is its kubelet's business, but for the Secrets that it needs: those stay as long as it does.
fn of_container(container: Container) -> Container {
    let names_secret = |variable: &EnvVar| {
        let source = variable.value_from.as_ref();
        source.is_some_and(|source| source.secret_key_ref.is_some())
    };
    Container {
        env: those(container.env, names_secret),
        env_from: those(container.env_from, |source: &EnvFromSource| source.secret_ref.is_some()),
        name: container.name,
        image: container.image,
        ports: container.ports,
        resources: container.resources,
        resize_policy: container.resize_policy,
        restart_policy: container.restart_policy,
        restart_policy_rules: container.restart_policy_rules,
        ..Container::default()
    }
}

fn of_status(status: ContainerStatus) -> ContainerStatus {
    ContainerStatus {
        container_id: None,
        image_id: String::new(),
        volume_mounts: None,
        user: None,
        ..status
    }
}

fn each<T>(all: Option<Vec<T>>, of: fn(T) -> T) -> Option<Vec<T>> {
    all.map(|all| all.into_iter().map(of).collect())
}

/// Those that need claims keep their pods from nodes, and Secrets stay for those that are of one.
fn is_asked(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() || reference::has_secret(volume)
}

fn asked(mut pod: Pod) -> Pod {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(spec) = &mut pod.spec {
        spec.containers = std::mem::take(&mut spec.containers)
            .into_iter()
            .map(of_container)
            .collect();
        spec.init_containers = each(spec.init_containers.take(), of_container);
        spec.volumes = those(spec.volumes.take(), is_asked);
        (spec.dns_config, spec.host_aliases) = (None, None);
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses = each(status.container_statuses.take(), of_status);
        status.init_container_statuses = each(status.init_container_statuses.take(), of_status);
        status.ephemeral_container_statuses = None;
    }
    pod
}

#[cfg(test)]
mod tests;
