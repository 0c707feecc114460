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

/// What one Service asks for, and whether it goes without.
#[derive(Debug)]
struct Ask {
    cost: usize,
    is_without: bool,
}

/// Those of a namespace that ask for something.
#[derive(Debug, Default)]
struct Namespace {
    asks: BTreeMap<Age, Ask>,
    /// What all of them ask for.
    sum: usize,
    /// Whether somebody goes without.
    is_short: bool,
}

/// What is asked for, and who does not get it.
#[derive(Debug, Default)]
pub(super) struct Budget {
    asked: BTreeMap<String, Namespace>,
    ages: BTreeMap<ServiceName, Age>,
    without: BTreeSet<ServiceName>,
    /// Namespaces where somebody asked for something else, and it is not sure that there is room for all.
    unsettled: BTreeSet<String>,
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

    /// A Service asks for so much now, or for nothing. What that makes of the others is said by [`Budget::settle`]: however many a
    /// namespace has, it is gone through once for many changes, and not at all while there is room for all.
    pub(super) fn ask(&mut self, name: &ServiceName, made: Option<Timestamp>, cost: usize) {
        let namespace = self.asked.entry(name.namespace.clone()).or_default();
        let before = self.ages.remove(name).and_then(|age| namespace.asks.remove(&age));
        namespace.sum -= before.as_ref().map_or(0, |ask| ask.cost);
        let is_without = before.is_some_and(|ask| ask.is_without) && cost > 0;
        if cost > 0 {
            let age = (made, name.name.clone());
            namespace.asks.insert(age.clone(), Ask { cost, is_without });
            namespace.sum += cost;
            self.ages.insert(name.clone(), age);
        }
        if !is_without {
            self.without.remove(name);
        }
        if namespace.is_short || namespace.sum > ELEMENTS_MAX {
            self.unsettled.insert(name.namespace.clone());
        }
        if namespace.asks.is_empty() {
            self.asked.remove(&name.namespace);
            self.unsettled.remove(&name.namespace);
        }
    }

    /// Shares out what there is; returns for whom that is something else than before.
    pub(super) fn settle(&mut self) -> Vec<ServiceName> {
        let mut changed = Vec::new();
        for name in std::mem::take(&mut self.unsettled) {
            let Some(namespace) = self.asked.get_mut(&name) else {
                continue;
            };
            let mut left = ELEMENTS_MAX;
            namespace.is_short = false;
            for ((_, service), ask) in &mut namespace.asks {
                let fits = ask.cost <= left;
                left -= if fits { ask.cost } else { 0 };
                namespace.is_short |= !fits;
                if ask.is_without != fits {
                    continue;
                }
                ask.is_without = !fits;
                let key = Key::new(name.clone(), service.clone());
                if fits {
                    self.without.remove(&key);
                } else {
                    self.without.insert(key.clone());
                }
                changed.push(key);
            }
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

    /// One asks for something else; the names of those for whom that makes a difference.
    fn asks(budget: &mut Budget, name: &ServiceName, made: Option<Timestamp>, cost: usize) -> Vec<String> {
        budget.ask(name, made, cost);
        budget.settle().into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn the_oldest_of_a_namespace_have_what_there_is() {
        let name = |name: &str| ServiceName::new("a", name);
        let mut budget = Budget::default();
        assert!(asks(&mut budget, &name("old"), made(1), 80_000).is_empty());
        assert_eq!(asks(&mut budget, &name("late"), made(3), 40_001), ["late"]);
        assert!(budget.is_without(&name("late")) && !budget.is_without(&name("old")));
        // What has room has it, though it is younger than one that has none.
        assert!(asks(&mut budget, &name("small"), made(4), 40_000).is_empty());
        // Another namespace has its own.
        assert!(asks(&mut budget, &ServiceName::new("b", "late"), made(3), 120_000).is_empty());
        // One that is between them in age takes what the youngest had.
        assert_eq!(asks(&mut budget, &name("mid"), made(2), 1), ["small"]);
        assert_eq!(asks(&mut budget, &name("old"), made(1), 0), ["late", "small"]);
        assert!(budget.without().is_empty());
        for service in ["late", "small", "mid"] {
            assert!(asks(&mut budget, &name(service), None, 0).is_empty());
        }
        assert!(asks(&mut budget, &ServiceName::new("b", "late"), None, 0).is_empty());
        assert!(budget.asked.is_empty() && budget.ages.is_empty());
        // One that alone is too much; and is gone.
        assert_eq!(asks(&mut budget, &name("huge"), made(1), 120_001), ["huge"]);
        assert!(asks(&mut budget, &name("huge"), None, 0).is_empty());
        assert!(budget.without().is_empty() && budget.unsettled.is_empty());
        // One that has none asks for less, and has it; one that has it asks for too much.
        assert_eq!(asks(&mut budget, &name("huge"), made(1), 120_001), ["huge"]);
        assert_eq!(asks(&mut budget, &name("huge"), made(1), 120_000), ["huge"]);
        assert!(budget.without().is_empty());
    }

    #[test]
    fn a_namespace_is_gone_through_once_for_all_who_ask() {
        let mut budget = Budget::default();
        for number in 0..1_000 {
            budget.ask(&ServiceName::new("a", format!("s{number}")), made(number), 120);
        }
        assert!(budget.unsettled.is_empty(), "there is room for all");
        for number in 1_000..1_003 {
            budget.ask(&ServiceName::new("a", format!("s{number}")), made(number), 120);
        }
        assert!(budget.without().is_empty(), "not before it is asked");
        let without: Vec<String> = budget.settle().into_iter().map(|key| key.name).collect();
        assert_eq!(without, ["s1000", "s1001", "s1002"]);
        assert!(budget.settle().is_empty());
        // While one goes without, whoever asks for less may make room for it.
        budget.ask(&ServiceName::new("a", "s0"), made(0), 0);
        let changed: Vec<String> = budget.settle().into_iter().map(|key| key.name).collect();
        assert_eq!(changed, ["s1000"]);
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
