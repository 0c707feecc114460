//! `/stats/summary`: what the node, its pods and their containers use (kubelet contract §12).
//!
//! Only what is measured is told: a block whose numbers cannot be had is left out.

mod block;

use super::Server;
use crate::pod::view::PodSnapshot;
use crate::runtime::ContainerUsage;
use crate::stats::Depth;
use crate::stats::container::{Running, running, sum};
use crate::stats::files::PodFiles;
use crate::stats::numbers::Numbers;
use crate::stats::sampler::{Disks, Look, PodLook};
use block::{Blocks, object};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is told beside CPU time and memory.
struct Rest {
    disks: Arc<Disks>,
    told: Arc<Option<Vec<ContainerUsage>>>,
    files: BTreeMap<crate::id::PodUid, Arc<PodFiles>>,
}

/// The document; `only_cpu_and_memory` leaves file systems, pressure and the network out.
pub(super) async fn summary(server: &Server, only_cpu_and_memory: bool) -> String {
    let parts = &server.parts;
    let depth = match only_cpu_and_memory {
        true => Depth::Load,
        false => Depth::Summary,
    };
    let look = parts.stats.look(parts, depth).await;
    if only_cpu_and_memory {
        let told = told_where_needed(server, &look).await;
        return document(&parts.context.node_name, &look, &told, None);
    }
    let snapshots: Vec<Arc<PodSnapshot>> = look.pods.iter().map(|pod| pod.snapshot.clone()).collect();
    let asked = (
        parts.stats.disks(parts),
        parts.stats.told(parts),
        parts.stats.files.of(parts, &snapshots),
    );
    let (disks, told, files) = futures::future::join3(asked.0, asked.1, asked.2).await;
    let rest = Rest { disks, told, files };
    document(&parts.context.node_name, &look, &rest.told, Some(&rest))
}

/// What the runtime tells, if there is a running container whose cgroup is not found.
pub(super) async fn told_where_needed(server: &Server, look: &Look) -> Arc<Option<Vec<ContainerUsage>>> {
    let parts = &server.parts;
    let missing = |pod: &PodLook| PodLook::running(&pod.snapshot).count() > pod.containers.len();
    match look.pods.iter().any(missing) {
        true => parts.stats.told(parts).await,
        false => Arc::new(Some(Vec::new())),
    }
}

fn document(name: &str, look: &Look, told: &Option<Vec<ContainerUsage>>, rest: Option<&Rest>) -> String {
    let (at, mut out) = (look.at.to_string(), String::new());
    let mut times = Times::default();
    object(&mut out, &at, |document| {
        document.object("node", |of| node(of, name, look, rest));
        document.list("pods", |out| {
            for one in &look.pods {
                object(out, &at, |of| pod(of, (look, &at), one, told, rest, &mut times));
            }
        });
    });
    out
}

fn node(node: &mut Blocks<'_>, name: &str, look: &Look, rest: Option<&Rest>) {
    node.text("nodeName", name);
    let booted = look.node.booted.and_then(|at| Timestamp::from_second(at).ok());
    node.text("startTime", &booted.unwrap_or(Timestamp::UNIX_EPOCH).to_string());
    if !look.system.is_empty() {
        let at = look.at.to_string();
        node.list("systemContainers", |out| {
            for (name, group) in &look.system {
                object(out, &at, |told| {
                    told.text("name", name);
                    told.text("startTime", &group.started.unwrap_or(look.at).to_string());
                    load(told, &group.numbers, group.rate);
                    if rest.is_some() {
                        told.pressure_of_disks(&group.numbers);
                    }
                });
            }
        });
    }
    let mut numbers = look.node.numbers.clone();
    // What is left is what eviction sees.
    numbers.limits.memory = numbers
        .memory
        .working_set
        .zip(look.node.available)
        .map(|(used, left)| used + left);
    numbers.limits.swap = Some(look.node.swap_total);
    load(node, &numbers, look.node_rate);
    let Some(rest) = rest else { return };
    node.pressure_of_disks(&numbers);
    node.network(&look.interfaces);
    let disk = &rest.disks.node.disk;
    node.disk("fs", Some(*disk), disk.used());
    if let Some(images) = &rest.disks.images {
        let layers = rest.disks.layers.as_ref().unwrap_or(images);
        node.object("runtime", |runtime| {
            for (name, of) in [("imageFs", images), ("containerFs", layers)] {
                let at = Timestamp::from_nanosecond(i128::from(of.at_nanos)).unwrap_or(look.at);
                runtime.disk_at(name, &at.to_string(), of.disk, of.used);
            }
        });
    }
    if let Some((most, running)) = look.node.tasks {
        let most = u64::try_from(most).ok();
        node.numbers("rlimit", &[("maxpid", most), ("curproc", Some(running))]);
    }
}

