//! What a Service uses: its place, node ports, a load balancer. Pure.

use super::{Measured, Usage, one, units};
use k8s_openapi::api::core::v1::{ScopedResourceSelectorRequirement, Service};
use k8s_openapi::jiff::Timestamp;
use proto::api::quantity::Quantity;

const NAMES: &[&str] = &[
    "count/services",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

pub(super) fn measures(name: &str) -> bool {
    NAMES.contains(&name)
}

impl Measured for Service {
    fn usage(&self, _now: Timestamp) -> Usage {
        let spec = self.spec.as_ref();
        let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
        let explicit = ports.iter().filter(|port| port.node_port.unwrap_or(0) != 0).count();
        let given = spec.and_then(|spec| spec.allocate_load_balancer_node_ports);
        let (balancers, node_ports) = match spec.and_then(|spec| spec.type_.as_deref()) {
            Some("NodePort") => (Quantity::ZERO, units(ports.len())),
            // Ports are given after this is asked: what counts is whether they will be.
            Some("LoadBalancer") if given == Some(false) => (one(), units(explicit)),
            Some("LoadBalancer") => (one(), units(ports.len())),
            _ => (Quantity::ZERO, Quantity::ZERO),
        };
        let amounts = [one(), one(), balancers, node_ports];
        NAMES.iter().map(|name| (*name).to_owned()).zip(amounts).collect()
    }

    fn is_in(&self, _scope: &ScopedResourceSelectorRequirement) -> bool {
        false
    }
}
