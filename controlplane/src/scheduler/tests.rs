//! Properties: whatever the cluster and the pods are like, no binding breaks a rule, and no refusal is made up. The judge below
//! knows nothing of the plugins: it looks at every pair of pods, every time.

use super::cluster::Cluster;
use super::cycle::Search;
use super::pod::PodInfo;
use super::testing::{cluster, node, pod, schedule};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const APPS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
struct Machine {
    name: String,
    zone: Option<usize>,
    cpu: i64,
}

/// About pods with that label in the same zone, or on the same node.
#[derive(Clone, Debug)]
struct Rule {
    app: usize,
    by_zone: bool,
}

#[derive(Clone, Debug)]
struct Wanted {
    app: usize,
    cpu: i64,
    priority: i32,
    near: Option<Rule>,
    apart: Option<Rule>,
    /// Skew of its own kind, by zone or node.
    spread: Option<(i64, bool)>,
}

#[derive(Clone, Debug)]
struct Placed {
    wanted: Wanted,
    machine: usize,
}

fn key(by_zone: bool) -> &'static str {
    if by_zone { ZONE } else { HOST }
}

fn domain(machine: &Machine, by_zone: bool) -> Option<String> {
    match by_zone {
        true => machine.zone.map(|zone| format!("z{zone}")),
        false => Some(machine.name.clone()),
    }
}

fn together(machines: &[Machine], one: usize, other: usize, by_zone: bool) -> bool {
    let of = |machine: usize| domain(&machines[machine], by_zone);
    of(one).is_some() && of(one) == of(other)
}

/// Whether the pod may be there, with these placed.
fn is_lawful(machines: &[Machine], placed: &[Placed], wanted: &Wanted, at: usize) -> bool {
    let here = placed.iter().filter(|other| other.machine == at);
    if here.map(|other| other.wanted.cpu).sum::<i64>() + wanted.cpu > machines[at].cpu {
        return false;
    }
    if let Some(rule) = &wanted.apart {
        let meets =
            |other: &Placed| other.wanted.app == rule.app && together(machines, at, other.machine, rule.by_zone);
        if placed.iter().any(meets) {
            return false;
        }
    }
    let repels = |other: &Placed| {
        let rule = other.wanted.apart.as_ref();
        rule.is_some_and(|rule| rule.app == wanted.app && together(machines, at, other.machine, rule.by_zone))
    };
    if placed.iter().any(repels) {
        return false;
    }
    if let Some(rule) = &wanted.near {
        let meant: Vec<&Placed> = placed
            .iter()
            .filter(|other| other.wanted.app == rule.app && domain(&machines[other.machine], rule.by_zone).is_some())
            .collect();
        let is_first = meant.is_empty() && rule.app == wanted.app;
        let is_near = meant
            .iter()
            .any(|other| together(machines, at, other.machine, rule.by_zone));
        if domain(&machines[at], rule.by_zone).is_none() || !(is_near || is_first) {
            return false;
        }
    }
    wanted
        .spread
        .is_none_or(|(skew, by_zone)| is_even(machines, placed, wanted.app, at, skew, by_zone))
}

fn is_even(machines: &[Machine], placed: &[Placed], app: usize, at: usize, skew: i64, by_zone: bool) -> bool {
    let mut counts: BTreeMap<String, i64> = machines.iter().filter_map(|m| Some((domain(m, by_zone)?, 0))).collect();
    for other in placed.iter().filter(|other| other.wanted.app == app) {
        if let Some(domain) = domain(&machines[other.machine], by_zone) {
            *counts.entry(domain).or_default() += 1;
        }
    }
    let least = counts.values().copied().min().unwrap_or(0);
    domain(&machines[at], by_zone).is_some_and(|domain| counts[&domain] + 1 - least <= skew)
}

