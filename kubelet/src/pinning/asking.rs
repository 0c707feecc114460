//! What containers ask for that can be theirs alone (kubelet contract §8). Pure.

use super::memory::MEMORY;
use crate::pod_object::{self, Kind};
use client::ordered::CollectOrdered;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use proto::api::qos::{QosClass, qos_class};
use proto::api::quantity::Quantity;
use std::collections::BTreeMap;

/// What one container asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// Its name.
    pub container: String,
    /// What becomes of its share once it has ended.
    pub kind: Kind,
    /// CPUs to itself; 0 runs on those that all share.
    pub cpus: usize,
    /// Memory and huge pages to itself where the static memory policy rules, in bytes by resource.
    pub memory: BTreeMap<String, u64>,
}

/// What each container of a pod asks for, in the order they are given something: init containers first.
pub fn of_pod(pod: &Pod) -> Vec<Asking> {
    let spec = pod_object::spec(pod);
    let asked = pod_object::containers(pod).map(|(kind, container)| Asking {
        container: container.name.clone(),
        kind,
        cpus: exclusive_cpus(spec, container),
        memory: exclusive_memory(spec, container),
    });
    asked.collect()
}

/// How many CPUs a container has to itself where the static policy rules: as many as it requests, if its pod is Guaranteed, has
/// no resources of its own, and the number is whole.
pub fn exclusive_cpus(spec: &PodSpec, container: &Container) -> usize {
    if has_own_resources(spec) || qos_class(spec) != QosClass::Guaranteed {
        return 0;
    }
    let requests = container.resources.as_ref().and_then(|of| of.requests.as_ref());
    let milli = requests
        .and_then(|list| list.get("cpu"))
        .map_or(0, |text| Quantity::of(text).milli_value());
    match milli % 1000 {
        0 => usize::try_from(milli / 1000).unwrap_or(0),
        _ => 0,
    }
}

/// How much memory of which kind a container has to itself where the static policy rules: all it requests, if its pod is Guaranteed
/// and has no resources of its own.
fn exclusive_memory(spec: &PodSpec, container: &Container) -> BTreeMap<String, u64> {
    if has_own_resources(spec) || qos_class(spec) != QosClass::Guaranteed {
        return BTreeMap::new();
    }
    let requests = container.resources.as_ref().and_then(|of| of.requests.as_ref());
    let kinds = requests.into_iter().flatten();
    let kinds = kinds.filter(|(name, _)| *name == MEMORY || name.starts_with("hugepages-"));
    let bytes = |text| u64::try_from(Quantity::of(text).value()).unwrap_or(0);
    let some = kinds.map(|(name, text)| (name.clone(), bytes(text)));
    some.filter(|(_, bytes)| *bytes > 0).collect_ordered()
}

/// Whether the pod itself, beside its containers, requests or limits something.
fn has_own_resources(spec: &PodSpec) -> bool {
    let has = |list: Option<&BTreeMap<String, Text>>| list.is_some_and(|list| !list.is_empty());
    let own = spec.resources.as_ref();
    own.is_some_and(|own| has(own.requests.as_ref()) || has(own.limits.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cpus(spec: Value) -> usize {
        let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
        exclusive_cpus(&spec, &spec.containers[0])
    }

    fn container(cpu: &str, memory: &str) -> Value {
        let amounts = json!({"cpu": cpu, "memory": memory});
        json!({"name": "c", "resources": {"requests": amounts, "limits": amounts}})
    }

    #[test]
    fn whole_cpus_of_guaranteed_pods_are_exclusive() {
        let burstable = json!({"name": "b", "resources": {"requests": {"cpu": "2"}}});
        for (spec, expected) in [
            (json!({"containers": [container("2", "1Gi")]}), 2),
            (json!({"containers": [container("2000m", "1Gi")]}), 2),
            (json!({"containers": [container("1500m", "1Gi")]}), 0),
            (json!({"containers": [container("2", "1Gi"), burstable]}), 0),
            (
                json!({"containers": [container("2", "1Gi")], "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}),
                0,
            ),
            (json!({"containers": [{"name": "c"}]}), 0),
        ] {
            assert_eq!(cpus(spec.clone()), expected, "{spec}");
        }
    }
}
