//! What the node's status says. Pure.

use super::health::Health;
use super::whole_seconds;
use crate::config::{Config, VERSION};
use crate::device::state::Capacity;
use crate::downward::NodeAllocatable;
use crate::eviction::Conditions;
use crate::eviction::threshold::{Condition, Signal};
use crate::host::machine::{Disk, Machine};
use crate::reason::node;
use crate::runtime::{ImageInfo, RuntimeStatus, RuntimeVersion};
use client::ordered::Arrange;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures, NodeStatus, NodeSwapStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proto::api::names::is_extended_resource;
use proto::api::quantity::{Format, Quantity};
use proto::cri;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

const NAMES_PER_IMAGE: usize = 5;

/// The machine and this kubelet's place on it; constant while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The node's name.
    pub name: String,
    /// Its host name, for the Hostname address and label.
    pub host_name: String,
    /// Its addresses, primary first.
    pub ips: Vec<IpAddr>,
    /// The machine.
    pub machine: Machine,
    /// The disk of `--root-dir`.
    pub disk: Disk,
    /// Bytes of huge pages by size, such as `2Mi`.
    pub hugepages: BTreeMap<String, i64>,
    /// Where the kubelet serves.
    pub port: u16,
}

/// What the runtime says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeFacts {
    /// Name and version.
    pub version: RuntimeVersion,
    /// Its handlers.
    pub handlers: Vec<cri::RuntimeHandler>,
    /// Its features.
    pub features: Option<cri::RuntimeFeatures>,
    /// Its images.
    pub images: Vec<ImageInfo>,
}

impl RuntimeFacts {
    /// What a runtime of this version says in its status; images are listed elsewhere.
    pub fn of(status: &RuntimeStatus, version: RuntimeVersion) -> Self {
        Self {
            version,
            handlers: status.handlers.clone(),
            features: status.features,
            images: Vec::new(),
        }
    }
}

fn bytes(value: i64) -> ApiQuantity {
    Quantity::from_units(value, Format::BinarySi).to_api()
}

fn plain(value: i64) -> ApiQuantity {
    Quantity::from_units(value, Format::DecimalSi).to_api()
}

/// How many pods the node takes: `maxPods`, and no more than `podsPerCore` for each of its cores.
pub fn max_pods(config: &Config, machine: &Machine) -> i64 {
    match config.node.pods_per_core {
        0 => config.node.max_pods,
        per_core => config.node.max_pods.min(per_core.saturating_mul(machine.cpus)),
    }
}

/// Bytes of memory that are kept from pods: what is reserved, and where hard eviction begins.
pub fn memory_kept(config: &Config, facts: &Facts) -> i64 {
    let hard = config.eviction.kept_back(Signal::MemoryAvailable, facts.machine.memory);
    config.cgroups.reserved.memory.saturating_add(hard)
}

/// What pods may use of the node: capacity less reservations and what hard eviction thresholds keep.
pub fn allocatable(config: &Config, facts: &Facts) -> NodeAllocatable {
    let reserved = &config.cgroups.reserved;
    let kept = |signal, capacity| config.eviction.kept_back(signal, capacity);
    let hugepages: i64 = facts.hugepages.values().sum();
    let disk = facts.disk.capacity;
    let memory = facts.machine.memory - memory_kept(config, facts) - hugepages;
    let disk = disk - reserved.ephemeral_storage - kept(Signal::NodeFsAvailable, disk);
    NodeAllocatable {
        cpu_milli: (facts.machine.cpus * 1000 - reserved.cpu_milli).max(0),
        memory: memory.max(0),
        ephemeral_storage: disk.max(0),
    }
}

