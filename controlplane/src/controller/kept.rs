//! What is kept of pods and nodes by those who read all of a cluster's: what controllers and the scheduler ask of one.
//!
//! Owns what of their parts tells nothing (pure), and how the copies of them are read; which parts there are, [`crate::held`] says. Only
//! extenders of the scheduler are shown pods and nodes as they are: for those the whole text is kept beside it.

use crate::held::{Node, Pod, PodSpec, PodStatus};
use crate::scheduler::{self, extender::Extender};
use client::Informer;
use client::informer::Options;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodCondition, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use serde_json::Value;

/// What `kubectl apply` notes of an object: a copy of it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Conditions in which a kubelet says how far a pod's start has come. Failure policies of Jobs alone may ask for them.
const OF_START: [&str; 3] = ["PodReadyToStartContainers", "Initialized", "ContainersReady"];
/// The condition of a pod whose node has not taken what it asks for now.
const RESIZE_PENDING: &str = "PodResizePending";

/// The preemption policy of pods that say none.
const PREEMPTS: &str = "PreemptLowerPriority";

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

    /// A copy of all pods, which are found by the place that `place_of` names, too.
    pub fn pods(self, client: &Client, options: Options, place_of: fn(&Pod) -> &str) -> Informer<Pod> {
        match self {
            Self::Whole => Informer::spawn_read(Api::all(client.clone()), options, whole, place_of),
            Self::Asked => Informer::spawn_placed(Api::all(client.clone()), options, asked, place_of),
        }
    }

    /// A copy of all nodes.
    pub fn nodes(self, client: &Client, options: Options) -> Informer<Node> {
        match self {
            Self::Whole => Informer::spawn_read(Api::all(client.clone()), options, whole_node, |_| ""),
            Self::Asked => Informer::spawn_keeping(Api::all(client.clone()), options, asked_of_node),
        }
    }
}

/// Those of the list that are asked about; none is no list.
fn those<T>(all: Option<Vec<T>>, is_asked: fn(&T) -> bool) -> Option<Vec<T>> {
    let all = all.into_iter().flatten().filter(is_asked);
    Some(all.collect::<Vec<_>>()).filter(|all| !all.is_empty())
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
}

fn of_metadata(metadata: &mut ObjectMeta) {
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    (metadata.generate_name, metadata.self_link) = (None, None);
}

fn whole(tree: Value) -> Result<Pod, serde_json::Error> {
    Pod::whole(tree).map(asked)
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
    }
    if let Some(spec) = &mut pod.spec {
        // What is said where nothing is.
        spec.preemption_policy = spec.preemption_policy.take().filter(|policy| policy != PREEMPTS);
        spec.scheduler_name = spec.scheduler_name.take().filter(|name| name != scheduler::NAME);
    }
    pod
}

fn whole_node(tree: Value) -> Result<Node, serde_json::Error> {
    Node::whole(tree).map(asked_of_node)
}

fn asked_of_node(mut node: Node) -> Node {
    of_metadata(&mut node.metadata);
    if let Some(status) = &mut node.status {
        // The one stands for the other where a node says only one.
        status.capacity = status.capacity.take().filter(|_| status.allocatable.is_none());
        for condition in status.conditions.iter_mut().flatten() {
            (condition.reason, condition.message) = (None, None);
        }
    }
    node
}

#[cfg(test)]
mod tests;
