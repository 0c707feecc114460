//! `/metrics/cadvisor`: what the machine, pods and their containers use, by the names that dashboards know.
//!
//! The cgroups are those upstream's kubelet tells of: the root, the kubelet's and the runtime's own, that of all pods, those of the
//! classes, of pods, of sandboxes and of containers. Only what is measured is told. What upstream's kubelet does not collect (huge
//! pages, NUMA nodes, states of tasks, TCP) is not here either.

mod family;
mod machine;

use super::Server;
use super::metrics::label;
use crate::pod::view::PodSnapshot;
use crate::runtime::ContainerUsage;
use crate::stats::Depth;
use crate::stats::container::{Running, running};
use crate::stats::numbers::Numbers;
use crate::stats::sampler::{Disks, Look, PodLook, RuntimeDisk};
use family::Subject;
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Prometheus text of everything.
pub(super) async fn page(server: &Server) -> String {
    let parts = &server.parts;
    let look = parts.stats.look(parts, Depth::Everything).await;
    let roots = server.settings.roots.clone();
    let asked = (
        parts.stats.disks(parts),
        parts.stats.told(parts),
        client::blocking::spawn(move || machine::Facts::read(&roots)),
    );
    let (disks, told, facts) = futures::future::join3(asked.0, asked.1, asked.2).await;
    let mut out = String::new();
    family::write(&mut out, &subjects(&look, &told, &disks), look.at);
    facts.unwrap_or_default().write(&mut out);
    let failed = look.failed || told.is_none();
    machine::gauge(
        &mut out,
        "container_scrape_error",
        "1 if something could not be measured",
        &[(String::new(), f64::from(u8::from(failed)))],
    );
    out
}

/// Everything that has numbers of its own.
fn subjects(look: &Look, told: &Option<Vec<ContainerUsage>>, disks: &Disks) -> Vec<Subject> {
    let booted = look.node.booted.and_then(|at| Timestamp::from_second(at).ok());
    let mut root = group("/", &look.node.numbers, booted, look.at);
    root.interfaces = look.interfaces.clone();
    root.disks = [Some(&disks.node), disks.images.as_ref(), disks.layers.as_ref()]
        .into_iter()
        .flatten()
        .filter(|disk| disk.disk.capacity > 0)
        .map(used_by_all)
        .collect();
    // Of two samples with the same labels a reader takes none: one of what several share.
    let mut devices = BTreeSet::new();
    root.disks.retain(|(device, _)| devices.insert(device.clone()));
    let mut out = vec![root];
    let mut told_of = BTreeSet::from(["/"]);
    let apart = look.system.iter().map(|(_, one)| one).chain(&look.classes);
    let apart = apart.filter(|one| told_of.insert(&one.id));
    out.extend(apart.map(|one| group(&one.id, &one.numbers, one.started, look.at)));
    for pod in &look.pods {
        of_pod(&mut out, look, pod, told, disks);
    }
    out
}

/// A file system with all that is used of it.
fn used_by_all(disk: &RuntimeDisk) -> (String, family::DiskUse) {
    let used = family::DiskUse {
        used: disk.disk.used().0,
        disk: disk.disk,
        io: disk.io,
    };
    (disk.device.clone(), used)
}

fn group(id: &str, numbers: &Numbers, started: Option<Timestamp>, at: Timestamp) -> Subject {
    Subject {
        labels: labels("", id, "", "", None),
        numbers: numbers.clone(),
        started,
        at,
        interfaces: Vec::new(),
        disks: Vec::new(),
    }
}

/// The labels every sample has, behind a container's.
fn labels(container: &str, id: &str, image: &str, name: &str, of: Option<&PodSnapshot>) -> (String, String) {
    let meta = of.map(|snapshot| &snapshot.pod.metadata);
    let (pod, namespace) = (
        meta.and_then(|meta| meta.name.as_deref()).unwrap_or_default(),
        meta.and_then(|meta| meta.namespace.as_deref()).unwrap_or_default(),
    );
    let rest = format!(
        "id={},image={},name={},namespace={},pod={}",
        label(id),
        label(image),
        label(name),
        label(namespace),
        label(pod)
    );
    (format!("container={},", label(container)), rest)
}

fn of_pod(out: &mut Vec<Subject>, look: &Look, pod: &PodLook, told: &Option<Vec<ContainerUsage>>, disks: &Disks) {
    let snapshot = &*pod.snapshot;
    let sandbox = snapshot.observed.sandbox();
    let begun = sandbox.map(|sandbox| sandbox.created_at);
    let plain = |id: &str, name: &str, numbers: &Numbers, started| Subject {
        labels: labels("", id, "", name, Some(snapshot)),
        ..group(id, numbers, started, look.at)
    };
    if let Some(own) = &pod.own {
        out.push(plain(&own.id, "", &own.numbers, begun));
    }
    let base = pod.own.as_ref().map(|own| own.id.as_str()).unwrap_or_default();
    if let (Some(found), Some(sandbox)) = (&pod.sandbox, sandbox) {
        let name = sandbox.id.as_str();
        out.push(plain(&found.id, name, &found.numbers, begun));
    }
    // The network is the sandbox's, or, where the runtime made no cgroup for it, the pod's.
    if let Some(last) = out.last_mut().filter(|_| pod.own.is_some()) {
        last.interfaces = pod.interfaces.clone();
    }
    for container in running(pod, told) {
        out.push(of_container(look, snapshot, base, &container, disks));
    }
}

fn of_container(look: &Look, snapshot: &PodSnapshot, base: &str, container: &Running<'_>, disks: &Disks) -> Subject {
    let observed = container.observed;
    let (id, name) = match container.group {
        Some(group) => (group.id.clone(), observed.id.as_str()),
        None => (format!("{base}/{}", observed.id), observed.id.as_str()),
    };
    let layers = disks.layers.as_ref().or(disks.images.as_ref());
    let layer = container.usage.and_then(|usage| usage.layer).map(|(bytes, _)| {
        let used = family::DiskUse {
            used: Some(bytes),
            disk: layers.map(|disk| disk.disk).unwrap_or_default(),
            // What the machine did with it, nobody else did.
            io: None,
        };
        (layers.map(|disk| disk.device.clone()).unwrap_or_default(), used)
    });
    Subject {
        labels: labels(&observed.name, &id, &observed.image, name, Some(snapshot)),
        numbers: container.numbers().0,
        started: Some(observed.started_at.unwrap_or(observed.created_at)),
        at: container.at(look.at),
        interfaces: Vec::new(),
        disks: layer.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests;
