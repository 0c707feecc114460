//! Which dead containers and empty sandboxes are to go. Pure.
//!
//! Workers ask [`superfluous`] and [`empty_sandboxes`] of their own pod on every turn; [`decide`] looks at all pods together, for limits
//! over the node and for eviction. The newest instance of a container of a pod that has not ended always stays: without it the pod's
//! worker would take a container that is done for one that never ran, and run it again.

use crate::id::{ContainerId, PodUid, SandboxId};
use crate::runtime::observed::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox};
use client::ordered::{Arrange, CollectOrdered};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How many dead containers may stay (upstream's `--maximum-dead-containers*` and `--minimum-container-ttl-duration`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of one pod and name; none is no limit.
    pub per_container: Option<usize>,
    /// Of the node; none is no limit.
    pub total: Option<usize>,
    /// How old one is that counts, by its creation.
    pub youngest: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_container: Some(1),
            total: None,
            youngest: SignedDuration::ZERO,
        }
    }
}

impl Limits {
    /// How many dead instances of one name a worker leaves at once, whatever their age: one for its log at least.
    pub fn kept_at_once(&self) -> usize {
        self.per_container.unwrap_or(1).max(1)
    }

    /// Whether workers alone do not keep them.
    pub fn are_beyond_workers(&self) -> bool {
        self.total.is_some() || self.per_container == Some(0)
    }
}

/// What is to go beside what workers find themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// Dead instances of one container name that stay.
    pub keep: usize,
    of_pods: BTreeMap<PodUid, Named>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Named {
    containers: BTreeSet<ContainerId>,
    sandboxes: BTreeSet<SandboxId>,
}

impl Default for Garbage {
    fn default() -> Self {
        Self::keeping(&Limits::default())
    }
}

impl Garbage {
    /// Nothing, by these limits.
    pub fn keeping(limits: &Limits) -> Self {
        Self {
            keep: limits.kept_at_once(),
            of_pods: BTreeMap::new(),
        }
    }

    /// Whether a container is to go.
    pub fn has_container(&self, container: &ObservedContainer) -> bool {
        let named = self.of_pods.get(&container.pod);
        named.is_some_and(|named| named.containers.contains(&container.id))
    }

    /// Whether a sandbox is to go once it is empty.
    pub fn has_sandbox(&self, sandbox: &ObservedSandbox) -> bool {
        let named = self.of_pods.get(&sandbox.pod);
        named.is_some_and(|named| named.sandboxes.contains(&sandbox.id))
    }

    /// How many containers and sandboxes.
    pub fn len(&self) -> usize {
        let number = |named: &Named| named.containers.len() + named.sandboxes.len();
        self.of_pods.values().map(number).sum()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.of_pods.is_empty()
    }

    /// The same, pod by pod.
    pub fn by_pod(&self) -> BTreeMap<PodUid, Self> {
        let of = |(uid, named): (&PodUid, &Named)| {
            let alone = Self {
                keep: self.keep,
                of_pods: BTreeMap::from([(uid.clone(), named.clone())]),
            };
            (uid.clone(), alone)
        };
        self.of_pods.iter().map(of).collect_ordered()
    }

    /// The ids of what of it is still there.
    pub fn left_in(&self, observed: &ObservedPod) -> Vec<String> {
        let containers = observed.containers.iter().filter(|found| self.has_container(found));
        let sandboxes = observed.sandboxes.iter().filter(|found| self.has_sandbox(found));
        let containers = containers.map(|found| found.id.to_string());
        containers.chain(sandboxes.map(|found| found.id.to_string())).collect()
    }

    fn add(&mut self, container: &ObservedContainer) {
        let named = self.of_pods.entry(container.pod.clone()).or_default();
        named.containers.insert(container.id.clone());
    }
}

/// What is left of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Remains<'a> {
    /// Nothing of it runs or will, and all that it held is released: only its object is there.
    pub ended: bool,
    /// What the runtime has of it.
    pub observed: &'a ObservedPod,
}

/// The dead instances of a pod's containers beyond the newest `keep` of each name, and those that were never started and have a
/// newer one.
pub fn superfluous(observed: &ObservedPod, keep: usize) -> Vec<&ObservedContainer> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut dead: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for container in &observed.containers {
        let is_newest = seen.insert(&container.name);
        let is_superfluous = match container.state {
            ContainerState::Exited => {
                let before = dead.entry(&container.name).or_default();
                *before += 1;
                *before > keep
            }
            ContainerState::Created => !is_newest,
            ContainerState::Running | ContainerState::Unknown => false,
        };
        if is_superfluous {
            found.push(container);
        }
    }
    found
}

