//! What is kept of pods and nodes by those who read all of a cluster's: what controllers and the scheduler ask of one. Pure.
//!
//! None of them writes one back whole (their writes are patches and deletions, and what they create is made of templates), so what
//! nobody asks for takes no room. Only extenders of the scheduler are shown pods and nodes as they are.

use crate::resource::pod::reference;
use crate::scheduler::extender::Extender;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStatus, EnvFromSource, EnvVar, Node, NodeStatus, Pod, PodCondition, PodSpec,
    PodStatus, ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// What `kubectl apply` notes of an object: a copy of it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Conditions in which a kubelet says how far a pod's start has come. Failure policies of Jobs alone may ask for them.
const OF_START: [&str; 3] = ["PodReadyToStartContainers", "Initialized", "ContainersReady"];
/// The condition of a pod whose node has not taken what it asks for now.
const RESIZE_PENDING: &str = "PodResizePending";

/// How much of a pod or a node is kept.
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

    /// What to make of a node.
    pub fn of_nodes(self) -> fn(Node) -> Node {
        match self {
            Self::Whole => |node| node,
            Self::Asked => asked_of_node,
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

/// What became of a container, not how it does.
fn of_status(status: ContainerStatus, asks: Option<&ResourceRequirements>) -> ContainerStatus {
    let requested = asks.and_then(|asks| asks.requests.as_ref());
    let ended = status.state.filter(|state| state.terminated.is_some());
    ContainerStatus {
        name: status.name,
        restart_count: status.restart_count,
        state: ended.map(|state| ContainerState {
            terminated: state.terminated,
            ..ContainerState::default()
        }),
        // What runs is counted where it is more than what is asked for: the same says nothing.
        resources: status.resources.filter(|running| {
            let limited = asks.and_then(|asks| asks.limits.as_ref());
            running.requests.as_ref() != requested || running.limits.as_ref() != limited
        }),
        allocated_resources: status.allocated_resources.filter(|held| Some(held) != requested),
        ..ContainerStatus::default()
    }
}

/// Whether a status says something that none would not say.
fn tells(status: &ContainerStatus) -> bool {
    status.restart_count != 0
        || status.state.is_some()
        || status.resources.is_some()
        || status.allocated_resources.is_some()
}

/// Statuses of these containers. All of them, if any says something: whether the last has ended is asked of all.
fn of_statuses(status: &mut PodStatus, spec: Option<&PodSpec>) {
    // Nobody gives what such a pod asks for: what it has is counted instead.
    let refused = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == RESIZE_PENDING);
    let asks = |name: &str| {
        let init = spec.and_then(|spec| spec.init_containers.as_ref());
        let mut all = spec
            .iter()
            .flat_map(|spec| &spec.containers)
            .chain(init.into_iter().flatten());
        let found = all.find(|container| container.name == name && !refused);
        found.and_then(|container| container.resources.as_ref())
    };
    let kept = |all: Option<Vec<ContainerStatus>>| -> Option<Vec<ContainerStatus>> {
        all.map(|all| {
            all.into_iter()
                .map(|status| {
                    let asks = asks(&status.name);
                    of_status(status, asks)
                })
                .collect()
        })
    };
    let containers = kept(status.container_statuses.take());
    let init = kept(status.init_container_statuses.take());
    if containers.iter().chain(&init).flatten().any(tells) {
        (status.container_statuses, status.init_container_statuses) = (containers, init);
    }
    status.ephemeral_container_statuses = None;
}

fn each<T>(all: Option<Vec<T>>, of: fn(T) -> T) -> Option<Vec<T>> {
    all.map(|all| all.into_iter().map(of).collect())
}

/// Those that need claims keep their pods from nodes, and Secrets stay for those that are of one.
fn is_asked(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() || reference::has_secret(volume)
}

fn of_metadata(metadata: &mut ObjectMeta) {
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    (metadata.generate_name, metadata.self_link) = (None, None);
}

fn asked(mut pod: Pod) -> Pod {
    of_metadata(&mut pod.metadata);
    let owners = pod.metadata.owner_references.iter().flatten();
    let is_of_job = owners.clone().any(|owner| owner.kind == "Job");
    if let Some(status) = &mut pod.status {
        of_statuses(status, pod.spec.as_ref());
        if !is_of_job {
            let is_asked = |condition: &PodCondition| !OF_START.contains(&&*condition.type_);
            status.conditions = those(status.conditions.take(), is_asked);
        }
        (status.host_ip, status.host_ips, status.qos_class) = (None, None, None);
        status.extended_resource_claim_status = None;
    }
    if let Some(spec) = &mut pod.spec {
        spec.containers = std::mem::take(&mut spec.containers)
            .into_iter()
            .map(of_container)
            .collect();
        spec.init_containers = each(spec.init_containers.take(), of_container);
        spec.volumes = those(spec.volumes.take(), is_asked);
        (spec.dns_config, spec.host_aliases) = (None, None);
        (spec.dns_policy, spec.service_account) = (None, None);
        spec.security_context = None;
    }
    pod
}

fn asked_of_node(mut node: Node) -> Node {
    of_metadata(&mut node.metadata);
    let status = node.status.take();
    node.status = status.map(|status| NodeStatus {
        addresses: status.addresses,
        // The one stands for the other where a node says only one.
        capacity: status.capacity.filter(|_| status.allocatable.is_none()),
        allocatable: status.allocatable,
        conditions: status.conditions,
        declared_features: status.declared_features,
        images: status.images,
        ..NodeStatus::default()
    });
    node
}

#[cfg(test)]
mod tests;
