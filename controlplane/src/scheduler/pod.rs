//! A pod as the scheduler sees it: everything a cycle asks for, computed once. Pure.

use super::constraint;
use super::plugin::node_declared_features::Features;
use super::spread::SpreadConstraint;
use super::term::PodTerms;
use crate::held::{Container, Pod, PodSpec};
use client::Key;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use kube::ResourceExt;
use proto::api::quantity::{Format, Quantity};
use proto::api::resources::{self, ResourceList};
use std::collections::BTreeMap;
use std::sync::Arc;

/// CPU a container without request counts for in scoring, in thousandths.
const DEFAULT_CPU: i64 = 100;
/// Memory a container without request counts for in scoring, in bytes.
const DEFAULT_MEMORY: i64 = 200 << 20;

/// More than any node has of anything, and so little that no sum of a score wraps; larger amounts count as this.
const AMOUNT_MAX: i64 = 1 << 50;

/// Amounts of resources, each at most 2^50. Sums of them are of 128 bits: no number of pods wraps one, nor stops it where it
/// could not go back from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts<N = i64> {
    /// CPU in thousandths.
    pub cpu: N,
    /// Memory in bytes.
    pub memory: N,
    /// Local storage in bytes.
    pub storage: N,
    /// Everything else, in units.
    pub scalar: BTreeMap<String, N>,
}

impl Amounts {
    /// From a resource list; `pods` is not an amount.
    pub fn from_list(list: &ResourceList) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in list {
            match name.as_str() {
                "cpu" => amounts.cpu = quantity.milli_value().min(AMOUNT_MAX),
                "memory" => amounts.memory = quantity.value().min(AMOUNT_MAX),
                "ephemeral-storage" => amounts.storage = quantity.value().min(AMOUNT_MAX),
                "pods" => {}
                _ => {
                    amounts.scalar.insert(name.clone(), quantity.value().min(AMOUNT_MAX));
                }
            }
        }
        amounts
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.storage == 0 && self.scalar.values().all(|a| *a == 0)
    }
}

impl Amounts<i128> {
    /// Adds `sign` times `other`.
    pub fn add(&mut self, other: &Amounts, sign: i64) {
        let add = |sum: &mut i128, amount: i64| *sum += i128::from(sign) * i128::from(amount);
        add(&mut self.cpu, other.cpu);
        add(&mut self.memory, other.memory);
        add(&mut self.storage, other.storage);
        for (name, amount) in &other.scalar {
            add(self.scalar.entry(name.clone()).or_default(), *amount);
        }
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
    /// Addresses that stand for all.
    const ANY: [&str; 2] = ["0.0.0.0", "::"];

    /// Whether it cannot be had beside one of these, which are in order. There may be thousands of either: each is looked for.
    pub fn is_taken(&self, taken: &[Self]) -> bool {
        let known = |address: &str| {
            let wanted = (&*self.protocol, self.port, address);
            taken.binary_search_by(|port| (&*port.protocol, port.port, &*port.address).cmp(&wanted))
        };
        if Self::ANY.contains(&&*self.address) {
            let first = taken.get(known("").unwrap_or_else(|at| at));
            return first.is_some_and(|port| port.port == self.port && port.protocol == self.protocol);
        }
        known(&self.address).is_ok() || Self::ANY.iter().any(|any| known(any).is_ok())
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
    /// Ports of the node it wants, in order.
    pub ports: Vec<HostPort>,
    /// Images of its containers and init containers, with tag.
    pub images: Vec<String>,
    /// What it asks for that not every node can.
    pub features: Features,
    /// What it demands that cannot be evaluated.
    pub unknown: Vec<&'static str>,
    /// What other pods' rules see of it.
    pub kin: Arc<Kin>,
    /// Its affinity to other pods.
    pub terms: PodTerms,
    /// Its spread constraints.
    pub spread: Vec<SpreadConstraint>,
}

/// What rules of other pods ask of a pod, beside its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kin {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is being deleted.
    pub terminating: bool,
}

impl Kin {
    fn of(pod: &Pod) -> Self {
        Self {
            labels: pod.labels().clone(),
            terminating: pod.metadata.deletion_timestamp.is_some(),
        }
    }
}

fn started(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref();
    status.and_then(|s| s.start_time.as_ref()).map(|time| time.0)
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

/// What the pod holds of its node, `wanted` of each container that nothing else is said of.
fn reserved(pod: &Pod, wanted: fn(&Container) -> ResourceList) -> Amounts {
    match &pod.spec {
        Some(spec) => Amounts::from_list(&resources::reserved_requests(spec, pod.status.as_ref(), wanted)),
        None => Amounts::default(),
    }
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
    let sidecars = spec.init_containers.iter().flatten().filter(resources::is_sidecar);
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|c| c.ports.iter().flatten());
    let wanted = ports.filter(|p| p.host_port.unwrap_or(0) > 0);
    let text =
        |o: &Option<String>, default: &str| o.clone().filter(|t| !t.is_empty()).unwrap_or_else(|| default.into());
    let wanted = wanted.map(|p| HostPort {
        protocol: text(&p.protocol, "TCP"),
        port: p.host_port.unwrap_or(0),
        address: text(&p.host_ip, "0.0.0.0"),
    });
    let mut wanted: Vec<HostPort> = wanted.collect();
    wanted.sort_unstable();
    wanted
}

impl PodInfo {
    /// Computes what cycles ask.
    pub fn new(pod: Arc<Pod>) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let assumed = reserved(&pod, with_defaults);
        Self {
            key: Key::of(&*pod),
            uid: pod.uid().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            requests: reserved(&pod, requested),
            assumed: (assumed.cpu, assumed.memory),
            ports: host_ports(spec),
            images: spec
                .init_containers
                .iter()
                .flatten()
                .chain(&spec.containers)
                .filter_map(|c| c.image.as_deref())
                .map(normal_image)
                .collect(),
            features: Features::of(spec),
            unknown: constraint::unknown(spec),
            kin: Arc::new(Kin::of(&pod)),
            terms: PodTerms::new(&pod),
            spread: SpreadConstraint::of(spec, pod.labels()),
            pod: pod.clone(),
        }
    }

