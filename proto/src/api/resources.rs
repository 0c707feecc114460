//! What a pod asks for in total: containers, init containers, sidecars, pod-level resources, overhead.

mod form;
mod resized;

pub use form::{ContainerForm, SpecForm, StatusForm};
pub use resized::{is_resize_infeasible, reserved_requests};

use super::quantity::Quantity;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeMap;

/// Amounts by resource name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Parses an API resource list.
pub fn parse_list(list: Option<&BTreeMap<String, ApiQuantity>>) -> ResourceList {
    // One by one: what is in order already needs no sort, which is four kilobytes for each type.
    let mut read = ResourceList::new();
    for (name, quantity) in list.into_iter().flatten() {
        read.insert(name.clone(), Quantity::of(quantity));
    }
    read
}

/// Adds `more` to `total`, name by name.
pub fn add(total: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        let sum = total.get(name).map_or(*amount, |have| have.plus(*amount));
        total.insert(name.clone(), sum);
    }
}

/// Raises `total` to at least `other`, name by name.
pub fn raise(total: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        let larger = total.get(name).map_or(*amount, |have| have.or_larger(*amount));
        total.insert(name.clone(), larger);
    }
}

/// Whether the init container keeps running beside the main ones (restartPolicy Always: a sidecar).
pub fn is_sidecar<C: ContainerForm>(container: &C) -> bool {
    container.restart_policy() == Some("Always")
}

/// Resources that `spec.resources` of a pod may set.
pub fn allowed_at_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

type Pick = fn(&ResourceRequirements) -> Option<&BTreeMap<String, ApiQuantity>>;

/// Totals over the containers alone: max(sum of containers and sidecars, largest init step), without overhead. `of` gives
/// what one container asks for.
pub fn total_over_containers<S: SpecForm>(spec: &S, of: impl Fn(&S::Container) -> ResourceList) -> ResourceList {
    let mut total = ResourceList::new();
    for container in spec.containers() {
        add(&mut total, &of(container));
    }
    let mut sidecars = ResourceList::new();
    let mut init = ResourceList::new();
    for container in spec.init_containers() {
        let own = of(container);
        if is_sidecar(container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut init, &sidecars);
        } else {
            let mut step = own;
            add(&mut step, &sidecars);
            raise(&mut init, &step);
        }
    }
    raise(&mut total, &init);
    total
}

fn container_list<C: ContainerForm>(container: &C, pick: Pick) -> ResourceList {
    parse_list(container.resources().and_then(pick))
}

fn pod_level<S: SpecForm>(total: &mut ResourceList, spec: &S, pick: Pick) {
    let own = parse_list(spec.resources().and_then(pick));
    for (name, amount) in own {
        if allowed_at_pod_level(&name) {
            total.insert(name, amount);
        }
    }
}

/// What the scheduler must reserve for the pod: effective requests with overhead.
pub fn pod_requests<S: SpecForm>(spec: &S) -> ResourceList {
    pod_requests_by(spec, |c| container_list(c, |r| r.requests.as_ref()))
}

/// Like [`pod_requests`], with another view of what one container requests.
pub fn pod_requests_by<S: SpecForm>(spec: &S, of: impl Fn(&S::Container) -> ResourceList) -> ResourceList {
    let mut total = total_over_containers(spec, of);
    pod_level(&mut total, spec, |r| r.requests.as_ref());
    add(&mut total, &parse_list(spec.overhead()));
    total
}

/// Effective limits; overhead raises only limits that are set. A resource some container leaves unlimited still shows the sum
/// of the others: ask [`every_container_limits`] before enforcing it on the pod.
pub fn pod_limits<S: SpecForm>(spec: &S) -> ResourceList {
    let mut total = total_over_containers(spec, |c| container_list(c, |r| r.limits.as_ref()));
    pod_level(&mut total, spec, |r| r.limits.as_ref());
    for (name, amount) in parse_list(spec.overhead()) {
        if let Some(limit) = total.get_mut(&name).filter(|l| !l.is_zero()) {
            *limit = limit.plus(amount);
        }
    }
    total
}

/// Whether every container (init containers too), or the pod itself, has a non-zero limit for the resource.
pub fn every_container_limits<S: SpecForm>(spec: &S, name: &str) -> bool {
    let set = |r: Option<&ResourceRequirements>| {
        let limit = r.and_then(|r| r.limits.as_ref()).and_then(|l| l.get(name));
        limit.is_some_and(|q| !Quantity::of(q).is_zero())
    };
    let mut all = spec.containers().iter().chain(spec.init_containers());
    set(spec.resources()) || all.all(|c| set(c.resources()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Container, PodSpec};

    fn container(cpu_request: &str, cpu_limit: &str, sidecar: bool) -> Container {
        let list =
            |text: &str| (!text.is_empty()).then(|| BTreeMap::from([("cpu".to_owned(), ApiQuantity(text.to_owned()))]));
        Container {
            resources: Some(ResourceRequirements {
                requests: list(cpu_request),
                limits: list(cpu_limit),
                claims: None,
            }),
            restart_policy: sidecar.then(|| "Always".to_owned()),
            ..Default::default()
        }
    }

    fn spec(init: Vec<Container>, main: Vec<Container>) -> PodSpec {
        PodSpec {
            init_containers: Some(init),
            containers: main,
            ..Default::default()
        }
    }

    #[test]
    fn effective_requests() {
        let c = |q| container(q, "", false);
        let s = |q| container(q, "", true);
        let table = [
            ("sum", spec(vec![], vec![c("1"), c("500m")]), "1500m"),
            ("large init", spec(vec![c("3")], vec![c("1")]), "3"),
            ("small init", spec(vec![c("500m")], vec![c("1")]), "1"),
            ("sidecar adds", spec(vec![s("1")], vec![c("1")]), "2"),
            ("init after sidecar", spec(vec![s("1"), c("2")], vec![c("1")]), "3"),
            ("init before sidecar", spec(vec![c("2"), s("1")], vec![c("1")]), "2"),
        ];
        for (name, spec, want) in table {
            assert_eq!(pod_requests(&spec)["cpu"].to_string(), want, "{name}");
        }
    }

    #[test]
    fn pod_level_and_overhead() {
        let mut spec = spec(vec![], vec![container("1", "2", false)]);
        spec.overhead = Some(BTreeMap::from([("cpu".to_owned(), ApiQuantity("250m".to_owned()))]));
        assert_eq!(pod_requests(&spec)["cpu"].to_string(), "1250m");
        assert_eq!(pod_limits(&spec)["cpu"].to_string(), "2250m");
        spec.resources = container("4", "", false).resources;
        assert_eq!(pod_requests(&spec)["cpu"].to_string(), "4250m");
        assert!(every_container_limits(&spec, "cpu"));
        assert!(!every_container_limits(&spec, "memory"));
    }
}
