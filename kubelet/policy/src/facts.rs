//! What judging needs to know of a pod. Pure.

use client::ordered::Arrange;
use std::net::IpAddr;

use client::Key;
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::selector::Labels;
use crate::spec::{protocol_name, protocol_number};

/// The annotation by which a mirror pod names the static pod it shows.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation by which a kubelet notes where a pod came from; `api` is the API server.
const SOURCE: &str = "kubernetes.io/config.source";

fn annotation<'p>(pod: &'p Pod, name: &str) -> Option<&'p String> {
    pod.metadata.annotations.as_ref()?.get(name)
}

fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE).is_some_and(|source| source != "api") && annotation(pod, MIRROR).is_none()
}

/// Which pod: two pods of one name, the older one still ending, are told apart by UID. Ordered by namespace first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId {
    /// Namespace and name.
    pub key: Key,
    /// UID; of a mirror pod the one of its static pod.
    pub uid: String,
}

impl PodId {
    /// The identity of a pod.
    pub fn of(pod: &Pod) -> Self {
        let mirrored = annotation(pod, MIRROR);
        Self {
            key: Key::of(pod),
            uid: mirrored.or(pod.metadata.uid.as_ref()).cloned().unwrap_or_default(),
        }
    }
}

/// A port of a container that has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedPort {
    /// Its name.
    pub name: String,
    /// IP protocol number.
    pub protocol: u8,
    /// Port number.
    pub port: u16,
}

/// What is known of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether it runs on this node.
    pub is_local: bool,
    /// Whether it is of a file of this node's, not of the API server's.
    pub is_static: bool,
    /// Whether policies concern it: it has a network of its own, and it has not finished.
    pub is_subject: bool,
    /// Its labels.
    pub labels: Labels,
    /// Its addresses, of both families.
    pub addresses: Vec<IpAddr>,
    /// Its ports with a name: of containers and of those init containers that go on running.
    pub ports: Vec<NamedPort>,
}

impl Facts {
    /// Reads a pod. Pods that finished, and those in the node's network, are no subject of a policy.
    pub fn of(pod: &Pod, node: &str) -> Self {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let on_host = spec.and_then(|spec| spec.host_network).unwrap_or(false);
        let ips = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
        let mut addresses: Vec<IpAddr> = ips.iter().filter_map(|ip| ip.ip.parse().ok()).collect();
        if addresses.is_empty() {
            addresses.extend(status.and_then(|status| status.pod_ip.as_ref()?.parse::<IpAddr>().ok()));
        }
        Self {
            is_local: spec.and_then(|spec| spec.node_name.as_deref()) == Some(node),
            is_static: is_static(pod),
            is_subject: !on_host && !matches!(phase, "Succeeded" | "Failed"),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            addresses,
            ports: named_ports(pod),
        }
    }

    /// The numbers of the ports of one name and protocol.
    pub fn numbers<'a>(&'a self, protocol: u8, name: &'a str) -> impl Iterator<Item = u16> + 'a {
        let named = self.ports.iter();
        named
            .filter(move |port| port.protocol == protocol && port.name == name)
            .map(|port| port.port)
    }
}

/// Leaves of a pod what [`Facts`] and [`PodId`] are read from, and what an informer needs: of all pods of a cluster that is all a
/// node has room for.
pub fn trim(pod: Pod) -> Pod {
    let ports = named_ports(&pod).into_iter().map(|port| ContainerPort {
        name: Some(port.name),
        protocol: protocol_name(port.protocol).map(str::to_owned),
        container_port: i32::from(port.port),
        ..ContainerPort::default()
    });
    let ports: Vec<ContainerPort> = ports.collect();
    // All in one container: of which one they are does not matter.
    let containers = (!ports.is_empty()).then(|| Container {
        ports: Some(ports),
        ..Container::default()
    });
    let (old, spec) = (pod.metadata, pod.spec.unwrap_or_default());
    let mirrored = old.annotations.and_then(|mut all| all.remove_entry(MIRROR));
    Pod {
        metadata: ObjectMeta {
            name: old.name,
            namespace: old.namespace,
            uid: old.uid,
            resource_version: old.resource_version,
            labels: old.labels,
            annotations: mirrored.map(|entry| [entry].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: spec.node_name,
            host_network: spec.host_network,
            containers: containers.into_iter().collect(),
            ..PodSpec::default()
        }),
        status: pod.status.map(|status| PodStatus {
            phase: status.phase,
            pod_ip: status.pod_ip,
            pod_ips: status.pod_ips,
            ..PodStatus::default()
        }),
    }
}