    /// Whether a newer state of the same pod changes nothing a cycle asks: statuses are frequent, and only those of a resize tell
    /// of other amounts, and only the first when it started.
    pub fn is_as(&self, newer: &Pod) -> bool {
        self.pod.spec == newer.spec
            && *self.kin == Kin::of(newer)
            && self.started() == started(newer)
            && self.requests == reserved(newer, requested)
    }

    /// The pod's spec.
    pub fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    /// The node it is assigned to; empty if none.
    pub fn node(&self) -> &str {
        self.spec().and_then(|s| s.node_name.as_deref()).unwrap_or_default()
    }

    /// When the node began with it.
    pub fn started(&self) -> Option<Timestamp> {
        started(&self.pod)
    }

    /// The node it was nominated for, as the API has it; empty if none.
    pub fn nominated(&self) -> &str {
        let status = self.pod.status.as_ref();
        status
            .and_then(|s| s.nominated_node_name.as_deref())
            .unwrap_or_default()
    }

    /// The scheduler it asks for.
    pub fn scheduler(&self) -> &str {
        let asked = self.spec().and_then(|s| s.scheduler_name.as_deref());
        asked.unwrap_or(super::NAME)
    }

    /// Labels of nodes that its rules about other pods name.
    pub fn topology_keys(&self) -> impl Iterator<Item = &str> {
        let terms = self.terms.all().map(|term| term.topology_key.as_str());
        terms.chain(self.spread.iter().map(|constraint| constraint.topology_key.as_str()))
    }

    /// Its tolerations.
    pub fn tolerations(&self) -> &[Toleration] {
        self.spec().and_then(|s| s.tolerations.as_deref()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::cluster::{Room, clamped};
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
    fn absurd_amounts_wrap_no_sum() {
        let absurd = PodInfo::new(pod("9223372036854775807", json!({})));
        let small = PodInfo::new(pod("1", json!({})));
        let mut room = Room::default();
        (0..10).for_each(|_| room.add(&absurd));
        room.add(&small);
        assert_eq!(room.requested.cpu, 10 * i128::from(AMOUNT_MAX) + 1000);
        (0..10).for_each(|_| room.remove(&absurd));
        assert_eq!((room.requested.cpu, room.assumed.0), (1000, 1000));
        let before = (room.requested.clone(), room.assumed);
        (0..100_000).for_each(|_| room.add(&absurd));
        let sum = 100_000 * i128::from(AMOUNT_MAX) + 1000;
        assert_eq!((room.requested.cpu, room.assumed.0), (sum, sum));
        assert_eq!(clamped(sum), i64::MAX, "there is no room either");
        (0..100_000).for_each(|_| room.remove(&absurd));
        assert_eq!((room.requested, room.assumed), before);
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
