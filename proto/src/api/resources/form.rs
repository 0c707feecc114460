//! What is asked of specs and containers, in whichever type somebody holds them: the API's own, or one with less room. Pure.

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerStatus, PodCondition, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// A container that asks for resources.
pub trait ContainerForm {
    /// `name`.
    fn name(&self) -> &str;
    /// `resources`.
    fn resources(&self) -> Option<&ResourceRequirements>;
    /// `restartPolicy`.
    fn restart_policy(&self) -> Option<&str>;
}

/// A pod's spec that asks for resources and for nodes.
pub trait SpecForm {
    /// How its containers are held.
    type Container: ContainerForm;

    /// `containers`.
    fn containers(&self) -> &[Self::Container];
    /// `initContainers`, sidecars among them.
    fn init_containers(&self) -> &[Self::Container];
    /// `resources`: those of the pod as a whole.
    fn resources(&self) -> Option<&ResourceRequirements>;
    /// `overhead`.
    fn overhead(&self) -> Option<&BTreeMap<String, Quantity>>;
    /// `nodeSelector`.
    fn node_selector(&self) -> Option<&BTreeMap<String, String>>;
    /// `affinity`.
    fn affinity(&self) -> Option<&Affinity>;
}

/// What a pod's status says of its resources.
pub trait StatusForm {
    /// `conditions`.
    fn conditions(&self) -> &[PodCondition];
    /// Those of `containerStatuses` and of `initContainerStatuses`.
    fn containers(&self) -> [&[ContainerStatus]; 2];
    /// `allocatedResources`: what the pod as a whole was given.
    fn allocated_resources(&self) -> Option<&BTreeMap<String, Quantity>>;
    /// `resources`: what the pod as a whole runs with.
    fn resources(&self) -> Option<&ResourceRequirements>;
}

impl<C: ContainerForm> ContainerForm for &C {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn resources(&self) -> Option<&ResourceRequirements> {
        (**self).resources()
    }

    fn restart_policy(&self) -> Option<&str> {
        (**self).restart_policy()
    }
}

impl ContainerForm for Container {
    fn name(&self) -> &str {
        &self.name
    }

    fn resources(&self) -> Option<&ResourceRequirements> {
        self.resources.as_ref()
    }

    fn restart_policy(&self) -> Option<&str> {
        self.restart_policy.as_deref()
    }
}

impl SpecForm for PodSpec {
    type Container = Container;

    fn containers(&self) -> &[Container] {
        &self.containers
    }

    fn init_containers(&self) -> &[Container] {
        self.init_containers.as_deref().unwrap_or_default()
    }

    fn resources(&self) -> Option<&ResourceRequirements> {
        self.resources.as_ref()
    }

    fn overhead(&self) -> Option<&BTreeMap<String, Quantity>> {
        self.overhead.as_ref()
    }

    fn node_selector(&self) -> Option<&BTreeMap<String, String>> {
        self.node_selector.as_ref()
    }

    fn affinity(&self) -> Option<&Affinity> {
        self.affinity.as_ref()
    }
}

impl StatusForm for PodStatus {
    fn conditions(&self) -> &[PodCondition] {
        self.conditions.as_deref().unwrap_or_default()
    }

    fn containers(&self) -> [&[ContainerStatus]; 2] {
        [&self.container_statuses, &self.init_container_statuses].map(|all| all.as_deref().unwrap_or_default())
    }

    fn allocated_resources(&self) -> Option<&BTreeMap<String, Quantity>> {
        self.allocated_resources.as_ref()
    }

    fn resources(&self) -> Option<&ResourceRequirements> {
        self.resources.as_ref()
    }
}