/// What more is reserved of than there is, together with what hard eviction thresholds keep: a sentence each, as upstream's.
pub fn over_reserved(config: &Config, facts: &Facts) -> Vec<String> {
    let (reserved, machine) = (&config.cgroups.reserved, &facts.machine);
    let with_kept = |own: i64, signal, all| own.saturating_add(config.eviction.kept_back(signal, all));
    let (memory, disk) = (machine.memory, facts.disk.capacity);
    let storage = with_kept(reserved.ephemeral_storage, Signal::NodeFsAvailable, disk);
    let all = [
        ("cpu", reserved.cpu_milli, machine.cpus * 1000),
        (
            "memory",
            with_kept(reserved.memory, Signal::MemoryAvailable, memory),
            memory,
        ),
        (
            "ephemeral-storage",
            if config.local_storage { storage } else { 0 },
            disk,
        ),
    ];
    let text = |name: &str, amount: i64| match name {
        "cpu" => Quantity::from_milli(amount).to_string(),
        _ => Quantity::from_units(amount, Format::BinarySi).to_string(),
    };
    let over = all.into_iter().filter(|(_, own, capacity)| own > capacity);
    over.map(|(name, own, capacity)| {
        let (own, capacity) = (text(name, own), text(name, capacity));
        format!(
            "Resource {name:?} has a reservation of {own} but capacity of {capacity}. Expected capacity >= reservation \
             (systemReserved, kubeReserved and evictionHard together)."
        )
    })
    .collect()
}

/// Adds what device plugins offer. What others say the node has of extended resources stays theirs, and all of it is allocatable, as
/// upstream.
fn add_devices(
    (capacity, allocatable): (&mut Quantities, &mut Quantities),
    devices: &Capacity,
    old: Option<&NodeStatus>,
) {
    let others = old.and_then(|status| status.capacity.as_ref()).into_iter().flatten();
    for (name, amount) in others.filter(|(name, _)| is_extended_resource(name)) {
        allocatable.insert(name.clone(), amount.clone());
    }
    let count = |count: usize| plain(i64::try_from(count).unwrap_or(i64::MAX));
    let all = devices.capacity.iter();
    capacity.extend(all.map(|(name, devices)| (name.clone(), count(*devices))));
    let healthy = devices.allocatable.iter();
    allocatable.extend(healthy.map(|(name, devices)| (name.clone(), count(*devices))));
}

type Quantities = BTreeMap<String, ApiQuantity>;

fn capacities(config: &Config, facts: &Facts) -> (Quantities, Quantities) {
    let machine = &facts.machine;
    let pods = plain(max_pods(config, machine));
    let mut capacity = BTreeMap::from([
        ("cpu".to_owned(), plain(machine.cpus)),
        ("memory".to_owned(), bytes(machine.memory)),
        ("pods".to_owned(), pods.clone()),
        ("ephemeral-storage".to_owned(), bytes(facts.disk.capacity)),
    ]);
    let left = allocatable(config, facts);
    let mut free = BTreeMap::from([
        ("cpu".to_owned(), Quantity::from_milli(left.cpu_milli).to_api()),
        ("memory".to_owned(), bytes(left.memory)),
        ("pods".to_owned(), pods),
        ("ephemeral-storage".to_owned(), plain(left.ephemeral_storage)),
    ]);
    for (size, amount) in &facts.hugepages {
        capacity.insert(format!("hugepages-{size}"), bytes(*amount));
        free.insert(format!("hugepages-{size}"), bytes(*amount));
    }
    if !config.local_storage {
        for list in [&mut capacity, &mut free] {
            list.remove("ephemeral-storage");
        }
    }
    (capacity, free)
}

fn condition(kind: &str, status: bool, reason: &str, message: &str) -> NodeCondition {
    NodeCondition {
        type_: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..NodeCondition::default()
    }
}

fn ready(health: &Health) -> NodeCondition {
    let problems = health.problems();
    match problems.as_slice() {
        [] => condition(
            node::READY,
            true,
            node::KUBELET_READY,
            "kubelet is posting ready status",
        ),
        [one] => condition(node::READY, false, node::KUBELET_NOT_READY, one),
        many => condition(
            node::READY,
            false,
            node::KUBELET_NOT_READY,
            &format!("[{}]", many.join(", ")),
        ),
    }
}

