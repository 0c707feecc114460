//! `/stats/summary`: what the node, its pods and their containers use (kubelet contract §12).
//!
//! Only what is measured is told: a block whose numbers cannot be had is left out.

use super::Server;
use crate::cgroup::Usage;
use crate::host::load::Load;
use crate::host::machine::{self, Disk};
use crate::host::traffic::{self, Traffic};
use crate::pod::view::PodSnapshot;
use crate::runtime::ContainerUsage;
use crate::runtime::observed::ContainerState;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The interface a pod's network is known by.
const MAIN_INTERFACE: &str = "eth0";

/// The document; `only_cpu_and_memory` leaves file systems and the network out.
pub(super) async fn summary(server: &Server, only_cpu_and_memory: bool) -> Value {
    let now = server.parts.clock.now();
    let containers = match server.parts.runtime.list_container_stats().await {
        Ok(containers) => containers,
        Err(error) => {
            tracing::warn!(%error, "containers' usage not told by the runtime");
            Vec::new()
        }
    };
    let mut pods = Vec::new();
    for snapshot in server.parts.pods.list().iter().filter(|snapshot| snapshot.active) {
        let usage = server
            .parts
            .cgroups
            .usage(Some((*snapshot.pod).clone()))
            .await
            .unwrap_or_default();
        let mut told = pod(snapshot, &usage, &containers, only_cpu_and_memory, now);
        if !only_cpu_and_memory {
            put_network(&mut told, &traffic_of(server, snapshot).await, now);
        }
        pods.push(Value::Object(told));
    }
    let (roots, root_dir) = (server.settings.roots.clone(), server.parts.context.root_dir.clone());
    let read = move || {
        (
            Load::read(&roots),
            machine::disk(&root_dir),
            traffic::read(&roots, None),
        )
    };
    let (load, disk, traffic) = client::blocking::spawn(read).await.unwrap_or_default();
    let disk = (!only_cpu_and_memory).then_some(disk);
    let mut node = node(&server.parts.context.node_name, &load, disk, now);
    if !only_cpu_and_memory {
        put_network(&mut node, &traffic, now);
    }
    json!({"node": node, "pods": pods})
}

/// What the pod's interfaces have carried; nothing while nothing of it runs.
pub(super) async fn traffic_of(server: &Server, snapshot: &PodSnapshot) -> Vec<Traffic> {
    let process = server
        .parts
        .cgroups
        .process((*snapshot.pod).clone())
        .await
        .ok()
        .flatten();
    let Some(process) = process else {
        return Vec::new();
    };
    let roots = server.settings.roots.clone();
    let read = client::blocking::spawn(move || traffic::read(&roots, Some(process)));
    read.await.unwrap_or_default()
}

/// Puts the block of the network: its main interface, by name, and each of them.
fn put_network(into: &mut Map<String, Value>, traffic: &[Traffic], now: Timestamp) {
    let main = traffic.iter().find(|interface| interface.name == MAIN_INTERFACE);
    let Some(main) = main.or(traffic.first()) else {
        return;
    };
    let block = |interface: &Traffic| {
        json!({"name": interface.name, "rxBytes": interface.rx_bytes, "rxErrors": interface.rx_errors,
            "txBytes": interface.tx_bytes, "txErrors": interface.tx_errors})
    };
    let mut network = block(main);
    network["time"] = Value::from(now.to_string());
    network["interfaces"] = traffic.iter().map(block).collect();
    into.insert("network".to_owned(), network);
}

fn node(name: &str, load: &Load, disk: Option<Disk>, now: Timestamp) -> Map<String, Value> {
    let mut node = Map::from_iter([("nodeName".to_owned(), Value::from(name))]);
    let booted = load.booted.and_then(|at| Timestamp::from_second(at).ok());
    node.insert(
        "startTime".to_owned(),
        json!(booted.unwrap_or(Timestamp::UNIX_EPOCH).to_string()),
    );
    put(&mut node, "cpu", &[("usageCoreNanoSeconds", load.cpu_nanos)], now);
    let memory = [
        ("availableBytes", load.memory_available),
        ("usageBytes", load.memory_used),
        ("workingSetBytes", load.memory_used),
    ];
    put(&mut node, "memory", &memory, now);
    if let Some(disk) = disk {
        let count = |number: i64| u64::try_from(number).ok();
        let numbers = [
            ("availableBytes", count(disk.available)),
            ("capacityBytes", count(disk.capacity)),
            ("usedBytes", count(disk.capacity - disk.available)),
            ("inodesFree", count(disk.inodes_free)),
            ("inodes", count(disk.inodes)),
            ("inodesUsed", count(disk.inodes - disk.inodes_free)),
        ];
        put(&mut node, "fs", &numbers, now);
    }
    node
}

