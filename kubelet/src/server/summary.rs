//! `/stats/summary`: what the node, its pods and their containers use (kubelet contract §12).
//!
//! Only what is measured is told: a block whose numbers cannot be had is left out.

use super::ServerParts;
use crate::cgroup::Usage;
use crate::host::load::Load;
use crate::host::machine::{self, Disk};
use crate::pod::view::PodSnapshot;
use crate::runtime::ContainerUsage;
use crate::runtime::observed::ContainerState;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The document; `only_cpu_and_memory` leaves file systems out.
pub(super) async fn summary(parts: &ServerParts, only_cpu_and_memory: bool) -> Value {
    let now = parts.clock.now();
    let containers = match parts.runtime.list_container_stats().await {
        Ok(containers) => containers,
        Err(error) => {
            tracing::warn!(%error, "containers' usage not told by the runtime");
            Vec::new()
        }
    };
    let mut pods = Vec::new();
    for snapshot in parts.pods.list().iter().filter(|snapshot| snapshot.active) {
        let usage = parts
            .cgroups
            .usage(Some((*snapshot.pod).clone()))
            .await
            .unwrap_or_default();
        pods.push(pod(snapshot, &usage, &containers, only_cpu_and_memory, now));
    }
    let (roots, root_dir) = (parts.roots.clone(), parts.root_dir.clone());
    let read = tokio::task::spawn_blocking(move || (Load::read(&roots), machine::disk(&root_dir))).await;
    let (load, disk) = read.unwrap_or_default();
    let disk = (!only_cpu_and_memory).then_some(disk);
    json!({"node": node(&parts.node_name, &load, disk, now), "pods": pods})
}

fn node(name: &str, load: &Load, disk: Option<Disk>, now: Timestamp) -> Value {
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
    Value::Object(node)
}

fn pod(
    snapshot: &PodSnapshot,
    usage: &Usage,
    containers: &[ContainerUsage],
    only_cpu_and_memory: bool,
    now: Timestamp,
) -> Value {
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
    Value::Object(pod)
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