/// The conditions this kubelet owns; a condition that did not flip keeps its transition time.
fn conditions(health: &Health, pressure: &Conditions, old: Option<&NodeStatus>, now: Timestamp) -> Vec<NodeCondition> {
    let now = Time(whole_seconds(now));
    let pressed = |condition| pressure.contains(&condition);
    let mut list = vec![
        match pressed(Condition::Memory) {
            true => condition(
                node::MEMORY_PRESSURE,
                true,
                node::KUBELET_HAS_INSUFFICIENT_MEMORY,
                "kubelet has insufficient memory available",
            ),
            false => condition(
                node::MEMORY_PRESSURE,
                false,
                node::KUBELET_HAS_SUFFICIENT_MEMORY,
                "kubelet has sufficient memory available",
            ),
        },
        match pressed(Condition::Disk) {
            true => condition(
                node::DISK_PRESSURE,
                true,
                node::KUBELET_HAS_DISK_PRESSURE,
                "kubelet has disk pressure",
            ),
            false => condition(
                node::DISK_PRESSURE,
                false,
                node::KUBELET_HAS_NO_DISK_PRESSURE,
                "kubelet has no disk pressure",
            ),
        },
        match pressed(Condition::Pid) {
            true => condition(
                node::PID_PRESSURE,
                true,
                node::KUBELET_HAS_INSUFFICIENT_PID,
                "kubelet has insufficient PID available",
            ),
            false => condition(
                node::PID_PRESSURE,
                false,
                node::KUBELET_HAS_SUFFICIENT_PID,
                "kubelet has sufficient PID available",
            ),
        },
        ready(health),
    ];
    let before = old.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    for new in &mut list {
        new.last_heartbeat_time = Some(now.clone());
        let same = before.iter().find(|c| c.type_ == new.type_ && c.status == new.status);
        new.last_transition_time = same.and_then(|c| c.last_transition_time.clone()).or(Some(now.clone()));
    }
    list
}

/// The machine's architecture as Kubernetes calls it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn system_info(facts: &Facts, runtime: &RuntimeFacts) -> NodeSystemInfo {
    let machine = &facts.machine;
    let version = &runtime.version;
    NodeSystemInfo {
        machine_id: machine.machine_id.clone(),
        system_uuid: machine.system_uuid.clone(),
        boot_id: machine.boot_id.clone(),
        kernel_version: machine.kernel.clone(),
        os_image: machine.os_image.clone(),
        container_runtime_version: match version.name.as_str() {
            "" => "unknown://".to_owned(),
            name => format!("{name}://{}", version.version.trim_start_matches('v')),
        },
        kubelet_version: VERSION.to_owned(),
        kube_proxy_version: String::new(),
        operating_system: "linux".to_owned(),
        architecture: architecture().to_owned(),
        swap: (machine.swap > 0).then_some(NodeSwapStatus {
            capacity: Some(machine.swap),
        }),
    }
}

/// Largest images first, so that the scheduler's locality score sees those that matter.
fn images(config: &Config, runtime: &RuntimeFacts) -> Vec<ContainerImage> {
    let mut images: Vec<&ImageInfo> = runtime.images.iter().collect();
    images.arrange_by(|a, b| b.size.cmp(&a.size).then_with(|| b.id.cmp(&a.id)));
    let most = usize::try_from(config.node.max_images).unwrap_or(usize::MAX);
    let names = |image: &ImageInfo| -> Vec<String> {
        let all = image.repo_digests.iter().chain(&image.repo_tags);
        all.take(NAMES_PER_IMAGE).cloned().collect()
    };
    images
        .into_iter()
        .take(most)
        .map(|image| ContainerImage {
            names: Some(names(image)),
            size_bytes: i64::try_from(image.size).ok(),
        })
        .collect()
}

/// Where the node is. With an external cloud provider that is the provider's to say, from its first word on (`None`); until then
/// it is what was configured, if anything was.
fn addresses(config: &Config, facts: &Facts, old: Option<&NodeStatus>) -> Option<Vec<NodeAddress>> {
    let external = config.node.external_cloud;
    let told = old.and_then(|status| status.addresses.as_ref());
    if external && told.is_some_and(|told| !told.is_empty()) {
        return None;
    }
    let address = |kind: &str, address: String| NodeAddress {
        type_: kind.to_owned(),
        address,
    };
    let known = !external || !config.node.ips.is_empty();
    let ips = facts.ips.iter().filter(|_| known);
    let ips = ips.map(|ip| address("InternalIP", ip.to_string()));
    Some(ips.chain([address("Hostname", facts.host_name.clone())]).collect())
}