fn pod(
    snapshot: &PodSnapshot,
    usage: &Usage,
    containers: &[ContainerUsage],
    only_cpu_and_memory: bool,
    now: Timestamp,
) -> Map<String, Value> {
    let meta = &snapshot.pod.metadata;
    let own = containers
        .iter()
        .filter(|container| container.pod.as_ref().map(crate::id::PodUid::as_str) == meta.uid.as_deref());
    let containers: Vec<Value> = own
        .map(|usage| container(snapshot, usage, only_cpu_and_memory, now))
        .collect();
    let started = snapshot
        .pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    let mut pod = Map::new();
    pod.insert(
        "podRef".to_owned(),
        json!({"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}),
    );
    pod.insert("startTime".to_owned(), json!(started));
    pod.insert("containers".to_owned(), Value::Array(containers));
    put(&mut pod, "cpu", &[("usageCoreNanoSeconds", usage.cpu_nanos)], now);
    let memory = [("usageBytes", usage.memory), ("workingSetBytes", usage.working_set)];
    put(&mut pod, "memory", &memory, now);
    pod
}

fn container(snapshot: &PodSnapshot, usage: &ContainerUsage, only_cpu_and_memory: bool, now: Timestamp) -> Value {
    let at = Timestamp::from_nanosecond(i128::from(usage.at_nanos)).unwrap_or(now);
    let running = snapshot
        .observed
        .containers
        .iter()
        .find(|c| c.name == usage.name && c.state == ContainerState::Running);
    let started = running.and_then(|container| container.started_at);
    let mut out = Map::from_iter([
        ("name".to_owned(), Value::from(usage.name.as_str())),
        ("startTime".to_owned(), json!(started.map(|at| at.to_string()))),
    ]);
    put(&mut out, "cpu", &[("usageCoreNanoSeconds", usage.cpu_nanos)], at);
    let memory = [
        ("usageBytes", usage.memory),
        ("workingSetBytes", usage.working_set),
        ("rssBytes", usage.rss),
    ];
    put(&mut out, "memory", &memory, at);
    if let Some((bytes, inodes)) = usage.layer.filter(|_| !only_cpu_and_memory) {
        put(
            &mut out,
            "rootfs",
            &[("usedBytes", Some(bytes)), ("inodesUsed", Some(inodes))],
            at,
        );
    }
    Value::Object(out)
}

/// Puts a block of the numbers that are known; none if there are none.
fn put(into: &mut Map<String, Value>, name: &str, numbers: &[(&str, Option<u64>)], at: Timestamp) {
    let mut block: Map<String, Value> = numbers
        .iter()
        .filter_map(|(name, number)| Some(((*name).to_owned(), Value::from((*number)?))))
        .collect();
    if !block.is_empty() {
        block.insert("time".to_owned(), Value::from(at.to_string()));
        into.insert(name.to_owned(), Value::Object(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_known_by_its_main_interface_and_tells_of_each() {
        let interface = |name: &str, rx_bytes| Traffic {
            name: name.to_owned(),
            rx_bytes,
            rx_errors: 1,
            tx_bytes: 2,
            tx_errors: 3,
        };
        let mut told = Map::new();
        let now = Timestamp::UNIX_EPOCH;
        put_network(&mut told, &[], now);
        assert!(told.is_empty());
        put_network(&mut told, &[interface("cni0", 5), interface("eth0", 7)], now);
        let each =
            |name: &str, rx: u64| json!({"name": name, "rxBytes": rx, "rxErrors": 1, "txBytes": 2, "txErrors": 3});
        let mut expected = each("eth0", 7);
        expected["time"] = json!("1970-01-01T00:00:00Z");
        expected["interfaces"] = json!([each("cni0", 5), each("eth0", 7)]);
        assert_eq!(told["network"], expected);
    }
}