/// The stopped sandboxes of a pod that nothing is in, but the one it lives in or lived in last.
pub fn empty_sandboxes(observed: &ObservedPod) -> Vec<&ObservedSandbox> {
    let current = observed.sandbox().map(|sandbox| &sandbox.id);
    let others = observed.sandboxes.iter().filter(|sandbox| Some(&sandbox.id) != current);
    others.filter(|sandbox| is_empty(observed, sandbox)).collect()
}

/// Whether a sandbox is stopped and nothing is in it.
pub fn is_empty(observed: &ObservedPod, sandbox: &ObservedSandbox) -> bool {
    let mut containers = observed.containers.iter();
    !sandbox.ready && !containers.any(|container| container.sandbox.as_ref() == Some(&sandbox.id))
}

/// What is to go of all pods together; with `all_of_ended` everything that pods left which have ended.
pub fn decide(pods: &[Remains<'_>], limits: &Limits, all_of_ended: bool, now: Timestamp) -> Garbage {
    let mut garbage = Garbage::keeping(limits);
    let before = now.saturating_sub(limits.youngest).unwrap_or(Timestamp::MIN);
    let mut units: Vec<Unit<'_>> = Vec::new();
    for pod in pods {
        if pod.ended && all_of_ended {
            sweep(pod.observed, before, &mut garbage);
        } else {
            units.extend(units_of(pod, before));
        }
    }
    if let Some(most) = limits.per_container {
        cut(&mut units, most, &mut garbage);
    }
    if let Some(total) = limits.total {
        keep_total(&mut units, total, &mut garbage);
    }
    garbage
}

/// Everything dead of a pod that has ended.
fn sweep(observed: &ObservedPod, before: Timestamp, garbage: &mut Garbage) {
    let is_dead = |state| matches!(state, ContainerState::Exited | ContainerState::Created);
    for container in &observed.containers {
        if is_dead(container.state) && container.created_at <= before {
            garbage.add(container);
        }
    }
    for sandbox in observed.sandboxes.iter().filter(|sandbox| !sandbox.ready) {
        let named = garbage.of_pods.entry(sandbox.pod.clone()).or_default();
        // It goes only once nothing is in it.
        let mut inside = observed
            .containers
            .iter()
            .filter(|c| c.sandbox.as_ref() == Some(&sandbox.id));
        if inside.all(|container| named.containers.contains(&container.id)) {
            named.sandboxes.insert(sandbox.id.clone());
        }
    }
    garbage
        .of_pods
        .retain(|_, named| !named.containers.is_empty() || !named.sandboxes.is_empty());
}

/// The dead instances of one container of a pod, newest first.
struct Unit<'a> {
    dead: Vec<&'a ObservedContainer>,
    /// How many of the newest stay whatever the limits are.
    held: usize,
}

fn units_of<'a>(pod: &Remains<'a>, before: Timestamp) -> impl Iterator<Item = Unit<'a>> + use<'a> {
    let mut units: BTreeMap<&str, Unit<'a>> = BTreeMap::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for container in &pod.observed.containers {
        let is_newest = seen.insert(&container.name);
        if container.state == ContainerState::Exited && container.created_at <= before {
            let empty = || Unit {
                dead: Vec::new(),
                held: usize::from(is_newest && !pod.ended),
            };
            units.entry(&container.name).or_insert_with(empty).dead.push(container);
        }
    }
    units.into_values()
}

/// Leaves the newest `most` of each.
fn cut(units: &mut [Unit<'_>], most: usize, garbage: &mut Garbage) {
    for unit in units {
        let stay = unit.dead.len().min(most.max(unit.held));
        for container in unit.dead.drain(stay..) {
            garbage.add(container);
        }
    }
}

/// Leaves so many in all: as many of each as go, then the newest.
fn keep_total(units: &mut [Unit<'_>], total: usize, garbage: &mut Garbage) {
    let count = |units: &[Unit<'_>]| units.iter().map(|unit| unit.dead.len()).sum::<usize>();
    if count(units) <= total {
        return;
    }
    let filled = units.iter().filter(|unit| !unit.dead.is_empty()).count();
    cut(units, (total / filled.max(1)).max(1), garbage);
    let excess = count(units).saturating_sub(total);
    let mut free: Vec<&ObservedContainer> = units.iter().flat_map(|unit| &unit.dead[unit.held..]).copied().collect();
    free.arrange_by_key(|container| (container.created_at, &container.id));
    for container in free.into_iter().take(excess) {
        garbage.add(container);
    }
}

#[cfg(test)]
mod tests;
