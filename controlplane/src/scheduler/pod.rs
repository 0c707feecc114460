//! A pod as the scheduler sees it: everything a cycle asks for, computed once. Pure.

use super::constraint::{self, AntiAffinityTerm};
use client::Key;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Toleration};
use kube::ResourceExt;
use proto::api::quantity::{Format, Quantity};
use proto::api::resources::{self, ResourceList};
use std::collections::BTreeMap;
use std::sync::Arc;

/// CPU a container without request counts for in scoring, in thousandths.
const DEFAULT_CPU: i64 = 100;
/// Memory a container without request counts for in scoring, in bytes.
const DEFAULT_MEMORY: i64 = 200 << 20;

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// CPU in thousandths.
    pub cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Local storage in bytes.
    pub storage: i64,
    /// Everything else, in units.
    pub scalar: BTreeMap<String, i64>,
}

impl Amounts {
    /// From a resource list; `pods` is not an amount.
    pub fn from_list(list: &ResourceList) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in list {
            match name.as_str() {
                "cpu" => amounts.cpu = quantity.milli_value(),
                "memory" => amounts.memory = quantity.value(),
                "ephemeral-storage" => amounts.storage = quantity.value(),
                "pods" => {}
                _ => {
                    amounts.scalar.insert(name.clone(), quantity.value());
                }
            }
        }
        amounts
    }

    /// Adds `sign` times `other`.
    pub fn add(&mut self, other: &Self, sign: i64) {
        self.cpu += sign * other.cpu;
        self.memory += sign * other.memory;
        self.storage += sign * other.storage;
        for (name, amount) in &other.scalar {
            *self.scalar.entry(name.clone()).or_default() += sign * amount;
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.storage == 0 && self.scalar.values().all(|a| *a == 0)
    }
}

/// A port of the node a container wants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// `TCP`, `UDP`, `SCTP`.
    pub protocol: String,
    /// Port number.
    pub port: i32,
    /// Address; `0.0.0.0` for all.
    pub address: String,
}

impl HostPort {
    /// Whether both cannot be had.
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = |a: &str| a == "0.0.0.0" || a == "::";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || any(&self.address) || any(&other.address))
    }
}

/// A pod with what cycles ask of it.
#[derive(Clone, Debug)]
pub struct PodInfo {
    /// Namespace and name.
    pub key: Key,
    /// UID.
    pub uid: String,
    /// The object.
    pub pod: Arc<Pod>,
    /// `spec.priority`.
    pub priority: i32,
    /// What it requests.
    pub requests: Amounts,
    /// CPU and memory for scoring: containers without request count a default.
    pub assumed: (i64, i64),
    /// Ports of the node it wants.
    pub ports: Vec<HostPort>,
    /// Images of its containers, with tag.
    pub images: Vec<String>,
    /// What it demands that cannot be evaluated.
    pub unknown: Vec<&'static str>,
    /// Whom its required anti-affinity keeps away.
    pub repelled: Vec<AntiAffinityTerm>,
}

fn requested(container: &Container) -> ResourceList {
    resources::parse_list(container.resources.as_ref().and_then(|r| r.requests.as_ref()))
}

fn with_defaults(container: &Container) -> ResourceList {
    let mut list = requested(container);
    list.entry("cpu".to_owned())
        .or_insert(Quantity::from_milli(DEFAULT_CPU));
    list.entry("memory".to_owned())
        .or_insert(Quantity::from_units(DEFAULT_MEMORY, Format::BinarySi));
    list
}

/// The image name as nodes report it: with a tag.
pub fn normal_image(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') || last.contains('@') {
        name.to_owned()
    } else {
        format!("{name}:latest")
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|c| resources::is_sidecar(c));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|c| c.ports.iter().flatten());
    let wanted = ports.filter(|p| p.host_port.unwrap_or(0) > 0);
    let text =
        |o: &Option<String>, default: &str| o.clone().filter(|t| !t.is_empty()).unwrap_or_else(|| default.into());
    wanted
        .map(|p| HostPort {
            protocol: text(&p.protocol, "TCP"),
            port: p.host_port.unwrap_or(0),
            address: text(&p.host_ip, "0.0.0.0"),
        })
        .collect()
}

impl PodInfo {
    /// Computes what cycles ask.
    pub fn new(pod: Arc<Pod>) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let assumed = Amounts::from_list(&resources::reserved_requests(&pod, with_defaults));
        Self {
            key: Key::of(&*pod),
            uid: pod.uid().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            requests: Amounts::from_list(&resources::reserved_requests(&pod, requested)),
            assumed: (assumed.cpu, assumed.memory),
            ports: host_ports(spec),
            images: spec
                .containers
                .iter()
                .filter_map(|c| c.image.as_deref())
                .map(normal_image)
                .collect(),
            unknown: constraint::unknown(spec),
            repelled: constraint::repelled(&pod),
            pod: pod.clone(),
        }
    }

    /// Whether a newer state of the same pod changes nothing a cycle asks: statuses are frequent, and only those of a resize tell
    /// of other amounts.
    pub fn is_as(&self, newer: &Pod) -> bool {
        self.pod.spec == newer.spec
            && self.requests == Amounts::from_list(&resources::reserved_requests(newer, requested))
    }

    /// The pod's spec.
    pub fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    /// The node it is assigned to; empty if none.
    pub fn node(&self) -> &str {
        self.spec().and_then(|s| s.node_name.as_deref()).unwrap_or_default()
    }

    /// Its tolerations.
    pub fn tolerations(&self) -> &[Toleration] {
        self.spec().and_then(|s| s.tolerations.as_deref()).unwrap_or_default()
    }

    /// Whether scheduling gates hold it back.
    pub fn is_gated(&self) -> bool {
        self.spec()
            .and_then(|s| s.scheduling_gates.as_ref())
            .is_some_and(|g| !g.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(wanted: &str, status: serde_json::Value) -> Arc<Pod> {
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": wanted}}}]);
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"nodeName": "a", "containers": containers}, "status": status});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn given(cpu: &str, ready: bool) -> serde_json::Value {
        json!({"containerStatuses": [{"name": "c", "image": "i", "imageID": "i", "ready": ready, "restartCount": 0,
            "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}]})
    }

    #[test]
    fn of_a_status_only_what_is_reserved_counts() {
        // Wanted is less than what the node has still given.
        let shrinking = PodInfo::new(pod("1", given("2", true)));
        assert_eq!(shrinking.requests.cpu, 2_000);
        assert!(shrinking.is_as(&pod("1", given("2", false))));
        assert!(
            !shrinking.is_as(&pod("1", given("1", true))),
            "a shrink is done by a status"
        );
        assert!(!shrinking.is_as(&pod("2", given("2", true))));
    }
}
