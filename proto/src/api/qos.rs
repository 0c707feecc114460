//! Quality of service: Guaranteed, Burstable or BestEffort, from requests and limits alone.

use super::quantity::Quantity;
use super::resources::{ContainerForm, SpecForm};
use k8s_openapi::api::core::v1::ResourceRequirements;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A pod's quality-of-service class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QosClass {
    /// Every container limits CPU and memory, and requests equal limits.
    Guaranteed,
    /// Some CPU or memory request or limit.
    Burstable,
    /// None.
    BestEffort,
}

impl QosClass {
    /// The API's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Default)]
struct Tally {
    requests: BTreeMap<String, Quantity>,
    limits: BTreeMap<String, Quantity>,
    all_limited: bool,
}

impl Tally {
    fn count(&mut self, resources: Option<&ResourceRequirements>) {
        let counted = |list: Option<&BTreeMap<String, _>>| -> Vec<(String, Quantity)> {
            let list = list.into_iter().flatten();
            let list = list.filter(|(name, _)| *name == "cpu" || *name == "memory");
            list.map(|(name, q)| (name.clone(), Quantity::of(q)))
                .filter(|(_, q)| *q > Quantity::ZERO)
                .collect()
        };
        for (name, amount) in counted(resources.and_then(|r| r.requests.as_ref())) {
            let sum = self.requests.entry(name).or_default();
            *sum = sum.plus(amount);
        }
        let mut limited = BTreeSet::new();
        for (name, amount) in counted(resources.and_then(|r| r.limits.as_ref())) {
            let sum = self.limits.entry(name.clone()).or_default();
            *sum = sum.plus(amount);
            limited.insert(name);
        }
        self.all_limited &= limited.len() == 2;
    }
}

/// The class of a pod. Init containers count; pod-level resources, when set, decide alone.
pub fn qos_class<S: SpecForm>(spec: &S) -> QosClass {
    let mut tally = Tally {
        all_limited: true,
        ..Default::default()
    };
    let own = spec.resources();
    let set = |r: &&ResourceRequirements| r.requests.is_some() || r.limits.is_some();
    if let Some(own) = own.filter(set) {
        tally.count(Some(own));
    } else {
        for container in spec.containers().iter().chain(spec.init_containers()) {
            tally.count(container.resources());
        }
    }
    if tally.requests.is_empty() && tally.limits.is_empty() {
        QosClass::BestEffort
    } else if tally.all_limited && tally.requests == tally.limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Container, PodSpec};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

    fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
        let list = |pairs: &[(&str, &str)]| {
            Some(
                pairs
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), ApiQuantity((*v).to_owned())))
                    .collect(),
            )
        };
        ResourceRequirements {
            requests: list(requests),
            limits: list(limits),
            claims: None,
        }
    }

    #[test]
    fn class_table() {
        let both: &[(&str, &str)] = &[("cpu", "1"), ("memory", "1Gi")];
        let same: &[(&str, &str)] = &[("cpu", "1000m"), ("memory", "1024Mi")];
        let table = [
            ("nothing", vec![resources(&[], &[])], QosClass::BestEffort),
            ("zero", vec![resources(&[("cpu", "0")], &[])], QosClass::BestEffort),
            (
                "other resource",
                vec![resources(&[("ephemeral-storage", "1Gi")], &[])],
                QosClass::BestEffort,
            ),
            ("guaranteed", vec![resources(both, same)], QosClass::Guaranteed),
            (
                "limits without requests",
                vec![resources(&[], both)],
                QosClass::Burstable,
            ),
            (
                "cpu only",
                vec![resources(&[("cpu", "1")], &[("cpu", "1")])],
                QosClass::Burstable,
            ),
            (
                "one of two",
                vec![resources(both, both), resources(&[], &[])],
                QosClass::Burstable,
            ),
            (
                "differs",
                vec![resources(&[("cpu", "1"), ("memory", "1Mi")], both)],
                QosClass::Burstable,
            ),
        ];
        for (name, list, want) in table {
            let containers = list.into_iter().map(|r| Container {
                resources: Some(r),
                ..Default::default()
            });
            let spec = PodSpec {
                containers: containers.collect(),
                ..Default::default()
            };
            assert_eq!(qos_class(&spec), want, "{name}");
        }
    }

    #[test]
    fn pod_level_decides_alone() {
        let both: &[(&str, &str)] = &[("cpu", "1"), ("memory", "1Gi")];
        let spec = PodSpec {
            containers: vec![Container::default()],
            resources: Some(resources(both, both)),
            ..Default::default()
        };
        assert_eq!(qos_class(&spec), QosClass::Guaranteed);
    }
}