fn info(index: usize, wanted: &Wanted) -> Arc<PodInfo> {
    let term = |rule: &Rule| json!([{"topologyKey": key(rule.by_zone), "labelSelector": {"matchLabels": {"app": APPS[rule.app]}}}]);
    let mut affinity = json!({});
    if let Some(rule) = &wanted.near {
        affinity["podAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": term(rule)});
    }
    if let Some(rule) = &wanted.apart {
        affinity["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": term(rule)});
    }
    let spread = wanted.spread.map(|(skew, by_zone)| {
        json!([{"maxSkew": skew, "topologyKey": key(by_zone), "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": APPS[wanted.app]}}}])
    });
    let requests = json!({"cpu": wanted.cpu.to_string()});
    let spec = json!({"priority": wanted.priority, "affinity": affinity, "topologySpreadConstraints": spread,
        "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]});
    pod(
        &format!("p{index}"),
        json!({"metadata": {"labels": {"app": APPS[wanted.app]}}, "spec": spec}),
    )
}

fn rule() -> impl Strategy<Value = Option<Rule>> {
    prop_oneof![
        3 => Just(None),
        1 => (0..APPS.len(), any::<bool>()).prop_map(|(app, by_zone)| Some(Rule { app, by_zone })),
    ]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let spread = prop_oneof![2 => Just(None), 1 => (1..3i64, any::<bool>()).prop_map(Some)];
    (0..APPS.len(), 0..3i64, 0..3i32, rule(), rule(), spread).prop_map(|(app, cpu, priority, near, apart, spread)| {
        Wanted {
            app,
            cpu,
            priority,
            near,
            apart,
            spread,
        }
    })
}

fn machines() -> impl Strategy<Value = Vec<Machine>> {
    let zone = prop_oneof![1 => Just(None), 4 => (0..3usize).prop_map(Some)];
    proptest::collection::vec((zone, 1..5i64), 1..6).prop_map(|all| {
        let machine = |(index, (zone, cpu))| Machine {
            name: format!("n{index}"),
            zone,
            cpu,
        };
        all.into_iter().enumerate().map(machine).collect()
    })
}

fn world(machines: &[Machine]) -> Cluster {
    let made = machines.iter().map(|machine| {
        let zone = domain(machine, true);
        let allocatable = json!({"cpu": machine.cpu.to_string()});
        node(
            &machine.name,
            json!({"metadata": {"labels": {ZONE: zone}}, "status": {"allocatable": allocatable}}),
        )
    });
    cluster(&made.collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bindings_are_lawful_and_refusals_true(
        machines in machines(),
        pods in proptest::collection::vec(wanted(), 1..25),
        leaving in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        seed in any::<u64>(),
    ) {
        let mut cluster = world(&machines);
        let mut search = Search::new(seed);
        let mut placed: BTreeMap<usize, Placed> = BTreeMap::new();
        for (index, wanted) in pods.iter().enumerate() {
            let pod = info(index, wanted);
            let others: Vec<Placed> = placed.values().cloned().collect();
            match schedule(&mut search, &mut cluster, &pod) {
                Ok(name) => {
                    let machine = machines.iter().position(|machine| machine.name == name).unwrap();
                    prop_assert!(is_lawful(&machines, &others, wanted, machine), "{wanted:?} on {name} beside {others:?}");
                    cluster.place(pod, &name);
                    placed.insert(index, Placed { wanted: wanted.clone(), machine });
                }
                Err(unplaced) => {
                    for at in 0..machines.len() {
                        prop_assert!(!is_lawful(&machines, &others, wanted, at), "{wanted:?} fits {at} beside {others:?}");
                    }
                    let Some(preemption) = unplaced.candidates.first() else { continue };
                    prop_assert!(!preemption.victims.is_empty());
                    let at = machines.iter().position(|machine| machine.name == preemption.node).unwrap();
                    let gone: Vec<usize> = preemption.victims.iter().map(|pod| pod.uid[1..].parse().unwrap()).collect();
                    for victim in &gone {
                        prop_assert!(placed[victim].wanted.priority < wanted.priority, "evicts an equal");
                        prop_assert_eq!(placed[victim].machine, at);
                    }
                    // It helps, and nobody goes for nothing.
                    for spared in std::iter::once(None).chain(gone.iter().map(Some)) {
                        let stays = |index: &usize| !gone.contains(index) || spared == Some(index);
                        let left: Vec<Placed> = placed.iter().filter(|(i, _)| stays(i)).map(|(_, p)| p.clone()).collect();
                        if spared.is_none() {
                            prop_assert!(is_lawful(&machines, &left, wanted, at), "evicting does not help {wanted:?}");
                        } else if wanted.near.is_none() && wanted.spread.is_none() {
                            prop_assert!(!is_lawful(&machines, &left, wanted, at), "one too many goes for {wanted:?}");
                        }
                    }
                }
            }
            // Some leave meanwhile, by chance.
            if let Some(turn) = leaving.get(index % 7)
                && let Some(index) = (!placed.is_empty()).then(|| *placed.keys().nth(turn.index(placed.len())).unwrap())
            {
                placed.remove(&index);
                cluster.remove_pod(&format!("p{index}"));
            }
        }
    }

    /// What the index says after any comings and goings is what it would say of those that stayed.
    #[test]
    fn counts_follow_pods_and_nodes(
        machines in machines(),
        moves in proptest::collection::vec((0..8usize, wanted(), any::<prop::sample::Index>(), any::<bool>()), 1..40),
    ) {
        let mut cluster = world(&machines);
        let mut kept: BTreeMap<usize, (Arc<PodInfo>, String)> = BTreeMap::new();
        for (index, wanted, machine, stays) in moves {
            let name = machines[machine.index(machines.len())].name.clone();
            if stays {
                let pod = info(index, &wanted);
                cluster.place(pod.clone(), &name);
                kept.insert(index, (pod, name));
            } else {
                cluster.remove_pod(&format!("p{index}"));
                kept.remove(&index);
            }
        }
        let mut fresh = world(&machines);
        for (pod, name) in kept.values() {
            fresh.place(pod.clone(), name);
        }
        let kin = |cluster: &Cluster| -> Vec<String> {
            cluster.index().kin("default").map(|(kin, nodes)| format!("{kin:?} {nodes:?}")).collect()
        };
        prop_assert_eq!(kin(&cluster), kin(&fresh));
        let terms = |cluster: &Cluster| -> Vec<String> {
            cluster.index().terms().map(|(term, nodes)| format!("{} {nodes:?}", term.identity)).collect()
        };
        prop_assert_eq!(terms(&cluster), terms(&fresh));
        let named: std::collections::BTreeSet<&str> = fresh.index().terms().map(|(term, _)| term.topology_key.as_str()).collect();
        prop_assert_eq!(cluster.index().needed().len(), named.len());
        prop_assert!(named.into_iter().all(|label| cluster.index().needed().has(label)));
        for machine in &machines {
            let (one, other) = (cluster.node(&machine.name).unwrap(), fresh.node(&machine.name).unwrap());
            prop_assert_eq!(&one.room.requested, &other.room.requested);
            prop_assert_eq!(one.room.pods, other.room.pods);
        }
    }
}

#[test]
fn slots_of_nodes_that_are_gone_are_given_back() {
    let mut cluster = cluster(&[node("a", json!({})), node("b", json!({})), node("c", json!({}))]);
    // A pod of each of many nodes that never were.
    for index in 0..100 {
        cluster.place(pod(&format!("p{index}"), json!({})), &format!("nowhere{index}"));
    }
    assert_eq!((cluster.slots(), cluster.sizes()), (103, (3, 100)));
    for index in 0..100 {
        cluster.remove_pod(&format!("p{index}"));
    }
    assert_eq!(cluster.slots(), 3);
    cluster.remove_node("b");
    assert_eq!(cluster.slots(), 3, "the last is used");
    cluster.set_node(&node("d", json!({})));
    assert_eq!(cluster.node("d").map(|node| node.slot), Some(1));
    for name in ["a", "d", "c"] {
        cluster.remove_node(name);
    }
    assert_eq!((cluster.slots(), cluster.present().count()), (0, 0));
    assert_eq!(cluster.sizes(), (0, 0));
}
