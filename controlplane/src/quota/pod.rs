//! What a pod uses: its place, what it requests and is limited to. A pod that is over, or should be gone, uses its record alone. Pure.

use super::{Measured, Usage, one, selects};
use crate::held::{Container, Pod, PodSpec};
use k8s_openapi::api::core::v1::{
    Affinity, ContainerStatus, PodAffinityTerm, ResourceRequirements, ScopedResourceSelectorRequirement,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proto::api::names::is_extended_resource;
use proto::api::qos::{QosClass, qos_class};
use proto::api::resources::{
    ResourceList, add, allowed_at_pod_level, is_resize_infeasible, parse_list, raise, reserved_requests,
    total_over_containers,
};
use std::collections::{BTreeMap, BTreeSet};

const RECORDS: &str = "count/pods";
const NAMES: &[&str] = &[
    RECORDS,
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// What every container has to say once a quota bounds it. Upstream calls it a mistake, which it cannot take back.
const REQUIRED: &[&str] = &[
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];
const REQUESTS: &str = "requests.";
const HUGE_PAGES: &str = "hugepages-";

pub(super) fn measures(name: &str) -> bool {
    let of_others = name.strip_prefix(REQUESTS).is_some_and(is_extended_resource);
    NAMES.contains(&name) || of_others || name.strip_prefix(REQUESTS).unwrap_or(name).starts_with(HUGE_PAGES)
}

/// Requests and limits under the names quotas have for them.
fn named(requests: &ResourceList, limits: &ResourceList) -> Usage {
    let mut usage = Usage::new();
    for (name, amount) in requests {
        let is_measured =
            matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE_PAGES);
        if is_measured {
            usage.insert(name.clone(), *amount);
        }
        if is_measured || is_extended_resource(name) {
            usage.insert(format!("{REQUESTS}{name}"), *amount);
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(limit) = limits.get(name) {
            usage.insert(format!("limits.{name}"), *limit);
        }
    }
    usage
}

fn list_of(
    resources: Option<&ResourceRequirements>,
    pick: fn(
        &ResourceRequirements,
    ) -> Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> ResourceList {
    parse_list(resources.and_then(pick))
}

fn requests_of(container: &Container) -> ResourceList {
    list_of(container.resources.as_ref(), |r| r.requests.as_ref())
}

fn limits_of(container: &Container) -> ResourceList {
    list_of(container.resources.as_ref(), |r| r.limits.as_ref())
}

/// The limits of the whole pod: those of its containers, or of what runs while a resize is on its way, unless the pod says them itself.
fn limits(pod: &Pod, spec: &PodSpec) -> ResourceList {
    let status = pod.status.as_ref();
    let infeasible = status.is_some_and(is_resize_infeasible);
    let told = |name: &str| -> Option<&ContainerStatus> {
        let status = status?;
        let mut all = [&status.container_statuses, &status.init_container_statuses]
            .into_iter()
            .flatten()
            .flatten();
        all.find(|told| told.name == name)
    };
    let of = |container: &Container| {
        let running = told(&container.name).and_then(|told| told.resources.as_ref());
        let running = running.map(|running| list_of(Some(running), |r| r.limits.as_ref()));
        let mut most = limits_of(container);
        match running {
            Some(running) if infeasible => return running,
            Some(running) => raise(&mut most, &running),
            None => {}
        }
        most
    };
    let mut total = total_over_containers(spec, of);
    for (name, amount) in list_of(spec.resources.as_deref(), |r| r.limits.as_ref()) {
        if allowed_at_pod_level(&name) {
            total.insert(name, amount);
        }
    }
    for (name, amount) in parse_list(spec.overhead.as_ref()) {
        if let Some(limit) = total.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit = limit.plus(amount);
        }
    }
    total
}

/// When a pod that is being deleted should be gone at the latest, and uses nothing any more though it is not.
pub(crate) fn overdue_at(pod: &Pod) -> Option<Timestamp> {
    let at = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = pod.metadata.deletion_grace_period_seconds?;
    at.checked_add(SignedDuration::from_secs(grace)).ok()
}

/// Whether the pod uses more than its record.
pub(crate) fn is_charged(pod: &Pod, now: Timestamp) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Failed" | "Succeeded")) && overdue_at(pod).is_none_or(|overdue| now <= overdue)
}

impl Measured for Pod {
    fn usage(&self, now: Timestamp) -> Usage {
        let mut usage = Usage::from([(RECORDS.to_owned(), one())]);
        let (true, Some(spec)) = (is_charged(self, now), self.spec.as_ref()) else {
            return usage;
        };
        usage.insert("pods".to_owned(), one());
        add(
            &mut usage,
            &named(
                &reserved_requests(spec, self.status.as_ref(), requests_of),
                &limits(self, spec),
            ),
        );
        usage
    }

    fn is_in(&self, scope: &ScopedResourceSelectorRequirement) -> bool {
        let Some(spec) = &self.spec else { return false };
        let is_bounded = spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0);
        let class = spec.priority_class_name.as_deref().filter(|name| !name.is_empty());
        match scope.scope_name.as_str() {
            "Terminating" => is_bounded,
            "NotTerminating" => !is_bounded,
            "BestEffort" => qos_class(spec) == QosClass::BestEffort,
            "NotBestEffort" => qos_class(spec) != QosClass::BestEffort,
            "PriorityClass" => selects(scope, class),
            "CrossNamespacePodAffinity" => spec.affinity.as_deref().is_some_and(crosses_namespaces),
            _ => false,
        }
    }
}

/// Whether any term of pods' affinity looks into other namespaces.
fn crosses_namespaces(affinity: &Affinity) -> bool {
    let crosses = |term: &PodAffinityTerm| {
        term.namespaces.as_ref().is_some_and(|names| !names.is_empty()) || term.namespace_selector.is_some()
    };
    let to = affinity.pod_affinity.as_ref();
    let from = affinity.pod_anti_affinity.as_ref();
    let required = [
        to.and_then(|to| to.required_during_scheduling_ignored_during_execution.as_ref()),
        from.and_then(|from| from.required_during_scheduling_ignored_during_execution.as_ref()),
    ];
    let preferred = [
        to.and_then(|to| to.preferred_during_scheduling_ignored_during_execution.as_ref()),
        from.and_then(|from| from.preferred_during_scheduling_ignored_during_execution.as_ref()),
    ];
    required.into_iter().flatten().flatten().any(crosses)
        || preferred
            .into_iter()
            .flatten()
            .flatten()
            .any(|term| crosses(&term.pod_affinity_term))
}

/// Refuses a pod whose containers leave out what a quota bounds and asks each of them for. A pod that says its resources itself
/// need not.
pub(super) fn check<'n>(pod: &Pod, bounded: impl Iterator<Item = &'n str>) -> Result<(), String> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let own = spec.resources.as_ref();
    if own.is_some_and(|own| own.requests.is_some() || own.limits.is_some()) {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in bounded.filter(|name| REQUIRED.contains(name)) {
        for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
            if !named(&requests_of(container), &limits_of(container)).contains_key(name) {
                missing.entry(name).or_default().insert(&container.name);
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts = missing.into_iter().map(|(name, containers)| {
        let containers: Vec<&str> = containers.into_iter().collect();
        format!("{name} for: {}", containers.join(","))
    });
    Err(format!("must specify {}", parts.collect::<Vec<_>>().join("; ")))
}
