//! The PodResources API's answers, from what the node's owners of resources say. Pure.

use crate::device::state::{Device, NO_NODE, State};
use crate::dra::{self, Prepared};
use crate::pinning::memory::Block;
use crate::pod_object::{self, Kind};
use k8s_openapi::api::core::v1::{Container, Pod};
use proto::pod_resources as v1;
use proto::pod_resources_v1alpha1 as v1alpha1;

/// A container that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// What the pod says of it.
    pub container: &'a Container,
}

/// What one container has of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Share {
    /// Devices of plugins.
    pub devices: Vec<v1::ContainerDevices>,
    /// CPUs to itself.
    pub cpus: Vec<i64>,
    /// Memory to itself.
    pub memory: Vec<v1::ContainerMemory>,
    /// Claims of devices.
    pub claims: Vec<v1::DynamicResource>,
}

/// The containers that go on running: sidecars first, then regular ones.
fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let all = pod_object::containers(pod);
    all.filter(|(kind, _)| matches!(kind, Kind::Sidecar | Kind::Regular))
        .map(|(_, container)| container)
}

/// A pod's answer.
pub fn of_pod(pod: &Pod, share: impl Fn(Of<'_>) -> Share) -> v1::PodResources {
    let of = containers(pod).map(|container| {
        let own = share(Of { pod, container });
        v1::ContainerResources {
            name: container.name.clone(),
            devices: own.devices,
            cpu_ids: own.cpus,
            memory: own.memory,
            dynamic_resources: own.claims,
        }
    });
    v1::PodResources {
        name: pod_object::name(pod).to_owned(),
        namespace: pod_object::namespace(pod).to_owned(),
        containers: of.collect(),
    }
}

/// A pod's answer as it was first: devices of regular containers alone.
pub fn of_pod_v1alpha1(pod: &Pod, devices: impl Fn(Of<'_>) -> Vec<v1::ContainerDevices>) -> v1alpha1::PodResources {
    let of = pod_object::regulars(pod).iter().map(|container| {
        let own = devices(Of { pod, container });
        let own = own.into_iter().map(|devices| v1alpha1::ContainerDevices {
            resource_name: devices.resource_name,
            device_ids: devices.device_ids,
        });
        v1alpha1::ContainerResources {
            name: container.name.clone(),
            devices: own.collect(),
        }
    });
    v1alpha1::PodResources {
        name: pod_object::name(pod).to_owned(),
        namespace: pod_object::namespace(pod).to_owned(),
        containers: of.collect(),
    }
}

/// One device as it is told, on one node or none.
fn told(resource: &str, id: &str, node: i64) -> v1::ContainerDevices {
    v1::ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology: (node != NO_NODE).then(|| v1::TopologyInfo {
            nodes: vec![v1::NumaNode { id: node }],
        }),
    }
}

/// The devices a container has: one entry for each device and NUMA node, as upstream.
pub fn devices_of(state: &State, uid: &str, container: &str) -> Vec<v1::ContainerDevices> {
    let of = state.pods().of(uid, container).flat_map(|(resource, given)| {
        let nodes = given.by_node.iter();
        nodes.flat_map(move |(node, ids)| ids.iter().map(move |id| told(resource, id, *node)))
    });
    of.collect()
}

/// The claims a container uses, with the devices that drivers prepared for them.
pub fn claims(used: Vec<(String, String, Prepared)>) -> Vec<v1::DynamicResource> {
    let told = |driver: &String, device: dra::Device| v1::ClaimResource {
        cdi_devices: device
            .cdi_device_ids
            .into_iter()
            .flatten()
            .map(|name| v1::CdiDevice { name })
            .collect(),
        driver_name: driver.clone(),
        pool_name: device.pool_name,
        device_name: device.device_name,
        share_id: device.share_id,
    };
    let of = |(namespace, name, prepared): (String, String, Prepared)| v1::DynamicResource {
        claim_name: name,
        claim_namespace: namespace,
        claim_resources: prepared
            .drivers
            .into_iter()
            .flat_map(|(driver, devices)| devices.into_iter().map(move |device| told(&driver, device)))
            .collect(),
    };
    used.into_iter().map(of).collect()
}

/// All devices that are healthy, given or not.
pub fn allocatable(state: &State) -> Vec<v1::ContainerDevices> {
    let healthy = |(_, device): &(&String, &Device)| device.healthy;
    let all = state.devices().flat_map(|(resource, devices)| {
        let well = devices.iter().filter(healthy);
        well.flat_map(move |(id, device)| {
            let nodes = match device.nodes.as_slice() {
                [] => &[NO_NODE][..],
                some => some,
            };
            nodes.iter().map(move |node| told(resource, id, *node))
        })
    });
    all.collect()
}

/// Memory as it is told.
pub fn memory(blocks: &[Block]) -> Vec<v1::ContainerMemory> {
    let of = blocks.iter().map(|block| v1::ContainerMemory {
        memory_type: block.resource.clone(),
        size: block.bytes,
        topology: Some(v1::TopologyInfo {
            nodes: block.numas.ids().map(|id| v1::NumaNode { id: i64::from(id) }).collect(),
        }),
    });
    of.collect()
}
