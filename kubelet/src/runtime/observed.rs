//! What one pod looks like in the runtime: its sandboxes and containers, newest first. Pure data.

use crate::id::{ContainerId, FullName, PodUid, SandboxId};
use client::ordered::Arrange;
use jiff::Timestamp;

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerState {
    /// Created, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// What a list call says of a sandbox: enough to notice a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSummary {
    /// The sandbox.
    pub id: SandboxId,
    /// Its pod.
    pub pod: PodUid,
    /// Its pod's namespace and name.
    pub name: FullName,
    /// Whether it is ready.
    pub ready: bool,
}

/// What a list call says of a container: enough to notice a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSummary {
    /// The container.
    pub id: ContainerId,
    /// Its pod.
    pub pod: PodUid,
    /// The sandbox it lives in.
    pub sandbox: SandboxId,
    /// Its state.
    pub state: ContainerState,
    /// The id of its image, or whatever the runtime calls it by.
    pub image: String,
}

/// A sandbox as its status call reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedSandbox {
    /// Its id.
    pub id: SandboxId,
    /// The pod's UID.
    pub pod: PodUid,
    /// The pod's name.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// Its attempt number.
    pub attempt: u32,
    /// Whether it is ready.
    pub ready: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its addresses, the runtime's first address first; empty on the host network.
    pub ips: Vec<String>,
    /// Whether it uses the host's network namespace.
    pub host_network: bool,
    /// Its runtime handler.
    pub handler: String,
}

impl ObservedSandbox {
    /// The pod's addresses as everybody is told them: the first of the node's primary family, then the first of the other; the
    /// node's own on the host network.
    pub fn addresses(&self, host_ips: &[String]) -> Vec<String> {
        if self.host_network {
            return host_ips.to_vec();
        }
        let is_v6 = |ip: &String| ip.contains(':');
        let primary_v6 = host_ips.first().is_some_and(is_v6);
        let first = |v6: bool| self.ips.iter().find(|ip| is_v6(ip) == v6).cloned();
        first(primary_v6).into_iter().chain(first(!primary_v6)).collect()
    }
}

/// A container as its status call reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedContainer {
    /// Its id.
    pub id: ContainerId,
    /// The sandbox it lives in, where known.
    pub sandbox: Option<SandboxId>,
    /// The pod's UID.
    pub pod: PodUid,
    /// Its name in the pod.
    pub name: String,
    /// Its attempt number, equal to the restart count.
    pub attempt: u32,
    /// The restart count from its annotation.
    pub restart_count: u32,
    /// The hash of name and image from its annotation.
    pub hash: Option<String>,
    /// Its state.
    pub state: ContainerState,
    /// The image's name, for the status.
    pub image: String,
    /// The image's reference, for `imageID`.
    pub image_ref: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its process started.
    pub started_at: Option<Timestamp>,
    /// When its process ended.
    pub finished_at: Option<Timestamp>,
    /// The exit code, meaningful once exited.
    pub exit_code: i32,
    /// The runtime's reason (`Completed`, `Error`, `OOMKilled`, ...).
    pub reason: String,
    /// The runtime's message, or the container's termination message once it was read.
    pub message: String,
    /// The path of its log on the host.
    pub log_path: String,
    /// The host file its termination message is written to, if one is mounted.
    pub termination_file: Option<String>,
    /// Its termination message policy.
    pub termination_policy: String,
    /// Its preStop handler from its annotation, JSON; empty without one.
    pub pre_stop: String,
    /// Its ports from its annotation, JSON; empty without any.
    pub ports: String,
    /// The signal it is stopped by, by Kubernetes' name, where the runtime tells.
    pub stop_signal: Option<String>,
    /// The user it runs as (uid, gid, supplemental groups), where the runtime tells.
    pub user: Option<(i64, i64, Vec<i64>)>,
}

/// One pod's sandboxes and containers at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPod {
    /// The pod.
    pub uid: PodUid,
    /// Its sandboxes, highest attempt first.
    pub sandboxes: Vec<ObservedSandbox>,
    /// Its containers, newest first.
    pub containers: Vec<ObservedContainer>,
}

impl ObservedPod {
    /// A pod the runtime has nothing of.
    pub fn empty(uid: PodUid) -> Self {
        Self {
            uid,
            sandboxes: Vec::new(),
            containers: Vec::new(),
        }
    }

    /// Orders sandboxes and containers newest first, ties by id so that the order is one.
    pub fn sort(&mut self) {
        self.sandboxes
            .arrange_by(|a, b| (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id)));
        self.containers
            .arrange_by(|a, b| (b.created_at, b.attempt, &b.id).cmp(&(a.created_at, a.attempt, &a.id)));
    }

    /// The sandbox the pod lives in: of the ready ones that with live containers, the newest of them; if none is ready,
    /// the newest. A start that a dead kubelet began can finish beside the one that replaced it.
    pub fn sandbox(&self) -> Option<&ObservedSandbox> {
        let lives = |sandbox: &ObservedSandbox| self.alive().any(|c| c.sandbox.as_ref() == Some(&sandbox.id));
        let mut ready = self.sandboxes.iter().filter(|sandbox| sandbox.ready);
        let newest_ready = ready.clone().next();
        ready
            .find(|sandbox| lives(sandbox))
            .or(newest_ready)
            .or(self.sandboxes.first())
    }

    /// The newest container of the given name.
    pub fn newest(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The newest container of the given name that has ended.
    pub fn newest_exited(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers
            .iter()
            .find(|c| c.name == name && c.state == ContainerState::Exited)
    }

    /// Containers whose process runs or may run.
    pub fn alive(&self) -> impl Iterator<Item = &ObservedContainer> {
        self.containers
            .iter()
            .filter(|c| matches!(c.state, ContainerState::Running | ContainerState::Unknown))
    }

    /// Whether nothing of the pod runs: no live container, no ready sandbox.
    pub fn is_stopped(&self) -> bool {
        self.alive().next().is_none() && !self.sandboxes.iter().any(|s| s.ready)
    }

    /// Whether the runtime has nothing of the pod at all.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}
