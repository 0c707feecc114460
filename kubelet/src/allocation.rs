//! In-place resize: what pods were given of their node, and what they run with (KEP-1287; kubelet contract §7).
//!
//! Three things are told apart. What a pod *wants* stands in its spec. What it was *given* (allocated) is decided by the owner of
//! the ledger, with [`decide`], and everything below admission works with that alone. What its containers *run with* (actuated)
//! is its worker's to know. Both are kept over restarts in upstream's files, by [`checkpoint`]; a pod that stands in none was
//! given what its spec says.
//!
//! Owns the arithmetic of the three and the two files. Never judges whether something fits: that is the ledger's.

pub mod checkpoint;
pub mod decide;
pub mod message;
pub mod named;

use crate::pod_object;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use named::Named;
use proto::api::quantity::Quantity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A resource that can be resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resizable {
    /// Memory, in bytes.
    Memory,
    /// CPU, in thousandths.
    Cpu,
}

impl Resizable {
    /// Both, in the order they are brought to what was given.
    pub const ALL: [Self; 2] = [Self::Memory, Self::Cpu];

    /// Its name in resource lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

/// The resources of a pod at one moment, as upstream's checkpoints have them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodResources {
    /// Of its containers and init containers, by name.
    #[serde(rename = "ContainerResources", default)]
    pub containers: Named<ResourceRequirements>,
    /// Its own, if it has any.
    #[serde(rename = "PodLevelResources", default)]
    pub pod: Option<ResourceRequirements>,
}

impl PodResources {
    /// What a pod's spec says.
    pub fn of(pod: &Pod) -> Self {
        let of = |container: &Container| container.resources.clone().unwrap_or_default();
        Self {
            containers: pod_object::containers(pod)
                .map(|(_, container)| (container.name.clone(), of(container)))
                .collect(),
            pod: pod_object::spec(pod).resources.clone(),
        }
    }

    /// Whether a pod's spec says the same.
    pub fn agrees(&self, pod: &Pod) -> bool {
        let mut containers = pod_object::containers(pod);
        containers.all(|(_, container)| {
            let own = self.containers.get(&container.name);
            own.is_none_or(|own| same(Some(own), container.resources.as_ref()))
        }) && same(self.pod.as_ref(), pod_object::spec(pod).resources.as_ref())
    }

    /// The pod with these resources in its spec; containers that are not named here keep theirs.
    pub fn applied_to(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        if self.agrees(pod) {
            return pod.clone();
        }
        let mut own = (**pod).clone();
        if let Some(spec) = &mut own.spec {
            self.write(spec);
        }
        Arc::new(own)
    }

    fn write(&self, spec: &mut PodSpec) {
        spec.resources.clone_from(&self.pod);
        let inits = spec.init_containers.iter_mut().flatten();
        for container in inits.chain(&mut spec.containers) {
            if let Some(own) = self.containers.get(&container.name) {
                container.resources = Some(own.clone());
            }
        }
    }
}

/// What is asked for of a resource, as (request, limit).
pub fn amounts(resources: Option<&ResourceRequirements>, of: Resizable) -> (Option<Quantity>, Option<Quantity>) {
    let amount = |list: Option<&BTreeMap<String, Text>>| list.and_then(|list| list.get(of.name())).map(Quantity::of);
    (
        amount(resources.and_then(|r| r.requests.as_ref())),
        amount(resources.and_then(|r| r.limits.as_ref())),
    )
}

/// Whether two containers, or two pods, have the same CPU and memory.
pub fn same(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    Resizable::ALL.iter().all(|of| amounts(a, *of) == amounts(b, *of))
}

#[cfg(test)]
mod tests;