/// By name: a runtime may tell them in another order each time, and that is no news.
fn handlers(runtime: &RuntimeFacts) -> Option<Vec<NodeRuntimeHandler>> {
    let mut list: Vec<NodeRuntimeHandler> = runtime
        .handlers
        .iter()
        .map(|handler| {
            let features = handler.features.unwrap_or_default();
            NodeRuntimeHandler {
                name: Some(handler.name.clone()),
                features: Some(NodeRuntimeHandlerFeatures {
                    recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
                    user_namespaces: Some(features.user_namespaces),
                }),
            }
        })
        .collect();
    list.arrange_by(|a, b| a.name.cmp(&b.name));
    (!list.is_empty()).then_some(list)
}

/// The whole status as it should be now.
pub fn node_status(
    config: &Config,
    facts: &Facts,
    runtime: &RuntimeFacts,
    (health, pressure): (&Health, &Conditions),
    devices: &Capacity,
    old: Option<&NodeStatus>,
    now: Timestamp,
) -> NodeStatus {
    let (mut capacity, mut allocatable) = capacities(config, facts);
    add_devices((&mut capacity, &mut allocatable), devices, old);
    NodeStatus {
        addresses: addresses(config, facts, old),
        capacity: Some(capacity),
        allocatable: Some(allocatable),
        node_info: Some(system_info(facts, runtime)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: i32::from(facts.port),
            }),
        }),
        images: Some(images(config, runtime)).filter(|list| !list.is_empty()),
        runtime_handlers: handlers(runtime),
        features: runtime.features.as_ref().map(|f| NodeFeatures {
            supplemental_groups_policy: Some(f.supplemental_groups_policy),
        }),
        declared_features: Some(declared(config)),
        conditions: Some(conditions(health, pressure, old, now)),
        ..NodeStatus::default()
    }
}

/// What this kubelet can that older or otherwise configured ones cannot, by upstream's names, in their order (KEP-5328).
fn declared(config: &Config) -> Vec<String> {
    let all = [
        ("ExtendWebSocketsToKubelet", true),
        // Whoever has CPUs alone keeps as many as it has.
        ("GuaranteedQoSPodCPUResize", config.pinning.cpu.is_none()),
        ("InPlacePodLevelResourcesVerticalScaling", true),
        ("InPlacePodVerticalScalingInitContainers", true),
        ("RestartAllContainersOnContainerExits", true),
    ];
    let own = all.into_iter().filter(|(_, can)| *can);
    own.map(|(name, _)| name.to_owned()).collect()
}

/// Takes sizes of huge pages out of the node that its machine no longer has: what is left out of a patch stays.
pub(super) fn drop_stale(patch: &mut Value, old: &NodeStatus, new: &NodeStatus) {
    for (field, old, new) in [
        ("capacity", &old.capacity, &new.capacity),
        ("allocatable", &old.allocatable, &new.allocatable),
    ] {
        let is_known = |name: &str| new.as_ref().is_some_and(|list| list.contains_key(name));
        let names = old.iter().flat_map(BTreeMap::keys);
        for name in names.filter(|name| name.starts_with("hugepages-") && !is_known(name)) {
            patch["status"][field][name] = Value::Null;
        }
    }
}

/// Whether a condition of the node's object has another status than it should, or is not there: the node controller turns those of
/// a kubelet it does not hear of to `Unknown`.
pub(super) fn conditions_turned(object: &NodeStatus, wanted: &NodeStatus) -> bool {
    let has = |wanted: &NodeCondition| {
        let mut conditions = object.conditions.iter().flatten();
        conditions.any(|c| c.type_ == wanted.type_ && c.status == wanted.status)
    };
    !wanted.conditions.iter().flatten().all(has)
}

/// Whether two statuses differ in nothing but their conditions' heartbeat.
pub(super) fn same_but_heartbeat(a: &NodeStatus, b: &NodeStatus) -> bool {
    let still = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
            // The server's copy may lag behind our own last write.
            condition.last_transition_time = None;
        }
        status
    };
    still(a) == still(b)
}

#[cfg(test)]
pub(super) mod tests;
