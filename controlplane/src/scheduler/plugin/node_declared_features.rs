//! NodeDeclaredFeatures: pods that ask for what not every kubelet can go only where the node says that it can (KEP-5328).
//!
//! A node says so in `status.declaredFeatures`, by upstream's names. Only the features that a pod's spec can ask for before it runs are
//! known here: the others are about changes of running pods.

use super::{Plugin, Rejection};
use crate::held::{Container, PodSpec};
use crate::scheduler::cluster::NodeInfo;
use crate::scheduler::pod::PodInfo;

/// Names of the features; their places are bits.
const KNOWN: [&str; 2] = [
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
];

/// Some of the features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u8);

impl Features {
    /// Those among these names; a name that is not known here no pod asks for.
    pub fn named<'n>(names: impl Iterator<Item = &'n String>) -> Self {
        let at = |name: &String| KNOWN.iter().position(|known| known == name);
        Self(names.filter_map(at).fold(0, |bits, at| bits | 1 << at))
    }

    /// Those that the pod asks for.
    pub fn of(spec: &PodSpec) -> Self {
        let restarts_all = |container: &Container| {
            let mut rules = container.restart_policy_rules.iter().flatten();
            rules.any(|rule| rule.action == "RestartAllContainers")
        };
        let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let asked = [
            containers.any(restarts_all),
            spec.host_network == Some(true) && spec.host_users == Some(false),
        ];
        Self(
            (0..)
                .zip(asked)
                .fold(0, |bits, (at, is_asked)| bits | u8::from(is_asked) << at),
        )
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of them are among the others.
    fn are_within(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }
}

/// Refuses nodes that do not say that they can do what the pod asks for.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if pod.features.are_within(node.features) {
        return Ok(());
    }
    let reason = "node(s) didn't match Pod's required features";
    Err(Rejection::fixed(Plugin::NodeDeclaredFeatures, reason))
}
