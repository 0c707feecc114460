//! Endpoints of Services: EndpointSlices, the Endpoints of old, and the slices of Endpoints that others made ([`mirror`]).
//!
//! Source: control-plane contract §12 and §16 (25). What a Service's pods offer is worked out here (pure); [`slice`] and
//! [`legacy`] put it into objects.

use super::pod;
use crate::held::{Container, Pod};
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use proto::api::resources::is_sidecar;
use proto::api::selector::Selector;
use std::net::IpAddr;
use std::sync::Arc;

pub mod concern;
pub mod legacy;
pub mod mirror;
pub mod slice;
pub mod topology;
pub mod trigger;

/// A port as a pod offers it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// The Service port's name.
    pub name: String,
    /// Protocol.
    pub protocol: String,
    /// Number on the pod.
    pub number: i32,
    /// Application protocol.
    pub app: Option<String>,
}

/// A pod behind a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its ports, sorted.
    pub ports: Vec<Port>,
    /// Whether its Ready condition is True.
    pub serving: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Its node.
    pub node: String,
    /// Its host name, if the Service is its subdomain.
    pub hostname: Option<String>,
    /// The pod.
    pub target: ObjectReference,
}

/// The Service's selector; `None` when its endpoints are not ours to make.
pub fn selector(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref()?;
    let pairs = spec.selector.as_ref().filter(|s| !s.is_empty())?;
    (spec.type_.as_deref() != Some("ExternalName")).then(|| Selector::from_pairs(pairs))
}

/// Whether endpoints count as ready whatever their pods say.
pub fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses) == Some(true)
}

/// Whether the Service has no address of its own.
pub fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()) == Some("None")
}

fn named_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|c: &Container| c.ports.iter().flatten());
    let mut matching =
        ports.filter(|p| p.name.as_deref() == Some(name) && p.protocol.as_deref().unwrap_or("TCP") == protocol);
    matching.next().map(|p| p.container_port)
}

fn port_of(pod: &Pod, port: &ServicePort) -> Option<Port> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(0)) => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => named_port(pod, name, protocol)?,
    };
    Some(Port {
        name: port.name.clone().unwrap_or_default(),
        protocol: protocol.to_owned(),
        number,
        app: port.app_protocol.clone(),
    })
}

fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let status = pod.status.as_ref();
    let list = status
        .and_then(|s| s.pod_ips.as_ref())
        .into_iter()
        .flatten()
        .map(|ip| ip.ip.as_str());
    let single = status.and_then(|s| s.pod_ip.as_deref());
    let mut all: Vec<IpAddr> = single
        .into_iter()
        .chain(list)
        .filter_map(|ip| ip.parse().ok())
        .collect();
    all.dedup();
    all
}

fn wanted_ports(service: &Service) -> &[ServicePort] {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref());
    ports.unwrap_or_default()
}

fn backend(service: &Service, pod: &Pod) -> Option<Backend> {
    let addresses = addresses(pod);
    if pod::is_terminal(pod) || addresses.is_empty() {
        return None;
    }
    let wanted = wanted_ports(service).iter();
    let mut ports: Vec<Port> = wanted.filter_map(|port| port_of(pod, port)).collect();
    ports.sort();
    let spec = pod.spec.as_ref()?;
    let ours = spec.subdomain.as_deref() == service.metadata.name.as_deref();
    Some(Backend {
        addresses,
        ports,
        serving: pod::is_ready(pod),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        node: pod::node_name(pod).to_owned(),
        hostname: spec.hostname.clone().filter(|h| ours && !h.is_empty()),
        target: ObjectReference {
            kind: Some("Pod".into()),
            namespace: pod.namespace(),
            name: pod.metadata.name.clone(),
            uid: pod.uid(),
            ..ObjectReference::default()
        },
    })
}

/// The pods a Service selects.
pub fn selected<'p>(service: &Service, pods: &'p [Arc<Pod>]) -> impl Iterator<Item = &'p Arc<Pod>> + use<'p> {
    let selector = selector(service);
    pods.iter().filter(move |pod| {
        selector
            .as_ref()
            .is_some_and(|s| s.matches_optional(pod.metadata.labels.as_ref()))
    })
}

/// The pods behind a Service, ordered by name. One that has none of the named ports is among them: it has an address all the same.
pub fn backends(service: &Service, pods: &[Arc<Pod>]) -> Vec<Backend> {
    selected(service, pods)
        .filter_map(|pod| backend(service, pod))
        .collect()
}

/// Leaves out pods whose Node is gone, as upstream's slices do: nobody says any more that they run. A Service that publishes what is not
/// ready has them all the same. Whether there are such pods: their Node may come back.
pub fn leave_out_homeless(service: &Service, backends: &mut Vec<Backend>, is_node: impl Fn(&str) -> bool) -> bool {
    let is_homeless = |backend: &Backend| !is_node(&backend.node);
    let found = backends.iter().any(is_homeless);
    if found && !publishes_not_ready(service) {
        backends.retain(|backend| !is_homeless(backend));
    }
    found
}

#[cfg(test)]
mod tests;
