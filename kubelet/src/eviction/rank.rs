//! Which pod goes first when the node runs short (kubelet contract §10). Pure.

use super::threshold::{Disks, Signal, Starved};
use crate::host::usage::TreeUsage;
use crate::id::PodUid;
use crate::pod_object;
use k8s_openapi::api::core::v1::Pod;
use proto::api::resources::pod_requests;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What a pod uses; nothing where it is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodUse {
    /// Memory that cannot go at once, bytes.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// What its containers use, by name.
    pub containers: BTreeMap<String, ContainerUse>,
    /// Its volumes on disk, and the files the kubelet made for it.
    pub volumes: TreeUsage,
    /// Its volumes, files and logs as they were last counted to the end, where they are not now.
    pub before: TreeUsage,
}

/// What a container uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ContainerUse {
    /// Memory that cannot go at once, bytes.
    pub memory: Option<u64>,
    /// Its writable layer, bytes and inodes.
    pub layer: Option<(u64, u64)>,
    /// Its logs.
    pub logs: Option<TreeUsage>,
}

/// A pod that may have to go.
#[derive(Clone, Debug)]
pub(super) struct Candidate<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What it uses, if anything of that is known.
    pub used: Option<PodUse>,
}

/// What a file system has of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    layers: bool,
    /// Logs and volumes.
    files: bool,
}

fn parts(signal: Signal, disks: Disks) -> Parts {
    let of_images = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    let of_layers = matches!(signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree);
    match (disks.images_apart, disks.layers_apart) {
        (true, false) => Parts {
            layers: of_images || of_layers,
            files: !of_images && !of_layers,
        },
        (true, true) => Parts {
            layers: !of_images,
            files: !of_images,
        },
        (false, _) => Parts {
            layers: true,
            files: true,
        },
    }
}

impl PodUse {
    /// Its volumes, files and logs: at least what they were when they were last counted to the end, where they are not now.
    pub(super) fn files(&self) -> TreeUsage {
        let mut files = self.volumes;
        for logs in self.containers.values().filter_map(|container| container.logs) {
            files.add(logs);
        }
        if files.incomplete {
            files.bytes = files.bytes.max(self.before.bytes);
            files.inodes = files.inodes.max(self.before.inodes);
        }
        files
    }

    /// What it has on a file system; incomplete if some of that could not be counted.
    fn on_disk(&self, parts: Parts) -> TreeUsage {
        let mut total = TreeUsage::default();
        for (bytes, inodes) in self.containers.values().filter_map(|container| container.layer) {
            if parts.layers {
                total.bytes = total.bytes.saturating_add(bytes);
                total.inodes = total.inodes.saturating_add(inodes);
            }
        }
        if parts.files {
            total.add(self.files());
        }
        total
    }
}

fn priority(pod: &Pod) -> i32 {
    pod_object::spec(pod).priority.unwrap_or(0)
}

fn request(pod: &Pod, resource: &str) -> i64 {
    pod_requests(pod_object::spec(pod))
        .get(resource)
        .map_or(0, |amount| amount.value())
}

/// Whether only what containers wrote into their layers decides: then nobody can be chosen while the runtime tells nothing of those.
pub(super) fn is_of_layers(signal: Signal, disks: Disks) -> bool {
    let on_disk = matches!(signal.starved(), Starved::EphemeralStorage | Starved::Inodes);
    let parts = parts(signal, disks);
    on_disk && parts.layers && !parts.files
}

/// Of two pods the one with the smaller key goes first: one of which nothing is known or that cannot be counted, one that uses more than it asked for, one of lower
/// priority, one that uses more beyond what it asked for. With process ids the priority counts first. The UID makes the order total.
type Place = (bool, bool, i32, bool, Reverse<i64>, PodUid);

fn place(candidate: &Candidate<'_>, signal: Signal, disks: Disks) -> Place {
    let (pod, used) = (candidate.pod, candidate.used.as_ref());
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let on_disk = used.map(|used| used.on_disk(parts(signal, disks)));
    let (amount, requested) = match signal.starved() {
        Starved::Memory => (used.and_then(|used| used.memory), request(pod, "memory")),
        Starved::EphemeralStorage => (on_disk.map(|used| used.bytes), request(pod, "ephemeral-storage")),
        Starved::Inodes => (on_disk.map(|used| used.inodes), 0),
        Starved::Pids => (used.and_then(|used| used.processes), 0),
    };
    // A count that a busy disk kept from its end tells what a pod has at least, and by that it is ranked: a small pod does not go before one
    // that is known to have more. Files nobody can count at any time would be a way not to go: who has such goes first, and so does who is
    // not counted again and again ([`super::earlier`]). Of these the one that has more for certain is before the others.
    let partly = match signal.starved() {
        Starved::EphemeralStorage | Starved::Inodes => on_disk.is_some_and(|used| used.uncountable),
        Starved::Memory | Starved::Pids => false,
    };
    let known = amount.is_some() && !partly;
    let over = amount.map_or(0, |amount| signed(amount).saturating_sub(requested));
    let uid = pod_object::uid(pod);
    if signal.starved() == Starved::Pids {
        return (false, false, priority(pod), known, Reverse(over), uid);
    }
    (known, over <= 0, priority(pod), false, Reverse(over), uid)
}

/// Puts those that go first first.
pub(super) fn order(candidates: &mut [Candidate<'_>], signal: Signal, disks: Disks) {
    candidates.sort_by_cached_key(|candidate| place(candidate, signal, disks));
}

/// The pod that must go: the first that may.
pub(super) fn choose<'a, 'b>(
    candidates: &'b mut [Candidate<'a>],
    signal: Signal,
    disks: Disks,
) -> Option<&'b Candidate<'a>> {
    order(candidates, signal, disks);
    candidates
        .iter()
        .find(|candidate| !pod_object::is_critical(candidate.pod))
}

#[cfg(test)]
mod tests;