fn named_ports(pod: &Pod) -> Vec<NamedPort> {
    let Some(spec) = pod.spec.as_ref() else {
        return Vec::new();
    };
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let mut found: Vec<NamedPort> = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            Some(NamedPort {
                name: port.name.clone()?,
                protocol: protocol_number(port.protocol.as_deref())?,
                port: u16::try_from(port.container_port).ok()?,
            })
        })
        .collect();
    found.arrange();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(pod: serde_json::Value) -> Facts {
        Facts::of(&serde_json::from_value(pod).unwrap(), "n1")
    }

    #[test]
    fn who_is_a_subject() {
        for (spec, status, is_local, is_subject) in [
            (json!({"nodeName": "n1"}), json!({"phase": "Running"}), true, true),
            (json!({"nodeName": "n2"}), json!({"phase": "Pending"}), false, true),
            (json!({"nodeName": "n1", "hostNetwork": true}), json!({}), true, false),
            (json!({"nodeName": "n1"}), json!({"phase": "Failed"}), true, false),
            (json!({"nodeName": "n1"}), json!({"phase": "Succeeded"}), true, false),
            (json!({}), json!({}), false, true),
        ] {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let facts = facts(json!({"metadata": {"name": "p"}, "spec": spec, "status": status}));
            assert_eq!((facts.is_local, facts.is_subject), (is_local, is_subject), "{spec}");
        }
    }

    #[test]
    fn addresses_and_names() {
        let facts = facts(json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "c", "ports": [
                    {"name": "web", "containerPort": 80}, {"name": "dns", "protocol": "UDP", "containerPort": 53},
                    {"containerPort": 1}]}],
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "ports": [{"name": "web", "containerPort": 81}]},
                    {"name": "i", "ports": [{"name": "web", "containerPort": 82}]}]
            },
            "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "nonsense"}]}
        }));
        let texts: Vec<String> = facts.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.1", "fd00::1"]);
        assert_eq!(facts.numbers(6, "web").collect::<Vec<_>>(), [80, 81]);
        assert_eq!(facts.numbers(17, "dns").collect::<Vec<_>>(), [53]);
        assert_eq!(facts.numbers(6, "dns").count(), 0);
    }

    #[test]
    fn a_trimmed_pod_says_the_same() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "7", "labels": {"app": "x"},
                "annotations": {"kubernetes.io/config.mirror": "static", "other": "long"},
                "managedFields": [{"manager": "m"}], "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "1"}]},
            "spec": {
                "nodeName": "n1", "hostNetwork": true, "volumes": [{"name": "v"}],
                "containers": [{"name": "c", "image": "i", "ports": [
                    {"name": "web", "containerPort": 80}, {"name": "dns", "protocol": "UDP", "containerPort": 53},
                    {"name": "sig", "protocol": "SCTP", "containerPort": 54}, {"containerPort": 1}]}],
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 81}]},
                    {"name": "i", "ports": [{"name": "init", "containerPort": 82}]}]
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "startTime": "2026-01-01T00:00:00Z"}
        }))
        .unwrap();
        let trimmed = trim(pod.clone());
        for node in ["n1", "n2"] {
            assert_eq!(Facts::of(&trimmed, node), Facts::of(&pod, node));
        }
        assert_eq!(PodId::of(&trimmed), PodId::of(&pod));
        assert_eq!(trimmed.metadata.resource_version, pod.metadata.resource_version);
        let size = |pod: &Pod| serde_json::to_string(pod).unwrap().len();
        assert!(size(&trimmed) < size(&pod));
        assert_eq!(trim(trimmed.clone()), trimmed);
    }

    #[test]
    fn a_mirror_pod_is_its_static_pod() {
        let pod = json!({"metadata": {"namespace": "a", "name": "p", "uid": "api",
            "annotations": {"kubernetes.io/config.mirror": "static"}}});
        assert_eq!(PodId::of(&serde_json::from_value(pod).unwrap()).uid, "static");
    }
}
