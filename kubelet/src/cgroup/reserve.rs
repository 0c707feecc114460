//! Which cgroups are held to their part of the node, and what is told of it (`enforceNodeAllocatable`; kubelet contract §7).
//!
//! Owns the limits of `kubepods` and of the cgroups that others made and the configuration names. Makes none of the latter: one that
//! is not there is refused when the kubelet starts, for what hardens a node is obeyed or refused.

use super::limits;
use super::{CgroupDriver, CgroupError, CgroupSettings, Hierarchy, ReservedCgroup, Values, Whose};

/// A cgroup that is held to its part of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All pods together; how upstream spells their cgroup.
    Pods(String),
    /// Those of the system, or of Kubernetes' own daemons.
    Reserved(ReservedCgroup),
}

impl Part {
    /// Its cgroup and what is written there.
    pub(super) fn values(&self, settings: &CgroupSettings) -> (String, Values) {
        match self {
            Self::Pods(_) => {
                let limits = settings.node_limits.as_ref().map(limits::node);
                (settings.naming.kubepods(), limits.unwrap_or_default())
            }
            Self::Reserved(reserved) => {
                let values = limits::reserved(reserved, settings.memory_qos.is_some());
                (settings.naming.named(&reserved.cgroup), values)
            }
        }
    }

    /// What is told of it once it is held.
    pub fn held(&self) -> String {
        match self {
            Self::Pods(_) => "Updated Node Allocatable limit across pods".to_owned(),
            Self::Reserved(of) => {
                let whose = match of.whose {
                    Whose::System => "system",
                    Whose::Kube => "kube",
                };
                format!("Updated limits on {whose} reserved cgroup {}", of.cgroup)
            }
        }
    }

    /// What is told of it when it could not be.
    pub fn failed(&self, why: &str) -> String {
        match self {
            Self::Pods(cgroup) => format!("Failed to update Node Allocatable Limits {cgroup}: {why}"),
            Self::Reserved(of) => {
                let whose = match of.whose {
                    Whose::System => "System",
                    Whose::Kube => "Kube",
                };
                let kind = if of.compressible { " Compressible" } else { "" };
                format!(
                    "Failed to enforce {whose} Reserved{kind} Cgroup Limits on {:?}: {why}",
                    of.cgroup
                )
            }
        }
    }
}

/// All parts of a node.
pub(super) fn parts(settings: &CgroupSettings) -> Vec<Part> {
    let pods = settings
        .node_limits
        .as_ref()
        .map(|_| Part::Pods(settings.naming.kubepods_parts()));
    pods.into_iter()
        .chain(settings.reserved.iter().cloned().map(Part::Reserved))
        .collect()
}

/// Refuses cgroups that are to be held and are not there.
pub(super) fn check(tree: &Hierarchy, settings: &CgroupSettings) -> Result<(), CgroupError> {
    settings.reserved.iter().try_for_each(|reserved| {
        let (path, values) = Part::Reserved(reserved.clone()).values(settings);
        let by_systemd = settings.naming.driver == CgroupDriver::Systemd;
        match tree.lacks(&path, &values) {
            None => Ok(()),
            // systemd brings controllers to a slice that is there.
            Some(_) if by_systemd && tree.exists(&path) => Ok(()),
            Some(missing) => Err(CgroupError::NoReserved {
                field: reserved.whose.field(),
                cgroup: reserved.cgroup.clone(),
                word: match reserved.compressible {
                    true => format!("{}-compressible", reserved.whose.word()),
                    false => reserved.whose.word().to_owned(),
                },
                missing,
            }),
        }
    })
}