/// CPU time, memory and swap.
fn load(into: &mut Blocks<'_>, numbers: &Numbers, rate: Option<u64>) {
    into.cpu(numbers, rate);
    into.memory(numbers);
    into.swap(numbers);
}

/// Times as text: many pods' files were counted at one time.
#[derive(Default)]
struct Times(Option<(Timestamp, String)>);

impl Times {
    fn text(&mut self, of: Timestamp) -> &str {
        if self.0.as_ref().is_none_or(|(known, _)| *known != of) {
            self.0 = Some((of, of.to_string()));
        }
        self.0.as_ref().map(|(_, text)| text.as_str()).unwrap_or_default()
    }
}

/// `look` with its time as text.
fn pod(
    out: &mut Blocks<'_>,
    (look, at): (&Look, &str),
    pod: &PodLook,
    told: &Option<Vec<ContainerUsage>>,
    rest: Option<&Rest>,
    times: &mut Times,
) {
    let snapshot = &pod.snapshot;
    let files = rest.and_then(|rest| rest.files.get(&snapshot.observed.uid));
    let running = running(pod, told);
    out.object("podRef", |reference| {
        let meta = &snapshot.pod.metadata;
        for (name, text) in [("name", &meta.name), ("namespace", &meta.namespace), ("uid", &meta.uid)] {
            reference.text(name, text.as_deref().unwrap_or_default());
        }
    });
    out.text("startTime", &started(snapshot).unwrap_or(look.at).to_string());
    out.list("containers", |out| {
        for one in &running {
            let own = Some(one.at(look.at)).filter(|own| *own != look.at);
            let own = own.map(|own| own.to_string());
            object(out, own.as_deref().unwrap_or(at), |block| {
                container(block, one, rest, files);
            });
        }
    });
    match &pod.own {
        Some(own) => load(out, &own.numbers, own.rate),
        None => {
            let (numbers, rate) = sum(&running);
            load(out, &numbers, rate);
        }
    }
    let Some(rest) = rest else { return };
    if let Some(own) = &pod.own {
        out.pressure_of_disks(&own.numbers);
    }
    out.network(&pod.interfaces);
    let processes = running
        .iter()
        .map(|c| c.group.and_then(|group| group.numbers.tasks.processes));
    if let Some(processes) = processes.sum::<Option<u64>>().filter(|_| !running.is_empty()) {
        out.object("process_stats", |block| block.number("process_count", processes));
    }
    if let Some(files) = files {
        out.volumes(files, times.text(files.at));
        out.disk(
            "ephemeral-storage",
            Some(rest.disks.node.disk),
            local_storage(&running, files),
        );
    }
}

/// When the pod's life here began: with its sandbox.
fn started(snapshot: &PodSnapshot) -> Option<Timestamp> {
    let sandbox = snapshot.observed.sandbox().map(|sandbox| sandbox.created_at);
    sandbox.or_else(|| Some(snapshot.status.start_time.as_ref()?.0))
}

fn container(out: &mut Blocks<'_>, running: &Running<'_>, rest: Option<&Rest>, files: Option<&Arc<PodFiles>>) {
    out.text("name", &running.observed.name);
    out.text("startTime", &running.observed.created_at.to_string());
    let (numbers, rate) = running.numbers();
    load(out, &numbers, rate);
    let Some(rest) = rest else { return };
    out.pressure_of_disks(&numbers);
    if let Some((bytes, inodes)) = running.usage.and_then(|usage| usage.layer) {
        let disk = rest.disks.layers.as_ref().or(rest.disks.images.as_ref());
        out.disk("rootfs", disk.map(|disk| disk.disk), (Some(bytes), Some(inodes)));
    }
    let logs = files.and_then(|files| files.logs.iter().find(|(name, _)| *name == running.observed.name));
    if let Some((_, logs)) = logs {
        out.disk("logs", Some(rest.disks.node.disk), block::counted(logs));
    }
}

/// What the pod has of the node's disk, bytes and inodes: layers, logs, local volumes and what the kubelet made for it. Nothing unless
/// all of it is known.
fn local_storage(running: &[Running<'_>], files: &PodFiles) -> (Option<u64>, Option<u64>) {
    let layers = running.iter().map(|container| container.usage?.layer);
    let volumes = files.volumes.iter().filter(|(_, volume)| volume.is_local);
    let trees = volumes
        .map(|(_, volume)| &volume.usage)
        .chain(files.logs.iter().map(|(_, logs)| logs));
    let counted = trees.chain([&files.own]).map(|tree| {
        let (bytes, inodes) = block::counted(tree);
        bytes.zip(inodes)
    });
    let mut total = (0u64, 0u64);
    for part in layers.chain(counted) {
        let Some((bytes, inodes)) = part else {
            return (None, None);
        };
        total = (total.0.saturating_add(bytes), total.1.saturating_add(inodes));
    }
    (Some(total.0), Some(total.1))
}

#[cfg(test)]
mod tests;
