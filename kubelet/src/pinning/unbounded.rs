//! Who is not held to a quota of CPU time, because he has his CPUs to himself (gate `DisableCPUQuotaWithExclusiveCPUs`; kubelet
//! contract §7). A value: the formulas of limits read it and ask nobody.

use super::Pinning;
use crate::id::PodUid;
use client::ordered::CollectOrdered;
use std::collections::BTreeSet;

/// The containers of one pod that have CPUs alone, by name. One that asked for some and got none (the policy is new, and the node
/// was not drained) is not among them: it shares the others', and is held to its limit there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unbounded(BTreeSet<String>);

impl Unbounded {
    /// Whether a container has no quota.
    pub fn has(&self, container: &str) -> bool {
        self.0.contains(container)
    }

    /// Whether the pod has none, because one of its containers has none.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }
}

impl<S: Into<String>> FromIterator<S> for Unbounded {
    fn from_iter<T: IntoIterator<Item = S>>(names: T) -> Self {
        Self(names.into_iter().map(Into::into).collect_ordered())
    }
}

impl Pinning {
    /// The containers of a pod that have no quota, as things are now.
    pub fn unbounded(&self, uid: &PodUid) -> Unbounded {
        let Some(inner) = self.0.as_ref().filter(|inner| inner.no_quota) else {
            return Unbounded::default();
        };
        let held = inner.held();
        let given = held.cpus.exclusive.get(uid.as_str()).into_iter().flatten();
        given
            .filter(|(_, cpus)| !cpus.is_empty())
            .map(|(name, _)| name.as_str())
            .collect()
    }
}
