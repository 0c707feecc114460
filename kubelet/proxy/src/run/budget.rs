//! What Services may ask for beside their ClusterIPs and NodePorts: addresses from outside, for each port, and source ranges for each of those.
//! A few lines of a Service are ten thousand elements in every node's kernel, so there is a bound of a namespace's Services together. Pure.

use client::informer::Key;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ServiceName, ServicePort};

/// How many elements all Services of a namespace may have for it: some tens of megabytes of a node. One alone, with all that is served of
/// one, has room.
pub(super) const ELEMENTS_MAX: usize = 120_000;

/// What the ports of a Service ask for.
pub(super) fn cost(ports: &[ServicePort]) -> usize {
    let of = |port: &ServicePort| {
        let ranges = port.source_ranges.as_ref().map_or(0, |ranges| ranges.len());
        port.external_ips.len() + port.load_balancer_ips.len() * (1 + ranges)
    };
    ports.iter().map(of).sum()
}

/// Takes all of it from the ports of a Service. (Source ranges are for load balancers' addresses alone.)
pub(super) fn strip(ports: &mut [ServicePort]) {
    for port in ports {
        (port.external_ips, port.load_balancer_ips) = Default::default();
    }
}

/// A Service by its age: the older keeps what it has.
type Age = (Option<Timestamp>, String);

/// What is asked for, and who does not get it.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// By namespace; of those who ask for something.
    asked: BTreeMap<String, BTreeMap<Age, usize>>,
    ages: BTreeMap<ServiceName, Age>,
    without: BTreeSet<ServiceName>,
}

impl Budget {
    /// Whether a Service goes without.
    pub(super) fn is_without(&self, name: &ServiceName) -> bool {
        self.without.contains(name)
    }

    /// Who goes without.
    pub(super) fn without(&self) -> &BTreeSet<ServiceName> {
        &self.without
    }

    /// A Service asks for so much now, or for nothing; returns for whom that makes a difference.
    pub(super) fn ask(&mut self, name: &ServiceName, made: Option<Timestamp>, cost: usize) -> Vec<ServiceName> {
        let asked = self.asked.entry(name.namespace.clone()).or_default();
        if let Some(age) = self.ages.remove(name) {
            asked.remove(&age);
        }
        if cost > 0 {
            let age = (made, name.name.clone());
            asked.insert(age.clone(), cost);
            self.ages.insert(name.clone(), age);
        }
        let mut left = ELEMENTS_MAX;
        let mut changed = Vec::new();
        for ((_, service), cost) in asked.iter() {
            let key = Key::new(name.namespace.clone(), service.clone());
            let fits = *cost <= left;
            left -= if fits { *cost } else { 0 };
            let is_other = if fits {
                self.without.remove(&key)
            } else {
                self.without.insert(key.clone())
            };
            if is_other {
                changed.push(key);
            }
        }
        if cost == 0 {
            self.without.remove(name);
        }
        if asked.is_empty() {
            self.asked.remove(&name.namespace);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read_service;
    use serde_json::json;

    fn made(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn the_oldest_of_a_namespace_have_what_there_is() {
        let name = |name: &str| ServiceName::new("a", name);
        let mut budget = Budget::default();
        let names = |changed: Vec<ServiceName>| changed.into_iter().map(|key| key.name).collect::<Vec<_>>();
        assert!(budget.ask(&name("old"), made(1), 80_000).is_empty());
        assert_eq!(names(budget.ask(&name("late"), made(3), 40_001)), ["late"]);
        assert!(budget.is_without(&name("late")) && !budget.is_without(&name("old")));
        // What has room has it, though it is younger than one that has none.
        assert!(budget.ask(&name("small"), made(4), 40_000).is_empty());
        // Another namespace has its own.
        assert!(budget.ask(&ServiceName::new("b", "late"), made(3), 120_000).is_empty());
        // One that is between them in age takes what the youngest had.
        assert_eq!(names(budget.ask(&name("mid"), made(2), 1)), ["small"]);
        assert_eq!(names(budget.ask(&name("old"), made(1), 0)), ["late", "small"]);
        assert!(budget.without().is_empty());
        for service in ["late", "small", "mid"] {
            budget.ask(&name(service), None, 0);
        }
        budget.ask(&ServiceName::new("b", "late"), None, 0);
        assert!(budget.asked.is_empty() && budget.ages.is_empty());
        // One that alone is too much; and is gone.
        assert_eq!(names(budget.ask(&name("huge"), made(1), 120_001)), ["huge"]);
        budget.ask(&name("huge"), None, 0);
        assert!(budget.without().is_empty());
    }

    #[test]
    fn addresses_count_for_each_port_and_ranges_for_each_of_those() {
        let service = json!({"metadata": {"namespace": "a", "name": "s"},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1", "externalIPs": ["192.0.2.1", "192.0.2.2"],
                "loadBalancerSourceRanges": ["10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"],
                "ports": [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}});
        let mut ports = read_service(&serde_json::from_value(service).unwrap()).ports;
        assert_eq!(cost(&ports), 2 * (2 + 1 + 3));
        strip(&mut ports);
        assert_eq!(cost(&ports), 0);
        assert_eq!((ports[0].fronts(true).len(), ports[1].fronts(true).len()), (2, 1));
    }
}
