//! The specification, read straight from the objects: no sets, no sharing, nothing remembered.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::table::Packet;
use crate::selector::Labels;

/// A cluster.
#[derive(Clone, Default)]
pub(super) struct Cluster {
    pub(super) namespaces: Vec<Namespace>,
    pub(super) pods: Vec<Pod>,
    pub(super) policies: Vec<NetworkPolicy>,
}

impl Cluster {
    /// Whether this node lets a connection come about.
    pub(super) fn allows(&self, packet: Packet, node: &str) -> bool {
        if packet.initiator == packet.responder {
            return true;
        }
        let subject = self.pod_at(packet.initiator).filter(|pod| on(pod) == node);
        let egress = subject.is_none_or(|pod| {
            self.judge(pod, "Egress", |policy| {
                let rules = policy
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.egress.as_deref())
                    .unwrap_or_default();
                rules.iter().any(|rule| {
                    self.is_peer(policy, rule.to.as_deref(), packet.responder)
                        && self.is_port(rule.ports.as_deref(), packet)
                })
            })
        });
        let subject = self.pod_at(packet.responder).filter(|pod| on(pod) == node);
        let ingress = subject.is_none_or(|pod| {
            self.judge(pod, "Ingress", |policy| {
                let rules = policy
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.ingress.as_deref())
                    .unwrap_or_default();
                rules.iter().any(|rule| {
                    self.is_peer(policy, rule.from.as_deref(), packet.initiator)
                        && self.is_port(rule.ports.as_deref(), packet)
                })
            })
        });
        egress && ingress
    }

    /// Not isolated, or allowed by one of the policies that isolate.
    fn judge(&self, pod: &Pod, kind: &str, allows: impl Fn(&NetworkPolicy) -> bool) -> bool {
        let isolating: Vec<&NetworkPolicy> = self
            .policies
            .iter()
            .filter(|policy| {
                let Some(spec) = &policy.spec else {
                    return false;
                };
                let about = match &spec.policy_types {
                    Some(types) => types.iter().any(|of| of == kind),
                    None => kind == "Ingress" || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
                };
                about
                    && policy.metadata.namespace == pod.metadata.namespace
                    && selects(spec.pod_selector.as_ref(), pod.metadata.labels.as_ref())
            })
            .collect();
        isolating.is_empty() || isolating.into_iter().any(allows)
    }

    /// The pod an address belongs to: neither finished nor in its node's network.
    fn pod_at(&self, addr: IpAddr) -> Option<&Pod> {
        self.pods.iter().find(|pod| {
            let status = pod.status.as_ref().unwrap();
            let phase = status.phase.as_deref().unwrap();
            let ips = status.pod_ips.as_deref().unwrap_or_default();
            phase != "Failed"
                && phase != "Succeeded"
                && pod.spec.as_ref().unwrap().host_network != Some(true)
                && ips.iter().any(|ip| ip.ip.parse() == Ok(addr))
        })
    }

    fn is_peer(&self, policy: &NetworkPolicy, peers: Option<&[NetworkPolicyPeer]>, addr: IpAddr) -> bool {
        let peers = peers.unwrap_or_default();
        peers.is_empty()
            || peers.iter().any(|peer| match &peer.ip_block {
                Some(block) => is_in_block(block, addr),
                None => self.pod_at(addr).is_some_and(|pod| {
                    let namespace = pod.metadata.namespace.clone();
                    let in_namespace = match &peer.namespace_selector {
                        None => namespace == policy.metadata.namespace,
                        selector => {
                            let found = self.namespaces.iter().find(|found| found.metadata.name == namespace);
                            let labels = found.and_then(|found| found.metadata.labels.as_ref());
                            selects(selector.as_ref(), labels)
                        }
                    };
                    in_namespace && selects(peer.pod_selector.as_ref(), pod.metadata.labels.as_ref())
                }),
            })
    }

    fn is_port(&self, ports: Option<&[NetworkPolicyPort]>, packet: Packet) -> bool {
        let ports = ports.unwrap_or_default();
        ports.is_empty()
            || ports.iter().any(|port| {
                let protocol = port.protocol.as_deref().unwrap_or("TCP");
                let number = match protocol {
                    "TCP" => 6,
                    "UDP" => 17,
                    _ => 132,
                };
                number == packet.protocol
                    && match (&port.port, port.end_port) {
                        (None, _) => true,
                        (Some(IntOrString::Int(first)), end) => {
                            (*first..=end.unwrap_or(*first)).contains(&i32::from(packet.port))
                        }
                        (Some(IntOrString::String(name)), _) => self.has_port(packet, protocol, name),
                    }
            })
    }

    /// Whether the destination calls that port by this name.
    fn has_port(&self, packet: Packet, protocol: &str, name: &str) -> bool {
        let containers = self
            .pod_at(packet.responder)
            .map(|pod| &pod.spec.as_ref().unwrap().containers);
        let mut ports = containers
            .into_iter()
            .flatten()
            .flat_map(|container| container.ports.iter().flatten());
        ports.any(|port| {
            port.name.as_deref() == Some(name)
                && port.protocol.as_deref().unwrap_or("TCP") == protocol
                && port.container_port == i32::from(packet.port)
        })
    }
}

fn on(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().node_name.as_deref().unwrap_or_default()
}

fn selects(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let none = Labels::new();
    let labels = labels.unwrap_or(&none);
    let Some(selector) = selector else {
        return true;
    };
    let by_label = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    let by_expression = selector.match_expressions.iter().flatten().all(|expression| {
        let value = labels.get(&expression.key);
        let is_listed = value.is_some_and(|value| expression.values.iter().flatten().any(|one| one == value));
        match expression.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    });
    by_label && by_expression
}

/// Bit by bit.
fn is_in(network: &str, addr: IpAddr) -> bool {
    let (base, prefix) = network.split_once('/').unwrap();
    let bits = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr
            .octets()
            .iter()
            .map(|byte| format!("{byte:08b}"))
            .collect::<String>(),
        IpAddr::V6(addr) => addr
            .octets()
            .iter()
            .map(|byte| format!("{byte:08b}"))
            .collect::<String>(),
    };
    let (base, addr, prefix) = (
        bits(base.parse().unwrap()),
        bits(addr),
        prefix.parse::<usize>().unwrap(),
    );
    base.len() == addr.len() && base[..prefix] == addr[..prefix]
}

fn is_in_block(block: &IPBlock, addr: IpAddr) -> bool {
    is_in(&block.cidr, addr) && !block.except.iter().flatten().any(|except| is_in(except, addr))
}
